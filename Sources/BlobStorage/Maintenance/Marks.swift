/// Which chunks and manifests are live: one or two bits for each record, and the live bytes of each pack.
package struct Marks: Sendable {
  struct PackMarks: Sendable {
    fileprivate var live = Bits()
    /// The live records that are needed only as bases.
    fileprivate var onlyBases = Bits()
    /// Bytes of live chunk, manifest and ref records.
    var liveByteCount: Int64 = 0
  }

  private var packs: [PackMarks] = []
  /// The index in `packs` of each pack's number. `recent` has the latest ones by the number's low bits, without
  /// hashing.
  private var indices: [UInt32: Int] = [:]
  private var recent = [(number: UInt32, index: Int)](repeating: (0, -1), count: recentCount)
  private static let recentCount = 1_024

  /// How many chunks are live only as bases.
  private(set) var baseCount = 0

  /// Marks the record at a place. Returns false if it was marked before.
  private mutating func insert(_ place: Place, recordByteCount: Int) -> Bool {
    withPack(place.pack) { pack in
      guard pack.live.insert(place.ordinal) else { return false }
      pack.liveByteCount += Int64(recordByteCount)
      return true
    }
  }

  /// Marks a chunk that is needed itself. Returns false if it was marked so before.
  mutating func insert(_ row: ChunkRow) -> Bool {
    if isOnlyBase(row.place) {
      setOnlyBase(row.place, false)
      return true
    }
    return insert(row.place, recordByteCount: row.recordByteCount)
  }

  /// Marks a chunk that another is encoded against.
  mutating func insertBase(_ row: ChunkRow) {
    if insert(row.place, recordByteCount: row.recordByteCount) { setOnlyBase(row.place, true) }
  }

  /// Unmarks a chunk that has been stored again elsewhere, or a base whose last dependant has.
  mutating func remove(_ row: ChunkRow) {
    guard contains(row.place) else { return }
    if isOnlyBase(row.place) { setOnlyBase(row.place, false) }
    withPack(row.place.pack) { pack in
      pack.live.remove(row.place.ordinal)
      pack.liveByteCount -= Int64(row.recordByteCount)
    }
  }

  /// Whether the chunk is live only as a base.
  package func isOnlyBase(_ place: Place) -> Bool {
    index(place.pack).map { packs[$0].onlyBases.contains(place.ordinal) } ?? false
  }

  private mutating func setOnlyBase(_ place: Place, _ isBase: Bool) {
    withPack(place.pack) { pack in
      if isBase { _ = pack.onlyBases.insert(place.ordinal) } else { pack.onlyBases.remove(place.ordinal) }
    }
    baseCount += isBase ? 1 : -1
  }

  mutating func insert(_ row: ManifestRow) -> Bool { insert(row.place, recordByteCount: row.recordByteCount) }

  /// Counts a version's ref record as live. Called once for each version.
  mutating func insertRef(_ place: Place, recordByteCount: Int) {
    withPack(place.pack) { $0.liveByteCount += Int64(recordByteCount) }
  }

  package func contains(_ place: Place) -> Bool {
    index(place.pack).map { packs[$0].live.contains(place.ordinal) } ?? false
  }

  package func liveByteCount(_ pack: UInt32) -> Int64 { index(pack).map { packs[$0].liveByteCount } ?? 0 }

  private func index(_ number: UInt32) -> Int? {
    let hit = recent[Int(number) % Self.recentCount]
    return hit.number == number && hit.index >= 0 ? hit.index : indices[number]
  }

  private mutating func withPack<T>(_ number: UInt32, _ body: (inout PackMarks) -> T) -> T {
    let index = index(number) ?? packs.count
    if index == packs.count {
      packs.append(PackMarks())
      indices[number] = index
    }
    recent[Int(number) % Self.recentCount] = (number, index)
    return body(&packs[index])
  }
}

extension ChunkRow {
  /// Bytes that the chunk would take if it were as compressible as `other`.
  package func expectedByteCount(like other: ChunkRow) -> Int {
    guard other.plainByteCount > 0 else { return plainByteCount }
    let expected = Double(plainByteCount) * Double(other.storedByteCount) / Double(other.plainByteCount)
    return max(storedByteCount, min(plainByteCount, Int(expected)))
  }
}

/// A set of places of records: one bit per record.
package struct PlaceSet: Sendable {
  private var packs: [UInt32: Bits] = [:]

  package init() {}

  package var isEmpty: Bool { packs.isEmpty }

  package func contains(_ place: Place) -> Bool { packs[place.pack]?.contains(place.ordinal) ?? false }

  /// Returns false if the set had the place before.
  @discardableResult
  package mutating func insert(_ place: Place) -> Bool {
    packs[place.pack, default: Bits()].insert(place.ordinal)
  }
}
