/// The state that the threads of one session share: durable lengths, pending records, and why writing has ended.
///
/// Its functions only compute, and the lock around it covers nothing else. The open packs and their order also change
/// only under the append lock, so the holder of that lock finds them unchanged.
struct WriterState: Sendable {
  /// The pack that takes the next record.
  struct Current: Sendable {
    var name: PackName
    var file: any File
    /// Bytes that the system had when the state was last updated.
    var writtenByteCount: Int64
  }

  /// The work of a sync of the current pack.
  struct SyncPlan: Sendable {
    var pack: PackName
    var file: any File
    /// Bytes of it that are on the medium afterwards.
    var target: Int64
    var hasName: Bool
    /// Whether no bytes of the pack have been synced before.
    var isFirst: Bool
  }

  private(set) var current: Current?
  /// Whether the current pack is so long that it ends before the next commit.
  var isLong = false
  /// Full packs that are not being sealed yet.
  private(set) var full: [PackName] = []
  var nextSequence: UInt32 = 1
  /// The names of this session's packs up to this sequence number are on the medium.
  var namedSequence: UInt32 = 0
  var pending = PendingRecords()
  /// Bytes of packs, own and others', that are known to be on the medium together with the pack's name.
  private var durable: [PackName: Int64] = [:]
  /// Packs that are being sealed.
  var sealingCount = 0
  /// Increases whenever records were lost before they were applied.
  private(set) var lossCount = 0
  private(set) var lossCause: BlobStorageError?
  /// Whether a pack is being cut back. If that fails, the session is poisoned.
  private(set) var isCutting = false
  var poison: BlobStorageError?
  /// Why the last pack could not be sealed.
  var sealFailure: BlobStorageError?
  /// A pack that could not be cut back durably, until the catalog has it marked.
  var unmarkedPoison: PackName?
  /// The slots in which unsealed packs publish their lengths.
  var slots: [PackName: LiveTable.Slot] = [:]
  /// The pack whose syncs follow each other closely.
  private var oftenSynced: PackName?
  /// The number of the first pack that was open when a database was read last.
  var firstOpenPack: (database: UInt64, pack: UInt32) = (0, 0)
  /// The threads that need a sync.
  var syncGroup = SyncGroup()

  /// The sequence number of the first pack that is not being sealed.
  var firstSequence: UInt32 { full.map(\.sequence).min() ?? current?.name.sequence ?? nextSequence }

  /// Whether commits wait for packs to reach the medium.
  var isSealing: Bool { sealingCount > 0 || !full.isEmpty }

  /// Whether writing goes on and nothing is left to write or to seal, except pending records.
  var isIdle: Bool { poison == nil && sealFailure == nil && current == nil && !isSealing }

  func durableByteCount(of pack: PackName) -> Int64 { durable[pack] ?? 0 }

  mutating func raiseDurable(_ pack: PackName, to byteCount: Int64) {
    durable[pack] = max(durable[pack] ?? 0, byteCount)
  }

  /// Whether a record of this session may refer to one at that offset of a pack without a sync (H1).
  func canRefer(to pack: PackName, offset: Int64) -> Bool {
    current?.name == pack || durableByteCount(of: pack) > offset
  }

  /// Updates the list of open packs. The caller holds the append lock.
  mutating func update(from packs: borrowing OpenPacks) {
    if current?.name != packs.writer?.name { isLong = false }
    current = packs.writer.map {
      Current(name: $0.name, file: $0.file, writtenByteCount: $0.writtenByteCount)
    }
    full = packs.full.map(\.name)
  }

  /// Whether a published length can make a commit visible, and the slot to publish it in: nil before a pack is begun.
  func slotToPublish(in table: LiveTable) -> (canPublish: Bool, slot: LiveTable.Slot?) {
    guard let current else { return (true, nil) }
    let slot = slots[current.name]
    return (slot?.table === table, slot)
  }

  // MARK: Losses

  /// Gives up a pack: only the records pending in the other `packs` remain. Until ``endCut(of:failure:)``, it is open
  /// whether the session can go on.
  ///
  /// - Returns: the pack's slot. Dropping it is a system call, so the caller does that without the lock around the
  ///   state.
  mutating func beginCut(
    of pack: PackName, leaving packs: borrowing OpenPacks, _ cause: BlobStorageError
  ) -> LiveTable.Slot? {
    pending.reset(to: packs)
    lossCount += 1
    lossCause = cause
    update(from: packs)
    isCutting = true
    // Its published records stay visible, like a dead writer's tail.
    return slots.removeValue(forKey: pack)
  }

  /// - Parameter failure: why `pack` could not be cut back; nil if it was.
  mutating func endCut(of pack: PackName, failure: BlobStorageError?) {
    isCutting = false
    guard let failure else { return }
    poison = failure
    unmarkedPoison = pack
  }

  // MARK: Syncs

  /// Ends a leader's turn. Returns the members to wake.
  mutating func endSync() -> (leader: SyncGroup.Member?, durable: [SyncGroup.Member]) {
    let durable = durable
    return syncGroup.end { (durable[$0.pack] ?? 0) >= $0.byteCount }
  }

  /// The sync that a commit needs; nil if it is durable, or if its pack is not the current one.
  func syncPlan(for watermark: WriterSession.Watermark) -> SyncPlan? {
    guard durableByteCount(of: watermark.pack) < watermark.byteCount, let current,
      current.name == watermark.pack
    else { return nil }
    return SyncPlan(
      pack: current.name, file: current.file, target: current.writtenByteCount,
      hasName: current.name.sequence <= namedSequence, isFirst: durable[current.name] == nil)
  }

  /// Records a sync that has succeeded.
  ///
  /// - Parameter fillByteCount: the most bytes between syncs that follow each other closely.
  mutating func finish(_ plan: SyncPlan, fillByteCount: Int) {
    if let last = durable[plan.pack], plan.target - last <= fillByteCount { oftenSynced = plan.pack }
    raiseDurable(plan.pack, to: plan.target)
  }

  /// Whether zeros written ahead make the pack's syncs faster.
  func isOftenSynced(_ pack: PackName) -> Bool { oftenSynced == pack }

  /// Records that a pack is published.
  mutating func setPublished(_ pack: PackName, byteCount: Int64) { durable[pack] = byteCount }
}
