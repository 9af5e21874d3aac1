/// Which chunks and manifests are live: one bit a record, and sums for each pack.
struct Marks: Sendable {
  struct PackMarks: Sendable {
    fileprivate var bits: [UInt64] = []
    /// Bytes of live chunk, manifest and ref records.
    var liveByteCount: Int64 = 0
  }

  private(set) var packs: [UInt32: PackMarks] = [:]
  /// Live chunks, those that are only bases of others included.
  private(set) var chunkCount = 0
  private(set) var plainByteCount: Int64 = 0
  private(set) var storedByteCount: Int64 = 0

  /// Marks the record at a place; false when it was marked before.
  private mutating func insert(_ place: Place, recordByteCount: Int) -> Bool {
    let word = place.ordinal / 64
    let bit: UInt64 = 1 << UInt64(place.ordinal % 64)
    return withPack(place.pack) { pack in
      if pack.bits.count <= word { pack.bits.append(contentsOf: repeatElement(0, count: word + 1 - pack.bits.count)) }
      guard pack.bits[word] & bit == 0 else { return false }
      pack.bits[word] |= bit
      pack.liveByteCount += Int64(recordByteCount)
      return true
    }
  }

  mutating func insert(_ row: ChunkRow) -> Bool {
    guard insert(row.place, recordByteCount: row.recordByteCount) else { return false }
    chunkCount += 1
    plainByteCount += Int64(row.plainByteCount)
    storedByteCount += Int64(row.storedByteCount)
    return true
  }

  mutating func insert(_ row: ManifestRow) -> Bool { insert(row.place, recordByteCount: row.recordByteCount) }

  /// Counts a version's ref record as live; called once for each.
  mutating func insertRef(_ place: Place, recordByteCount: Int) {
    withPack(place.pack) { $0.liveByteCount += Int64(recordByteCount) }
  }

  func contains(_ place: Place) -> Bool {
    guard let pack = packs[place.pack], pack.bits.count > place.ordinal / 64 else { return false }
    return pack.bits[place.ordinal / 64] & (1 << UInt64(place.ordinal % 64)) != 0
  }

  func liveByteCount(_ pack: UInt32) -> Int64 { packs[pack]?.liveByteCount ?? 0 }

  private mutating func withPack<T>(_ number: UInt32, _ body: (inout PackMarks) -> T) -> T {
    body(&packs[number, default: PackMarks()])
  }
}
