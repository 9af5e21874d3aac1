import BlobStorage
import BlobStorageTestSupport
import Testing

/// Where each kind of part has its borders. Behind the borders, stores of any age share what stands alone: none of
/// them may ever move.
@Suite("The borders of parts")
struct PartRuleTests {
  private static func big(_ value: Int, _ byteCount: Int) -> [UInt8] {
    (0..<byteCount).reversed().map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
  }

  private static func box(_ type: String, _ content: [UInt8]) -> [UInt8] {
    big(8 + content.count, 4) + Array(type.utf8) + content
  }

  /// The length of the first chunk.
  private static func first(_ bytes: [UInt8]) -> Int? { BlobChunkerTests.chunks(of: bytes).first?.count }

  @Test(
    "are found in boxes, whichever comes first",
    arguments: ["ftyp", "styp", "moov", "mdat", "wide", "free", "skip", "JXL ", "jP  ", "abcd", "FTYP"])
  func firstBoxes(type: String) throws {
    var random = SplitMix64.announced()
    let bytes = Self.box(type, random.bytes(5_000)) + Self.box("mdat", random.bytes(200_000))
    let first = try #require(Self.first(bytes))
    if ["abcd", "FTYP"].contains(type) {
      #expect(first >= ChunkSizes.standard.minimum, "no container")
    } else {
      #expect(first == 5_008)
    }
  }

  @Test("set a box and a ZIP's member apart from the average length on", arguments: [65_535, 65_536])
  func longParts(byteCount: Int) throws {
    var random = SplitMix64.announced()
    let isLong = byteCount == ChunkSizes.standard.average
    let tail = Self.box("mdat", random.bytes(200_000))
    let boxes = Self.box("ftyp", random.bytes(92)) + Self.box("free", random.bytes(byteCount - 8)) + tail
    #expect((Self.first(boxes) == 100) == isLong)
    let zip = SampleContainer.zip([("a", random.bytes(byteCount)), ("b", random.bytes(100_000))])
    #expect((Self.first(zip) == 31) == isLong)
  }

  @Test("follow a ZIP member's length wherever it stands, and end where it does not say one")
  func memberLengths() throws {
    var random = SplitMix64.announced()
    let long = random.bytes(100_000)
    var zip = SampleContainer.zip([("a", long)])
    #expect(Self.first(zip) == 31)
    // Bit 3: lengths may stand behind the bytes; here they stand before them all the same.
    zip[6] = 8
    #expect(Self.first(zip) == 31)
    for offset in 18..<26 { zip[offset] = 0 }
    #expect(try #require(Self.first(zip)) >= ChunkSizes.standard.minimum)
    // Of both lengths in the extra field, the second is that of the stored bytes; where the plain one is short, the
    // first.
    let longLengths = SampleContainer.zip([("a", long)], hasLongLengths: true)
    var both = longLengths
    for offset in 40..<48 { both[offset] = 0xff }
    #expect(Self.first(both) == 56)
    var one = longLengths
    one.replaceSubrange(22..<26, with: Self.big(long.count, 4).reversed())
    for offset in 48..<56 { one[offset] = 0xff }
    #expect(Self.first(one) == 56)
  }

  @Test("are the same where a header is longer than what is looked at, however its bytes arrive")
  func longHeaders() {
    var random = SplitMix64.announced()
    // The header of the second member arrives in pieces.
    let first = SampleContainer.zip([("a", random.bytes(100_000))])
    var second = SampleContainer.zip([("b", random.bytes(100_000))], hasLongLengths: true)
    let field: [UInt8] = [0x42, 0x42] + Self.big(5_000, 2).reversed() + [UInt8](repeating: 7, count: 5_000)
    second.insert(contentsOf: field, at: 31)
    second.replaceSubrange(28..<30, with: Self.big(25 + field.count, 2).reversed())
    let zip = Array(first.prefix(31 + 100_000)) + second
    let whole = BlobChunkerTests.chunks(of: zip)
    for stride in [377, 4_000, 5_056, 70_000] {
      let parts = Swift.stride(from: 0, to: zip.count, by: stride).map { min(stride, zip.count - $0) }
      #expect(BlobChunkerTests.chunks(of: zip, parts: parts) == whole, "\(stride)")
    }
  }

  @Test("stand before a JPEG's picture also behind fill bytes and markers of no length")
  func jpegMarkers() {
    var random = SplitMix64.announced()
    var bytes = SampleContainer.jpeg(exif: random.bytes(3_000), picture: random.bytes(200_000))
    let head = bytes.count - 200_000 - SampleContainer.jpegScan.count - 2
    #expect(Self.first(bytes) == head)
    let markers: [UInt8] = [0xff, 0xff, 0xff, 0x01, 0xff, 0xd0, 0xff, 0xd7, 0xff, 0xff]
    bytes.insert(contentsOf: markers, at: 2)
    #expect(Self.first(bytes) == head + markers.count)
  }

  @Test("stand before and behind all parts of a moving PNG's pictures")
  func movingPNG() throws {
    var random = SplitMix64.announced()
    func part(_ type: String, _ content: [UInt8]) -> [UInt8] {
      Self.big(content.count, 4) + Array(type.utf8) + content + [1, 2, 3, 4]
    }
    let signature: [UInt8] = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]
    let head = signature + part("IHDR", random.bytes(13)) + part("tEXt", random.bytes(3_000))
    var pictures: [UInt8] = []
    for type in ["IDAT", "fdAT", "fdAT"] {
      pictures += part("fcTL", random.bytes(26)) + part(type, random.bytes(70_000))
    }
    let tail = part("tEXt", random.bytes(3_000)) + part("IEND", [])
    let chunks = BlobChunkerTests.chunks(of: head + pictures + tail)
    #expect(chunks.first?.count == head.count)
    #expect(chunks.last?.count == tail.count)
  }
}
