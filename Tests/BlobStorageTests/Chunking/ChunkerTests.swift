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
        let window = bytes[start + length - Int(BS_GEAR_WINDOW_BYTES)..<start + length]
        let hash = window.reduce(UInt64(0)) { $0 &* 2 &+ bs_gear_entry($1) }
        return hash >> (length < sizes.average ? 64 - 12 : 64 - 8) == 0
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

  @Test("has the gear table of its seed")
  func gearTable() {
    var random = SplitMix64(seed: BS_GEAR_SEED)
    for byte in UInt8.min...UInt8.max { #expect(bs_gear_entry(byte) == random.next()) }
  }

  /// Frozen: if this fails, old stores no longer share chunks with new blobs. Repair the code, not the
  /// numbers.
  @Test("cuts where it has always cut")
  func frozenCutPoints() throws {
    var random = SplitMix64(seed: 1)
    let bytes = random.bytes(1_000_000)
    #expect(
      Self.chunks(of: bytes) == [
        72_437, 86_373, 82_396, 77_412, 66_402, 33_112, 82_497, 68_185, 42_666, 66_080, 74_943,
        131_215, 84_911, 31_371,
      ])
    #expect(
      Self.chunks(of: Array(bytes[..<20_000]), try ChunkSizes(average: 1 << 10)) == [
        1_755, 1_142, 1_203, 1_132, 1_125, 1_501, 1_202, 1_094, 1_127, 996, 1_262, 1_252, 1_024,
        1_399, 1_082, 1_576, 128,
      ])
  }
}
