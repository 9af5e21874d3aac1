import BlobStorage
import Testing

@Suite("Records")
struct RecordFormatTests {
  static let digest = Digest.of([1, 2, 3] as [UInt8])
  static let other = Digest.of([4, 5, 6] as [UInt8])
  static let key = Array("a key".utf8)
  static let stamp = Stamp(time: 7 << 16, writer: 9)

  private static func chunk(_ meta: [UInt8]) throws(BlobStorageError) -> ChunkRecord {
    try decoding(meta) { (raw) throws(BlobStorageError) in try ChunkRecord(meta: raw, algorithm: .blake3) }
  }

  private static func ref(_ meta: [UInt8]) throws(BlobStorageError) -> RefRecord {
    try decoding(meta) { (raw) throws(BlobStorageError) in try RefRecord(meta: raw, algorithm: .blake3) }
  }

  private static func manifest(_ meta: [UInt8]) throws(BlobStorageError) -> ManifestRecord {
    try decoding(meta) { (raw) throws(BlobStorageError) in try ManifestRecord(meta: raw, algorithm: .blake3) }
  }

  private static func drop(_ meta: [UInt8], _ payload: [UInt8]) throws(BlobStorageError) -> DropRecord {
    try decoding(meta) { (meta) throws(BlobStorageError) in
      try decoding(payload) { (raw) throws(BlobStorageError) in try DropRecord(meta: meta, payload: raw) }
    }
  }

  // MARK: Chunks

  @Test(
    "of chunks come back as they were written",
    arguments: [
      ChunkRecord(digest: digest, plainByteCount: 0, codecNumber: 0),
      ChunkRecord(digest: digest, plainByteCount: Limits.chunkByteCountMax, codecNumber: 2),
      ChunkRecord(digest: digest, plainByteCount: 70_000, codecNumber: 1, baseKind: .prefix, base: other),
      ChunkRecord(digest: digest, plainByteCount: 1, codecNumber: 200, baseKind: .dictionary, base: other),
    ])
  func chunks(_ record: ChunkRecord) throws {
    #expect(record.encodedMeta().count == (record.base == nil ? 40 : 72))
    #expect(try Self.chunk(record.encodedMeta()) == record)
  }

  @Test("of chunks are refused one step beyond what is accepted")
  func refusedChunks() throws {
    let plain = ChunkRecord(digest: Self.digest, plainByteCount: 9, codecNumber: 1).encodedMeta()
    let based = ChunkRecord(
      digest: Self.digest, plainByteCount: 9, codecNumber: 1, baseKind: .prefix, base: Self.other
    ).encodedMeta()
    func code(_ meta: [UInt8], _ change: (inout [UInt8]) -> Void) -> BlobStorageError.Code? {
      var meta = meta
      change(&meta)
      return failure { _ = try Self.chunk(meta) }?.code
    }
    #expect(code(plain) { _ in } == nil)
    #expect(code(plain) { $0.removeLast() } == .corrupted)
    #expect(code(plain) { $0.append(0) } == .corrupted)
    #expect(code(plain) { $0[2] = 1 } == .corrupted, "features that are not there")
    #expect(
      code(plain) {
        $0[2] = 1; $0 += [UInt8](repeating: 7, count: 12)
      } == nil)
    #expect(code(plain) { $0[2] = 2 } == .unsupportedFormat)
    #expect(code(plain) { $0[3] = 1 } == .unsupportedFormat)
    // A length of 8 MiB and one byte.
    #expect(code(plain) { $0.replaceSubrange(4..<8, with: [1, 0, 0x80, 0]) } == .corrupted)
    #expect(code(plain) { $0[1] = 1 } == .corrupted, "a base that is not there")
    #expect(code(based) { _ in } == nil)
    #expect(code(based) { $0[1] = 0 } == .corrupted, "a base too many")
    #expect(code(based) { $0[1] = 3 } == .unsupportedFormat)
    #expect(code(based) { $0[0] = 0 } == .corrupted, "plain bytes with a base")
    #expect(code(based) { $0.replaceSubrange(40..<72, with: $0[8..<40]) } == .corrupted, "its own base")
  }

  @Test("keep what is not always in them: features, and how much of the pack was on the medium")
  func optionalFields() throws {
    for base in [nil, Self.other] as [Digest?] {
      let chunk = ChunkRecord(
        digest: Self.digest, plainByteCount: 9, codecNumber: 1, baseKind: base == nil ? .none : .prefix,
        base: base, features: SIMD3(1, 2, 0xffff_ffff))
      #expect(try Self.chunk(chunk.encodedMeta()) == chunk)
    }
    let ref = RefRecord(
      key: Self.key, version: Self.stamp, replaced: .none, digest: Self.digest, byteCount: 3, created: 5,
      metadata: [1], syncedByteCount: 0x0102_0304)
    #expect(try Self.ref(ref.encodedMeta()) == ref)
    let drop = DropRecord(
      key: Self.key, stamp: Self.stamp, versions: [Self.stamp], syncedByteCount: 0x0102_0304)
    #expect(try Self.drop(drop.encodedMeta(), drop.encodedPayload()) == drop)
  }

  @Test("have a payload as long as their meta says, and no other")
  func payloads() throws {
    func lengths(_ content: PackRecord.Content, _ range: ClosedRange<Int>) throws -> [Int] {
      let (type, meta) = (try #require(content.type), content.encodedMeta())
      return range.filter { count in
        let header = RecordHeader(type: type, metaByteCount: meta.count, payloadByteCount: count)
        return failure {
          _ = try decoding(meta) { (raw) throws(BlobStorageError) in
            try PackRecord(
              header: header, meta: raw, dropPayload: UnsafeRawBufferPointer(start: nil, count: 0),
              offset: 64, algorithm: .blake3)
          }
        }?.code != .corrupted
      }
    }
    func chunk(_ codecNumber: UInt8) -> PackRecord.Content {
      .chunk(ChunkRecord(digest: Self.digest, plainByteCount: 9, codecNumber: codecNumber))
    }
    func manifest(_ depth: UInt8) -> PackRecord.Content {
      .manifest(
        ManifestRecord(digest: Self.digest, byteCount: 5, chunkCount: 2, depth: depth, listedCount: 2))
    }
    let ref = RefRecord(
      key: Self.key, version: Self.stamp, replaced: .none, digest: Self.digest, byteCount: 3, created: 5,
      metadata: [])
    #expect(try lengths(chunk(0), 0...20) == [9], "plain bytes")
    #expect(try lengths(chunk(1), 0...20) == Array(1...8), "encoded bytes are fewer")
    #expect(try lengths(manifest(0), 0...200) == [72])
    #expect(try lengths(manifest(1), 0...200) == [88])
    #expect(try lengths(.ref(ref), 0...20) == [0])
  }

  /// Frozen: a smaller maximum refuses what stores hold, a larger one makes what older builds refuse.
  @Test("have the maxima that they always had")
  func maxima() {
    let maxima: [(value: Int, frozen: Int)] = [
      (Limits.keyByteCountMax, 4_096), (Limits.metadataByteCountMax, 1_024),
      (Limits.chunkByteCountMax, 8_388_608), (Limits.recordPayloadByteCountMax, 8_388_608),
      (Limits.recordMetaByteCountMax, 8_192), (Limits.dropVersionCountMax, 4_096),
      (Limits.manifestListCountMax, 131_072), (Int(Limits.blobByteCountMax), 281_474_976_710_656),
      (Int(Limits.packByteCountMax), 1_073_741_824), (Limits.packRecordCountMax, 8_388_608),
      (Limits.footerByteCountMax, 268_435_456), (Int(Limits.censusByteCountMax), 1_073_741_824),
      (Limits.chunkByteCountAverageMin, 1_024), (Limits.chunkByteCountAverageMax, 2_097_152),
    ]
    for (index, maximum) in maxima.enumerated() { #expect(maximum.value == maximum.frozen, "\(index)") }
  }

  // MARK: Refs

  @Test("of versions come back as they were written")
  func refs() throws {
    let longest = RefRecord(
      key: [UInt8](repeating: 0xff, count: Limits.keyByteCountMax), version: Self.stamp, replaced: .none,
      digest: Self.digest, byteCount: Limits.blobByteCountMax, created: .max,
      metadata: [UInt8](repeating: 3, count: Limits.metadataByteCountMax))
    let shortest = RefRecord(
      key: [0], version: Stamp(time: 0, writer: 1), replaced: Self.stamp, digest: Self.digest, byteCount: 0,
      created: 0, metadata: [])
    for ref in [longest, shortest] {
      let meta = ref.encodedMeta()
      #expect(meta.count == RefRecord.fixedByteCount + ref.key.count + ref.metadata.count)
      #expect(meta.count <= Limits.recordMetaByteCountMax)
      #expect(try Self.ref(meta) == ref)
    }
  }

  @Test("of versions are refused one step beyond what is accepted")
  func refusedRefs() throws {
    func code(_ change: (inout RefRecord) -> Void) -> BlobStorageError.Code? {
      var ref = RefRecord(
        key: Self.key, version: Self.stamp, replaced: .none, digest: Self.digest, byteCount: 3, created: 5,
        metadata: [1])
      change(&ref)
      return failure { _ = try Self.ref(ref.encodedMeta()) }?.code
    }
    #expect(code { _ in } == nil)
    #expect(code { $0.key = [] } == .corrupted)
    #expect(code { $0.key = [UInt8](repeating: 1, count: Limits.keyByteCountMax + 1) } == .corrupted)
    #expect(
      code { $0.metadata = [UInt8](repeating: 1, count: Limits.metadataByteCountMax + 1) } == .corrupted)
    #expect(code { $0.byteCount = Limits.blobByteCountMax + 1 } == .corrupted)
    #expect(code { $0.byteCount = -1 } == .corrupted)
    #expect(code { $0.version = .none } == .corrupted)
    #expect(code { $0.replaced = $0.version } == .corrupted, "a version that replaces itself")
    #expect(code { $0.version.time = Stamp.timeMax - 1 } == nil)
    #expect(code { $0.version.time = Stamp.timeMax } == .corrupted)
  }

  // MARK: Drops

  @Test("of dropped versions come back as they were written, and not beyond their maximum")
  func drops() throws {
    func drop(_ count: Int) -> DropRecord {
      DropRecord(
        key: Self.key, stamp: Self.stamp,
        versions: (0..<count).map { Stamp(time: UInt64($0) + 1, writer: UInt64($0)) })
    }
    for count in [1, Limits.dropVersionCountMax] {
      let record = drop(count)
      #expect(try Self.drop(record.encodedMeta(), record.encodedPayload()) == record)
    }
    for count in [0, Limits.dropVersionCountMax + 1] {
      let record = drop(count)
      #expect(
        failure { _ = try Self.drop(record.encodedMeta(), record.encodedPayload()) }?.code == .corrupted)
    }
    let two = drop(2)
    #expect(
      failure { _ = try Self.drop(two.encodedMeta(), two.encodedPayload() + [0]) }?.code == .corrupted)
    #expect(
      failure { _ = try Self.drop(two.encodedMeta(), drop(1).encodedPayload()) }?.code == .corrupted)
    let none = DropRecord(key: Self.key, stamp: Self.stamp, versions: [.none])
    #expect(failure { _ = try Self.drop(none.encodedMeta(), none.encodedPayload()) }?.code == .corrupted)
  }

  // MARK: Manifests

  @Test("of manifests come back as they were written, and not beyond their maximum")
  func manifests() throws {
    func record(depth: UInt8, chunks: Int64, listed: Int, bytes: Int64 = 5) -> ManifestRecord {
      ManifestRecord(
        digest: Self.digest, byteCount: bytes, chunkCount: chunks, depth: depth, listedCount: listed)
    }
    let most = Limits.manifestListCountMax
    for accepted in [
      record(depth: 0, chunks: 2, listed: 2), record(depth: 0, chunks: Int64(most), listed: most),
      record(depth: 1, chunks: 1 << 40, listed: most, bytes: Limits.blobByteCountMax),
    ] {
      #expect(accepted.payloadByteCount <= Limits.recordPayloadByteCountMax)
      #expect(try Self.manifest(accepted.encodedMeta()) == accepted)
    }
    for (refused, code) in [
      (record(depth: 0, chunks: 3, listed: 2), BlobStorageError.Code.corrupted),
      (record(depth: 0, chunks: Int64(most) + 1, listed: most + 1), .corrupted),
      (record(depth: 1, chunks: 1, listed: 1, bytes: Limits.blobByteCountMax + 1), .corrupted),
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
    #expect(try list(chunks(1) + chunks(Limits.chunkByteCountMax)).map(\.plainByteCount) == [1, 8 << 20])
    #expect(failure { _ = try list(chunks(0)) }?.code == .corrupted)
    #expect(failure { _ = try list(chunks(Limits.chunkByteCountMax + 1)) }?.code == .corrupted)
    #expect(failure { _ = try list(chunks(1).dropLast()) }?.code == .corrupted)
    let most = Limits.manifestListCountMax
    #expect(try lists(1, Limits.blobByteCountMax).count == 1)
    #expect(try lists(most, 1).count == 1)
    #expect(failure { _ = try lists(0, 1) }?.code == .corrupted)
    #expect(failure { _ = try lists(most + 1, 1) }?.code == .corrupted)
    #expect(failure { _ = try lists(1, 0) }?.code == .corrupted)
    #expect(failure { _ = try lists(1, Limits.blobByteCountMax + 1) }?.code == .corrupted)
  }
}
