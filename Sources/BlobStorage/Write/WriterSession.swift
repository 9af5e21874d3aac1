import Dispatch
import Logging
import Synchronization

/// Writes the packs of one session, one after the other, and runs the commits that make records visible.
///
/// Any thread appends records in any order. The next commit makes them visible in the order of the pack. ``OpenPacks``
/// names the order of locks; ``WriterState`` holds the other state that threads share.
package final class WriterSession: Sendable {
  /// What must be on the medium for a commit to be durable.
  package struct Watermark: Sendable {
    package var pack: PackName
    package var byteCount: Int64

    package init(pack: PackName, byteCount: Int64) {
      self.pack = pack
      self.byteCount = byteCount
    }
  }

  /// The number in its pack names and stamps. In a shared store another may replace it.
  package var writerID: UInt64 { number.load(ordering: .relaxed) }
  let number: Atomic<UInt64>
  /// Shared by all sessions of the engine.
  let syncs: PackSyncs
  let store: StoreHeader
  let backend: any Backend
  package let catalog: Catalog
  let codecs: CodecPool
  let clock: WallClock
  let logger: Logger
  /// The length at which a pack is full.
  package let packByteCountTarget: Atomic<Int64>
  let packRecordCountTarget: Int
  /// When its packs were begun at the earliest, as they say.
  let packTimeMin: UInt64
  /// Zeros written ahead in a pack when durable commits follow each other closely: a sixty-fourth of a pack, by default
  /// 1 MiB.
  var fillByteCount: Int { Int(packByteCountTarget.load(ordering: .relaxed) / 64) }
  /// The most zeros written ahead when small commits without a sync follow each other. They should stay in the
  /// processor's cache until they are overwritten.
  private static let shortFillByteCount = 256 << 10
  /// No shorter pack counts as long.
  private static let longPackByteCountMin: Int64 = 1 << 20
  let appendLock = IOLock(OpenPacks())
  private let state = Mutex(WriterState())
  let addedCount = Atomic<Int64>(0)
  let publishingTurn = Turn()
  /// Held while a pack is begun, and while the session's number changes or the session ends.
  let beginning = Turn()
  /// Commits wait for it, because their records may need a pack that another thread is sealing.
  let sealing = DispatchGroup()
  let weaknesses: Weaknesses
  package let publisher: any PackPublisher

  init(
    writerID: UInt64, store: StoreHeader, backend: any Backend, catalog: Catalog, codecs: CodecPool,
    clock: WallClock, packByteCountTarget: Int64, packRecordCountTarget: Int, weaknesses: Weaknesses,
    logger: Logger,
    syncs: PackSyncs, publisher: any PackPublisher, packTimeMin: UInt64 = 0
  ) {
    number = Atomic(writerID)
    self.store = store
    self.backend = backend
    self.catalog = catalog
    self.codecs = codecs
    self.clock = clock
    self.packByteCountTarget = Atomic(packByteCountTarget)
    self.packRecordCountTarget = packRecordCountTarget
    self.logger = logger
    self.syncs = syncs
    self.weaknesses = weaknesses
    self.publisher = publisher
    self.packTimeMin = packTimeMin
  }

  /// The sequence number of the first pack that is not being sealed, from which on puts need protection from gc.
  package var currentSequence: UInt32 {
    // Not of the current pack: full packs may still have chunks that no version needs yet.
    locked { $0.firstSequence }
  }

  /// Bytes of records appended so far by this session.
  package var addedByteCount: Int64 { addedCount.load(ordering: .relaxed) }

  /// Increases when records that were appended and not yet committed are lost.
  package var lossCount: Int { locked { $0.lossCount } }

  /// Whether a chunk was appended without a base, and the catalog does not have it yet.
  package func hasPendingChunk(_ digest: BlobDigest) -> Bool { locked { $0.pending.containsChunk(digest) } }

  /// Appends a record; a later commit makes it visible. A chunk that is pending already is not appended again.
  ///
  /// - Returns: bytes that were added to the pack.
  @discardableResult
  package func append(
    _ content: PackRecord.Content, payload: RawSpan
  ) throws(BlobStorageError) -> Int {
    try appending { (packs) throws(BlobStorageError) in
      try self.append(content, payload: payload, to: &packs)
    }
  }

  /// Appends a frame; a later commit makes its members visible.
  ///
  /// - Returns: bytes that were added to the pack.
  @discardableResult
  package func append(_ frame: FrameRecord, payload: RawSpan) throws(BlobStorageError) -> Int {
    try appending { (packs) throws(BlobStorageError) in
      try self.append(frame, payload: payload, to: &packs)
    }
  }

  /// Appends a frame or a chunk.
  func append(_ part: JoinedChunks.Part) throws(BlobStorageError) -> Int {
    switch part {
    case .frame(let frame, let stored): try append(frame, payload: stored.span.bytes)
    case .chunk(let chunk, let stored): try append(.chunk(chunk), payload: stored.span.bytes)
    }
  }

  /// Appends refs and drops; a later commit makes them visible.
  func append(commit entries: [CommitRecord.Entry]) throws(BlobStorageError) {
    try appending { (packs) throws(BlobStorageError) in
      try self.append(commit: entries, to: &packs)
    }
  }

  func appending<T>(
    _ body: (inout OpenPacks) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    while true {
      do throws(BlobStorageError) {
        return try appendLock.withLock { (packs) throws(BlobStorageError) in
          if packs.writer?.isFlushed == true { try endShared(&packs) }
          return try body(&packs)
        }
      } catch {
        markUncut()
        guard error.code == .needsPack else { throw error }
      }
      try publisher.admit(self)
      try beginPack()
    }
  }

  /// Commits everything appended so far and what `body` appends: all processes see all of it or nothing.
  ///
  /// A commit survives the death of the process; ``synchronize(_:)`` makes it survive a power cut.
  ///
  /// - Parameter keys: the keys whose versions `body` reads or changes; nil for any.
  package func commit<T>(
    on keys: [[UInt8]]? = nil, _ body: (inout Commit) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> (result: T, watermark: Watermark?) {
    let done: Attempt<T>
    do throws(BlobStorageError) { done = try attempted(on: keys, body) } catch {
      markUncut()
      throw error
    }
    if let sealable = done.sealable {
      for writer in sealable { seal(writer) }
    } else {
      settle(done.appliedEnd)
    }
    settleTails()
    return (done.result, done.watermark)
  }

  /// Runs a commit: beside others if a published length can make it visible, otherwise alone, in a catalog transaction.
  private func attempted<T>(
    on keys: [[UInt8]]?, _ body: (inout Commit) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> Attempt<T> {
    var needsCatalog = false
    // No thread waits for a pack while it holds locks that others need. If sealing has begun, the commit starts again
    // here.
    while true {
      try endLongPack()
      try publisher.admit(self)
      let publishes = catalog.hasTails
      // Looking up rows that lie elsewhere can fail. Then this commit must fail, and not later views.
      let settles = catalog.hasOuterRows && !weaknesses.contains(.publishesOverOuterRows)
      let isAlone = needsCatalog || settles || !publishes
      do throws(BlobStorageError) {
        let done = try catalog.inCommitTurn(keys, publishes: publishes, isAlone: isAlone) {
          () throws(BlobStorageError) -> Attempt<T>? in
          switch publishes && !settles ? try commitToTail(body) : .mustSettle {
          case .published(let attempt): return attempt
          case .mustWait: return nil
          case .mustSettle: break
          }
          guard isAlone else { throw BlobStorageError(.needsCatalog, "A commit has to settle.") }
          return try commitToCatalog(body)
        }
        if let done { return done }
      } catch {
        switch error.code {
        case .needsPack: try beginPack()
        case .needsCatalog: needsCatalog = true
        default: throw error
        }
      }
    }
  }

  private struct Attempt<T> {
    var result: T
    var watermark: Watermark?
    /// The count of records that are visible now.
    var appliedEnd: Int
    /// The packs to seal; nil if the records are still pending.
    var sealable: [PackWriter]?
  }

  /// The result of an attempt to publish a commit in the live table.
  private enum TailCommit<T> {
    case published(Attempt<T>)
    /// The commit must try again: a pack is being sealed, or the current pack or catalog has changed.
    case mustWait
    /// A published length cannot make the commit visible; its body did not run.
    case mustSettle
  }

  /// Whether a commit can write now; false while packs that are full are on their way to the medium.
  private func canCommit() throws(BlobStorageError) -> Bool {
    let (isSealing, poison) = locked { ($0.isSealing, $0.poison) }
    if isSealing { return false }
    if let poison { throw poison }
    return true
  }

  /// Runs a commit on the open packs. If it fails, none of its refs and drops stays in the pack.
  ///
  /// - Parameter number: the number of the attempt, if other threads may have committed since `transaction` began.
  private func attempt<T>(
    _ packs: inout OpenPacks, _ transaction: ReadTransaction, _ number: UInt64 = .max,
    _ body: (inout Commit) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> Attempt<T> {
    try endShared(&packs)
    var commit = Commit(transaction: transaction, session: self, attempt: number)
    swap(&packs, &commit.packs)
    defer { swap(&packs, &commit.packs) }
    do throws(BlobStorageError) {
      let result = try body(&commit)
      return Attempt(result: result, watermark: commit.packs.watermark, appliedEnd: commit.packs.appliedEnd)
    } catch {
      locked { $0.pending.removeManifests() }
      cutBack(to: commit.packs.commitOffset, &commit.packs, error)
      throw error
    }
  }

  /// Publishes a commit in the live table.
  ///
  /// Other threads do so at the same time. What they publish after the view was taken concerns other keys, and chunks
  /// that ``PendingRecords/has(_:in:)`` knows. The append lock orders stamps, records and published lengths.
  private func commitToTail<T>(
    _ body: (inout Commit) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> TailCommit<T> {
    guard let table = catalog.live.table, !catalog.tails.isFull else { return .mustSettle }
    let (canPublish, slot) = locked { $0.slotToPublish(in: table) }
    guard canPublish else { return .mustSettle }
    let catalogCount = table.catalogCount
    let epoch = slot?.enter()
    // In this order: gc then waits for the attempt, which may find chunks that become visible from here on.
    let number = locked { $0.pending.beginAttempt() }
    let publication: TailCommit<T>
    do {
      defer {
        locked { $0.pending.endAttempt(number) }
        if let epoch { slot?.leave(epoch) }
      }
      publication = try catalog.read { (view) throws(BlobStorageError) in
        // The catalog may have been replaced since.
        if view.database.outerRows != nil, !weaknesses.contains(.publishesOverOuterRows) {
          return .mustSettle
        }
        if let slot, try view.openPack(slot.pack) == nil {
          // A rebuild found the pack damaged and applies no tail of it. From now on each commit settles at once.
          locked { if $0.current?.name == slot.pack { $0.slots[slot.pack] = nil } }
          return .mustWait
        }
        return try appendLock.withLock { (packs) throws(BlobStorageError) in
          try publish(&packs, view, number, slot, body) { table.catalogCount == catalogCount }
        }
      }
    }
    // While a full pack waits to be sealed, other threads wait: nothing may throw before.
    if case .published(let attempt) = publication, attempt.sealable == nil, table.catalogCount != catalogCount
    {
      try applyRefused()
    }
    return publication
  }

  /// - Parameter isSettled: whether the published records stay visible, so that they are not pending.
  private func publish<T>(
    _ packs: inout OpenPacks, _ view: ReadTransaction, _ number: UInt64, _ slot: LiveTable.Slot?,
    _ body: (inout Commit) throws(BlobStorageError) -> T, isSettled: () -> Bool
  ) throws(BlobStorageError) -> TailCommit<T> {
    // A private catalog has no tails. Without a full pack all pending records lie in the current one, so that one
    // published length makes them visible.
    guard try canCommit(), packs.writer?.name == slot?.pack, catalog.hasTails else { return .mustWait }
    var attempt = try attempt(&packs, view, number) { (commit) throws(BlobStorageError) in
      let result = try body(&commit)
      try commit.finishAppending()
      if let slot, let writer = commit.packs.writer {
        try catalog.tails.publish(
          commit.packs.pending.lazy.map(\.record), of: writer.header, upTo: writer.writtenByteCount,
          in: slot, isPromised: commit.isPromised)
        catalog.changeSignal.send()
      }
      return result
    }
    packs.commitOffset = nil
    if isSettled() { attempt.sealable = removeSettled(&packs, upTo: attempt.appliedEnd) }
    return .published(attempt)
  }

  /// Applies what was just published if another process has meanwhile rebuilt the catalog and found the pack damaged:
  /// such a catalog applies no tail of the pack.
  private func applyRefused() throws(BlobStorageError) {
    guard let name = locked({ $0.current?.name }),
      try catalog.read({ (view) throws(BlobStorageError) in try view.openPack(name) == nil })
    else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      try appendLock.withLock { (packs) throws(BlobStorageError) in
        try flush(&packs)
        try transaction.apply(packs.pending)
        packs.writer?.endCommit()
      }
    }
  }

  /// Makes a commit visible by a catalog transaction. No other thread publishes meanwhile, because the commit is
  /// truncated if the transaction fails.
  private func commitToCatalog<T>(
    _ body: (inout Commit) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> Attempt<T>? {
    var commitOffset: Int64?
    var commitPack: PackWriter?
    var ends: [(slot: LiveTable.Slot, end: Int64)] = []
    return try catalog.write { (transaction) throws(BlobStorageError) in
      try appendLock.withLock { (packs) throws(BlobStorageError) -> Attempt<T>? in
        guard try canCommit() else { return nil }
        let attempt = try attempt(&packs, transaction) { (commit) throws(BlobStorageError) in
          let result = try body(&commit)
          try commit.finishAppending()
          try transaction.apply(commit.packs.pending, isPromised: commit.isPromised)
          return result
        }
        (commitOffset, commitPack) = (packs.commitOffset, packs.writer)
        packs.commitOffset = nil
        ends = writtenEnds(packs)
        return attempt
      }
    } undo: { error in
      // The catalog transaction failed. Another thread may have ended the pack since.
      locked { $0.pending.removeManifests() }
      appendLock.withLock { cutBack(to: commitOffset, of: commitPack, &$0, error) }
      commitOffset = nil
    } done: {
      for (slot, end) in ends { slot.raise(to: end) }
    }
  }

  /// Settles once the tails are long or old.
  private func settleTails() {
    guard catalog.tails.beginSettling() else { return }
    defer { catalog.tails.endSettling() }
    do throws(BlobStorageError) { try catalog.settle() } catch {
      // Everything is visible. The next commit tries again.
      catalog.tails.postponeSettling()
      logger.warning("The catalog could not be brought up to date.", metadata: ["reason": "\(error.message)"])
    }
  }

  // MARK: Inside

  /// Appends a record under the append lock.
  ///
  /// - Throws: `needsPack` if a pack has to be begun first.
  func append(
    _ content: PackRecord.Content, payload: RawSpan, to packs: inout OpenPacks
  ) throws(BlobStorageError) -> Int {
    if let entry = content.entry {
      let before = packs.writer?.byteCount ?? Int64(PackHeader.byteCount)
      try append(commit: CollectionOfOne(entry), to: &packs)
      return Int((packs.writer?.byteCount ?? before) - before)
    }
    if packs.writer == nil, locked({ $0.poison == nil && $0.pending.contains(content) }) { return 0 }
    return try append(to: &packs) {
      $0.insert(content)
    } _: { (writer) throws(BlobStorageError) in
      OneOrMore(try writer.append(content, payload: payload))
    }
  }

  /// Appends a frame under the append lock.
  func append(
    _ frame: FrameRecord, payload: RawSpan, to packs: inout OpenPacks
  ) throws(BlobStorageError) -> Int {
    try append(to: &packs) {
      $0.insert(frame)
    } _: { (writer) throws(BlobStorageError) in
      try writer.append(frame, payload: payload)
    }
  }

  /// - Parameter insert: makes the record pending; false if it is already.
  private func append(
    to packs: inout OpenPacks, _ insert: (inout PendingRecords) -> Bool,
    _ write: (PackWriter) throws(BlobStorageError) -> OneOrMore<PackRecord>
  ) throws(BlobStorageError) -> Int {
    let writer = try writer(packs)
    guard locked({ insert(&$0.pending) }) else { return 0 }
    let before = writer.byteCount
    do throws(BlobStorageError) {
      for record in try write(writer) { packs.pending.append((writer.header, record)) }
    } catch {
      lose(writer, &packs, error)
      throw error
    }
    addedCount.wrappingAdd(writer.byteCount - before, ordering: .relaxed)
    if packs.packByteCountTarget == nil,
      writer.byteCount >= max(4 * packByteCountTarget.load(ordering: .relaxed), Self.longPackByteCountMin)
    {
      locked { $0.isLong = true }
    }
    return Int(writer.byteCount - before)
  }

  /// Appends the refs and drops of a commit under the append lock, and ends the commit.
  func append(
    commit: some Collection<CommitRecord.Entry>, to packs: inout OpenPacks
  ) throws(BlobStorageError) {
    let writer = try writer(packs)
    let synced = locked { $0.durableByteCount(of: writer.name) }
    var added: Int64 = 0
    func append(_ entries: some Collection<CommitRecord.Entry>) throws(BlobStorageError) {
      try writer.append(commit: entries, syncedByteCount: synced) { record in
        packs.pending.append((writer.header, record))
        added += Int64(record.byteCount)
      }
    }
    do throws(BlobStorageError) {
      if weaknesses.contains(.splitsCommits) {
        for entry in commit { try append(CollectionOfOne(entry)) }
      } else {
        try append(commit)
      }
    } catch {
      lose(writer, &packs, error)
      throw error
    }
    addedCount.wrappingAdd(added, ordering: .relaxed)
  }

  /// Ends the current pack if a copy of the store shares its file by a hard link: it takes no more records.
  ///
  /// - Throws: `needsPack` if it was ended.
  private func endShared(_ packs: inout OpenPacks) throws(BlobStorageError) {
    guard backend.isDurableOnceSynced, try packs.writer?.isShared() == true else { return }
    packs.endCurrent()
    locked { $0.update(from: packs) }
    throw BlobStorageError(.needsPack, "A pack has to be begun first.")
  }

  /// The pack that takes the next record.
  private func writer(_ packs: borrowing OpenPacks) throws(BlobStorageError) -> PackWriter {
    if let poison = locked({ $0.poison }) { throw poison }
    if let writer = packs.writer { return writer }
    throw BlobStorageError(.needsPack, "A pack has to be begun first.")
  }

  /// Flushes all packs to the system.
  func flush(_ packs: inout OpenPacks) throws(BlobStorageError) {
    for writer in packs.writers {
      do { try writer.flush() } catch {
        lose(writer, &packs, error)
        throw error
      }
    }
    let current = packs.writer
    let isOftenSynced = locked { state in
      state.update(from: packs)
      return state.current.map { state.isOftenSynced($0.name) } ?? false
    }
    if isOftenSynced {
      current?.fillByteCount = fillByteCount
    } else if let current, current.isOftenFlushed {
      current.fillByteCount = min(fillByteCount, Self.shortFillByteCount)
    }
  }

  /// The slots of unsealed packs, with the lengths that the system has.
  func writtenEnds(_ packs: borrowing OpenPacks) -> [(slot: LiveTable.Slot, end: Int64)] {
    let slots = locked { $0.slots }
    return packs.writers.compactMap { writer in
      slots[writer.name].map { ($0, writer.writtenByteCount) }
    }
  }

  /// Gives up a pack that cannot be written. Loses its pending records, and truncates the refs and drops of a commit in
  /// progress.
  func lose(
    _ writer: PackWriter, _ packs: inout OpenPacks, _ cause: BlobStorageError, commitOffset: Int64? = nil
  ) {
    let commitOffset = commitOffset ?? (packs.writer === writer ? packs.commitOffset : nil)
    let end = min(writer.writtenByteCount, commitOffset ?? .max)
    packs.remove(writer)
    // Callers are told of it later: a code that asks for another attempt is not for them.
    let isOwn = cause.code == .mapFull || cause.code == .catalogDamaged
    let told = isOwn ? BlobStorageError(.io, cause.message, pack: "\(writer.name)") : cause
    _ = locked { $0.beginCut(of: writer.name, leaving: packs, told) }
    var failure: BlobStorageError?
    // Synced, because a power cut would otherwise bring back records that were reported as failed.
    do throws(BlobStorageError) {
      try writer.file.truncate(to: end)
      try writer.file.synchronize()
      // Its other records count as synced, and no later sync is for this pack.
      try backend.synchronizeNames()
    } catch {
      syncs.markFailed(writer.name)
      writer.poison(error)
      failure = writer.failure ?? error
    }
    locked { $0.endCut(of: writer.name, failure: failure) }
    publisher.giveUp(writer, cause, of: self)
    logger.error("Pack \(writer.name) cannot be written.", metadata: ["reason": "\(cause.message)"])
  }

  /// Truncates a failed commit. Otherwise the next commit would apply its refs and drops.
  private func cutBack(
    to offset: Int64?, of pack: PackWriter? = nil, _ packs: inout OpenPacks, _ cause: BlobStorageError
  ) {
    packs.commitOffset = nil
    guard let offset, let writer = pack ?? packs.writer else { return }
    lose(writer, &packs, cause, commitOffset: offset)
  }

  /// Reads or changes the state that threads share. `body` neither waits nor does I/O.
  func locked<T: Sendable>(_ body: (inout WriterState) -> T) -> T { state.withLock { body(&$0) } }

  // MARK: What any process has published in packs that are still open

  /// Syncs what all writers of a folder have published in open packs.
  ///
  /// - Parameters:
  ///   - known: packs to leave out, because their sync had failed before.
  ///   - isOfOthers: whether to leave out the packs of this session, too.
  /// - Throws: `poisoned` if the sync of another open pack has failed.
  package func synchronizeOpenPacks(
    exceptFailed known: Set<PackName>, isOfOthers: Bool = false
  ) throws(BlobStorageError) {
    guard backend.isDurableOnceSynced else { return }
    for row in try openPacks() where !known.contains(row.name) {
      if isOfOthers, row.name.writer == writerID { continue }
      if isDurable(Watermark(pack: row.name, byteCount: row.appliedByteCount)) { continue }
      if try synchronizeOther(row.name) { continue }
      guard try isRecovered(row.name) else { throw .unsynced(row.name) }
    }
    try catalog.anchor?.check()
  }

  /// The open packs of a folder. Reads only the rows from the first pack on that was open the last time: a sealed pack
  /// stays sealed, and a new pack has the greatest number.
  private func openPacks() throws(BlobStorageError) -> [PackRow] {
    let known = locked { $0.firstOpenPack }
    return try catalog.read { (view) throws(BlobStorageError) in
      let database = view.database.number
      let rows = try view.packRows(from: known.database == database ? known.pack : 0)
      let open = rows.filter { !$0.row.isSealed }
      if let first = (open.first ?? rows.last)?.number {
        locked { $0.firstOpenPack = (database, first) }
      }
      return open.map(\.row)
    }
  }

  /// Whether a pack whose sync has failed is on the medium by now. If its writer has ended, recovery writes it again.
  ///
  /// - Returns: also false if the medium has lost records that views have shown until now.
  func isRecovered(_ pack: PackName) throws(BlobStorageError) -> Bool {
    let byteCount = try catalog.packRow(pack)?.appliedByteCount ?? 0
    try catalog.recoverDead()
    guard let row = try catalog.packRow(pack) else { return true }
    return !row.isPoisoned && !row.isDamaged && row.appliedByteCount >= byteCount
  }
}

extension BlobStorageError {
  /// The error for an open pack whose sync has failed: another process may still write to it.
  package static func unsynced(_ pack: PackName) -> Self {
    Self(
      .poisoned, "A sync of pack \(pack) has failed: close the store wherever it is open, and try again.",
      pack: pack.description)
  }
}
