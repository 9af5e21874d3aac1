import Dispatch
import Logging
import Synchronization

/// Writes the packs of one session, one after the other, and runs the commits that make records visible.
///
/// Lock order: commit turn and key stripes, then the catalog's write transaction, then this session, then the tails.
/// Any thread appends records in any order. The next commit makes them visible in the order of the pack.
package final class WriterSession: Sendable {
  /// What must be on the medium for a commit to be durable.
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
    /// Number of records that left `pending`. Two commits may have applied the same ones.
    var settledCount = 0
    var pendingChunks: Set<Digest> = []
    var pendingManifests: Set<Digest> = []
    /// Where in the pack the refs and drops of the commit under way begin.
    var commitOffset: Int64?
    /// How much of packs, own and others', is known to be on the medium, their names included.
    var durable: [PackName: Int64] = [:]
    /// Packs that are full and not yet on the medium.
    var sealingCount = 0
    /// Up to that number the names of this session's packs are on the medium.
    var namedSequence: UInt32 = 0
    /// Increases whenever records were lost before they were applied.
    var lossCount = 0
    var lossCause: BlobStorageError?
    var poison: BlobStorageError?
    /// Why the last pack could not be sealed.
    var sealFailure: BlobStorageError?
    var addedByteCount: Int64 = 0
    /// The time of the last stamp. Never reused, even if its commit failed: its record may reappear after a power cut.
    var lastTime: UInt64 = 0
    /// The times of all stamps that were given out ahead of the clock, in ascending order.
    var timesAhead: [ClosedRange<UInt64>] = []
    /// A pack that could not be cut back for good, until the catalog says so.
    var unmarkedPoison: PackName?
    /// The length of the current pack, if it was begun for a known length.
    var packByteCountTarget: Int64?
    /// The slots in which unsealed packs publish their lengths.
    var slots: [PackName: LiveTable.Slot] = [:]

    /// The slots of unsealed packs, with the lengths that the system has.
    var writtenEnds: [(slot: LiveTable.Slot, end: Int64)] {
      (full + (writer.map { [$0] } ?? [])).compactMap { writer in
        slots[writer.name].map { ($0, writer.writtenByteCount) }
      }
    }

    /// Whether one published length can make a commit visible: all pending records lie in one pack that has a slot.
    func canPublish(in table: LiveTable?) -> Bool {
      guard let writer else { return pending.isEmpty }
      return slots[writer.name]?.table === table && pending.allSatisfy { $0.header.name == writer.name }
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
  private let state = Mutex(Unchecked(value: Box()))
  private let syncTurn = Turn()
  let beginning = Mutex<Void>(())
  private let tally = CommitTally()
  /// Commits wait for it: their records may need a pack that another thread is sealing.
  let sealing = DispatchGroup()
  let weaknesses: Weaknesses
  package let publisher: any PackPublisher
  /// Whether a record is durable once its pack is published, in the order of the packs, and not once it is synced.
  package let publishes: Bool

  final class Box { var state = State() }

  init(
    writerID: UInt64, store: StoreHeader, backend: any Backend, catalog: Catalog, codecs: CodecPool,
    clock: WallClock, packByteCountTarget: Int64, weaknesses: Weaknesses, logger: Logger,
    syncs: PackSyncs, publisher: any PackPublisher
  ) {
    number = Atomic(writerID)
    self.store = store
    self.backend = backend
    publishes = backend.publishes
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
    locked { state in
      // Full packs may still have chunks that no version needs yet.
      state.full.map(\.name.sequence).min() ?? state.writer?.name.sequence ?? state.nextSequence
    }
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
      let count: Int?
      do throws(BlobStorageError) {
        count = try tryLocked { (state) throws(BlobStorageError) -> Int? in
          // A new pack needs a time, which the catalog must not provide under this lock.
          if state.writer == nil, time == 0 { return nil }
          return try self.append(content, payload: payload, to: &state, time: time)
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
    try runCommit(on: keys) { (isShared) throws(BlobStorageError) in
      let table = catalog.live.table
      let canPublish =
        isShared && table != nil && !(catalog.tails?.isFull ?? true) && locked { $0.canPublish(in: table) }
      guard canPublish else {
        return try commitToCatalog { (commit, _) throws(BlobStorageError) in try body(&commit) }
      }
      let catalogCount = table?.catalogCount
      let attempt = try commitToTail(body)
      if table?.catalogCount != catalogCount { try applyRefused() }
      return attempt
    }
  }

  /// The same in a catalog transaction, so that `body` can also change tables that no record determines.
  package func commitSettling<T>(
    on keys: [[UInt8]]? = nil, _ body: (inout Commit, WriteTransaction) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> (result: T, watermark: Watermark?) {
    try runCommit(on: keys) { (_) throws(BlobStorageError) in try commitToCatalog(body) }
  }

  private func runCommit<T>(
    on keys: [[UInt8]]?, by attempt: (_ isShared: Bool) throws(BlobStorageError) -> Attempt<T>?
  ) throws(BlobStorageError) -> (result: T, watermark: Watermark?) {
    tally.begin()
    defer { tally.end() }
    let done: Attempt<T>
    do throws(BlobStorageError) { done = try commitOnce(on: keys, by: attempt) } catch {
      markUncut()
      throw error
    }
    settle(done.appliedEnd)
    settleTails()
    return (done.result, done.watermark)
  }

  private func commitOnce<T>(
    on keys: [[UInt8]]?, by attempt: (_ isShared: Bool) throws(BlobStorageError) -> Attempt<T>?
  ) throws(BlobStorageError) -> Attempt<T> {
    // No thread waits for a pack while it holds locks that others need: if sealing has begun, the commit returns here.
    while true {
      try settleFull()
      try publisher.admit(self)
      do throws(BlobStorageError) {
        let isShared = publishesInTable
        let done = try catalog.inCommitTurn(keys, isShared: isShared) { () throws(BlobStorageError) in
          try attempt(isShared)
        }
        if let done { return done }
      } catch {
        guard error.code == .needsPack else { throw error }
        try beginPack()
      }
    }
  }

  private struct Attempt<T> {
    var result: T
    var watermark: Watermark?
    var appliedEnd: Int
  }

  /// Appends what a commit writes and hands it to the system. If that fails, nothing of the commit stays in the pack.
  private func attempt<T>(
    _ commit: inout Commit, _ body: (inout Commit) throws(BlobStorageError) -> T,
    finish: (Commit) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Attempt<T> {
    let box = commit.box
    do throws(BlobStorageError) {
      let result = try body(&commit)
      try commit.appendDeferred()
      try flush(&box.state)
      try finish(commit)
      return Attempt(
        result: result,
        watermark: box.state.writer.map { Watermark(pack: $0.name, byteCount: $0.writtenByteCount) },
        appliedEnd: box.state.settledCount + box.state.pending.count)
    } catch {
      cutBack(to: box.state.commitOffset, &box.state, error)
      throw error
    }
  }

  /// Publishes a commit in the live table.
  private func commitToTail<T>(
    _ body: (inout Commit) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> Attempt<T>? {
    let slot = locked { state in state.writer.flatMap { state.slots[$0.name] } }
    slot?.enter()
    defer { slot?.leave() }
    return try catalog.read { (view) throws(BlobStorageError) in
      if let slot, try !Tails.canGrow(slot.pack, view) {
        // A rebuild found the pack damaged and takes no tail of it: from now on each commit settles at once.
        locked { if $0.writer?.name == slot.pack { $0.slots[slot.pack] = nil } }
        return nil
      }
      return try withBox { (box) throws(BlobStorageError) -> Attempt<T>? in
        if box.state.sealingCount > 0 || !box.state.full.isEmpty { return nil }
        if let poison = box.state.poison { throw poison }
        // A private catalog makes no view.
        guard box.state.writer?.name == slot?.pack, catalog.hasTails else { return nil }
        var commit = Commit(transaction: view, session: self, box: box)
        let attempt = try attempt(&commit, body) { (commit) throws(BlobStorageError) in
          guard let slot, let writer = box.state.writer else { return }
          try catalog.tails?.publish(
            box.state.pending.map(\.record), of: writer.header, upTo: writer.writtenByteCount, in: slot,
            isPromised: commit.isPromised)
        }
        box.state.commitOffset = nil
        return attempt
      }
    }
  }

  /// Applies what was just published if another process has made the catalog anew meanwhile and found the pack damaged:
  /// such a catalog takes no tail of the pack.
  private func applyRefused() throws(BlobStorageError) {
    guard let name = locked({ $0.writer?.name }),
      try !catalog.read({ (view) throws(BlobStorageError) in try Tails.canGrow(name, view) })
    else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      try withBox { (box) throws(BlobStorageError) in try apply(box.state.pending, to: transaction) }
    }
  }

  /// Makes a commit visible by a transaction of the catalog.
  private func commitToCatalog<T>(
    _ body: (inout Commit, WriteTransaction) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> Attempt<T>? {
    var commitOffset: Int64?
    var ends: [(slot: LiveTable.Slot, end: Int64)] = []
    return try catalog.write { (transaction) throws(BlobStorageError) in
      try withBox { (box) throws(BlobStorageError) -> Attempt<T>? in
        if box.state.sealingCount > 0 || !box.state.full.isEmpty { return nil }
        if let poison = box.state.poison { throw poison }
        var commit = Commit(transaction: transaction, session: self, box: box)
        let attempt = try attempt(&commit) { (commit) throws(BlobStorageError) in
          try body(&commit, transaction)
        } finish: { (commit) throws(BlobStorageError) in
          try apply(box.state.pending, to: transaction, isPromised: commit.isPromised)
        }
        commitOffset = box.state.commitOffset
        box.state.commitOffset = nil
        ends = box.state.writtenEnds
        return attempt
      }
    } undo: { error in
      // The catalog transaction failed.
      locked { cutBack(to: commitOffset, &$0, error) }
      commitOffset = nil
    } done: {
      for (slot, end) in ends { slot.raise(to: end) }
    }
  }

  /// Applies the pending records of full packs and seals them.
  ///
  /// Threads may append to a pack between a commit's transaction and its end. If that end fills the pack, it has pending
  /// records and cannot be sealed yet. No commit writes to the next pack before this one is on the medium: its refs may
  /// need what is pending (H1).
  func settleFull() throws(BlobStorageError) {
    if locked({ !$0.full.isEmpty }) {
      do throws(BlobStorageError) {
        var ends: [(slot: LiveTable.Slot, end: Int64)] = []
        let appliedEnd = try catalog.write { (transaction) throws(BlobStorageError) in
          try withBox { (box) throws(BlobStorageError) in
            if let poison = box.state.poison { throw poison }
            try flush(&box.state)
            try apply(box.state.pending, to: transaction)
            ends = box.state.writtenEnds
            return box.state.settledCount + box.state.pending.count
          }
        } undo: { _ in
        } done: {
          for (slot, end) in ends { slot.raise(to: end) }
        }
        settle(appliedEnd)
      } catch {
        markUncut()
        throw error
      }
    }
    // Another thread may be sealing one.
    sealing.wait()
  }

  /// Forgets the pending records up to that count, which are in the catalog now, and seals the packs that are full.
  private func settle(_ appliedEnd: Int) {
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
      if let writer = state.writer, writer.byteCount >= packByteCountTarget(state) {
        state.full.append(writer)
        state.writer = nil
      }
      let sealable = Self.takeSealable(&state)
      for _ in sealable {
        state.sealingCount += 1
        sealing.enter()
      }
      return Unchecked(value: sealable)
    }
    for writer in full.value { seal(writer) }
  }

  /// Settles once the tails are long or old.
  private func settleTails() {
    guard catalog.tails?.isDue ?? false else { return }
    do throws(BlobStorageError) { try catalog.settle() } catch {
      // Everything is visible. The next commit tries again.
      catalog.tails?.noteFailedSettling()
      logger.warning("The catalog could not be brought up to date.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Frees the slot of a pack that the catalog has as sealed.
  func releaseSlot(_ name: PackName) {
    locked { $0.slots.removeValue(forKey: name) }?.release()
  }

  /// Forces what a commit wrote to the medium. Threads that wait at the same time share one sync.
  ///
  /// - Throws: `poisoned` when the sync failed; nothing is written by this session from then on. Where packs are
  ///   published also what publishing failed with: then it can be tried again.
  package func synchronize(_ watermark: Watermark) throws(BlobStorageError) {
    if weaknesses.contains(.skipsSync) { return }
    try publisher.publish(watermark, of: self)
  }

  /// Syncs the pack of a commit. Threads that wait at the same time share one sync.
  func synchronizeShared(_ watermark: Watermark) throws(BlobStorageError) {
    // A sync that fails while sealing is reported once only, to whoever does it.
    sealing.wait()
    try inSyncTurn { () throws(BlobStorageError) in
      if !isDurable(watermark) { tally.waitForBegun() }
      try synchronizeInTurn(watermark)
    }
  }

  /// - Parameter isPatient: whether a task that is cancelled waits for its turn all the same.
  package func inSyncTurn(
    isPatient: Bool = true, _ body: () throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    try syncTurn.take(isPatient: isPatient)
    defer { syncTurn.giveBack() }
    try body()
  }

  /// Seals the pack under way, applying what is pending, and publishes it where packs are published; the next record
  /// begins another.
  ///
  /// - Throws: when what was written may not be on the medium.
  package func rollOver() throws(BlobStorageError) {
    sealWhenSettled { _ in true }
    try settleFull()
    // Reported once: later packs are not affected.
    if let failure = locked({ $0.poison ?? $0.sealFailure.take() }) { throw failure }
    try publisher.publishSealed(of: self)
  }

  /// Closes the packs that could not be sealed, so that the next opening recovers them.
  func letGo() {
    let files = locked { state in
      let writers = state.full + (state.writer.map { [$0] } ?? [])
      (state.writer, state.full) = (nil, [])
      return Unchecked(value: writers.map(\.file))
    }
    for file in files.value { file.close() }
  }

  // MARK: Inside

  /// Ends the current pack, if it is one of these.
  func sealWhenSettled(_ isToSeal: (PackWriter) -> Bool) {
    locked { state in
      guard let writer = state.writer, isToSeal(writer) else { return }
      state.full.append(writer)
      state.writer = nil
    }
  }

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
      if publishesInTable { throw BlobStorageError(.needsPack, "A pack has to be begun first.") }
      try begin(&state, time: time)
    }
    guard let writer = state.writer else { return 0 }
    var content = content
    // At most a pack's length, which 32 bits hold.
    let synced = UInt32(clamping: state.durable[writer.name] ?? 0)
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

  /// Gives up a pack that cannot be written any more. Loses what the system does not have of it, and truncates what it
  /// has of a commit under way.
  private func lose(
    _ writer: PackWriter, _ state: inout State, _ cause: BlobStorageError, commitOffset: Int64? = nil
  ) {
    let commitOffset = commitOffset ?? (state.writer === writer ? state.commitOffset : nil)
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
    // What it published stays visible, like a dead writer's tail.
    state.slots[writer.name] = nil
    // Synced, because a power cut would otherwise bring back records that were reported as failed.
    do throws(BlobStorageError) {
      try writer.file.truncate(to: end)
      try writer.file.synchronize()
    } catch {
      syncs.noteFailure(writer.name)
      writer.poison(error)
      state.poison = writer.failure ?? error
      state.unmarkedPoison = writer.name
    }
    if publishes { poisonUnpublished(writer, &state, cause) }
    logger.error("Pack \(writer.name) cannot be written.", metadata: ["reason": "\(cause.message)"])
  }

  /// Truncates a failed commit: the next commit would apply refs and drops that stayed.
  private func cutBack(to offset: Int64?, _ state: inout State, _ cause: BlobStorageError) {
    state.commitOffset = nil
    guard let offset, let writer = state.writer else { return }
    lose(writer, &state, cause, commitOffset: offset)
  }

  func withBox<T>(_ body: (Box) throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    try state.withLock { (box) throws(BlobStorageError) in Unchecked(value: try body(box.value)) }.value
  }

  func tryLocked<T>(_ body: (inout State) throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    try withBox { (box) throws(BlobStorageError) in try body(&box.state) }
  }

  func locked<T>(_ body: (inout State) -> T) -> T {
    state.withLock { box in Unchecked(value: body(&box.value.state)) }.value
  }
}

extension BlobStorageError.Code {
  /// A commit needs a new pack, which is begun without locks. Never leaves the library.
  static let needsPack = Self("needsPack")
}
