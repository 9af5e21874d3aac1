import BlobStorage
import BlobStorageTestSupport
import Testing

@Suite("The chunker of containers")
struct BlobChunkerTests {
  /// A blob's chunks when it is handed over in parts of these lengths; by default, in one.
  static func chunks(of bytes: [UInt8], _ sizes: ChunkSizes = .standard, parts: [Int]? = nil) -> [Range<Int>]
  {
    var chunker = BlobChunker(sizes: sizes)
    var ranges: [Range<Int>] = []
    var start = 0
    var end = 0
    for (index, part) in (parts ?? [bytes.count]).enumerated() {
      end += part
      let isAtEnd = index + 1 == (parts?.count ?? 1)
      let found = bytes[start..<end].withUnsafeBytes { chunker.chunks(in: $0, isAtEnd: isAtEnd) }
      ranges += found.map { $0.lowerBound + start..<$0.upperBound + start }
      start += found.last?.upperBound ?? 0
    }
    #expect(start == bytes.count && ranges.first?.lowerBound ?? 0 == 0)
    for (one, next) in zip(ranges, ranges.dropFirst()) { #expect(one.upperBound == next.lowerBound) }
    #expect(ranges.allSatisfy { 1...sizes.maximum ~= $0.count })
    return ranges
  }

  /// How many bytes of `bytes` are in no chunk of `known`.
  static func newByteCount(_ bytes: [UInt8], beside known: [UInt8], _ sizes: ChunkSizes = .standard) -> Int {
    let chunks = Set(Self.chunks(of: known, sizes).map { BlobDigest.of(Array(known[$0])) })
    return Self.chunks(of: bytes, sizes).filter { !chunks.contains(BlobDigest.of(Array(bytes[$0]))) }
      .reduce(0) { $0 + $1.count }
  }

  /// One of each kind, with long parts of 300,000 bytes.
  static func samples(_ random: inout SplitMix64) -> [(name: String, bytes: [UInt8])] {
    let (long, other, short) = (random.bytes(300_000), random.bytes(300_000), random.bytes(5_000))
    return [
      ("JPEG", SampleContainer.jpeg(exif: short, picture: long)),
      ("JPEG without EXIF", SampleContainer.jpeg(exif: nil, picture: long)),
      ("PNG", SampleContainer.png(text: short, picture: long, trailer: short)),
      ("ZIP", SampleContainer.zip([("a", long), ("b", short), ("c", other), ("d", short)])),
      ("ZIP64", SampleContainer.zip([("a", long), ("b", other)], hasLongLengths: true)),
      ("MP4", SampleContainer.boxes([("moov", short), ("mdat", long), ("free", short), ("mdat", other)])),
      (
        "MP4 with long lengths",
        SampleContainer.boxes([("mdat", long), ("moov", other)], hasLongLengths: true)
      ),
    ]
  }

  @Test("cuts at the same points however the bytes are handed over")
  func handingOverDoesNotMatter() {
    var random = SplitMix64.announced()
    for (name, bytes) in Self.samples(&random) + [("noise", random.bytes(300_000))] {
      let expected = Self.chunks(of: bytes)
      for max in [97, 5_000, 100_000] {
        let parts = random.split(bytes.count, max: max) + [0]
        #expect(Self.chunks(of: bytes, parts: parts) == expected, "\(name), at most \(max) at a time")
      }
    }
  }

  @Test("cuts what is no container, and what is short, by content alone")
  func othersAreCutByContent() {
    var random = SplitMix64.announced()
    let noise = random.bytes(1_000_000)
    #expect(Self.chunks(of: noise).map(\.count) == ChunkerTests.chunks(of: noise))
    let short = SampleContainer.jpeg(exif: random.bytes(1_000), picture: random.bytes(30_000))
    #expect(Self.chunks(of: short).map(\.count) == ChunkerTests.chunks(of: short))
    let exact = SampleContainer.jpeg(exif: nil, picture: random.bytes(65_000)).prefix(65_536)
    #expect(Self.chunks(of: Array(exact)).map(\.count) == ChunkerTests.chunks(of: Array(exact)))
    #expect(Self.chunks(of: []) == [])
  }

  @Test("shares a JPEG's picture whatever becomes of its EXIF", arguments: [0, 20, 8_000, 60_000])
  func exif(byteCount: Int) {
    var random = SplitMix64.announced()
    let picture = random.bytes(400_000)
    let one = SampleContainer.jpeg(exif: random.bytes(4_000), picture: picture)
    let exif = byteCount == 0 ? nil : random.bytes(byteCount)
    let other = SampleContainer.jpeg(exif: exif, picture: picture)
    let head = other.count - picture.count - SampleContainer.jpegScan.count - 2
    #expect(Self.newByteCount(other, beside: one) == head)
  }

  @Test("shares a PNG's picture whatever stands before and behind it")
  func pngText() {
    var random = SplitMix64.announced()
    let picture = random.bytes(400_000)
    for byteCountMax in [8_192, 1_000_000] {
      let plain = SampleContainer.png(picture: picture, pictureByteCountMax: byteCountMax)
      let before = SampleContainer.png(
        text: random.bytes(2_000), picture: picture, pictureByteCountMax: byteCountMax)
      let behind = SampleContainer.png(
        picture: picture, pictureByteCountMax: byteCountMax, trailer: random.bytes(2_000))
      #expect(Self.newByteCount(before, beside: plain) < 2_100)
      #expect(Self.newByteCount(behind, beside: plain) < 2_100)
      #expect(Self.newByteCount(plain, beside: behind) == 12)
    }
  }

  @Test(
    "shares a ZIP's long members whatever they are called and wherever they stand", arguments: [false, true])
  func zipMembers(hasLongLengths: Bool) {
    var random = SplitMix64.announced()
    let members = (0..<8).map { ("folder/member \($0).jpg", random.bytes(100_000 + 30_000 * $0)) }
    let small = (0..<20).map { ("small \($0)", random.bytes(300)) }
    let one = SampleContainer.zip(members + small, hasLongLengths: hasLongLengths)
    let renamed = members.map { ($0.0.replacing("folder", with: "holidays"), $0.1) }
    // Headers and the directory.
    #expect(
      Self.newByteCount(
        SampleContainer.zip(renamed + small, hasLongLengths: hasLongLengths), beside: one) < 20_000)
    let added = members[..<3] + [("new", random.bytes(50_000))] + members[3...] + small
    #expect(
      Self.newByteCount(
        SampleContainer.zip(Array(added), hasLongLengths: hasLongLengths), beside: one) < 70_000)
    let sorted = (members + small).reversed()
    #expect(
      Self.newByteCount(
        SampleContainer.zip(Array(sorted), hasLongLengths: hasLongLengths), beside: one) < 20_000)
    // The same member of another archive, and the same bytes alone.
    #expect(
      Self.newByteCount(
        SampleContainer.zip([members[5]], hasLongLengths: hasLongLengths), beside: one) < 1_000)
    #expect(Self.newByteCount(members[5].1, beside: one) == 0)
  }

  @Test("shares a film's pictures and sounds whatever stands before them", arguments: [false, true])
  func boxes(hasLongLengths: Bool) {
    var random = SplitMix64.announced()
    let film = ("mdat", random.bytes(500_000))
    let index = random.bytes(20_000)
    let one = SampleContainer.boxes([("moov", index), film], hasLongLengths: hasLongLengths)
    for changed in [index + [1, 2, 3], random.bytes(90_000), []] {
      let before = SampleContainer.boxes([("moov", changed), film], hasLongLengths: hasLongLengths)
      let behind = SampleContainer.boxes([film, ("moov", changed)], hasLongLengths: hasLongLengths)
      #expect(Self.newByteCount(before, beside: one) < changed.count + 100)
      #expect(Self.newByteCount(behind, beside: one) < changed.count + 100)
    }
  }

  @Test("ends a chunk before a ZIP's member if that leaves the minimum behind, and not a byte less")
  func borderAtMinimum() {
    var random = SplitMix64.announced()
    let (long, other) = (random.bytes(100_000), random.bytes(100_000))
    let minimum = ChunkSizes.standard.minimum
    let headerByteCount = 31
    for (missing, expected) in [(0, [minimum, headerByteCount]), (1, [minimum - 1 + headerByteCount])] {
      let short = random.bytes(minimum - headerByteCount - missing)
      let zip = SampleContainer.zip([("a", long), ("b", short), ("c", other)])
      let chunks = Self.chunks(of: zip)
      let begin = headerByteCount + long.count
      let end = begin + headerByteCount + short.count + headerByteCount
      let between = chunks.filter { $0.lowerBound >= begin && $0.upperBound <= end }
      #expect(between.map(\.count) == expected)
      #expect(between.last?.upperBound == end)
    }
  }

  /// Frozen: if this fails, old stores no longer share chunks with new blobs. Repair the code, not the numbers.
  @Test("cuts where it has always cut")
  func frozenCutPoints() {
    var random = SplitMix64(seed: 2)
    let lengths = Self.samples(&random).map { Self.chunks(of: $0.bytes).map(\.count) }
    #expect(
      lengths == [
        [5_112, 68_334, 83_565, 37_423, 94_399, 16_291],
        [102, 68_334, 83_565, 37_423, 94_399, 16_291],
        [5_053, 68_428, 83_685, 37_483, 94_531, 16_317, 5_029],
        [31, 68_324, 83_565, 37_423, 94_399, 16_289, 5_062, 77_226, 87_640, 90_443, 44_691, 5_241],
        [56, 68_324, 83_565, 37_423, 94_399, 16_289, 56, 77_226, 87_640, 90_443, 44_691, 116],
        [5_024, 68_332, 83_565, 37_423, 94_399, 16_289, 5_008, 77_234, 87_640, 90_443, 44_691],
        [16, 68_340, 83_565, 37_423, 94_399, 16_289, 77_242, 87_640, 90_443, 44_691],
      ])
  }
}
