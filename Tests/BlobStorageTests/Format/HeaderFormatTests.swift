import BlobStorage
import BlobStorageTestSupport
import Testing

@Suite("Headers")
struct HeaderFormatTests {
  static let store = StoreHeader(
    flags: .similarity, digestAlgorithm: .sha256, codecNumber: 1, level: 3, averageChunkByteCount: 65_536,
    storeID: Array(UInt8(1)...16), created: 77)

  private static func storeHeader(_ bytes: [UInt8]) throws(BlobStorageError) -> StoreHeader {
    try decoding(bytes) { (raw) throws(BlobStorageError) in try StoreHeader(raw) }
  }

  private static func packHeader(_ bytes: [UInt8]) throws(BlobStorageError) -> PackHeader {
    try decoding(bytes) { (raw) throws(BlobStorageError) in try PackHeader(raw) }
  }

  /// The bytes with some changed, and a checksum that is right again.
  private static func changed(_ bytes: [UInt8], _ offset: Int, to value: UInt8) -> [UInt8] {
    var writer = ByteWriter()
    var changed = Array(bytes.prefix(60))
    changed[offset] = value
    writer.raw(changed)
    writer.checksum()
    return writer.bytes
  }

  @Test("of stores come back as they were written")
  func stores() throws {
    #expect(Self.store.encoded().count == 64)
    #expect(try Self.storeHeader(Self.store.encoded()) == Self.store)
  }

  @Test("of stores are refused with the code that fits")
  func refusedStores() throws {
    let good = Self.store.encoded()
    func code(_ bytes: [UInt8]) -> BlobStorageError.Code? {
      failure { _ = try Self.storeHeader(bytes) }?.code
    }
    #expect(code(good) == nil)
    #expect(code([]) == .notAStore)
    #expect(code(Array("something else altogether".utf8)) == .notAStore)
    #expect(code(Self.changed(good, 8, to: 3)) == .unsupportedFormat, "a later format version")
    #expect(code(Self.changed(good, 8, to: 0)) == .corrupted, "no build has written it")
    #expect(code(Array(good.prefix(8)) + [UInt8](repeating: 0, count: good.count - 8)) == .corrupted)
    let older = failure { _ = try Self.storeHeader(Self.changed(good, 8, to: 1)) }
    #expect(older?.code == .unsupportedFormat && older?.message.contains("export it with the build") ?? false)
    let encrypted = failure { _ = try Self.storeHeader(Self.changed(good, 15, to: 1) + [1, 2, 3]) }
    #expect(encrypted?.code == .unsupportedFormat && encrypted?.message.contains("encrypted") ?? false)
    #expect(code(Self.changed(good, 10, to: 1 << 7)) == .unsupportedFormat, "a flag of a later build")
    #expect(code(Self.changed(good, 12, to: 3)) == .unsupportedFormat, "a digest of a later build")
    for reserved in Array(20..<32) + [15] + Array(56..<60) {
      #expect(code(Self.changed(good, reserved, to: 1)) == .unsupportedFormat)
    }
    #expect(code(good.dropLast()) == .corrupted)
    #expect(code(good + [0]) == .corrupted)
    for offset in 10..<64 {
      var damaged = good
      damaged[offset] ^= 0x10
      #expect(code(damaged) == .corrupted, "byte \(offset)")
    }
  }

  @Test("of packs come back as they were written, and are refused with the code that fits")
  func packs() throws {
    let header = PackPlace.header()
    let good = header.encoded()
    #expect(good.count == 64)
    #expect(try Self.packHeader(good) == header)
    func code(_ bytes: [UInt8]) -> BlobStorageError.Code? { failure { _ = try Self.packHeader(bytes) }?.code }
    #expect(code([]) == .corrupted)
    #expect(code(good.dropLast()) == .corrupted)
    for version: UInt8 in [1, 3] { #expect(code(Self.changed(good, 8, to: version)) == .unsupportedFormat) }
    #expect(code(Self.changed(good, 12, to: 9)) == .unsupportedFormat)
    for reserved in [10, 11, 13, 14, 15] + Array(52..<60) {
      #expect(code(Self.changed(good, reserved, to: 1)) == .unsupportedFormat, "byte \(reserved)")
    }
    #expect(code(Self.changed(good, 40, to: 0)) == .corrupted, "pack number 0")
    #expect(code(Self.changed(good, 51, to: 0x80)) == .corrupted, "beyond the clock's end")
    for offset in 0..<64 {
      var damaged = good
      damaged[offset] ^= 0x10
      #expect(code(damaged) == .corrupted, "byte \(offset)")
    }
  }

  @Test(
    "of packs are known by file names of one form only",
    arguments: [
      ("0102030405060708-00000001.pack", true), ("ffffffffffffffff-ffffffff.pack", true),
      ("0102030405060708-00000000.pack", false), ("010203040506070A-00000001.pack", false),
      ("0102030405060708_00000001.pack", false), ("0102030405060708-00000001.gone", false),
      ("102030405060708-00000001.pack", false), ("0102030405060708-000000010.pack", false), ("", false),
    ])
  func names(_ text: String, isAccepted: Bool) {
    #expect((PackName(fileName: text)?.fileName == text) == isAccepted)
  }

  @Test("of packs are in the order of their writers, and of their numbers")
  func order() {
    let ordered = [(1, 2), (1, 3), (2, 1), (2, 256), (256, 1)].map { (writer, sequence) in
      PackName(writer: UInt64(writer), sequence: UInt32(sequence))
    }
    #expect(ordered.reversed().sorted() == ordered)
  }

  @Test("of records are valid at one offset of one pack only")
  func records() throws {
    let name = PackPlace.header().name
    let meta = [UInt8](repeating: 7, count: 40)
    let bytes = RecordHeader(type: .chunk, metaByteCount: 40, payloadByteCount: 0)
      .encoded(meta: meta, pack: name, offset: 64)
    func isValid(_ name: PackName, _ offset: Int64, _ bytes: [UInt8]) -> Bool {
      failure {
        _ = try decoding(bytes) { (raw) throws(BlobStorageError) in
          try RecordHeader(raw).verifiedMeta(raw, pack: name, offset: offset)
        }
      } == nil
    }
    #expect(isValid(name, 64, bytes))
    #expect(!isValid(name, 65, bytes))
    #expect(!isValid(PackName(writer: name.writer, sequence: 2), 64, bytes))
    #expect(!isValid(PackName(writer: name.writer + 1, sequence: 1), 64, bytes))
    for offset in 0..<bytes.count {
      var damaged = bytes
      damaged[offset] ^= 8
      #expect(!isValid(name, 64, damaged), "byte \(offset)")
    }
  }

  @Test("of records claim no more than the maxima")
  func recordLengths() {
    func code(_ meta: Int, _ payload: Int) -> BlobStorageError.Code? {
      var writer = ByteWriter()
      writer.raw(RecordHeader.mark)
      writer.integer(UInt8(1))
      writer.varint(meta)
      writer.varint(payload)
      writer.zeros(4)
      return failure {
        _ = try decoding(writer.bytes) { (raw) throws(BlobStorageError) in try RecordHeader(raw) }
      }?.code
    }
    #expect(code(BlobLimits.recordMetaByteCountMax, BlobLimits.recordPayloadByteCountMax) == nil)
    #expect(code(BlobLimits.recordMetaByteCountMax + 1, 0) == .corrupted)
    #expect(code(0, BlobLimits.recordPayloadByteCountMax + 1) == .corrupted)
  }
}
