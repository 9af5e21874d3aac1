/// The plan of a blob in memory: its chunks, encoded unless the store seems to have them.
///
/// ``ChunkPlanner`` makes plans without a lock. The store may change before a plan is appended, so the commit looks
/// everything up again.
package struct ChunkPlan: Sendable {
  package struct Chunk: Sendable {
    package let digest: BlobDigest
    /// Its position in the content.
    package let range: Range<Int>
    /// Nil if the store seems to have the chunk, or if it is to be joined with others.
    package let encoded: EncodedChunk?
    /// Whether it is to be joined with others, and the features that its record then has.
    package var isToBeJoined = false
    package var features: SIMD3<UInt32>?
  }

  /// The digest of the content.
  package let digest: BlobDigest
  package let byteCount: Int
  package let chunks: OneOrMore<Chunk>
  /// How to encode a chunk that turns out to be missing.
  let hint: CompressibilityHint
  let codec: CodecChoice
  /// Whether the planner has looked the chunks up and secured the packs of those that it found.
  let isLookedUp: Bool
  /// Where the store has a manifest that names the same chunks, if it has one.
  var manifestPlace: Place?

  /// The most bytes that its records can add to a pack and to the pack's footer.
  var packByteCountMax: Int {
    func ofChunk(_ storedByteCount: Int) -> Int {
      RecordHeader.packByteCountMax(
        metaByteCount: ChunkRecord.metaByteCountMax, payloadByteCount: storedByteCount)
    }
    let records = chunks.reduce(0) { sum, chunk in
      guard let encoded = chunk.encoded else { return sum + ofChunk(chunk.range.count) }
      // A chunk whose base is gone by then is encoded anew.
      let own =
        encoded.record.base == nil
        ? encoded.storedByteCount : max(encoded.storedByteCount, chunk.range.count)
      return sum + ofChunk(own)
    }
    return records
      + RecordHeader.packByteCountMax(
        metaByteCount: ManifestRecord.metaByteCount, payloadByteCount: chunks.count * ChunkEntry.byteCount)
  }
}

extension ChunkPlan {
  /// The result of appending a plan.
  struct Added {
    /// Plain bytes of the chunks that the store lacked.
    var newByteCount: Int64 = 0
    /// Bytes that were added to packs.
    var storedByteCount = 0
  }
}

/// A chunk's record and its payload.
package struct EncodedChunk: Sendable {
  package var record: ChunkRecord
  /// Nil if the stored bytes are the plain ones.
  package var stored: [UInt8]?

  package init(record: ChunkRecord, stored: [UInt8]? = nil) {
    self.record = record
    self.stored = stored
  }

  package var storedByteCount: Int { stored?.count ?? record.plainByteCount }

  /// Bytes of the whole record.
  package var recordByteCount: Int { record.recordByteCount(payloadByteCount: storedByteCount) }

  /// Calls `body` with the record's payload.
  func withPayload<Result>(
    _ plain: RawSpan, _ body: (RawSpan) throws(BlobStorageError) -> Result
  ) throws(BlobStorageError) -> Result {
    if let stored { try body(stored.span.bytes) } else { try body(plain) }
  }
}

extension CodecPool {
  /// Encodes a chunk without a base and without features.
  func encode(
    _ digest: BlobDigest, _ plain: RawSpan, by choice: CodecChoice, hint: CompressibilityHint
  ) throws(BlobStorageError) -> EncodedChunk {
    try withEncoder { (encoder) throws(BlobStorageError) in
      try encoder.withEncoded(plain, by: choice, hint: hint) { (kind, stored) in
        EncodedChunk(
          record: ChunkRecord(digest: digest, plainByteCount: plain.byteCount, codecNumber: kind.rawValue),
          stored: kind == .none ? nil : Array(stored))
      }
    }
  }
}
