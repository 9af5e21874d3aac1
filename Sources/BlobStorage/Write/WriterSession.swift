import Dispatch
import Logging
import Synchronization

/// Writes the packs of one session, one after the other, and runs the commits that make records visible.
///
/// Any thread appends records in any order. The next commit makes them visible in the order of the pack. ``AppendLock``
/// has the packs and names the order of locks; ``WriterState`` holds the other state that threads share.
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

  /// The number in its pack names and stamps. In a shared store it may be replaced by another.
  package var writerID: UInt64 { number.load(ordering: .relaxed) }
  let number: Atomic<UInt64>
  /// Those of the engine.
  let syncs: PackSyncs
  let store: StoreHeader
  let backend: any Backend
  package let catalog: Catalog
  let codecs: CodecPool
  let clock: WallClock
  let logger: Logger
  /// When a pack is full.
  package let packByteCountTarget: Atomic<Int64>
  /// Zeros that a pack gets ahead when durable commits follow each other: a sixty-fourth of a pack, 1 MiB.
  var fillByteCount: Int { Int(packByteCountTarget.load(ordering: .relaxed) / 64) }
  let appendLock = AppendLock()
  private let state = Mutex(WriterState())
  let addedCount = Atomic<Int64>(0)
  let publishingTurn = Turn()
  private let beginning = Turn()
  /// Commits wait for it: their records may need a pack that another thread is sealing.
  let sealing = DispatchGroup()
  let weaknesses: Weaknesses
  package let publisher: any PackPublisher

  init(
    writerID: UInt64, store: StoreHeader, backend: any Backend, catalog: Catalog, codecs: CodecPool,
    clock: WallClock, packByteCountTarget: Int64, weaknesses: Weaknesses, logger: Logger,
    syncs: PackSyncs, publisher: any PackPublisher
  ) {
    number = Atomic(writerID)
    self.store = store
    self.backend = backend
    self.catalog = catalog
    self.codecs = codecs
    self.clock = clock
    self.packByteCountTarget = Atomic(packByteCountTarget)
    self.logger = logger
    self.syncs = syncs
    self.weaknesses = weaknesses
    self.publisher = publisher
  }

  /// The sequence number of the pack that the next record goes to.
  package var currentSequence: UInt32 {
    // Full packs may still have chunks that no version needs yet.
    locked { $0.firstSequence }
  }

  /// Bytes of records appended so far by this session.
  package var addedByteCount: Int64 { addedCount.load(ordering: .relaxed) }

  /// Changes when records that were appended and not yet committed have been lost.
  package var lossCount: Int { locked { $0.lossCount } }

  /// Whether a chunk was appended that is not yet in the catalog.
  package func hasPendingChunk(_ digest: Digest) -> Bool { locked { $0.pendingChunks.contains(digest) } }

  /// Appends a record; a later commit makes it visible. A chunk that is pending already is not appended again.
  ///
  /// - Returns: bytes that were added to the pack.
  @discardableResult
  package func append(
    _ content: PackRecord.Content, payload: RawSpan
  ) throws(BlobStorageError) -> Int {
    try appending { (packs, time) throws(BlobStorageError) in
      try self.append(content, payload: payload, to: &packs, time: time)
    }
  }

  /// Appends refs and drops; a later commit makes them visible.
  func append(commit entries: [CommitRecord.Entry]) throws(BlobStorageError) {
    try appending { (packs, time) throws(BlobStorageError) in
      try self.append(commit: entries, to: &packs, time: time)
    }
  }

  func appending<T>(
    _ body: (inout OpenPacks, _ time: UInt64) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    var time: UInt64 = 0
    while true {
      let count: T?
      do throws(BlobStorageError) {
        count = try appendLock.withLock { (packs) throws(BlobStorageError) -> T? in
          // A new pack needs a time, which the catalog must not provide under this lock.
          if packs.writer == nil, time == 0 { return nil }
          return try body(&packs, time)
        }
      } catch {
        markUncut()
        throw error
      }
      if let count { return count }
      try publisher.admit(self)
      if publishesInTable {
        try beginPack()
        continue
      }
      let last = try catalog.read { (transaction) throws(BlobStorageError) in try transaction.clock() }
      time = Stamp.timeAfter(last, wallClock: clock.now())
    }
  }

  /// Whether lengths are published in the table of open packs.
  var publishesInTable: Bool { catalog.hasTails }

  /// Commits everything appended so far and what `body` appends: all of it becomes visible to all processes, or
  /// nothing.
  ///
  /// What was committed survives the death of the process; ``synchronize(_:)`` makes it survive a power cut.
  ///
  /// - Parameter keys: the keys whose versions `body` reads or changes; nil for any.
  package func commit<T>(
    on keys: [[UInt8]]? = nil, _ body: (inout Commit) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> (result: T, watermark: Watermark?) {
    try runCommit(on: keys) { (isShared, isAlone) throws(BlobStorageError) in
      if isShared, let table = catalog.live.table, !(catalog.tails?.isFull ?? true) {
        let (canPublish, slot) = locked { $0.slotToPublish(in: table) }
        if canPublish {
          let catalogCount = table.catalogCount
          var mustSettle = false
          let attempt = try commitToTail(slot, &mustSettle, body) { table.catalogCount == catalogCount }
          if !mustSettle {
            // A pack that waits to be sealed keeps others waiting: nothing may throw before it is.
            if attempt?.sealable == nil, table.catalogCount != catalogCount { try applyRefused() }
            return attempt
          }
        }
      }
      guard isAlone else { throw BlobStorageError(.needsCatalog, "A commit has to settle.") }
      return try commitToCatalog { (commit, _) throws(BlobStorageError) in try body(&commit) }
    }
  }

  /// - Parameter attempt: gets whether lengths are published in the table of open packs, and whether no other thread commits
  ///     meanwhile. Returns nil if it could not run.
  private func runCommit<T>(
    on keys: [[UInt8]]?,
    by attempt: (_ isShared: Bool, _ isAlone: Bool) throws(BlobStorageError) -> Attempt<T>?
  ) throws(BlobStorageError) -> (result: T, watermark: Watermark?) {
    let done: Attempt<T>
    do throws(BlobStorageError) { done = try commitOnce(on: keys, by: attempt) } catch {
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

  private func commitOnce<T>(
    on keys: [[UInt8]]?,
    by attempt: (_ isShared: Bool, _ isAlone: Bool) throws(BlobStorageError) -> Attempt<T>?
  ) throws(BlobStorageError) -> Attempt<T> {
    var needsCatalog = false
    // No thread waits for a pack while it holds locks that others need: if sealing has begun, the commit returns here.
    while true {
      try settleFull()
      try publisher.admit(self)
      do throws(BlobStorageError) {
        let isShared = publishesInTable
        let isAlone = needsCatalog || !isShared
        let done = try catalog.inCommitTurn(keys, isShared: isShared, isAlone: isAlone) {
          () throws(BlobStorageError) in try attempt(isShared, isAlone)
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

  /// Whether a commit can write now; false while packs that are full are on their way to the medium.
  private func canCommit() throws(BlobStorageError) -> Bool {
    let (isSealing, poison) = locked { ($0.isSealing, $0.poison) }
    if isSealing { return false }
    if let poison { throw poison }
    return true
  }

  /// Runs a commit on the open packs. If it fails, nothing of it stays in the pack.
  ///
  /// - Parameter number: that of the attempt, if other threads may have committed since `transaction` was begun.
  private func attempt<T>(
    _ packs: inout OpenPacks, _ transaction: ReadTransaction, _ number: UInt64 = .max,
    _ body: (inout Commit) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> Attempt<T> {
    var commit = Commit(transaction: transaction, session: self, attempt: number)
    swap(&packs, &commit.packs)
    defer { swap(&packs, &commit.packs) }
    do throws(BlobStorageError) {
      let result = try body(&commit)
      return Attempt(result: result, watermark: commit.packs.watermark, appliedEnd: commit.packs.appliedEnd)
    } catch {
      cutBack(to: commit.packs.commitOffset, &commit.packs, error)
      throw error
    }
  }

  /// Publishes a commit in the live table.
  ///
  /// Other threads do the same at the same time. What they publish after the view was taken concerns other keys, and
  /// chunks that ``WriterState/has(_:in:)`` knows. The append lock orders stamps, records and published lengths.
  ///
  /// - Parameters:
  ///   - mustSettle: becomes true if one published length cannot make the commit visible; `body` did not run.
  ///   - isSettled: whether what has just been published stays visible, so that it is not pending any more.
  private func commitToTail<T>(
    _ slot: LiveTable.Slot?, _ mustSettle: inout Bool,
    _ body: (inout Commit) throws(BlobStorageError) -> T, isSettled: () -> Bool
  ) throws(BlobStorageError) -> Attempt<T>? {
    let epoch = slot?.enter()
    // In this order: for chunks that become visible from here on, gc waits for the attempt.
    let number = locked { $0.beginAttempt() }
    defer {
      locked { $0.endAttempt(number) }
      if let epoch { slot?.leave(epoch) }
    }
    return try catalog.read { (view) throws(BlobStorageError) in
      if let slot, try !Tails.canGrow(slot.pack, view) {
        // A rebuild found the pack damaged and takes no tail of it: from now on each commit settles at once.
        locked { if $0.current?.name == slot.pack { $0.slots[slot.pack] = nil } }
        return nil
      }
      return try appendLock.withLock { (packs) throws(BlobStorageError) -> Attempt<T>? in
        guard try canCommit() else { return nil }
        // A private catalog makes no view.
        guard packs.writer?.name == slot?.pack, catalog.hasTails else { return nil }
        guard packs.isInOnePack else {
          mustSettle = true
          return nil
        }
        var attempt = try attempt(&packs, view, number) { (commit) throws(BlobStorageError) in
          let result = try body(&commit)
          try commit.finishAppending()
          if let slot, let writer = commit.packs.writer {
            try catalog.tails?.publish(
              commit.packs.pending.lazy.map(\.record), of: writer.header, upTo: writer.writtenByteCount,
              in: slot,
              isPromised: commit.isPromised)
          }
          return result
        }
        packs.commitOffset = nil
        if isSettled() { attempt.sealable = removeSettled(&packs, upTo: attempt.appliedEnd) }
        return attempt
      }
    }
  }

  /// Applies what was just published if another process has made the catalog anew meanwhile and found the pack damaged:
  /// such a catalog takes no tail of the pack.
  private func applyRefused() throws(BlobStorageError) {
    guard let name = locked({ $0.current?.name }),
      try !catalog.read({ (view) throws(BlobStorageError) in try Tails.canGrow(name, view) })
    else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      try appendLock.withLock { (packs) throws(BlobStorageError) in
        try apply(packs.pending, to: transaction)
      }
    }
  }

  /// Makes a commit visible by a transaction of the catalog. No other thread publishes meanwhile: until the transaction
  /// has ended, the commit may have to be cut off.
  private func commitToCatalog<T>(
    _ body: (inout Commit, WriteTransaction) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> Attempt<T>? {
    var commitOffset: Int64?
    var commitPack: PackWriter?
    var ends: [(slot: LiveTable.Slot, end: Int64)] = []
    return try catalog.write { (transaction) throws(BlobStorageError) in
      try appendLock.withLock { (packs) throws(BlobStorageError) -> Attempt<T>? in
        guard try canCommit() else { return nil }
        let attempt = try attempt(&packs, transaction) { (commit) throws(BlobStorageError) in
          let result = try body(&commit, transaction)
          try commit.finishAppending()
          try apply(commit.packs.pending, to: transaction, isPromised: commit.isPromised)
          return result
        }
        (commitOffset, commitPack) = (packs.commitOffset, packs.writer)
        packs.commitOffset = nil
        ends = writtenEnds(packs)
        return attempt
      }
    } undo: { error in
      // The catalog transaction failed. Another thread may have ended the pack since.
      appendLock.withLock { cutBack(to: commitOffset, of: commitPack, &$0, error) }
      commitOffset = nil
    } done: {
      for (slot, end) in ends { slot.raise(to: end) }
    }
  }

  /// Settles once the tails are long or old.
  private func settleTails() {
    guard let tails = catalog.tails, tails.beginSettling() else { return }
    defer { tails.endSettling() }
    do throws(BlobStorageError) { try catalog.settle() } catch {
      // Everything is visible. The next commit tries again.
      tails.postponeSettling()
      logger.warning("The catalog could not be brought up to date.", metadata: ["reason": "\(error.message)"])
    }
  }

  // MARK: Inside

  /// Appends a record under the append lock, in a new pack if there is none.
  func append(
    _ content: PackRecord.Content, payload: RawSpan, to packs: inout OpenPacks, time: UInt64
  ) throws(BlobStorageError) -> Int {
    if let entry = content.entry {
      let before = packs.writer?.byteCount ?? Int64(PackHeader.byteCount)
      try append(commit: CollectionOfOne(entry), to: &packs, time: time)
      return Int((packs.writer?.byteCount ?? before) - before)
    }
    if packs.writer == nil {
      let (poison, isPending) = locked { ($0.poison, $0.isPending(content)) }
      if let poison { throw poison }
      if isPending { return 0 }
    }
    guard let writer = try writer(&packs, time: time) else { return 0 }
    switch locked({ $0.admit(content) }) {
    case .refused(let poison): throw poison
    case .alreadyPending: return 0
    case .admitted: break
    }
    let record: PackRecord
    do { record = try writer.append(content, payload: payload) } catch {
      lose(writer, &packs, error)
      throw error
    }
    packs.pending.append((writer.header, record))
    addedCount.wrappingAdd(Int64(record.byteCount), ordering: .relaxed)
    return record.byteCount
  }

  /// Appends the refs and drops of a commit under the append lock, in a new pack if there is none, and ends the commit.
  func append(
    commit: some Collection<CommitRecord.Entry>, to packs: inout OpenPacks, time: UInt64
  ) throws(BlobStorageError) {
    guard let writer = try writer(&packs, time: time) else { return }
    let (poison, synced) = locked { ($0.poison, $0.durableByteCount(of: writer.name)) }
    if let poison { throw poison }
    var added: Int64 = 0
    do throws(BlobStorageError) {
      try writer.append(
        commit: commit, isSplit: weaknesses.contains(.splitsCommits), syncedByteCount: synced
      ) { record in
        packs.pending.append((writer.header, record))
        added += Int64(record.byteCount)
      }
    } catch {
      lose(writer, &packs, error)
      throw error
    }
    addedCount.wrappingAdd(added, ordering: .relaxed)
  }

  /// The pack that takes the next record, begun if there is none.
  func writer(
    _ packs: inout OpenPacks, time: UInt64
  ) throws(BlobStorageError) -> PackWriter? {
    if packs.writer == nil {
      if let poison = locked({ $0.poison }) { throw poison }
      if publishesInTable { throw BlobStorageError(.needsPack, "A pack has to be begun first.") }
      try begin(&packs, time: time)
    }
    return packs.writer
  }

  /// Hands all packs to the system.
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
    if isOftenSynced { current?.fillByteCount = fillByteCount }
  }

  /// The slots of unsealed packs, with the lengths that the system has.
  func writtenEnds(_ packs: borrowing OpenPacks) -> [(slot: LiveTable.Slot, end: Int64)] {
    let slots = locked { $0.slots }
    return packs.writers.compactMap { writer in
      slots[writer.name].map { ($0, writer.writtenByteCount) }
    }
  }

  /// Gives up a pack that cannot be written any more. Loses what the system does not have of it, and truncates what it
  /// has of a commit under way.
  func lose(
    _ writer: PackWriter, _ packs: inout OpenPacks, _ cause: BlobStorageError, commitOffset: Int64? = nil
  ) {
    let commitOffset = commitOffset ?? (packs.writer === writer ? packs.commitOffset : nil)
    let end = min(writer.writtenByteCount, commitOffset ?? .max)
    packs.remove(writer, from: end)
    _ = locked { $0.beginCut(of: writer.name, leaving: packs, cause) }
    var failure: BlobStorageError?
    // Synced, because a power cut would otherwise bring back records that were reported as failed.
    do throws(BlobStorageError) {
      try writer.file.truncate(to: end)
      try writer.file.synchronize()
    } catch {
      syncs.markFailed(writer.name)
      writer.poison(error)
      failure = writer.failure ?? error
    }
    locked { $0.endCut(of: writer.name, failure: failure) }
    publisher.giveUp(writer, cause, of: self)
    logger.error("Pack \(writer.name) cannot be written.", metadata: ["reason": "\(cause.message)"])
  }

  /// Truncates a failed commit: the next commit would apply refs and drops that stayed.
  private func cutBack(
    to offset: Int64?, of pack: PackWriter? = nil, _ packs: inout OpenPacks, _ cause: BlobStorageError
  ) {
    packs.commitOffset = nil
    guard let offset, let writer = pack ?? packs.writer else { return }
    lose(writer, &packs, cause, commitOffset: offset)
  }

  /// Reads or changes what threads share. Nothing waits in `body`, and it does no I/O.
  func locked<T: Sendable>(_ body: (inout WriterState) -> T) -> T { state.withLock { body(&$0) } }
}

/// Begins packs, and reserves space for packs of known length before anything is written.
extension WriterSession {
  /// Bytes that long work appends between commits: a pack ends with a commit, when it is full.
  package var commitByteCountMax: Int64 { min(16 << 20, packByteCountTarget.load(ordering: .relaxed)) }

  func packByteCountTarget(_ packs: borrowing OpenPacks) -> Int64 {
    packs.packByteCountTarget ?? packByteCountTarget.load(ordering: .relaxed)
  }

  /// Begins the next pack, adds it to the catalog, and claims a slot of the live table if one is free.
  func beginPack() throws(BlobStorageError) {
    try beginning.acquire(isPatient: true)
    defer { beginning.release() }
    try beginPackInTurn()
  }

  private func beginPackInTurn() throws(BlobStorageError) {
    guard
      try appendLock.withLock({ (packs) throws(BlobStorageError) -> Bool in
        if let poison = locked({ $0.poison }) { throw poison }
        return packs.writer == nil
      })
    else { return }
    let last = try catalog.read { (transaction) throws(BlobStorageError) in try transaction.clock() }
    let sequence = locked { $0.nextSequence }
    let writer = try newPack(sequence, time: Stamp.timeAfter(last, wallClock: clock.now()))
    do throws(BlobStorageError) {
      try catalog.write { (transaction) throws(BlobStorageError) in
        if try transaction.packNumber(writer.name) == nil {
          _ = try transaction.addPack(PackRow(name: writer.name, created: writer.header.created))
        }
      }
      // The pack gets a slot before any record: a rebuild applies it only up to the slot's length.
      let name = writer.name
      let slot = try catalog.claimSlot(name)
      appendLock.withLock { packs in
        packs.begin(writer)
        locked { state in
          // Only now: syncing of names, and leases, rely on the packs up to this number.
          state.nextSequence = sequence + 1
          state.slots[name] = slot
          state.update(from: packs)
        }
      }
    } catch {
      // The next opening removes it or seals it as an empty pack.
      writer.file.close()
      appendLock.withLock { _ in locked { $0.nextSequence = sequence + 1 } }
      throw error
    }
  }

  private func newPack(_ sequence: UInt32, time: UInt64) throws(BlobStorageError) -> PackWriter {
    guard time < Stamp.timeMax else {
      throw BlobStorageError(.limitExceeded, "The store's clock has come to its end.")
    }
    let header = PackHeader(
      name: PackName(writer: writerID, sequence: sequence), storeID: store.storeID,
      digestAlgorithm: store.digestAlgorithm, created: time)
    return try PackWriter(header: header, backend: backend, codecs: codecs)
  }

  /// Begins the next pack of a store whose packs are published as objects.
  func begin(_ packs: inout OpenPacks, time: UInt64) throws(BlobStorageError) {
    packs.begin(try newPack(locked { $0.nextSequence }, time: time))
    locked { state in
      state.nextSequence += 1
      state.update(from: packs)
    }
  }

  /// Makes the current pack, begun if necessary, accept `byteCount` more bytes, and reserves the space for them. It is
  /// full when it has them.
  package func reserveRoom(byteCount: Int64) throws(BlobStorageError) {
    try publisher.admit(self)
    if publishesInTable { try beginPack() }
    let last = try catalog.read { (transaction) throws(BlobStorageError) in try transaction.clock() }
    try appendLock.withLock { (packs) throws(BlobStorageError) in
      if let poison = locked({ $0.poison }) { throw poison }
      if packs.writer == nil { try begin(&packs, time: Stamp.timeAfter(last, wallClock: clock.now())) }
      guard let writer = packs.writer else { return }
      let target = writer.byteCount + byteCount
      try writer.reserve(byteCount: target)
      packs.packByteCountTarget = target
    }
  }
}

extension BlobStorageError.Code {
  /// A commit needs a new pack, which is begun without locks. Never leaves the library.
  static let needsPack = Self("needsPack")
  /// A commit has to run alone, in a catalog transaction. Never leaves the library.
  static let needsCatalog = Self("needsCatalog")
}
