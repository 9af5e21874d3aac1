import BlobStorage

extension FuzzTarget {
  /// Every record and header: the first byte says which.
  static let records = FuzzTarget("records", seeds: seedsOfRecords) { input in
    var reader = InputReader(input)
    let kind = reader.byte()
    let rest = reader.all()
    switch kind % 10 {
    case 0:
      guard
        let record = Fuzzing.decode(
          rest, { raw throws(BlobStorageError) in try ChunkRecord(meta: raw, algorithm: .blake3) })
      else { return }
      Fuzzing.require(record.encodedMeta() == rest, "a chunk record is not what it was read from")
    case 1:
      guard
        let record = Fuzzing.decode(
          rest, { raw throws(BlobStorageError) in try ManifestRecord(meta: raw, algorithm: .sha256) })
      else { return }
      Fuzzing.require(record.encodedMeta() == rest, "a manifest record is not what it was read from")
      Fuzzing.require(record.payloadByteCount <= Limits.recordPayloadByteCountMax, "a manifest is too long")
    case 2:
      guard
        let record = Fuzzing.decode(
          rest, { raw throws(BlobStorageError) in try RefRecord(meta: raw, algorithm: .blake3) })
      else { return }
      Fuzzing.require(record.encodedMeta() == rest, "a ref record is not what it was read from")
    case 3:
      var parts = InputReader(rest)
      let meta = parts.bytes(parts.byte())
      let payload = parts.all()
      let record = meta.withUnsafeBytes { meta in
        Fuzzing.decode(payload) { raw throws(BlobStorageError) in try DropRecord(meta: meta, payload: raw) }
      }
      guard let record else { return }
      Fuzzing.require(record.encodedMeta() == meta, "a drop record is not what it was read from")
      Fuzzing.require(
        record.encodedPayload() == payload, "a drop's versions are not what they were read from")
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
    let (stamp, older) = (Stamp(time: 1 << 40, writer: 7), Stamp(time: 1 << 39, writer: 7))
    let chunk = ChunkRecord(digest: digest, plainByteCount: 5_000, codecNumber: 0)
    let based = ChunkRecord(
      digest: digest, plainByteCount: 5_000, codecNumber: 1, baseKind: .prefix,
      base: Digest.of([2] as [UInt8]),
      features: SIMD3(1, 2, 3))
    let drop = DropRecord(key: [97, 98], stamp: stamp, versions: [older, older])
    let meta = drop.encodedMeta()
    let store = StoreHeader(
      flags: .similarity, digestAlgorithm: .blake3, codecNumber: 1, level: 3, chunkByteCountAverage: 65_536,
      storeID: FuzzedPack.storeID, created: 1)
    var chunks = ByteWriter()
    for length in [1, 8 << 20] { ChunkEntry(digest: digest, plainByteCount: length).encode(into: &chunks) }
    var lists = ByteWriter()
    for span: Int64 in [1, 1 << 48] {
      ListEntry(digest: digest, chunkCount: 9, spanByteCount: span).encode(into: &lists)
    }
    let trailer = PackFooter.Trailer(
      name: FuzzedPack.name, recordCount: 2, footerOffset: 200, storedByteCount: 736, plainByteCount: 900,
      checksum: 5)
    return [
      [0] + chunk.encodedMeta(), [0] + based.encodedMeta(),
      [1]
        + ManifestRecord(digest: digest, byteCount: 99, chunkCount: 2, depth: 0, listedCount: 2).encodedMeta(),
      [2]
        + RefRecord(
          key: Array("key".utf8), version: stamp, replaced: older, digest: digest, byteCount: 99, created: 1,
          metadata: [1, 2], syncedByteCount: 64
        ).encodedMeta(),
      [3, UInt8(meta.count)] + meta + drop.encodedPayload(),
      [4] + FuzzedPack.header.encoded(), [5] + store.encoded(),
      [6]
        + RecordHeader(type: .ref, metaByteCount: 0, payloadByteCount: 0)
        .encoded(meta: [], pack: FuzzedPack.name, offset: 64),
      [7] + trailer.encoded(), [8] + chunks.bytes, [9] + lists.bytes,
    ]
  }
}
