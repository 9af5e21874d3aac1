import BlobStorage

extension FuzzTarget {
  /// Every record and header: the first byte says which.
  static let records = FuzzTarget("records", seeds: seedsOfRecords) { input in
    var reader = InputReader(input)
    let kind = reader.byte()
    let rest = reader.all()
    switch kind % 11 {
    case 0:
      guard
        let record = Fuzzing.decode(
          rest,
          { raw throws(BlobStorageError) in
            try ChunkRecord(meta: raw, payloadByteCount: 5, algorithm: .blake3)
          })
      else { return }
      Fuzzing.require(record.encodedMeta() == rest, "a chunk record is not what it was read from")
    case 1:
      guard
        let record = Fuzzing.decode(
          rest, { raw throws(BlobStorageError) in try ManifestRecord(meta: raw, algorithm: .sha256) })
      else { return }
      Fuzzing.require(record.encodedMeta() == rest, "a manifest record is not what it was read from")
      Fuzzing.require(record.payloadByteCount <= Limits.recordPayloadByteCountMax, "a manifest is too long")
    case 2, 3:
      let records = commit(rest, kind % 11 == 2 ? 0 : RecordHeader.continues)
      guard let records else { return }
      Fuzzing.require(records.allSatisfy { $0.byteCount > 0 }, "an entry without a place")
      Fuzzing.require(
        records.head.beginsRecord
          && zip(records, records.dropFirst()).allSatisfy { $0.offset + Int64($0.byteCount) == $1.offset },
        "the entries do not cover the record")
    case 4 where rest.count != 64, 5 where rest.count != 64:
      // A reader takes 64 bytes, or fewer at the end of a file.
      _ = Fuzzing.decode(rest.prefix(63)) { raw throws(BlobStorageError) in try PackHeader(raw) }
      _ = Fuzzing.decode(rest) { raw throws(BlobStorageError) in try StoreHeader(raw) }
    case 4:
      guard
        let header = Fuzzing.decode(guarded(rest), { raw throws(BlobStorageError) in try PackHeader(raw) })
      else { return }
      Fuzzing.require(header.encoded() == guarded(rest), "a pack header is not what it was read from")
    case 5:
      guard
        let header = Fuzzing.decode(guarded(rest), { raw throws(BlobStorageError) in try StoreHeader(raw) })
      else { return }
      Fuzzing.require(header.encoded() == guarded(rest), "a store header is not what it was read from")
    case 6:
      _ = Fuzzing.decode(rest) { raw throws(BlobStorageError) in try RecordHeader(raw) }
    case 7:
      let bytes = guarded(rest)
      let trailer = bytes.withUnsafeBytes {
        PackFooter.Trailer($0, name: FuzzedPack.name, packByteCount: 1_000)
      }
      Fuzzing.require((trailer?.footerOffset ?? 64) >= 64, "a footer begins inside of the header")
    case 8:
      let chunks = Fuzzing.decode(rest) { raw throws(BlobStorageError) in
        try ChunkEntry.list(raw, algorithm: .blake3)
      }
      guard let chunks else { return }
      _ = Fuzzing.attempt { () throws(BlobStorageError) in
        try BlobLayout(digest: Digest.of(rest), chunks: chunks)
      }
    case 10:
      guard
        let frame = Fuzzing.decode(
          rest,
          { raw throws(BlobStorageError) in
            try FrameRecord(meta: raw, payloadByteCount: 5, algorithm: .blake3)
          })
      else { return }
      Fuzzing.require(frame.encodedMeta() == rest, "a frame is not what it was read from")
      Fuzzing.require(frame.plainByteCount <= Limits.frameByteCountMax, "a frame is too long")
      let members = frame.records(at: 64, payloadByteCount: 5)
      Fuzzing.require(members.allSatisfy { $0.byteCount > 0 }, "a member without a place")
      Fuzzing.require(
        members.head.beginsRecord
          && zip(members, members.dropFirst()).allSatisfy { $0.offset + Int64($0.byteCount) == $1.offset },
        "the members do not cover the record")
    default:
      let lists = Fuzzing.decode(rest) { raw throws(BlobStorageError) in
        try ListEntry.list(raw, algorithm: .blake3)
      }
      guard let lists else { return }
      _ = Fuzzing.attempt { () throws(BlobStorageError) in
        try BlobLayout(digest: Digest.of(rest), lists: lists)
      }
    }
  }

  /// The entries of a commit record with that content; nil if it has none.
  private static func commit(_ content: [UInt8], _ flags: UInt8) -> OneOrMore<PackRecord>? {
    let isShort = content.count <= Limits.recordMetaByteCountMax
    let header = RecordHeader(
      type: .commit, flags: flags, metaByteCount: isShort ? content.count : 0,
      payloadByteCount: isShort ? 0 : content.count)
    return Fuzzing.decode(content) { raw throws(BlobStorageError) in
      var decoder = RecordDecoder(pack: FuzzedPack.name, algorithm: .blake3, codecs: CodecPool())
      let none = UnsafeRawBufferPointer(start: nil, count: 0)
      return try decoder.records(
        header, meta: isShort ? raw : none, payload: isShort ? none : raw, at: 1_000)
    }
  }

  /// The bytes with the checksum that 64 of them end with.
  private static func guarded(_ bytes: [UInt8]) -> [UInt8] {
    guard bytes.count == 64 else { return bytes }
    var writer = ByteWriter(capacity: 64)
    writer.raw(Array(bytes[..<60]))
    writer.checksum()
    return writer.bytes
  }

  private static func seedsOfRecords() -> [[UInt8]] {
    let digest = Digest.of([1] as [UInt8])
    let stamp = Stamp(time: 1 << 40, writer: 7)
    let chunk = ChunkRecord(digest: digest, plainByteCount: 5_000, codecNumber: 0)
    let based = ChunkRecord(
      digest: digest, plainByteCount: 5_000, codecNumber: 1, base: Digest.of([2] as [UInt8]),
      features: SIMD3(1, 2, 3))
    let store = StoreHeader(
      flags: .similarity, digestAlgorithm: .blake3, codecNumber: 1, level: 3, chunkByteCountAverage: 65_536,
      storeID: FuzzedPack.storeID, created: 1)
    let frame = FrameRecord(
      codecNumber: 1,
      members: [
        .init(digest: digest, plainByteCount: 300, features: SIMD3(1, 2, 3)),
        .init(digest: digest, plainByteCount: 9),
      ])
    var chunks = ByteWriter()
    for length in [1, 8 << 20] { ChunkEntry(digest: digest, plainByteCount: length).encode(into: &chunks) }
    var lists = ByteWriter()
    for span: Int64 in [1, 1 << 48] {
      ListEntry(digest: digest, chunkCount: 9, spanByteCount: span).encode(into: &lists)
    }
    let trailer = PackFooter.Trailer(
      name: FuzzedPack.name, recordCount: 2, footerOffset: 200, storedByteCount: 736)
    return [
      [0] + chunk.encodedMeta(), [0] + based.encodedMeta(),
      [1]
        + ManifestRecord(digest: digest, byteCount: 99, chunkCount: 2, depth: 0, listedCount: 2).encodedMeta(),
      [2] + commitContent(digest, stamp), [3] + commitContent(digest, stamp),
      [4] + FuzzedPack.header.encoded(), [5] + store.encoded(),
      [6]
        + RecordHeader(type: .commit, metaByteCount: 0, payloadByteCount: 0)
        .encoded(meta: [], pack: FuzzedPack.name, offset: 64),
      [7] + trailer.encoded(), [8] + chunks.bytes, [9] + lists.bytes,
      [10] + frame.encodedMeta(),
    ]
  }
}
