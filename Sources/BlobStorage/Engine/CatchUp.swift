import Logging
import Synchronization

/// Brings the catalog up to what has been published, and to what has been removed, by any machine.
///
/// It lists the packs and fetches the footers of those it does not know. One thread of a process does it at a time;
/// whoever has waited for one that began after it asked need not do it again.
package final class CatchUp: Sendable {
  /// What came of it.
  package struct Report: Sendable, Hashable {
    package var newPackCount = 0
    package var removedPackCount = 0
  }

  private struct Turns: Sendable {
    var begunCount = 0
    /// The number of the last that ended well.
    var endedNumber = 0
  }

  /// What the catalog says of packs before they are listed.
  private struct Known {
    var published: Set<PackName> = []
    var unpublished: Set<PackName> = []
  }

  private static let attemptCountMax = 16

  private let catalog: Catalog
  private let builder: CatalogBuilder
  private let backend: any PublishingBackend
  private let packs: PackFiles
  private let logger: Logger
  private let turn = Mutex<Void>(())
  private let turns = Mutex(Turns())

  init(
    catalog: Catalog, builder: CatalogBuilder, backend: any PublishingBackend, packs: PackFiles,
    logger: Logger
  ) {
    self.catalog = catalog
    self.builder = builder
    self.backend = backend
    self.packs = packs
    self.logger = logger
  }

  /// Does it, unless another thread has done it for us: what was published before the call is in the catalog, and what
  /// was removed before is not.
  ///
  /// - Complexity: one listing of the packs, two of what collectors have said; one or two requests for each new pack,
  ///   several at once.
  @discardableResult
  package func run() throws(BlobStorageError) -> Report {
    let asked = turns.withLock { $0.begunCount }
    let result: Result<Report, BlobStorageError> = turn.withLock { _ in
      let number = turns.withLock { turns -> Int? in
        guard turns.endedNumber <= asked else { return nil }
        turns.begunCount += 1
        return turns.begunCount
      }
      guard let number else { return .success(Report()) }
      do throws(BlobStorageError) {
        let report = try runInTurn()
        turns.withLock { $0.endedNumber = number }
        return .success(report)
      } catch { return .failure(error) }
    }
    return try result.get()
  }

  /// Makes the catalog anew if packs were taken out of it since it was made, and says whether it did: other packs may
  /// have what was found in those.
  package func completeCatalog() throws(BlobStorageError) -> Bool {
    let result: Result<Bool, BlobStorageError> = turn.withLock { _ in
      do throws(BlobStorageError) {
        let lacksCopies = try catalog.read { (transaction) throws(BlobStorageError) in
          try transaction.meta(.lacksCopies) > 0
        }
        guard lacksCopies else { return .success(false) }
        try catalog.rebuild(because: nil)
        _ = try runInTurn()
        return .success(true)
      } catch { return .failure(error) }
    }
    return try result.get()
  }

  private func runInTurn() throws(BlobStorageError) -> Report {
    var report = Report()
    for _ in 0..<Self.attemptCountMax where try runOnce(&report) { return report }
    throw BlobStorageError(.busy, "Packs were removed again and again while they were looked at: try again.")
  }

  /// False when a pack went meanwhile: what was copied out of it may be missing in the listing.
  private func runOnce(_ report: inout Report) throws(BlobStorageError) -> Bool {
    let known = try known()
    // In this order: what is not in the spool any more has been published before, and is in the listing.
    let local = Set(try backend.localPackNames().live)
    let listing = try backend.publishedPacks()
    let listed = Set(listing.packs.keys)
    let new = listed.subtracting(known.published).subtracting(known.unpublished).subtracting(local)
    let takenCount = try take(new)
    report.newPackCount += takenCount
    guard takenCount == new.count else { return false }
    try notePublished(listing.packs.filter { known.unpublished.contains($0.key) && !local.contains($0.key) })
    try checkNothingLost(known.unpublished.subtracting(local).subtracting(listed))
    try noteCollections(listing.collections)
    // What is live of them lies in others, which the listing has. A pack that is merely not there is damage: what needs
    // it says so when it is read.
    let gone = known.published.filter { listing.collections.removed.contains($0) }
    if !gone.isEmpty { try remove(gone) }
    report.removedPackCount += gone.count
    return true
  }

  /// Condemned packs are read and not counted on.
  private func noteCollections(_ collections: Collections) throws(BlobStorageError) {
    guard !collections.condemned.isEmpty else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      try CatalogBuilder.noteCollections(of: backend, in: transaction)
    }
  }

  private func known() throws(BlobStorageError) -> Known {
    try catalog.read { (transaction) throws(BlobStorageError) in
      var known = Known()
      for (_, row) in try transaction.packRows() {
        if row.durableByteCount > 0 {
          known.published.insert(row.name)
        } else {
          known.unpublished.insert(row.name)
        }
      }
      return known
    }
  }

  /// Takes packs in, and says how many were there.
  private func take(_ names: Set<PackName>) throws(BlobStorageError) -> Int {
    guard !names.isEmpty else { return 0 }
    var count = 0
    try backend.forEachPublished(names.sorted()) { (name, file) throws(BlobStorageError) in
      guard let file else { return }
      do throws(BlobStorageError) {
        try builder.take(name, file, into: catalog)
        count += 1
      } catch {
        guard error.code == .packGone else { throw error }
      }
    }
    // Chunks may have moved, and what was read as missing may be there.
    try catalog.write { (transaction) throws(BlobStorageError) in try transaction.bumpEpoch() }
    return count
  }

  /// Of packs whose own process did not come to note it.
  private func notePublished(_ lengths: [PackName: Int64]) throws(BlobStorageError) {
    guard !lengths.isEmpty else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      for (name, byteCount) in lengths {
        try CatalogBuilder.notePublished(name, byteCount: byteCount, in: transaction)
      }
    }
  }

  /// Makes the catalog anew if a pack that nobody else has is not here either.
  private func checkNothingLost(_ names: Set<PackName>) throws(BlobStorageError) {
    guard !names.isEmpty else { return }
    let local = Set(try backend.localPackNames().live)
    let lost = try catalog.read { (transaction) throws(BlobStorageError) -> PackName? in
      for name in names where !local.contains(name) {
        guard let number = try transaction.packNumber(name), let row = try transaction.packRow(number),
          row.durableByteCount == 0
        else { continue }
        return name
      }
      return nil
    }
    guard let lost else { return }
    try catalog.rebuild(
      because: BlobStorageError(
        .catalogDamaged, "Pack \(lost) is in the catalog and neither here nor published."))
  }

  private func remove(_ names: Set<PackName>) throws(BlobStorageError) {
    try catalog.write { (transaction) throws(BlobStorageError) in
      for name in names {
        guard let number = try transaction.packNumber(name), var row = try transaction.packRow(number) else {
          continue
        }
        row.state = .retired
        try transaction.setPackRow(number, row)
      }
      try transaction.setMeta(.lacksCopies, 1)
      try transaction.bumpEpoch()
    }
    for name in names.sorted() {
      do throws(BlobStorageError) {
        guard let file = try backend.openPack(name) else {
          throw BlobStorageError(.packGone, "Pack \(name) has gone, and its footer is not here.")
        }
        defer { file.close() }
        try PackRetraction.run(
          name, file, catalog: catalog, codecs: builder.codecs, algorithm: builder.store.digestAlgorithm)
      } catch {
        guard error.code == .packGone || error.code == .corrupted else { throw error }
        // Without its footer nobody knows what to take out.
        try catalog.rebuild(because: error)
        break
      }
    }
    for name in names { backend.forget(name) }
    try packs.forget { (name) in names.contains(name) }
  }
}
