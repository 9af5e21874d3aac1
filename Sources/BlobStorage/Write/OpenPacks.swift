/// The packs that a session appends to, and the clock of its commits. Only the holder of the append lock uses them.
///
/// The holder of that lock may do I/O: it writes packs, and truncates and syncs those that failed. Threads that seal or
/// sync packs otherwise do not hold it during I/O. Locks are taken in this order:
/// 1. the turns for publishing and for beginning packs, and the leadership of a group of syncs,
/// 2. the key stripes: first among the threads of the open store, then among processes,
/// 3. the catalog's write transaction,
/// 4. the one sync of a pack that ``PackSyncs`` admits,
/// 5. the append lock,
/// 6. the tails,
/// 7. the lock around ``WriterState``, under which no thread waits or does I/O. The locks inside ``PackSyncs`` and
///    ``StripeTurns`` are alike.
struct OpenPacks: ~Copyable {
  private(set) var writer: PackWriter?
  /// Full packs. Each is sealed once all of its records are in the catalog.
  private(set) var full: [PackWriter] = []
  var pending: [(header: PackHeader, record: PackRecord)] = []
  /// Number of records that left `pending`. Two commits may have applied the same ones.
  private(set) var settledCount = 0
  /// Where in the pack the refs and drops of the current commit begin.
  var commitOffset: Int64?
  /// The length at which the current pack is full, if space was reserved for it.
  var packByteCountTarget: Int64?
  /// The time of the last stamp. Never reused, even if its commit failed: its record may reappear after a power cut.
  var lastTime: UInt64 = 0
  /// The times of all stamps that were issued ahead of the clock, in ascending order.
  var timesAhead: [ClosedRange<UInt64>] = []

  /// All packs that are not being sealed, in the order of their sequence.
  var writers: [PackWriter] { full + (writer.map { [$0] } ?? []) }

  /// The value of ``settledCount`` once the catalog has all pending records.
  var appliedEnd: Int { settledCount + pending.count }

  /// What must be on the medium for all that was flushed to be durable; nil without a current pack.
  var watermark: WriterSession.Watermark? {
    writer.map { WriterSession.Watermark(pack: $0.name, byteCount: $0.writtenByteCount) }
  }

  mutating func begin(_ writer: PackWriter) {
    self.writer = writer
    packByteCountTarget = nil
  }

  /// Marks the current pack as full.
  mutating func endCurrent() {
    guard let writer else { return }
    full.append(writer)
    self.writer = nil
  }

  /// Removes the pending records up to that count, and returns their contents.
  mutating func removeSettled(upTo appliedEnd: Int) -> [PackRecord.Content] {
    let count = min(max(0, appliedEnd - settledCount), pending.count)
    let settled = pending.prefix(count).map(\.record.content)
    pending.removeFirst(count)
    settledCount += count
    return settled
  }

  /// Removes and returns the full packs that have no pending records.
  mutating func removeSealable() -> [PackWriter] {
    guard !full.isEmpty else { return [] }
    let awaited = Set(pending.map(\.header.name))
    let sealable = full.filter { !awaited.contains($0.name) }
    full.removeAll { !awaited.contains($0.name) }
    return sealable
  }

  /// Removes a pack and its pending records. Those that the system has may be recovered and collected at any time, so
  /// no commit may count on them.
  mutating func remove(_ lost: PackWriter) {
    let count = pending.count
    pending.removeAll { $0.header.name == lost.name }
    // A commit that has counted the removed ones must not settle later ones in their place.
    settledCount += count - pending.count
    if writer === lost { writer = nil }
    full.removeAll { $0 === lost }
  }

  /// Removes all packs, and returns them.
  mutating func removeAll() -> [PackWriter] {
    let removed = writers
    (writer, full) = (nil, [])
    return removed
  }
}
