import BlobStorage
import BlobStorageTestSupport
import Testing

/// Headers that lie: what is cut does not matter, as long as nothing is lost and nothing traps.
@Suite("Headers of containers")
struct PartHeaderTests {
  private static let magics: [[UInt8]] = [
    [0xFF, 0xD8, 0xFF], [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A], [0x50, 0x4B, 3, 4],
    [0, 0, 0, 16] + Array("ftyp".utf8), [0, 0, 0, 1] + Array("mdat".utf8),
  ]

  private static func zeros(_ count: Int) -> [UInt8] { [UInt8](repeating: 0, count: count) }
  private static func ones(_ count: Int) -> [UInt8] { [UInt8](repeating: 0xFF, count: count) }

  private static let lies: [(name: String, beginning: [UInt8])] = [
    ("a JPEG of markers alone", [0xFF, 0xD8] + (0..<3_000).flatMap { _ in [0xFF, 0xE1, 0, 2] as [UInt8] }),
    ("a JPEG of fill bytes", [0xFF, 0xD8] + ones(5_000)),
    ("a JPEG with a marker of no length", [0xFF, 0xD8, 0xFF, 0xE1, 0, 0]),
    ("a JPEG that begins twice", [0xFF, 0xD8, 0xFF, 0xD8, 0xFF, 0xDA]),
    ("a PNG with a part of 4 GiB", magics[1] + ones(4) + Array("IDAT".utf8)),
    (
      "a PNG with parts of nothing",
      magics[1] + (0..<500).flatMap { _ in zeros(4) + Array("IDAT".utf8) + zeros(4) }
    ),
    ("a ZIP with a member of 4 GiB", magics[2] + zeros(14) + ones(3) + [0xF0] + zeros(8)),
    (
      "a ZIP with a member of 2^64 bytes",
      magics[2] + zeros(14) + ones(8) + [0, 0, 20, 0, 1, 0, 16, 0] + ones(16)
    ),
    ("a ZIP without the long length", magics[2] + zeros(14) + ones(8) + [0, 0, 4, 0, 1, 0, 0, 0]),
    (
      "a ZIP with a long length cut short",
      magics[2] + zeros(14) + ones(8) + [0, 0, 9, 0, 1, 0, 16, 0, 1, 2, 3, 4, 5]
    ),
    ("a ZIP with too long a name", magics[2] + zeros(14) + ones(12)),
    ("a ZIP with a member of no known length", magics[2] + [20, 0, 8] + zeros(23)),
    ("a box that is shorter than its header", magics[3] + zeros(8) + [0, 0, 0, 7] + Array("moov".utf8)),
    ("a box of length 0", magics[3] + zeros(8) + zeros(4) + Array("mdat".utf8)),
    ("a box of 2^64 bytes", magics[4] + ones(8)),
    ("a box of 2^63 bytes", magics[4] + [0x80] + zeros(7)),
    ("a box that is shorter than its long header", magics[4] + zeros(7) + [15]),
    ("a box of 2^48 bytes", magics[3] + zeros(8) + [0, 0, 0, 1] + Array("mdat".utf8) + [0, 1] + zeros(6)),
  ]

  @Test("may say anything", arguments: lies.map(\.name))
  func anything(_ name: String) throws {
    var random = SplitMix64.announced()
    let beginning = try #require(Self.lies.first { $0.name == name }).beginning
    for sizes in [ChunkSizes.standard, try ChunkSizes(average: 1_024)] {
      let bytes = beginning + random.bytes(100_000)
      let chunks = BlobChunkerTests.chunks(of: bytes, sizes)
      #expect(
        BlobChunkerTests.chunks(of: bytes, sizes, parts: random.split(bytes.count, max: 999) + [0]) == chunks)
      // From some place on, all is cut by content again.
      let plain = Set(ChunkerTests.cutPoints(ChunkerTests.chunks(of: bytes, sizes)))
      let common = chunks.map(\.upperBound).filter { plain.contains($0) }
      #expect(common.count > 1 || sizes == .standard)
    }
    // And where they are cut short.
    for count in 0..<min(beginning.count, 200) {
      let bytes = beginning.prefix(count) + Self.zeros(2_000)
      _ = BlobChunkerTests.chunks(of: Array(bytes), try ChunkSizes(average: 1_024))
    }
  }

  @Test("may be followed by noise")
  func noise() throws {
    var random = SplitMix64.announced()
    let sizes = try ChunkSizes(average: 1_024)
    for round in 0..<2_000 {
      let magic = Self.magics[round % Self.magics.count]
      var bytes = magic + random.bytes(Int.random(in: 1_000...4_000, using: &random))
      // Small numbers are more telling than noise.
      for index in magic.count..<bytes.count where random.next() % 4 != 0 { bytes[index] = 0 }
      let chunks = BlobChunkerTests.chunks(of: bytes, sizes)
      let parts = random.split(bytes.count, max: 500) + [0]
      #expect(BlobChunkerTests.chunks(of: bytes, sizes, parts: parts) == chunks)
    }
  }
}
