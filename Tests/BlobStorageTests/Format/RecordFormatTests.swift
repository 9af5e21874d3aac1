import BlobStorage
import BlobStorageTestSupport
import Testing

@Suite("Records")
struct RecordFormatTests {
  static let digest = BlobDigest.of([1, 2, 3] as [UInt8])
  static let other = BlobDigest.of([4, 5, 6] as [UInt8])

  private static func chunk(
    _ meta: [UInt8], payloadByteCount: Int = 0
  ) throws(BlobStorageError) -> ChunkRecord {
    try decoding(meta) { (raw) throws(BlobStorageError) in
      try ChunkRecord(meta: raw, payloadByteCount: payloadByteCount, algorithm: .blake3)
    }
  }

  private static func manifest(_ meta: [UInt8]) throws(BlobStorageError) -> ManifestRecord {
    try decoding(meta) { (raw) throws(BlobStorageError) in try ManifestRecord(meta: raw, algorithm: .blake3) }
  }

  // MARK: Chunks

  @Test(
    "of chunks come back as they were written",
    arguments: [
      ChunkRecord(digest: digest, plainByteCount: 0, codecNumber: 0),
      ChunkRecord(digest: digest, plainByteCount: BlobLimits.chunkByteCountMax, codecNumber: 2),
      ChunkRecord(digest: digest, plainByteCount: 70_000, codecNumber: 1, base: other),
      ChunkRecord(digest: digest, plainByteCount: 2, codecNumber: 200, base: other),
    ])
  func chunks(_ record: ChunkRecord) throws {
    let meta = record.encodedMeta()
    #expect(meta.count == record.metaByteCount && meta.count <= ChunkRecord.metaByteCountMax)
    let payloadByteCount = record.codecNumber == 0 ? record.plainByteCount : record.plainByteCount - 1
    #expect(try Self.chunk(meta, payloadByteCount: payloadByteCount) == record)
  }

  @Test("of chunks are refused one step beyond what is accepted")
  func refusedChunks() throws {
    let plain = ChunkRecord(digest: Self.digest, plainByteCount: 9, codecNumber: 1).encodedMeta()
    let based = ChunkRecord(
      digest: Self.digest, plainByteCount: 9, codecNumber: 1, base: Self.other
    ).encodedMeta()
    #expect(plain.count == 35 && based.count == 67)
    func code(_ meta: [UInt8], _ change: (inout [UInt8]) -> Void) -> BlobStorageError.Code? {
      var meta = meta
      change(&meta)
      return failure { _ = try Self.chunk(meta, payloadByteCount: 1) }?.code
    }
    #expect(code(plain) { _ in } == nil)
    #expect(code(plain) { $0.removeLast() } == .corrupted)
    #expect(code(plain) { $0.append(0) } == .corrupted)
    #expect(code(plain) { $0[33] = 2 } == .corrupted, "features that are not there")
    #expect(
      code(plain) {
        $0[33] = 2; $0 += [UInt8](repeating: 7, count: 12)
      } == nil)
    for flag: UInt8 in [4, 8, 128] { #expect(code(plain) { $0[33] = flag } == .unsupportedFormat) }
    // 8 MiB, and one byte more.
    #expect(code(plain) { $0.replaceSubrange(34..<35, with: [0x80, 0x80, 0x80, 4]) } == nil)
    #expect(code(plain) { $0.replaceSubrange(34..<35, with: [0x81, 0x80, 0x80, 4]) } == .corrupted)
    #expect(code(plain) { $0.replaceSubrange(34..<35, with: [0x89, 0]) } == .corrupted, "not the shortest")
    #expect(code(plain) { $0[33] = 1 } == .corrupted, "a base that is not there")
    #expect(code(based) { _ in } == nil)
    #expect(code(based) { $0[33] = 0 } == .corrupted, "a base too many")
    #expect(
      code(based) {
        $0[32] = 0; $0.remove(at: 34)
      } == .corrupted, "plain bytes with a base")
    #expect(code(based) { $0.replaceSubrange(35..<67, with: $0[0..<32]) } == .corrupted, "its own base")
  }

  @Test("keep what is not always in them")
  func optionalFields() throws {
    for base in [nil, Self.other] as [BlobDigest?] {
      let chunk = ChunkRecord(
        digest: Self.digest, plainByteCount: 9, codecNumber: 1, base: base, features: SIMD3(1, 2, 0xffff_ffff)
      )
      #expect(try Self.chunk(chunk.encodedMeta(), payloadByteCount: 8) == chunk)
    }
  }

  @Test("have a payload as long as their meta says, and no other")
  func payloads() throws {
    func lengths(_ type: RecordType, _ meta: [UInt8], _ range: ClosedRange<Int>) -> [Int] {
      range.filter { count in
        let header = RecordHeader(type: type, metaByteCount: meta.count, payloadByteCount: count)
        return failure {
          _ = try decoding(meta) { (raw) throws(BlobStorageError) in
            var decoder = RecordDecoder(
              pack: PackPlace.header().name, algorithm: .blake3, codecs: CodecPool())
            return try decoder.records(header, meta: raw, payload: .init(start: nil, count: 0), at: 64)
          }
        }?.code != .corrupted
      }
    }
    let encoded = ChunkRecord(digest: Self.digest, plainByteCount: 9, codecNumber: 1)
    func manifest(_ depth: UInt8) -> [UInt8] {
      ManifestRecord(digest: Self.digest, byteCount: 5, chunkCount: 2, depth: depth, listedCount: 2)
        .encodedMeta()
    }
    #expect(lengths(.chunk, encoded.encodedMeta(), 0...20) == Array(1...8), "encoded bytes are fewer")
    #expect(lengths(.manifest, manifest(0), 0...200) == [72])
    #expect(lengths(.manifest, manifest(1), 0...200) == [88])
  }

  /// Frozen: a smaller maximum refuses what stores hold, a larger one makes what older builds refuse.
  @Test("have the maxima that they always had")
  func maxima() {
    let maxima: [(value: Int, frozen: Int)] = [
      (BlobLimits.maximumKeyByteCount, 4_096), (BlobLimits.maximumMetadataByteCount, 1_024),
      (BlobLimits.chunkByteCountMax, 8_388_608), (BlobLimits.recordPayloadByteCountMax, 8_388_608),
      (BlobLimits.recordMetaByteCountMax, 8_192), (BlobLimits.dropVersionCountMax, 4_096),
      (BlobLimits.manifestListCountMax, 131_072), (Int(BlobLimits.maximumBlobByteCount), 281_474_976_710_656),
      (Int(BlobLimits.packByteCountMax), 1_073_741_824), (BlobLimits.packRecordCountMax, 8_388_608),
      (BlobLimits.footerByteCountMax, 268_435_456), (Int(BlobLimits.censusByteCountMax), 1_073_741_824),
      (BlobLimits.commitRecordByteCountMax, 2_097_152),
      (BlobLimits.commitRecordMemoryByteCountMax, 8_388_608),
      (BlobLimits.minimumAverageChunkByteCount, 1_024), (BlobLimits.maximumAverageChunkByteCount, 2_097_152),
    ]
    for (index, maximum) in maxima.enumerated() { #expect(maximum.value == maximum.frozen, "\(index)") }
  }

  // MARK: Manifests

  @Test("of manifests come back as they were written, and not beyond their maximum")
  func manifests() throws {
    func record(depth: UInt8, chunks: Int64, listed: Int, bytes: Int64 = 5) -> ManifestRecord {
      ManifestRecord(
        digest: Self.digest, byteCount: bytes, chunkCount: chunks, depth: depth, listedCount: listed)
    }
    let most = BlobLimits.manifestListCountMax
    for accepted in [
      record(depth: 0, chunks: 2, listed: 2), record(depth: 0, chunks: Int64(most), listed: most),
      record(depth: 1, chunks: 1 << 40, listed: most, bytes: BlobLimits.maximumBlobByteCount),
    ] {
      #expect(accepted.payloadByteCount <= BlobLimits.recordPayloadByteCountMax)
      #expect(try Self.manifest(accepted.encodedMeta()) == accepted)
    }
    for (refused, code) in [
      (record(depth: 0, chunks: 3, listed: 2), BlobStorageError.Code.corrupted),
      (record(depth: 0, chunks: Int64(most) + 1, listed: most + 1), .corrupted),
      (record(depth: 1, chunks: 1, listed: 1, bytes: BlobLimits.maximumBlobByteCount + 1), .corrupted),
      (record(depth: 1, chunks: -1, listed: 1), .corrupted),
      (record(depth: 2, chunks: 1, listed: 1), .unsupportedFormat),
    ] {
      #expect(failure { _ = try Self.manifest(refused.encodedMeta()) }?.code == code)
    }
  }

  @Test("of manifests list chunks and lists of possible lengths only")
  func lists() throws {
    func chunks(_ count: Int) -> [UInt8] {
      var writer = ByteWriter()
      ChunkEntry(digest: Self.digest, plainByteCount: count).encode(into: &writer)
      return writer.bytes
    }
    func list(_ bytes: [UInt8]) throws(BlobStorageError) -> [ChunkEntry] {
      try decoding(bytes) { (raw) throws(BlobStorageError) in try ChunkEntry.list(raw, algorithm: .blake3) }
    }
    func lists(_ chunkCount: Int, _ span: Int64) throws(BlobStorageError) -> [ListEntry] {
      var writer = ByteWriter()
      ListEntry(digest: Self.digest, chunkCount: chunkCount, spanByteCount: span).encode(into: &writer)
      return try decoding(writer.bytes) { (raw) throws(BlobStorageError) in
        try ListEntry.list(raw, algorithm: .blake3)
      }
    }
    #expect(try list(chunks(1) + chunks(BlobLimits.chunkByteCountMax)).map(\.plainByteCount) == [1, 8 << 20])
    #expect(failure { _ = try list(chunks(0)) }?.code == .corrupted)
    #expect(failure { _ = try list(chunks(BlobLimits.chunkByteCountMax + 1)) }?.code == .corrupted)
    #expect(failure { _ = try list(chunks(1).dropLast()) }?.code == .corrupted)
    let most = BlobLimits.manifestListCountMax
    #expect(try lists(1, BlobLimits.maximumBlobByteCount).count == 1)
    #expect(try lists(most, 1).count == 1)
    #expect(failure { _ = try lists(0, 1) }?.code == .corrupted)
    #expect(failure { _ = try lists(most + 1, 1) }?.code == .corrupted)
    #expect(failure { _ = try lists(1, 0) }?.code == .corrupted)
    #expect(failure { _ = try lists(1, BlobLimits.maximumBlobByteCount + 1) }?.code == .corrupted)
  }
}
