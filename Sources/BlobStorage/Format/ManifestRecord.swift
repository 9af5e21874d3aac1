/// The meta of a manifest record: the blob with this digest consists of these chunks, in order.
///
/// The payload lists the blob's parts. At depth 0 these are its chunks, as ``ChunkEntry``. At depth 1 they are lists,
/// as ``ListEntry``. Each list holds the entries of up to ``listedCountTarget`` chunks and is itself stored as a chunk.
/// So blobs of any size are written and read in bounded memory.
package struct ManifestRecord: Hashable, Sendable, RecordMeta {
  /// The number of chunks that a writer puts into one list.
  package static let listedCountTarget = 4_096
  package static let metaByteCount = 56

  package var digest: BlobDigest
  package var byteCount: Int64
  package var chunkCount: Int64
  package var depth: UInt8
  package var listedCount: Int

  package init(digest: BlobDigest, byteCount: Int64, chunkCount: Int64, depth: UInt8, listedCount: Int) {
    self.digest = digest
    self.byteCount = byteCount
    self.chunkCount = chunkCount
    self.depth = depth
    self.listedCount = listedCount
  }

  /// The length of its payload.
  package var payloadByteCount: Int { Self.payloadByteCount(listing: listedCount, depth: depth) }

  /// The length of a payload with `count` entries: chunks at depth 0, lists at depth 1.
  package static func payloadByteCount(listing count: Int, depth: UInt8) -> Int {
    count * (depth == 0 ? ChunkEntry.byteCount : ListEntry.byteCount)
  }

  /// The length of the whole record.
  package static func recordByteCount(listing count: Int, depth: UInt8 = 0) -> Int {
    RecordHeader.recordByteCount(
      metaByteCount: metaByteCount, payloadByteCount: payloadByteCount(listing: count, depth: depth))
  }

  package var metaByteCount: Int { Self.metaByteCount }

  package func encodeMeta(into filler: inout ByteFiller) {
    digest.withUnsafeBytes { filler.raw($0) }
    filler.integer(depth)
    filler.zeros(3)
    filler.integer(UInt32(listedCount))
    filler.integer(byteCount)
    filler.integer(chunkCount)
  }

  package init(meta: UnsafeRawBufferPointer, algorithm: BlobDigest.Algorithm) throws(BlobStorageError) {
    var reader = ByteReader(meta)
    digest = BlobDigest(algorithm: algorithm, bytes: try reader.bytes(BlobDigest.byteCount))
    depth = try reader.integer()
    try reader.reserved(3)
    listedCount = Int(try reader.integer(UInt32.self))
    byteCount = try reader.integer()
    chunkCount = try reader.integer()
    try reader.finish()
    guard depth <= 1 else {
      throw BlobStorageError(.unsupportedFormat, "A manifest has depth \(depth): use a later build.")
    }
    guard listedCount <= BlobLimits.manifestListCountMax, 0...BlobLimits.maximumBlobByteCount ~= byteCount,
      0...BlobLimits.maximumBlobByteCount ~= chunkCount, depth == 1 || chunkCount == listedCount
    else { throw BlobStorageError(.corrupted, "A manifest's counts are invalid.") }
  }
}

/// One chunk of a blob.
package struct ChunkEntry: Hashable, Sendable {
  package static let byteCount = BlobDigest.byteCount + 4

  package var digest: BlobDigest
  package var plainByteCount: Int

  package init(digest: BlobDigest, plainByteCount: Int) {
    self.digest = digest
    self.plainByteCount = plainByteCount
  }

  package func encode(into writer: inout ByteWriter) {
    digest.withUnsafeBytes { writer.raw($0) }
    writer.integer(UInt32(plainByteCount))
  }

  package static func encoded(_ entries: [ChunkEntry]) -> [UInt8] {
    var writer = ByteWriter(capacity: entries.count * byteCount)
    for entry in entries { entry.encode(into: &writer) }
    return writer.bytes
  }

  /// Decodes entries from `bytes`, which hold whole entries only.
  package static func list(
    _ bytes: UnsafeRawBufferPointer, algorithm: BlobDigest.Algorithm
  ) throws(BlobStorageError) -> [ChunkEntry] {
    guard bytes.count.isMultiple(of: byteCount), bytes.count / byteCount <= BlobLimits.manifestListCountMax
    else {
      throw BlobStorageError(.corrupted, "A list of chunks has an invalid length.")
    }
    var reader = ByteReader(bytes)
    var entries: [ChunkEntry] = []
    entries.reserveCapacity(bytes.count / byteCount)
    while reader.remainingByteCount > 0 {
      let digest = BlobDigest(algorithm: algorithm, bytes: try reader.bytes(BlobDigest.byteCount))
      let plainByteCount = Int(try reader.integer(UInt32.self))
      guard 1...BlobLimits.chunkByteCountMax ~= plainByteCount else {
        throw BlobStorageError(.corrupted, "A list names a chunk of an invalid length.")
      }
      entries.append(ChunkEntry(digest: digest, plainByteCount: plainByteCount))
    }
    return entries
  }
}

/// One list of a blob's chunks, at depth 1.
package struct ListEntry: Hashable, Sendable {
  package static let byteCount = BlobDigest.byteCount + 12

  /// The digest of the list's own bytes.
  package var digest: BlobDigest
  package var chunkCount: Int
  /// The plain bytes of all chunks in the list.
  package var spanByteCount: Int64

  package init(digest: BlobDigest, chunkCount: Int, spanByteCount: Int64) {
    self.digest = digest
    self.chunkCount = chunkCount
    self.spanByteCount = spanByteCount
  }

  package func encode(into writer: inout ByteWriter) {
    digest.withUnsafeBytes { writer.raw($0) }
    writer.integer(UInt32(chunkCount))
    writer.integer(spanByteCount)
  }

  package static func encoded(_ entries: [ListEntry]) -> [UInt8] {
    var writer = ByteWriter(capacity: entries.count * byteCount)
    for entry in entries { entry.encode(into: &writer) }
    return writer.bytes
  }

  package static func list(
    _ bytes: UnsafeRawBufferPointer, algorithm: BlobDigest.Algorithm
  ) throws(BlobStorageError) -> [ListEntry] {
    guard bytes.count.isMultiple(of: byteCount), bytes.count / byteCount <= BlobLimits.manifestListCountMax
    else {
      throw BlobStorageError(.corrupted, "A list of lists has an invalid length.")
    }
    var reader = ByteReader(bytes)
    var entries: [ListEntry] = []
    entries.reserveCapacity(bytes.count / byteCount)
    var sum: Int64 = 0
    while reader.remainingByteCount > 0 {
      let digest = BlobDigest(algorithm: algorithm, bytes: try reader.bytes(BlobDigest.byteCount))
      let chunkCount = Int(try reader.integer(UInt32.self))
      let span: Int64 = try reader.integer()
      guard 1...BlobLimits.manifestListCountMax ~= chunkCount, span >= 1,
        span <= BlobLimits.maximumBlobByteCount - sum
      else { throw BlobStorageError(.corrupted, "A manifest names a list of an invalid length.") }
      sum += span
      entries.append(ListEntry(digest: digest, chunkCount: chunkCount, spanByteCount: span))
    }
    return entries
  }
}
