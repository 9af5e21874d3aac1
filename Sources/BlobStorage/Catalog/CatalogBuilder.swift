import Logging

/// Applies packs to a catalog: all packs in a rebuild, those of dead writers when a store is opened.
///
/// Runs while no other process writes to the catalog. It applies a living writer's pack as far as it is published; its
/// writer continues from there.
package struct CatalogBuilder: Sendable {
  package let backend: any Backend
  package let codecs: CodecPool
  package let store: StoreHeader
  package let logger: Logger
  let weaknesses: Weaknesses
  /// Records that one transaction applies, so that no transaction grows without bound.
  package let recordCountOfBatch: Int
  /// Whether views may see the catalog meanwhile. Then a transaction ends with a commit: views show a commit entirely
  /// or not at all, and a tail begins with a commit.
  var isInUse = false
  /// Gives the published lengths of living writers' packs.
  let live: LiveHolder
  let outerRowsSource: (any OuterRowsSource)?

  /// Fills a private catalog from all packs, and leaves the packs as they are.
  package func look(_ database: Database) throws(BlobStorageError) {
    // A collection may copy records into packs that come after the first listing.
    var known: Set<PackName> = []
    while true {
      let names = try backend.localPackNames().live.filter { known.insert($0).inserted }
      if names.isEmpty { return }
      let census = try backend.census.read()
      for name in names {
        if try applyIfCutShort(name, census, into: database) { continue }
        guard let file = try backend.openPack(name) else { continue }
        defer { file.close() }
        let isAbandoned = try file.lock(.shared, wait: false)
        let entry = live.entry(name)
        // A private catalog never learns of the rest.
        if !isAbandoned, let entry, !entry.isValid { throw Tails.unreadable(entry, from: 0) }
        _ = try apply(
          name, file, into: database,
          upTo: isAbandoned ? try tornTail(name, file, database) : entry?.published)
      }
    }
  }

  /// Fills an empty catalog from all packs that this machine knows, and recovers dead writers' packs.
  package func fill(_ database: Database) throws(BlobStorageError) {
    var adopted: Set<PackName> = []
    do throws(BlobStorageError) { adopted = try outerRowsSource?.adopt(into: database) ?? [] } catch {
      guard error.code == .catalogDamaged || error.code == .corrupted else { throw error }
      logger.warning("The store's index is damaged.", metadata: ["reason": "\(error.message)"])
    }
    let names = try backend.localPackNames().live
    let census = try backend.census.read()
    // One that was removed may still lie here, where its writer could not record that it was published.
    for name in names where !backend.isRemoved(name) {
      // It was published, and those rows are of what was published.
      if adopted.contains(name) { backend.distrustLocal(name) } else { try add(name, census, into: database) }
    }
    try fillFromPublished(database, except: adopted.union(names))
  }

  /// Fills an empty catalog from the packs of a folder as they are now; unlike `fill` it changes no pack.
  package func fillWithoutRecovery(_ database: Database) throws(BlobStorageError) {
    for name in try backend.packNames().live { _ = try apply(name, into: database) }
  }

  /// Applies a pack as it is; nil if it is missing, unreadable, or not of this store.
  func apply(
    _ name: PackName, into database: Database
  ) throws(BlobStorageError) -> PackScanner.Outcome? {
    guard let file = try backend.openPack(name) else { return nil }
    defer { file.close() }
    return try apply(name, file, into: database)
  }

  /// Applies the packs that a usable catalog does not know or that a dead writer left open.
  ///
  /// Rows of a lost pack stay in the catalog.
  ///
  /// - Throws: `catalogDamaged` if the catalog knows a missing pack that is not lost, a lost pack that exists again, or
  ///   an unreadable pack that can be read again.
  package func recoverDeadPacks(
    _ database: Database, willWrite: () throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let names = try backend.localPackNames()
    let rows = try database.read { (transaction) throws(BlobStorageError) in try transaction.packRows() }
    let known = Dictionary(rows.map { ($0.row.name, $0.row) }, uniquingKeysWith: { first, _ in first })
    let present = Set(names.live).union(names.retired)
    // On a full disk gc may remove a retired pack's file before its records. The next collection forgets the pack.
    try checkLost(rows.map(\.row).filter { !present.contains($0.name) && $0.state != .retired })
    if let found = known.values.first(where: { $0.isLost && present.contains($0.name) }) {
      throw BlobStorageError(.catalogDamaged, "Pack \(found.name) was lost and is there again.")
    }
    for name in names.live where known[name]?.isUnreadable == true {
      guard try isReadable(name) else { continue }
      throw BlobStorageError(.catalogDamaged, "Pack \(name) could not be read and can be read again.")
    }
    if weaknesses.contains(.skipsRecovery) { return }
    let open = names.live.filter { known[$0].map { !$0.isSealed } ?? true }
    if open.isEmpty { return }
    let census = try backend.census.read()
    var builder = self
    builder.isInUse = true
    var hasWritten = false
    for name in open {
      guard let file = try backend.adoptPack(name) else { continue }
      defer { file.close() }
      if !hasWritten { try willWrite() }
      hasWritten = true
      if try !builder.applyIfCutShort(name, census, into: database) {
        try builder.recover(name, file, into: database)
      }
    }
  }

  /// Whether the medium can read a pack whole again, after it could not read a part.
  private func isReadable(_ name: PackName) throws(BlobStorageError) -> Bool {
    guard let file = try backend.openPack(name) else { return false }
    defer { file.close() }
    let scanner = try PackScanner(file: file, name: name, codecs: codecs, store: store)
    return try unlessCorrupted(try scanner.scan({ _ in }).unreadable == nil) ?? false
  }

  private func add(
    _ name: PackName, _ census: Census, into database: Database
  ) throws(BlobStorageError) {
    if try applyIfCutShort(name, census, into: database) { return }
    if let file = try backend.adoptPack(name) {
      defer { file.close() }
      if try PackScanner(file: file, name: name, codecs: codecs, store: store).trailer() == nil {
        try recover(name, file, into: database)
        return
      }
    }
    guard let file = try backend.openPack(name) else { return }
    defer { file.close() }
    var end: Int64?
    if let entry = live.entry(name) {
      // If the published length is unknown, views wait for the rest. The applied records must end with a commit,
      // because views continue from there.
      end = Int64(PackHeader.byteCount)
      if entry.isValid {
        let scanner = try PackScanner(
          file: file, name: name, codecs: codecs, store: store, upTo: entry.published)
        if try scanner.scan({ _ in }).endOffset == entry.published { end = entry.published }
      }
    }
    _ = try apply(name, file, into: database, upTo: end)
  }

  /// Applies the intact records of a dead writer's pack, cuts off its torn tail and seals it. The pack's lock is held.
  private func recover(_ name: PackName, _ file: any File, into database: Database)
    throws(BlobStorageError)
  {
    if try isPromiseBroken(name, database) {
      guard let outcome = try apply(name, file, into: database), outcome.gaps.isEmpty else { return }
      // The missing records were only in a tail. No view may wait for them.
      return try applyCutShort(name, into: database)
    }
    let own = try backend.ownPack(name, file)
    defer { if own !== file { own.close() } }
    try end(name, own, into: database)
  }

  private func end(_ name: PackName, _ file: any File, into database: Database) throws(BlobStorageError) {
    let tail = try tornTail(name, file, database)
    if let tail {
      logger.warning(
        "Pack \(name) was not synced from \(tail) on when its writer ended: that part is cut off.")
      try file.truncate(to: tail)
    }
    guard let outcome = try apply(name, file, into: database, notesSeal: false) else { return }
    if outcome.endOffset < (try database.packRow(name)?.appliedByteCount ?? 0) {
      throw Self.ahead(of: name)
    }
    guard outcome.gaps.isEmpty else { return }
    do throws(BlobStorageError) {
      let sealed =
        outcome.isSealed
        ? try synchronizeAnew(file, rewrites: try database.packRow(name)?.isPoisoned ?? false)
        : try PackRecovery.seal(file, outcome, codecs: codecs)
      try backend.synchronizeNames()
      try database.write { (transaction) throws(BlobStorageError) in
        let isKnown = try transaction.updatePack(name) { row in
          row.isSealed = true
          row.isPoisoned = false
          if backend.isDurableOnceSynced { row.durableByteCount = sealed }
        }
        if isKnown { try transaction.bumpEpoch() }
        // The dead writer may not have added its keys to the cache's tables.
        if try transaction.cacheIndexState() == .complete {
          try transaction.setMeta(.cacheIndexed, CacheIndexState.lacksKeys.rawValue)
        }
      }
    } catch {
      if error.code == .poisoned {
        // A second sync would succeed, even if this one lost data. No writer may share the pack's records.
        try database.write { (transaction) throws(BlobStorageError) in try transaction.poison(name) }
      }
      // All records have been applied; the rest can wait for the next opening. Discarding the catalog here would also
      // discard the note of the failed sync.
      guard [.noSpace, .readOnly, .poisoned, .corrupted].contains(error.code) else { throw error }
      logger.warning("Pack \(name) could not be ended.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Syncs a sealed pack and returns its length. After a failed sync, `rewrites` makes it write the bytes again first.
  private func synchronizeAnew(_ file: any File, rewrites: Bool) throws(BlobStorageError) -> Int64 {
    let byteCount = try file.status().byteCount
    if rewrites {
      try PackRecovery.rewrite(file, 0..<byteCount)
      // The failed sync may have lost the length: zeros that were written ahead would hide the footer.
      try file.truncate(to: byteCount)
    }
    do throws(BlobStorageError) { try file.synchronize() } catch {
      throw BlobStorageError(
        .poisoned, "Syncing a pack failed: \(error.message)", path: error.path, errno: error.errno)
    }
    return byteCount
  }

  /// Returns where the part begins that a power cut has torn; nil if no part is torn.
  ///
  /// What was not synced reaches the medium in any order. Behind the first hole records may need others that are
  /// missing, so none of them counts. A hole in what was synced is damage, and what is whole behind it stays: commit
  /// records say how much was synced when they were written. What the medium cannot read is damage, too.
  private func tornTail(
    _ name: PackName, _ file: any File, _ database: Database
  ) throws(BlobStorageError) -> Int64? {
    let scanner = try PackScanner(file: file, name: name, codecs: codecs, store: store)
    var syncedByteCount: Int64 = 0
    do throws(BlobStorageError) {
      let outcome = try scanner.scan { (record) in
        syncedByteCount = max(syncedByteCount, record.syncedByteCount)
      }
      guard !outcome.isSealed, outcome.unreadable == nil,
        let hole = outcome.gaps.first(where: { $0.lowerBound >= syncedByteCount })
      else {
        return nil
      }
      guard try database.packRow(name)?.appliedByteCount ?? 0 > hole.lowerBound else {
        return hole.lowerBound
      }
      // The records were applied and then lost. Changed bytes are damage instead: the records behind them stay.
      if try hasLostBytes(file, hole) { throw Self.ahead(of: name) }
      return nil
    } catch {
      guard error.code == .corrupted else { throw error }
      return nil
    }
  }

  /// Whether the hole contains zeros, as bytes do that never reached the medium.
  private func hasLostBytes(_ file: any File, _ hole: Range<Int64>) throws(BlobStorageError) -> Bool {
    let wanted = min(64, hole.upperBound - hole.lowerBound)
    var offset = hole.lowerBound
    var zeros: Int64 = 0
    while offset < hole.upperBound {
      let bytes = try file.bytesThere(at: offset, Int(min(hole.upperBound - offset, 1 << 20)))
      for byte in bytes {
        zeros = byte == 0 ? zeros + 1 : 0
        if zeros == wanted { return true }
      }
      if bytes.isEmpty { return true }
      offset += Int64(bytes.count)
    }
    return false
  }

  private static func ahead(of name: PackName) -> BlobStorageError {
    BlobStorageError(
      .catalogDamaged, "The catalog knows of records of pack \(name) that have not reached the medium.")
  }

  /// Applies the records of a pack that the catalog lacks; nil if the pack is unreadable or not of this store.
  ///
  /// - Parameters:
  ///   - end: where to stop, if the rest of the pack does not count.
  ///   - notesSeal: false if the caller has yet to sync the pack. Recovery skips packs that are marked as sealed.
  func apply(
    _ name: PackName, _ file: any File, into database: Database, notesSeal: Bool = true,
    upTo end: Int64? = nil
  ) throws(BlobStorageError) -> PackScanner.Outcome? {
    let scanner = try PackScanner(file: file, name: name, codecs: codecs, store: store, upTo: end)
    let header: PackHeader
    do throws(BlobStorageError) {
      header = try scanner.headerOrSubstitute().header
      guard header.storeID == store.storeID, header.digestAlgorithm == store.digestAlgorithm else {
        throw BlobStorageError(.corrupted, "The file of pack \(name) holds a pack of another store.")
      }
    } catch {
      try addUnreadable(name, error, in: database)
      return nil
    }
    var row = PackRow(name: name, created: header.created)
    let number = try database.write { (transaction) throws(BlobStorageError) in
      if let known = try transaction.pack(name) {
        row = known.row
        return known.number
      }
      return try transaction.addPack(row)
    }
    var batch: [PackRecord] = []
    var batchByteCount = 0
    let knownByteCount = row.appliedByteCount
    var outcome = try scanner.scan { (record) throws(BlobStorageError) in
      guard record.offset >= row.appliedByteCount else { return }
      batch.append(record)
      batchByteCount += record.memoryByteCount
      let isFull = batch.count >= recordCountOfBatch || batchByteCount >= PackRecord.memoryByteCountOfGroup
      if isFull, !isInUse || record.endsCommit || batchByteCount >= BlobLimits.commitMemoryByteCountMax {
        try apply(&batch, number, &row, in: database)
        batchByteCount = 0
      }
    }
    try apply(&batch, number, &row, in: database)
    if outcome.endOffset < knownByteCount {
      // The catalog has records from there, so this is damage and not a torn tail.
      outcome.gaps.append(outcome.endOffset..<knownByteCount)
      outcome.lost.append(outcome.endOffset..<knownByteCount)
    }
    row.isSealed = notesSeal && outcome.isSealed || !outcome.gaps.isEmpty
    row.isDamaged = !outcome.gaps.isEmpty
    row.isUnreadable = row.isDamaged && outcome.unreadable != nil
    // What this catalog has had before is not lost.
    if outcome.lost.contains(where: { $0.upperBound > knownByteCount }) { row.hasLostRecords = true }
    // The footer is perhaps not synced yet. A put that shares a record of the pack syncs it first.
    for gap in outcome.gaps {
      logger.error("Pack \(name) is damaged from \(gap.lowerBound) to \(gap.upperBound).")
    }
    let final = row
    try database.write { (transaction) throws(BlobStorageError) in
      try transaction.setPackRow(number, final)
    }
    return outcome
  }

  private func apply(
    _ batch: inout [PackRecord], _ number: UInt32, _ row: inout PackRow, in database: Database
  ) throws(BlobStorageError) {
    guard !batch.isEmpty else { return }
    let (records, known) = (batch, row)
    row = try database.write { (transaction) throws(BlobStorageError) in
      var changed = known
      for record in records {
        // After a gap the records continue at a greater offset.
        changed.appliedByteCount = record.offset
        try transaction.apply(record, from: number, &changed, isRebuilding: true)
      }
      try transaction.setPackRow(number, changed)
      return changed
    }
    batch = []
  }

  /// Adds a pack whose header cannot be read. It keeps gc from removing anything, because refs may be in it.
  private func addUnreadable(
    _ name: PackName, _ error: BlobStorageError, in database: Database
  ) throws(BlobStorageError) {
    guard backend.isDamage(error) else { throw error }
    logger.error("Pack \(name) cannot be read.", metadata: ["reason": "\(error.message)"])
    try database.write { (transaction) throws(BlobStorageError) in
      let isKnown = try transaction.updatePack(name) { row in
        row.isDamaged = true
        row.hasLostRecords = !row.isSealed
      }
      if isKnown { return }
      var row = PackRow(name: name, created: 0)
      row.isSealed = true
      row.isDamaged = true
      row.hasLostRecords = true
      _ = try transaction.addPack(row)
    }
  }
}
