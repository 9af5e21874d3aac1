import Logging
import SystemPackage

/// What a store has lost, by its census and its catalog.
package struct KnownLosses: Sendable, Hashable {
  /// Packs that belong to the store and are not there.
  package var lostPacks: [PackName] = []
  /// Packs with places that cannot be read, and that may have held refs or drops of any key.
  package var damagedPacks: [PackName] = []
  /// Keys whose state after a time is not known, with that time.
  package var uncertainKeys: [[UInt8]: UInt64] = [:]

  package init() {}

  package var isEmpty: Bool { lostPacks.isEmpty && damagedPacks.isEmpty && uncertainKeys.isEmpty }
}

/// The census and the catalog: what each knows that the other lacks.
extension CatalogBuilder {
  /// Which of these rows, whose packs are not there, are of packs that should be.
  ///
  /// - Throws: `catalogDamaged` when one of them need not be there: the catalog is older or newer than the packs.
  func lostRows(_ missing: [PackRow]) throws(BlobStorageError) -> [PackRow] {
    guard let first = missing.first else { return [] }
    guard let census = try backend.census?.read() else {
      throw BlobStorageError(.catalogDamaged, "Pack \(first.name) is in the catalog and not in the store.")
    }
    for row in missing {
      // One that never had its name on the medium may have lost it in a power cut.
      let wasDurable = census.pack(row.name) != nil || row.isSealed || row.durableByteCount > 0
      guard wasDurable, !census.hasLeft(row.name) else {
        throw BlobStorageError(.catalogDamaged, "Pack \(row.name) is in the catalog and not in the store.")
      }
    }
    return missing.filter { !$0.isLost }
  }

  /// Keeps what the catalog knows of lost packs, and has nobody count on them.
  func noteLost(_ rows: [PackRow], in environment: Environment) throws(BlobStorageError) {
    for row in rows { logger.error("Pack \(row.name) is lost.") }
    let census = try backend.census?.read()
    try backend.census?.append(
      rows.filter { census?.pack($0.name) == nil }.map { .begun($0.name) }, durably: true)
    try environment.write { (transaction) throws(BlobStorageError) in
      for row in rows {
        guard let number = try transaction.packNumber(row.name), var row = try transaction.packRow(number)
        else { continue }
        row.isLost = true
        row.isSealed = true
        try transaction.setPackRow(number, row)
      }
      try transaction.bumpEpoch()
    }
  }

  /// Whether a pack that was sealed has lost records at its end: it was cut, or an older copy was put back.
  func isCutShort(_ name: PackName, _ sealedAt: Int64) throws(BlobStorageError) -> Bool {
    guard let file = try backend.openPack(name) else { return false }
    defer { file.close() }
    if try file.status().byteCount >= sealedAt + Int64(PackFooter.Trailer.byteCount) { return false }
    do throws(BlobStorageError) {
      let outcome = try PackScanner(file: file, name: name, codecs: codecs).scan { _ in }
      return outcome.endOffset < sealedAt
    } catch {
      guard error.code == .corrupted else { throw error }
      return true
    }
  }

  /// Takes in what is left of a pack that was cut short, and leaves the file as it is.
  func takeCutShort(_ name: PackName, into environment: Environment) throws(BlobStorageError) {
    guard let file = try backend.openPack(name) else { return }
    defer { file.close() }
    guard try apply(name, file, into: environment) != nil else { return }
    logger.error("Pack \(name) is shorter than when it was sealed.")
    try environment.write { (transaction) throws(BlobStorageError) in
      guard let number = try transaction.packNumber(name), var row = try transaction.packRow(number) else {
        return
      }
      row.isSealed = true
      row.isDamaged = true
      try transaction.setPackRow(number, row)
    }
  }

  /// Adds to the census what it lacks, and says what the store has lost.
  ///
  /// - Throws: `corrupted` when the file `store` is not the one that the census knows.
  package func compareCensus(with catalog: Catalog) throws(BlobStorageError) -> KnownLosses {
    var losses = KnownLosses()
    guard let file = backend.census else { return losses }
    let census = try file.read()
    if let known = census.store, known != store.encoded() {
      throw BlobStorageError(
        .corrupted,
        "The file “store” is not the one that this store was made with: run repair, which restores it.")
    }
    if census.damagedLineCount > 0 {
      logger.warning("The census has \(census.damagedLineCount) damaged lines, which are ignored.")
    }
    let names = try backend.packNames()
    let rows = try catalog.read { (transaction) throws(BlobStorageError) in try transaction.packRows() }
      .map(\.row)
    do throws(BlobStorageError) {
      try complete(file, census, live: Set(names.live), rows)
    } catch {
      // It is made up for by a later opening.
      logger.warning("The census could not be completed.", metadata: ["reason": "\(error.message)"])
    }
    let present = Set(names.live).union(names.retired)
    losses.lostPacks = census.packs.keys.filter { !present.contains($0) }.sorted()
    if !losses.lostPacks.isEmpty {
      // A collection that removed them meanwhile has said so before.
      let now = try file.read()
      losses.lostPacks.removeAll { now.pack($0) == nil }
    }
    losses.damagedPacks = Set(rows.filter { $0.isDamaged && !$0.isLost }.map(\.name))
      .union(census.unreadablePacks).sorted()
    losses.uncertainKeys = census.uncertainKeys
    if !losses.uncertainKeys.isEmpty {
      try catalog.read { (transaction) throws(BlobStorageError) in
        for (key, time) in losses.uncertainKeys {
          guard let name = try transaction.nameRow(key),
            let current = try transaction.currentVersion(key: name.key, algorithm: store.digestAlgorithm),
            current.stamp.time > time
          else { continue }
          // It was put since.
          losses.uncertainKeys[key] = nil
        }
      }
    }
    return losses
  }

  private func complete(
    _ file: CensusFile, _ census: Census, live: Set<PackName>, _ rows: [PackRow]
  ) throws(BlobStorageError) {
    var events: [Census.Event] = []
    let isNew = census.store == nil
    if isNew { events.append(.store(store.encoded())) }
    for row in rows where row.isSealed && !row.isDamaged && !row.isLost && row.state != .retired {
      guard live.contains(row.name), census.pack(row.name)?.recordsEnd == nil else { continue }
      // What a killed writer has sealed need not be on the medium.
      if row.durableByteCount == 0, let pack = try backend.openPack(row.name) {
        defer { pack.close() }
        try pack.synchronize()
      }
      events.append(.sealed(row.name, recordsEnd: row.appliedByteCount))
    }
    guard !events.isEmpty else { return }
    if isNew, !rows.isEmpty {
      logger.warning("The store has no census of its packs: it is made from those that are there.")
    }
    try backend.synchronizeNames()
    try file.append(events, durably: isNew)
  }
}
