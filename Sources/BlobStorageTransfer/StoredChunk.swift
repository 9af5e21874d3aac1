import BlobStorage

/// A chunk in its stored form, verified against its checksum and its digest.
struct StoredChunk: Sendable {
  var record: ChunkRecord
  var stored: [UInt8]
  /// Nil when the stored bytes are the plain ones.
  var plain: [UInt8]?

  /// Reads a chunk of a store.
  ///
  /// - Throws: `corrupted` for a missing chunk, or bytes that do not match.
  static func read(_ digest: BlobDigest, from chunks: ChunkSource) throws(BlobStorageError) -> StoredChunk {
    do throws(BlobStorageError) {
      let found = try chunks.located(digest) { (place) throws(BlobStorageError) -> StoredChunk in
        // A frame also holds other chunks, so the member is read by itself.
        guard place.row.frameOffset == nil else {
          throw BlobStorageError(.corrupted, "The chunk has no record of its own.")
        }
        let start = place.row.place.offset
        return try place.file.readingAfresh(start..<start + Int64(place.row.recordByteCount)) {
          () throws(BlobStorageError) in
          try read(place, digest, chunks)
        }
      }
      if let found { return found }
    } catch {
      guard error.code == .corrupted else { throw error }
    }
    // The record may be damaged in other bytes, or this machine may not know another machine's record yet.
    let plain = try chunks.bytes(digest)
    return StoredChunk(
      record: ChunkRecord(
        digest: digest, plainByteCount: plain.count, codecNumber: CodecKind.none.rawValue), stored: plain)
  }

  private static func read(
    _ place: ChunkSource.Located, _ digest: BlobDigest, _ chunks: ChunkSource
  ) throws(BlobStorageError) -> StoredChunk {
    let bytes = try place.file.bytes(at: place.row.place.offset, place.row.recordByteCount, pack: place.pack)
    return try bridge(bytes) { (raw) throws(BlobStorageError) -> StoredChunk in
      let (header, meta, payload) = try RecordHeader.verified(
        raw, pack: place.pack, offset: place.row.place.offset)
      let record = try ChunkRecord(
        meta: meta, payloadByteCount: header.payloadByteCount, algorithm: digest.algorithm)
      guard header.typeNumber == RecordType.chunk.rawValue, record.digest == digest else {
        throw BlobStorageError(.corrupted, "There is another record in the place of chunk \(digest).")
      }
      var base: [UInt8]?
      if let name = record.base { base = try chunks.base(name, access: .sequential) }
      let plain = try chunks.decoded(payload.bytes, record, base: base)
      if record.codecNumber == CodecKind.none.rawValue { return StoredChunk(record: record, stored: plain) }
      return StoredChunk(record: record, stored: Array(payload), plain: plain)
    }
  }

  /// The chunk for a store that lacks its base, encoded by `planner` like a put.
  func alone(by planner: ChunkPlanner) throws(BlobStorageError) -> StoredChunk {
    let plain = plain ?? stored
    let encoded = try planner.encodeAlone(record.digest, plain.span.bytes)
    return StoredChunk(
      record: encoded.record, stored: encoded.stored ?? plain, plain: encoded.stored == nil ? nil : plain)
  }
}
