import BlobStorage
import BlobStorageTestSupport
import CBlobKernels
import Testing

@Suite("The chunker")
struct ChunkerTests {
  /// The lengths of a blob's chunks when it is fed in parts of these lengths; by default, in one.
  static func chunks(of bytes: [UInt8], _ sizes: ChunkSizes = .standard, parts: [Int]? = nil) -> [Int] {
    var chunker = Chunker(sizes: sizes)
    var lengths: [Int] = []
    var begun = 0
    var isConsistent = true
    bytes.withUnsafeBytes { bytes in
      var start = 0
      for part in parts ?? [bytes.count] {
        var rest = UnsafeRawBufferPointer(rebasing: bytes[start..<start + part])
        start += part
        while !rest.isEmpty {
          let cut = chunker.nextCut(in: rest)
          begun += cut.byteCount
          rest = UnsafeRawBufferPointer(rebasing: rest[cut.byteCount...])
          if cut.endsChunk {
            lengths.append(begun)
            begun = 0
          } else if !rest.isEmpty {
            isConsistent = false
          }
          if chunker.pendingByteCount != begun { isConsistent = false }
        }
      }
    }
    let last = chunker.finish()
    #expect(isConsistent && last == begun)
    if last > 0 { lengths.append(last) }
    return lengths
  }

  static func cutPoints(_ lengths: [Int]) -> [Int] {
    lengths.reduce(into: []) { points, length in points.append((points.last ?? 0) + length) }
  }

  @Test("cuts at the same points however the bytes are fed", arguments: [1 << 10, 16 << 10])
  func feedingDoesNotMatter(average: Int) throws {
    var random = SplitMix64.announced()
    let sizes = try ChunkSizes(average: average)
    let bytes = random.bytes(300_000)
    let expected = Self.chunks(of: bytes, sizes)
    #expect(expected.reduce(0, +) == bytes.count)
    for max in [1, 70, 1_000, 100_000] {
      #expect(
        Self.chunks(of: bytes, sizes, parts: random.split(bytes.count, max: max)) == expected, "max \(max)")
    }
  }

  @Test("follows its own definition, byte by byte")
  func followsTheDefinition() throws {
    var random = SplitMix64.announced()
    let sizes = try ChunkSizes(average: 1 << 10)
    let bytes = random.bytes(60_000)
    var expected: [Int] = []
    var start = 0
    while start < bytes.count {
      let length = (1...bytes.count - start).first { length in
        if length == sizes.maximum || start + length == bytes.count { return true }
        guard length >= sizes.minimum else { return false }
        func word(_ distance: Int) -> UInt32 {
          let first = start + length - 1 - distance
          return (0..<4).reduce(0) { $0 | UInt32(bytes[first + $1]) << UInt32(8 * $1) }
        }
        let hash =
          (word(3) &+ word(11) << 3) &* 0x9E37_79B1 &+ (word(19) &+ word(35) << 3) &* 0x85EB_CA77
          &+ 0x7F4A_7C15
        return hash >> (length < sizes.average ? 32 - 12 : 32 - 8) == 0
      }
      expected.append(try #require(length))
      start += try #require(length)
    }
    #expect(Self.chunks(of: bytes, sizes) == expected)
  }

  @Test("keeps between the minimum and the maximum, and near the average")
  func sizesAreKept() throws {
    var random = SplitMix64.announced()
    let sizes = try ChunkSizes(average: 4 << 10)
    let chunks = Self.chunks(of: random.bytes(4_000_000), sizes)
    #expect(chunks.dropLast().allSatisfy { (sizes.minimum...sizes.maximum).contains($0) })
    #expect(try #require(chunks.last) <= sizes.maximum)
    let mean = 4_000_000 / chunks.count
    #expect((sizes.average...sizes.average * 4 / 3).contains(mean), "mean \(mean)")
    let near = chunks.count { (sizes.average / 2...sizes.average * 2).contains($0) }
    #expect(near * 10 > chunks.count * 7, "\(near) of \(chunks.count) chunks within a factor of two")
  }

  @Test("finds its old cut points again soon after an insertion")
  func resynchronises() throws {
    var random = SplitMix64.announced()
    let sizes = try ChunkSizes(average: 4 << 10)
    let bytes = random.bytes(2_000_000)
    let place = 1_000_000
    let inserted = random.bytes(Int.random(in: 1...300, using: &random))
    let before = Set(Self.cutPoints(Self.chunks(of: bytes, sizes)))
    let after = Self.cutPoints(
      Self.chunks(of: Array(bytes[..<place]) + inserted + Array(bytes[place...]), sizes))
    for point in after where point <= place { #expect(before.contains(point)) }
    let changed = after.filter { $0 > place && !before.contains($0 - inserted.count) }
    #expect(changed.count <= 12, "\(changed.count) of \(after.count) cut points moved")
  }

  @Test("leaves a blob at or below the minimum whole", arguments: [1, 63, 64, 255, 256])
  func smallBlobsAreOneChunk(byteCount: Int) throws {
    var random = SplitMix64.announced()
    let sizes = try ChunkSizes(average: 1 << 10)
    // Many, because a cut point is rare.
    for _ in 0..<500 { #expect(Self.chunks(of: random.bytes(byteCount), sizes) == [byteCount]) }
  }

  @Test("finds no chunk in an empty blob")
  func empty() {
    #expect(Self.chunks(of: []) == [])
    #expect(Self.chunks(of: [], parts: [0, 0]) == [])
  }

  @Test("cuts zeros at the maximum")
  func zeros() {
    let chunks = Self.chunks(of: [UInt8](repeating: 0, count: 600_000))
    #expect(chunks == [262_144, 262_144, 75_712])
  }

  @Test("begins a new blob after the end of one")
  func startsAnew() throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(20_000)
    var chunker = Chunker(sizes: .standard)
    bytes.withUnsafeBytes { bytes in
      let cut = chunker.nextCut(in: .init(rebasing: bytes[..<10_000]))
      #expect(cut.byteCount == 10_000 && !cut.endsChunk)
      #expect(chunker.finish() == 10_000)
      #expect(chunker.pendingByteCount == 0)
      #expect(chunker.finish() == 0)
    }
  }

  /// Frozen: if this fails, old stores no longer share chunks with new blobs. Repair the code, not the
  /// numbers.
  @Test("cuts where it has always cut")
  func frozenCutPoints() throws {
    var random = SplitMix64(seed: 1)
    let bytes = random.bytes(1_000_000)
    #expect(
      Self.chunks(of: bytes) == [
        87_849, 69_087, 85_357, 85_290, 74_309, 126_788, 68_150, 25_249, 67_077, 113_199, 81_866, 73_309,
        42_470,
      ])
    #expect(
      Self.chunks(of: Array(bytes[..<20_000]), try ChunkSizes(average: 1 << 10)) == [
        1_180, 636, 1_434, 1_541, 1_387, 1_158, 1_097, 1_164, 1_151, 1_149, 1_095, 1_210, 1_130, 1_028, 1_320,
        859, 687, 774,
      ])
  }
}
