import Logging

/// The losses of a store, as its census and its catalog show them.
package struct KnownLosses: Sendable, Hashable {
  /// Packs of the store that are missing.
  package var lostPacks: [PackName] = []
  /// Packs with unreadable parts, which may have held refs or drops of any key.
  package var damagedPacks: [PackName] = []

  /// The log of a shared store ends before an entry that this machine has read.
  package var lacksLog = false

  package init() {}

  package var isEmpty: Bool { lostPacks.isEmpty && damagedPacks.isEmpty && !lacksLog }
}

extension StoreLosses {
  package init(_ losses: KnownLosses) {
    lostPacks = losses.lostPacks.map(\.description)
    damagedPacks = losses.damagedPacks.map(\.description)
    lacksLog = losses.lacksLog
  }
}

/// Compares the census with the catalog.
extension CatalogBuilder {
  /// Checks that packs of the catalog that are missing are lost. Rows of lost packs stay in the catalog.
  ///
  /// - Throws: `catalogDamaged` if a missing pack was removed or never durable: the catalog is older or newer than the
  ///   packs.
  func checkLost(_ missing: [PackRow]) throws(BlobStorageError) {
    guard !missing.isEmpty else { return }
    let census = try backend.census.read()
    for row in missing {
      // A published pack passes. A later check finds out, without a lock, whether its object still exists.
      guard belongs(row, census), !census.hasLeft(row.name) else {
        throw BlobStorageError(
          .catalogDamaged, "Pack \(row.name) is in the catalog, but not in the store.")
      }
    }
  }

  /// Whether a pack of the catalog that is missing is lost, or may be.
  private func belongs(_ row: PackRow, _ census: Census) -> Bool {
    wasDurable(row) || census.pack(row.name) != nil
      // A census that is gone says nothing about packs that were open. Where packs are published, there is none.
      || census.store == nil && backend.isDurableOnceSynced && row.state != .retired
  }

  /// Whether the name of the pack was durable. A power cut may lose a name that was not.
  private func wasDurable(_ row: PackRow) -> Bool {
    (row.durableByteCount > 0 || row.isSealed && backend.isDurableOnceSynced) && row.state != .retired
  }

  /// Applies a pack that has lost records at its end since it was sealed; returns false for any other pack.
  func applyIfCutShort(
    _ name: PackName, _ census: Census, into database: Database
  ) throws(BlobStorageError) -> Bool {
    guard let sealedAt = census.pack(name)?.recordsEnd, try isCutShort(name, sealedAt) else { return false }
    try applyCutShort(name, into: database)
    return true
  }

  /// Whether a sealed pack has lost records at its end: it was truncated, or replaced by an older copy.
  func isCutShort(_ name: PackName, _ sealedAt: Int64) throws(BlobStorageError) -> Bool {
    guard let file = try backend.openPack(name) else { return false }
    defer { file.close() }
    do throws(BlobStorageError) {
      let scanner = try PackScanner(file: file, name: name, codecs: codecs, store: store)
      // A trailer at the expected length proves the pack complete. Without one its end may be damaged or cut off.
      if try scanner.trailer() != nil,
        try file.status().byteCount >= sealedAt + Int64(PackFooter.Trailer.byteCount)
      {
        return false
      }
      let outcome = try scanner.scan { _ in }
      // What the medium cannot read may be there.
      return outcome.endOffset < sealedAt && outcome.unreadable == nil
    } catch {
      guard error.code == .corrupted else { throw error }
      return true
    }
  }

  /// Whether a dead writer's pack lacks records that were promised to be on the medium. If so, writes to the census
  /// where its records ended. While the catalog can be trusted, no crash causes this: the pack was truncated, or
  /// replaced by an older copy.
  func isPromiseBroken(_ name: PackName, _ database: Database) throws(BlobStorageError) -> Bool {
    // For records that a failed sync lost, no durable call has returned.
    let row = try database.packRow(name)
    guard backend.isDurableOnceSynced, row?.isPoisoned != true else { return false }
    // Published bytes stay until the next boot, even if the catalog does not know the pack yet. An invalid published
    // length counts as 0 and proves no loss.
    let promised = max(row?.promisedByteCount ?? 0, live.entry(name)?.published ?? 0)
    guard promised > 0, try isCutShort(name, promised) else { return false }
    logger.error("Pack \(name) is shorter than it was when its writer ended.")
    try backend.census.append([.sealed(name, recordsEnd: promised)], durably: true)
    return true
  }

  /// Applies the records that a truncated pack still has, and marks it as damaged. Does not change the file.
  func applyCutShort(_ name: PackName, into database: Database) throws(BlobStorageError) {
    guard try apply(name, into: database) != nil else { return }
    logger.error("Pack \(name) is shorter than when it was sealed.")
    _ = try database.write { (transaction) throws(BlobStorageError) in
      try transaction.updatePack(name) { row in
        row.isSealed = true
        row.isDamaged = true
        row.hasLostRecords = true
      }
    }
  }

  /// Adds to the census what it lacks, and returns the losses of the store.
  ///
  /// - Throws: `corrupted` if the file `store` differs from the copy in the census.
  package func compareCensus(with catalog: Catalog) throws(BlobStorageError) -> KnownLosses {
    var losses = KnownLosses()
    // Losses can be reported even if a tail cannot be read.
    let rows = try catalog.readSettled { (transaction) throws(BlobStorageError) in
      try transaction.packRows().map(\.row)
    }
    let census = try backend.census.read()
    if let known = census.store, known != store.encoded() {
      throw BlobStorageError(
        .corrupted,
        "The file “store” or the census belongs to another store: run repair, which sets that one aside.")
    }
    if census.damagedLineCount > 0 {
      logger.warning("The census has \(census.damagedLineCount) damaged lines, which are ignored.")
    }
    // Listed after the catalog and the census were read, so that a pack begun meanwhile does not count as lost.
    let names = try backend.packNames()
    do throws(BlobStorageError) {
      try complete(census, live: Set(names.live), rows, catalog)
    } catch {
      // A later opening completes it.
      if !error.isRefusal {
        logger.warning("The census could not be completed.", metadata: ["reason": "\(error.message)"])
      }
    }
    let present = Set(names.live).union(names.retired)
    let known = Set(census.packs.keys).union(rows.lazy.filter { belongs($0, census) }.map(\.name))
    losses.lostPacks = known.subtracting(present).sorted()
    if !losses.lostPacks.isEmpty {
      // A collection that removed them meanwhile has recorded that first.
      let now = try backend.census.read()
      losses.lostPacks.removeAll { now.hasLeft($0) }
      try keepLost(losses.lostPacks, now, rows, catalog)
    }
    losses.damagedPacks = Set(rows.filter { $0.hasLostRecords && !$0.isLost }.map(\.name))
      .union(census.unreadablePacks).sorted()
    return losses
  }

  /// Adds lost packs to the census if it lacks them, and marks them so that writers do not share their chunks.
  private func keepLost(
    _ names: [PackName], _ census: Census, _ rows: [PackRow], _ catalog: Catalog
  ) throws(BlobStorageError) {
    let lost = Set(names)
    let new = rows.filter { lost.contains($0.name) && !$0.isLost }
    do throws(BlobStorageError) {
      try backend.census.append(names.filter { census.pack($0) == nil }.map { .begun($0) }, durably: true)
      guard !new.isEmpty else { return }
      try catalog.write { (transaction) throws(BlobStorageError) in
        for row in new {
          try transaction.updatePack(row.name) { row in
            row.isLost = true
            // No records will be added to it.
            row.isSealed = true
          }
        }
        try transaction.bumpEpoch()
      }
    } catch {
      // A store that cannot be written has no writers that could share the chunks.
      logger.warning("Lost packs could not be marked.", metadata: ["reason": "\(error.message)"])
    }
  }

  private func complete(
    _ census: Census, live: Set<PackName>, _ rows: [PackRow], _ catalog: Catalog
  ) throws(BlobStorageError) {
    var events: [Census.Event] = []
    let isNew = census.store == nil
    if isNew { events.append(.store(store.encoded())) }
    for row in rows where row.isSealed && !row.isDamaged && !row.isLost && row.state != .retired {
      guard live.contains(row.name), census.pack(row.name)?.recordsEnd == nil, !row.isPoisoned else {
        continue
      }
      // A pack that a killed writer sealed is perhaps not on the medium.
      if row.durableByteCount == 0, let pack = try backend.openPack(row.name) {
        defer { pack.close() }
        do throws(BlobStorageError) { try pack.synchronize() } catch {
          // A second sync would succeed, even if this one lost data. No writer may share the pack's records (H1).
          try catalog.write { (transaction) throws(BlobStorageError) in try transaction.poison(row.name) }
          throw error
        }
      }
      events.append(.sealed(row.name, recordsEnd: row.appliedByteCount))
    }
    guard !events.isEmpty else { return }
    if isNew, !rows.isEmpty {
      logger.warning("The store has no census of its packs: it is made from those that are there.")
    }
    try backend.synchronizeNames()
    try backend.census.append(events, durably: isNew)
  }
}

/// Applies published packs, of other machines or of an earlier writer of this one.
extension CatalogBuilder {
  /// Fills an empty catalog from the published packs that this machine knows, except those in `local`. Extending the
  /// catalog adds the other packs later.
  func fillFromPublished(
    _ database: Database, except local: Set<PackName>
  ) throws(BlobStorageError) {
    for name in try backend.knownPackNames().sorted() where !local.contains(name) {
      // The pack was removed meanwhile; its live records lie in another pack.
      guard let file = try backend.openPack(name) else { continue }
      defer { file.close() }
      let isCut: Bool
      do throws(BlobStorageError) {
        let outcome = try apply(name, file, into: database)
        if outcome?.isSealed != true || outcome?.gaps.isEmpty != true { backend.forgetEnds(name) }
        guard let outcome else { continue }
        isCut = outcome.lacksTrailer
      } catch {
        guard error.code == .packGone else { throw error }
        continue
      }
      let byteCount = try file.status().byteCount
      try database.write { (transaction) throws(BlobStorageError) in
        try Self.markPublished(name, byteCount: byteCount, in: transaction)
        if isCut { try transaction.updatePack(name) { $0.isDamaged = true } }
      }
    }
    try database.write { (transaction) throws(BlobStorageError) in
      try Self.condemnUncounted(backend, in: transaction)
    }
  }

  /// Condemns the packs that collectors have condemned or removed. Writers treat their records as missing.
  package static func condemnUncounted(
    _ backend: any Backend, in transaction: WriteTransaction
  ) throws(BlobStorageError) {
    let rows = try transaction.packRows()
    try condemn(
      rows.lazy.map(\.row).filter { $0.state == .live && !backend.isCountedOn($0.name) }.map(\.name),
      in: transaction)
  }

  /// Condemns packs for good. Writers treat their records as missing.
  package static func condemn(
    _ names: some Sequence<PackName>, in transaction: WriteTransaction
  ) throws(BlobStorageError) {
    var isNew = false
    for name in names {
      guard let pack = try transaction.pack(name), pack.row.state == .live else { continue }
      try transaction.updatePack(pack.number) { $0.state = .condemned }
      isNew = true
    }
    if isNew { try transaction.bumpEpoch() }
  }

  /// Marks a pack as published, and therefore as sealed and durable.
  package static func markPublished(
    _ name: PackName, byteCount: Int64, in transaction: WriteTransaction
  ) throws(BlobStorageError) {
    try transaction.updatePack(name) { row in
      row.isSealed = true
      row.durableByteCount = byteCount
    }
  }
}
