import BlobStorage
import Logging
import Synchronization

/// Extends the catalog by the packs that any machine has published, and takes out those that a collector has removed.
///
/// It lists the packs and fetches the footers of new ones. One thread of a process does it at a time. A thread that has
/// waited for another run which began after its call need not run again.
package final class CatchUp: Sendable {
  private struct Turns: Sendable {
    var begunCount = 0
    /// The number of the last that ended well.
    var endedNumber = 0
    /// The last that did not, and why.
    var failure: (number: Int, error: BlobStorageError)?
    var missing: [PackName] = []
    var waitingCount = 0
  }

  private enum Next {
    case done(missing: [PackName])
    case failed(BlobStorageError)
    case begins(Int)
  }

  /// What the catalog says of packs before they are listed.
  private struct Known {
    /// Published, and all of their records are in the catalog.
    var complete: Set<PackName> = []
    /// Published, and applied in part.
    var partial: Set<PackName> = []
    var unpublished: Set<PackName> = []
    var state: State
  }

  /// Of the catalog; another one when packs have come or gone.
  private struct State: Hashable, Sendable {
    var generation: String?
    var epoch: UInt64
  }

  private let catalog: Catalog
  private let builder: CatalogBuilder
  private let backend: RemoteBackend
  private let packs: PackFiles
  private let logger: Logger
  private let time: PassingTime
  private let turn = Turn()
  private let turns = Mutex(Turns())
  /// When the last that found everything as it was began, and what of.
  private let quiet = Mutex<(state: State, begin: Double)?>(nil)
  private let knowsFenced = Atomic(false)
  private let toldMissing = Mutex<Set<PackName>>([])
  private static let attemptCountMax = 16

  init(_ parts: StoreParts, _ backend: RemoteBackend) {
    time = parts.setting.environment.time
    catalog = parts.catalog
    builder = parts.builder
    self.backend = backend
    packs = parts.packs
    logger = parts.setting.logger
  }

  /// Does it, unless another thread has done it for us: what was published before the call is in the catalog, and what
  /// was removed before is not.
  ///
  /// - Throws: `cancelled` also while another thread does it.
  /// - Complexity: one listing of the packs, two of the collectors' entries; one to three requests for each new pack,
  ///   several at once.
  @discardableResult
  package func run() throws(BlobStorageError) -> ExtensionReport {
    let asked = turns.withLock { turns in
      turns.waitingCount += 1
      return turns.begunCount
    }
    defer { turns.withLock { $0.waitingCount -= 1 } }
    try turn.take(isPatient: false)
    defer { turn.giveBack() }
    let next = turns.withLock { turns -> Next in
      if turns.endedNumber > asked { return .done(missing: turns.missing) }
      if let failure = turns.failure, failure.number > asked { return .failed(failure.error) }
      turns.begunCount += 1
      return .begins(turns.begunCount)
    }
    switch next {
    case .done(let missing): return ExtensionReport(missing: missing)
    case .failed(let error): throw error
    case .begins(let number):
      do throws(BlobStorageError) {
        let report = try runInTurn()
        turns.withLock { turns in
          turns.endedNumber = number
          turns.missing = report.missing
        }
        return report
      } catch {
        // Cancelling one waiting thread does not cancel the others.
        if error.code != .cancelled { turns.withLock { $0.failure = (number, error) } }
        throw error
      }
    }
  }

  /// How many callers wait for it, or for others.
  package var waitingCount: Int { turns.withLock { $0.waitingCount } }

  /// Does it because something is not found that should be there; false when it was done a moment ago and nothing has
  /// changed since: then there is no use in looking again.
  package func runForMissing() throws(BlobStorageError) -> Bool {
    let state = try catalog.read { (transaction) throws(BlobStorageError) in try catalogState(transaction) }
    let isQuiet = quiet.withLock { quiet in
      quiet.map { $0.state == state && time.now() - $0.begin < Self.quietSeconds } ?? false
    }
    if isQuiet { return false }
    try run()
    return true
  }

  /// Short enough for a user who heals what is missing from another machine.
  private static let quietSeconds = 5.0

  /// Rebuilds the catalog if packs were taken out of it since it was made, and says whether it did, or another thread
  /// has: other packs may have what was found in those.
  package func completeCatalog() throws(BlobStorageError) -> Bool {
    let generation = catalog.generation
    try turn.take(isPatient: false)
    defer { turn.giveBack() }
    let lacksCopies = try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.meta(.lacksCopies) > 0
    }
    guard lacksCopies else { return catalog.generation != generation }
    try catalog.rebuild(because: nil)
    _ = try runInTurn()
    return true
  }

  private func runInTurn() throws(BlobStorageError) -> ExtensionReport {
    var report = ExtensionReport()
    for _ in 0..<Self.attemptCountMax {
      if try runOnce(&report) { return report }
    }
    throw BlobStorageError(
      .busy, "Packs were gone again and again that had just been listed: try again, and verify the store.")
  }

  /// False when packs were gone that had been listed: what they had may be in others, which the listing has not.
  private func runOnce(_ report: inout ExtensionReport) throws(BlobStorageError) -> Bool {
    let begin = time.now()
    let known = try known()
    // In this order: what is not in the spool any more has been published before, and is in the listing.
    let local = Set(try backend.localPackNames().live)
    let listing = try backend.publishedPacks()
    report.missing = listing.missing
    tell(listing.missing)
    let listed = Set(listing.packs.keys)
    // What is live of them lies in others, which the listing has. A pack that is merely not there is damage: what needs
    // it says so when it is read.
    let isFenced = { (name: PackName) in listing.fences[name.writer].map { $0 <= name.sequence } ?? false }
    let gone = known.complete.union(known.partial).filter {
      listing.collections.removed.contains($0) || isFenced($0)
    }
    knowsFenced.store(known.unpublished.contains(where: isFenced), ordering: .relaxed)
    // Before the others come: a copy that goes gives way to theirs.
    try retire(gone)
    // Includes packs that were applied in part, or published by a process that did not record it.
    let incomplete = listed.subtracting(known.complete).subtracting(local)
    let taken = try take(incomplete)
    report.newPackCount += taken.subtracting(known.partial).subtracting(known.unpublished).count
    guard taken == incomplete else { return false }
    try checkNothingLost(known.unpublished.subtracting(local).subtracting(listed))
    try condemn(listing.collections)
    if !gone.isEmpty { try remove(gone) }
    report.removedPackCount += gone.count
    let state = try catalog.read { (transaction) throws(BlobStorageError) in try catalogState(transaction) }
    quiet.withLock { $0 = state == known.state ? (state: state, begin: begin) : nil }
    return true
  }

  /// Whether the catalog had packs of this machine, when it was brought up last, that cannot be published any more: no
  /// collector has waited for what they need.
  package var hasFencedPacks: Bool { knowsFenced.load(ordering: .relaxed) }

  private func catalogState(_ transaction: ReadTransaction) throws(BlobStorageError) -> State {
    State(generation: catalog.generation, epoch: try transaction.epoch())
  }

  /// Says once of each pack that it is missing.
  private func tell(_ missing: [PackName]) {
    let new = toldMissing.withLock { told in missing.filter { told.insert($0).inserted } }
    for name in new {
      logger.error(
        "Pack \(name) was published, and its object was deleted: gc removes nothing without it.")
    }
  }

  /// Condemned packs are read and not counted on.
  private func condemn(_ collections: Collections) throws(BlobStorageError) {
    guard !collections.condemned.isEmpty else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      try CatalogBuilder.condemnUncounted(backend, in: transaction)
    }
  }

  private func known() throws(BlobStorageError) -> Known {
    try catalog.read { (transaction) throws(BlobStorageError) in
      var known = Known(state: try catalogState(transaction))
      for (_, row) in try transaction.packRows() {
        if row.durableByteCount == 0 {
          known.unpublished.insert(row.name)
        } else if row.isSealed {
          known.complete.insert(row.name)
        } else {
          known.partial.insert(row.name)
        }
      }
      return known
    }
  }

  /// Takes packs in, and says which of them were there.
  private func take(_ names: Set<PackName>) throws(BlobStorageError) -> Set<PackName> {
    guard !names.isEmpty else { return [] }
    var intake = PublishedIntake(
      builder, into: catalog, afterGroup: { () throws(BlobStorageError) in try CancellationFlag.check() })
    try backend.forEachPublished(names.sorted()) { (name, file) throws(BlobStorageError) in
      guard let file else { return }
      do throws(BlobStorageError) { try intake.take(name, file) } catch {
        guard error.code == .packGone else { throw error }
      }
    }
    try intake.finish()
    // Chunks may have moved, and what was read as missing may be there.
    try catalog.write { (transaction) throws(BlobStorageError) in try transaction.bumpEpoch() }
    return intake.taken
  }

  /// Rebuilds the catalog if a pack that exists only on this machine is gone.
  private func checkNothingLost(_ names: Set<PackName>) throws(BlobStorageError) {
    guard !names.isEmpty else { return }
    let local = Set(try backend.localPackNames().live)
    let lost = try catalog.read { (transaction) throws(BlobStorageError) -> PackName? in
      for name in names where !local.contains(name) {
        guard try transaction.pack(name)?.row.durableByteCount == 0 else { continue }
        return name
      }
      return nil
    }
    guard let lost else { return }
    try catalog.rebuild(
      because: BlobStorageError(
        .catalogDamaged, "Pack \(lost) is in the catalog and neither here nor published."))
  }

  /// Marks removed packs as retired.
  private func retire(_ names: Set<PackName>) throws(BlobStorageError) {
    guard !names.isEmpty else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      for name in names {
        try transaction.updatePack(name) { $0.state = .retired }
      }
      try transaction.setMeta(.lacksCopies, 1)
      try transaction.bumpEpoch()
    }
  }

  /// Takes the records of packs that are retired out of the catalog.
  private func remove(_ names: Set<PackName>) throws(BlobStorageError) {
    for name in names.sorted() {
      do throws(BlobStorageError) {
        guard let file = try backend.openPack(name) else {
          throw BlobStorageError(.packGone, "Pack \(name) has gone, and its footer is not here.")
        }
        defer { file.close() }
        var retraction = PackRetraction(name, catalog: catalog, codecs: builder.codecs, store: builder.store)
        try retraction.run(file)
      } catch {
        guard error.code == .packGone || error.code == .corrupted else { throw error }
        // Without its footer the records to remove are unknown.
        try catalog.rebuild(because: error)
        break
      }
    }
    for name in names { backend.forget(name) }
    try packs.forget { (name) in names.contains(name) }
  }
}
