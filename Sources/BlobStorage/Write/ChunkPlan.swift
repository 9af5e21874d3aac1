/// What of a blob in memory has to be stored: its chunks, encoded unless the store seems to have them.
///
/// ``ChunkPlanner`` makes plans without a lock. Until a plan is appended the store may change, so the commit looks
/// everything up again.
package struct ChunkPlan: Sendable {
  package struct Chunk: Sendable {
    package let digest: Digest
    /// Where it lies in the content.
    package let range: Range<Int>
    /// Nil if the store seems to have the chunk.
    package let encoded: EncodedChunk?
  }

  /// The digest of the content.
  package let digest: Digest
  package let byteCount: Int
  package let chunks: OneOrMore<Chunk>
  /// How to encode a chunk that turns out to be missing.
  let hint: CompressibilityHint
  let codec: CodecChoice
  /// Whether the planner has looked the chunks up, and synced the packs of those that it found.
  let isLookedUp: Bool

  /// The most that its records can add to a pack, and to the pack's footer.
  var packByteCountMax: Int {
    func ofChunk(_ storedByteCount: Int) -> Int {
      RecordHeader.packByteCountMax(
        metaByteCount: ChunkRecord.metaByteCountMax, payloadByteCount: storedByteCount)
    }
    let records = chunks.reduce(0) { sum, chunk in
      guard let encoded = chunk.encoded else { return sum + ofChunk(chunk.range.count) }
      // One whose base is gone by then is encoded anew.
      let own =
        encoded.record.base == nil
        ? encoded.storedByteCount : max(encoded.storedByteCount, chunk.range.count)
      return sum + ofChunk(own) + (encoded.companion.map { ofChunk($0.stored.count) } ?? 0)
    }
    return records
      + RecordHeader.packByteCountMax(
        metaByteCount: ManifestRecord.metaByteCount, payloadByteCount: chunks.count * ChunkEntry.byteCount)
  }
}

/// A chunk's record and its payload.
package struct EncodedChunk: Sendable {
  /// A chunk that the store has with a dictionary, stored anew with the chunk it comes with as its base.
  package struct Companion: Sendable {
    package var record: ChunkRecord
    package var stored: [UInt8]
  }

  package var record: ChunkRecord
  /// Nil when the stored bytes are the plain ones.
  package var stored: [UInt8]?
  /// Only with a chunk that has no base.
  package var companion: Companion?

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
    _ digest: Digest, _ plain: RawSpan, by choice: CodecChoice, hint: CompressibilityHint
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

// MARK: Appending

extension ChunkPlan {
  /// What appending a plan came to.
  struct Added {
    /// Plain bytes of the chunks that the store lacked.
    var newByteCount: Int64 = 0
    /// Bytes that were added to packs.
    var storedByteCount = 0
  }

  /// Appends what the store lacks: chunks, and the manifest that lists them.
  ///
  /// What the plan counts on is looked up again in the commit's view. So nothing that gc has removed meanwhile is
  /// counted on, and H2 needs no lease.
  ///
  /// - Parameter bytes: the content that was planned.
  /// - Throws: `needsLookup` if a chunk that was not looked up could be shared once its pack is synced. Then nothing was
  ///   appended.
  func append(
    _ bytes: RawSpan, to commit: inout WriterSession.Commit, by codecs: CodecPool
  ) throws(BlobStorageError) -> Added {
    precondition(bytes.byteCount == byteCount, "the bytes are those that were planned")
    var added = Added()
    for chunk in chunks {
      if commit.hasPendingChunk(chunk.digest) { continue }
      if try commit.canShare(chunk.digest, isLookedUp: isLookedUp) { continue }
      let plain = bytes.extracting(chunk.range)
      let encoded: EncodedChunk
      if let ready = chunk.encoded, try commit.canUseBase(of: ready.record) {
        encoded = ready
      } else {
        encoded = try codecs.encode(chunk.digest, plain, by: codec, hint: hint)
      }
      added.storedByteCount += try encoded.withPayload(plain) { (payload) throws(BlobStorageError) in
        try commit.append(.chunk(encoded.record), payload: payload)
      }
      if let companion = encoded.companion { added.storedByteCount += try commit.append(companion) }
      added.newByteCount += Int64(plain.byteCount)
    }
    if chunks.count > 1 {
      added.storedByteCount += try commit.appendManifest(
        digest, chunks.map { ChunkEntry(digest: $0.digest, plainByteCount: $0.range.count) })
    }
    return added
  }
}

extension WriterSession.Commit {
  /// Whether this commit may refer to the chunk: found, trusted, and on the medium or before it in its own pack.
  fileprivate func canShare(_ digest: Digest, isLookedUp: Bool) throws(BlobStorageError) -> Bool {
    if trustsCondemnedPacks { return try transaction.chunkRow(digest) != nil }
    guard let row = try transaction.chunkToShare(digest) else { return false }
    if try canRefer(to: row.place) {
      guard let base = row.base, let baseRow = try transaction.chunkRow(base) else { return true }
      if try canRefer(to: baseRow.place) { return true }
    }
    // What others have not published yet is stored again.
    guard isLookedUp || session.publishes else {
      throw BlobStorageError(.needsLookup, "The pack of a chunk has to be synced first.")
    }
    return false
  }

  /// Checks that chunks are there which leases should have kept.
  ///
  /// - Parameter remedy: what the caller can do about a chunk that is gone.
  func check(_ digests: some Sequence<Digest>, remedy: String) throws(BlobStorageError) {
    for digest in digests where !hasPendingChunk(digest) {
      guard try transaction.chunkRow(digest) == nil else { continue }
      throw BlobStorageError(
        .busy, "Chunk \(digest) was removed while it was being shared: \(remedy).", digest: digest)
    }
  }

  /// Whether the base of an encoded chunk, if it has one, can still be counted on.
  fileprivate func canUseBase(of record: ChunkRecord) throws(BlobStorageError) -> Bool {
    guard let base = record.base else { return true }
    guard try transaction.chunkRow(record.digest) == nil, try !transaction.isBase(record.digest),
      let row = try transaction.baseToShare(base)
    else { return false }
    return try canRefer(to: row.place)
  }

  /// Appends a companion right behind its base, if it still helps.
  fileprivate mutating func append(_ companion: EncodedChunk.Companion) throws(BlobStorageError) -> Int {
    guard let row = try transaction.chunkToShare(companion.record.digest), row.baseKind == .dictionary
    else { return 0 }
    return try append(.chunk(companion.record), payload: companion.stored.span.bytes)
  }
}

extension BlobStorageError.Code {
  /// A plan that looked nothing up does not do. Never leaves the library.
  static let needsLookup = Self("needsLookup")
}
