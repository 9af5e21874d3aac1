import Logging
import Synchronization

/// This process's writing: its packs, one after the other, and the commits that make records visible.
///
/// Order of locks: the catalog's write transaction, then this. Records are appended in any order by any thread;
/// they are applied to the catalog in the order of the pack, by whichever commit comes next.
package final class WriterSession: Sendable {
  /// What has to be on the medium for a commit to be durable.
  package struct Watermark: Sendable {
    package var pack: PackName
    package var byteCount: Int64
  }

  struct State {
    var writer: PackWriter?
    /// Packs that take no more records and are sealed once all of theirs are in the catalog.
    var full: [PackWriter] = []
    var nextSequence: UInt32 = 1
    var pending: [(header: PackHeader, record: PackRecord)] = []
    /// How many records have left `pending`: two commits may have applied the same ones.
    var settledCount = 0
    var pendingChunks: Set<Digest> = []
    var pendingManifests: Set<Digest> = []
    /// Where in the pack the refs and drops of the commit under way begin.
    var commitOffset: Int64?
    var durable: [PackName: Int64] = [:]
    var needsNameSync = false
    /// Counts up whenever records were lost before they were applied.
    var lossCount = 0
    var lossCause: BlobStorageError?
    var poison: BlobStorageError?
    /// Why the last pack could not be sealed.
    var sealFailure: BlobStorageError?
    var addedByteCount: Int64 = 0
  }

  package let writerID: UInt64
  private let store: StoreHeader
  private let backend: any Backend
  private let catalog: Catalog
  private let codecs: CodecPool
  let clock: WallClock
  private let logger: Logger
  private let packByteCountTarget: Int64
  private let state = Mutex(Unchecked(value: Box()))
  private let syncTurn = Mutex<Void>(())

  final class Box { var state = State() }

  package init(
    writerID: UInt64, store: StoreHeader, backend: any Backend, catalog: Catalog, codecs: CodecPool,
    clock: WallClock, packByteCountTarget: Int64, logger: Logger
  ) {
    self.writerID = writerID
    self.store = store
    self.backend = backend
    self.catalog = catalog
    self.codecs = codecs
    self.clock = clock
    self.packByteCountTarget = packByteCountTarget
    self.logger = logger
  }

  /// The sequence number of the pack that the next record goes to.
  package var currentSequence: UInt32 {
    locked { state in state.writer?.name.sequence ?? state.nextSequence }
  }

  /// Bytes of records appended so far by this session.
  package var addedByteCount: Int64 { locked { $0.addedByteCount } }

  /// Changes when records that were appended and not yet committed have been lost.
  package var lossCount: Int { locked { $0.lossCount } }

  /// Whether a chunk was appended that is not yet in the catalog.
  package func hasPendingChunk(_ digest: Digest) -> Bool { locked { $0.pendingChunks.contains(digest) } }

  /// Appends a record; a later commit makes it visible. A chunk that is pending already is not appended again.
  ///
  /// - Returns: bytes that were added to the pack.
  @discardableResult
  package func append(
    _ content: PackRecord.Content, payload: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> Int {
    var time: UInt64 = 0
    while true {
      let count = try tryLocked { (state) throws(BlobStorageError) -> Int? in
        // A new pack needs a time, and the catalog is not to be asked for it under this lock.
        if state.writer == nil, time == 0 { return nil }
        return try self.append(content, payload: payload, to: &state, time: time)
      }
      if let count { return count }
      let last = try catalog.read { (transaction) throws(BlobStorageError) in try transaction.clock() }
      time = Stamp.timeAfter(last, wallClock: clock.now())
    }
  }

  /// Makes everything appended so far, and what `body` appends, visible to all processes, or nothing of it.
  ///
  /// What was committed survives the death of the process; ``synchronize(_:)`` makes it survive a power cut.
  package func commit<T>(
    _ body: (inout Commit) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> (result: T, watermark: Watermark?) {
    var appended: [(key: [UInt8], version: Stamp)] = []
    var outcome: (result: T, watermark: Watermark?)
    var appliedEnd = 0
    do throws(BlobStorageError) {
      outcome = try catalog.write { (transaction) throws(BlobStorageError) in
        try withBox { (box) throws(BlobStorageError) in
          if let poison = box.state.poison { throw poison }
          var commit = Commit(transaction: transaction, session: self, box: box)
          let result: T
          do throws(BlobStorageError) {
            result = try body(&commit)
            try commit.appendDeferred()
            try flush(&box.state)
            box.state.commitOffset = nil
            try apply(box.state.pending, to: transaction)
          } catch {
            box.state.commitOffset = nil
            undo(commit.versions, &box.state)
            throw error
          }
          appended = commit.versions
          appliedEnd = box.state.settledCount + box.state.pending.count
          let watermark = box.state.writer.map { Watermark(pack: $0.name, byteCount: $0.writtenByteCount) }
          return (result, watermark)
        }
      }
    } catch {
      locked { undo(appended, &$0) }
      throw error
    }
    let full = locked { state -> Unchecked<[PackWriter]> in
      let settled = min(max(0, appliedEnd - state.settledCount), state.pending.count)
      for pending in state.pending.prefix(settled) {
        switch pending.record.content {
        case .chunk(let chunk): state.pendingChunks.remove(chunk.digest)
        case .manifest(let manifest): state.pendingManifests.remove(manifest.digest)
        case .ref, .drop, .skipped: break
        }
      }
      state.pending.removeFirst(settled)
      state.settledCount += settled
      if let writer = state.writer, writer.byteCount >= packByteCountTarget {
        state.full.append(writer)
        state.writer = nil
      }
      return Unchecked(value: Self.takeSealable(&state))
    }
    for writer in full.value { seal(writer) }
    return outcome
  }

  /// Forces what a commit wrote to the medium. Threads that wait at the same time share one sync.
  ///
  /// - Throws: `poisoned` when the sync failed; nothing is written by this session from then on.
  package func synchronize(_ watermark: Watermark) throws(BlobStorageError) {
    let box: Result<Void, BlobStorageError> = syncTurn.withLock { _ in
      do throws(BlobStorageError) { return .success(try synchronizeInTurn(watermark)) } catch {
        return .failure(error)
      }
    }
    try box.get()
  }

  /// Seals the pack under way, applying what is pending; the next record begins another.
  ///
  /// - Throws: when what was written may not be on the medium.
  package func rollOver() throws(BlobStorageError) {
    let isEmpty = locked { state in
      if let writer = state.writer { state.full.append(writer) }
      state.writer = nil
      return state.full.isEmpty
    }
    if !isEmpty { _ = try commit { _ in } }
    if let failure = locked({ $0.poison ?? $0.sealFailure }) { throw failure }
  }

  // MARK: Inside

  func append(
    _ content: PackRecord.Content, payload: UnsafeRawBufferPointer, to state: inout State, time: UInt64,
    continues: Bool = false
  ) throws(BlobStorageError) -> Int {
    if let poison = state.poison { throw poison }
    switch content {
    case .chunk(let chunk) where state.pendingChunks.contains(chunk.digest): return 0
    case .manifest(let manifest) where state.pendingManifests.contains(manifest.digest): return 0
    default: break
    }
    if state.writer == nil {
      let name = PackName(writer: writerID, sequence: state.nextSequence)
      let header = PackHeader(
        name: name, storeID: store.storeID, digestAlgorithm: store.digestAlgorithm, created: time)
      state.writer = try PackWriter(header: header, backend: backend, codecs: codecs)
      state.nextSequence += 1
      state.needsNameSync = true
    }
    guard let writer = state.writer else { return 0 }
    var content = content
    // At most a pack's length, which 32 bits hold.
    let synced = UInt32(state.durable[writer.name] ?? 0)
    if case .ref(var ref) = content {
      ref.syncedByteCount = synced
      content = .ref(ref)
    } else if case .drop(var drop) = content {
      drop.syncedByteCount = synced
      content = .drop(drop)
    }
    let record: PackRecord
    do { record = try writer.append(content, payload: payload, continues: continues) } catch {
      lose(writer, &state, error)
      throw error
    }
    state.pending.append((writer.header, record))
    note(content, &state)
    state.addedByteCount += Int64(record.byteCount)
    return record.byteCount
  }

  private func flush(_ state: inout State) throws(BlobStorageError) {
    for writer in state.full + [state.writer].compactMap({ $0 }) {
      do { try writer.flush() } catch {
        lose(writer, &state, error)
        throw error
      }
    }
  }

  /// The full packs none of whose records is pending.
  private static func takeSealable(_ state: inout State) -> [PackWriter] {
    guard !state.full.isEmpty else { return [] }
    let awaited = Set(state.pending.map(\.header.name))
    defer { state.full.removeAll { !awaited.contains($0.name) } }
    return state.full.filter { !awaited.contains($0.name) }
  }

  private func note(_ content: PackRecord.Content, _ state: inout State) {
    switch content {
    case .chunk(let chunk): state.pendingChunks.insert(chunk.digest)
    case .manifest(let manifest): state.pendingManifests.insert(manifest.digest)
    case .ref, .drop, .skipped: break
    }
  }

  /// Gives up a pack that cannot be written any more: what the system does not have of it is gone, and what it has
  /// of a commit that was under way goes too.
  private func lose(_ writer: PackWriter, _ state: inout State, _ cause: BlobStorageError) {
    let commitOffset = state.writer === writer ? state.commitOffset : nil
    let end = min(writer.writtenByteCount, commitOffset ?? .max)
    state.pending.removeAll {
      $0.header.name == writer.name && $0.record.offset + Int64($0.record.byteCount) > end
    }
    state.pendingChunks = []
    state.pendingManifests = []
    for pending in state.pending { note(pending.record.content, &state) }
    state.lossCount += 1
    state.lossCause = cause
    if state.writer === writer { state.writer = nil }
    state.full.removeAll { $0 === writer }
    // Best effort: a part of a record that stays is a torn tail to whoever recovers the pack.
    do throws(BlobStorageError) { try writer.file.truncate(to: end) } catch {}
    logger.error("Pack \(writer.name) cannot be written.", metadata: ["reason": "\(cause.message)"])
  }

  private func apply(
    _ pending: [(header: PackHeader, record: PackRecord)], to transaction: Transaction
  ) throws(BlobStorageError) {
    var index = 0
    while index < pending.count {
      let header = pending[index].header
      var row = PackRow(name: header.name, created: header.created)
      let number: UInt32
      if let known = try transaction.packNumber(header.name), let knownRow = try transaction.packRow(known) {
        (number, row) = (known, knownRow)
      } else {
        number = try transaction.addPack(row)
      }
      while index < pending.count, pending[index].header.name == header.name {
        // A rebuild by another process may have been here before.
        if pending[index].record.offset >= row.appliedByteCount {
          try transaction.apply(pending[index].record, from: number, &row, algorithm: store.digestAlgorithm)
        }
        index += 1
      }
      try transaction.setPackRow(number, row)
    }
  }

  /// Hides versions of a commit that failed after their refs had been appended: later commits apply them.
  private func undo(_ versions: [(key: [UInt8], version: Stamp)], _ state: inout State) {
    guard state.writer != nil else { return }
    for (index, (key, version)) in versions.enumerated() {
      let drop = DropRecord(key: key, stamp: version, versions: [version])
      do throws(BlobStorageError) {
        try bridge(drop.encodedPayload()) { (payload) throws(BlobStorageError) in
          _ = try append(
            .drop(drop), payload: payload, to: &state, time: version.time,
            continues: index < versions.count - 1)
        }
      } catch {
        // The pack was given up, and the ref was cut off with it.
        return
      }
    }
  }

  private func synchronizeInTurn(_ watermark: Watermark) throws(BlobStorageError) {
    let plan = locked { state -> Unchecked<(writer: PackWriter, target: Int64, names: Bool)?> in
      guard (state.durable[watermark.pack] ?? 0) < watermark.byteCount || state.needsNameSync,
        let writer = state.writer, writer.name == watermark.pack
      else { return Unchecked(value: nil) }
      return Unchecked(value: (writer, writer.writtenByteCount, state.needsNameSync))
    }
    if let poison = locked({ $0.poison }) { throw poison }
    guard let (writer, target, names) = plan.value else {
      if (locked { $0.durable[watermark.pack] ?? 0 }) >= watermark.byteCount { return }
      // The pack was sealed meanwhile, or given up.
      try synchronizeOther(watermark.pack)
      return
    }
    do {
      try writer.file.synchronize()
      if names { try backend.synchronizeNames() }
    } catch {
      writer.poison(error)
      let failure = writer.failure ?? error
      locked { $0.poison = failure }
      markPoisoned(writer.name)
      throw failure
    }
    locked { state in
      state.durable[writer.name] = target
      if names { state.needsNameSync = false }
    }
  }

  /// Forces a pack to the medium that this session does not write to any more.
  package func synchronizeOther(_ name: PackName) throws(BlobStorageError) {
    guard let file = try backend.openPack(name) else { return }
    defer { file.close() }
    try file.synchronize()
    try backend.synchronizeNames()
  }

  private func seal(_ writer: PackWriter) {
    do throws(BlobStorageError) {
      let byteCount = try writer.seal()
      try backend.synchronizeNames()
      locked { state in
        state.durable[writer.name] = byteCount
        if state.writer == nil { state.needsNameSync = false }
      }
      try catalog.write { (transaction) throws(BlobStorageError) in
        guard let number = try transaction.packNumber(writer.name), var row = try transaction.packRow(number)
        else {
          return
        }
        row.isSealed = true
        row.durableByteCount = byteCount
        try transaction.setPackRow(number, row)
      }
    } catch {
      // All records are visible. The next opening writes the footer.
      logger.warning("Pack \(writer.name) was not sealed.", metadata: ["reason": "\(error.message)"])
      locked { $0.sealFailure = error }
      if error.code == .poisoned {
        locked { $0.poison = error }
        markPoisoned(writer.name)
      }
    }
    writer.file.close()
  }

  /// Tells all writers not to count on what may not have reached the medium.
  private func markPoisoned(_ name: PackName) {
    do throws(BlobStorageError) {
      try catalog.write { (transaction) throws(BlobStorageError) in
        guard let number = try transaction.packNumber(name), var row = try transaction.packRow(number) else {
          return
        }
        row.isPoisoned = true
        try transaction.setPackRow(number, row)
      }
    } catch { logger.error("Pack \(name) could not be marked as not synced.") }
  }

  private func withBox<T>(_ body: (Box) throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    let result: Result<Unchecked<T>, BlobStorageError> = state.withLock { box in
      do throws(BlobStorageError) { return .success(Unchecked(value: try body(box.value))) } catch {
        return .failure(error)
      }
    }
    return try result.get().value
  }

  private func tryLocked<T>(_ body: (inout State) throws(BlobStorageError) -> T) throws(BlobStorageError) -> T
  {
    try withBox { (box) throws(BlobStorageError) in try body(&box.state) }
  }

  private func locked<T>(_ body: (inout State) -> T) -> T {
    state.withLock { box in Unchecked(value: body(&box.value.state)) }.value
  }
}
