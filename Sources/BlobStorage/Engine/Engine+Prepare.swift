/// Preparing what is in memory, without a lock: cut, named, looked up, encoded.
extension Engine {
  /// A blob ready to be committed: cut, named, and encoded as far as it seemed to be new.
  package struct PreparedBlob: Sendable {
    package var digest: Digest
    package var byteCount: Int
    var chunks: [PreparedChunk]
    var hint: CompressibilityHint
    var codec: CodecChoice
  }

  package struct PreparedChunk: Sendable {
    var digest: Digest
    var range: Range<Int>
    /// The encoded form, unless it seemed to be there already.
    var encoded: EncodedChunk?
  }

  package struct EncodedChunk: Sendable {
    var record: ChunkRecord
    /// Nil when the stored bytes are the plain ones.
    var stored: [UInt8]?
    /// Only with a chunk that has no base.
    var companion: Companion?
  }

  /// A chunk that the store has with a dictionary, stored anew with the chunk it comes with as its base.
  package struct Companion: Sendable {
    var record: ChunkRecord
    var stored: [UInt8]
  }

  /// - Parameter key: where the blob will go: its current version may be similar.
  package func prepare(
    _ bytes: UnsafeRawBufferPointer, key: [UInt8], _ options: PutOptions
  ) throws(BlobStorageError) -> PreparedBlob {
    let algorithm = header.digestAlgorithm
    let choice = try codecChoice(options.codec)
    let digest = Digest.of(bytes, by: algorithm)
    var chunker = BlobChunker(sizes: sizes)
    var ranges = chunker.chunks(in: bytes, isAtEnd: true)
    if ranges.isEmpty { ranges = [0..<0] }
    let hint = CompressibilityHint(beginning: bytes)
    var chunks: [PreparedChunk] = []
    chunks.reserveCapacity(ranges.count)
    for range in ranges {
      let name =
        ranges.count == 1 ? digest : Digest.of(UnsafeRawBufferPointer(rebasing: bytes[range]), by: algorithm)
      chunks.append(PreparedChunk(digest: name, range: range, encoded: nil))
    }
    var (missing, unsynced) = try catalog.read { (transaction) throws(BlobStorageError) in
      var missing: [MissingChunk] = []
      var unsynced: Set<PackName> = []
      for (index, chunk) in chunks.enumerated() {
        let row = try transaction.chunkToShare(chunk.digest)
        let packs = try row.map { (row) throws(BlobStorageError) in try unsyncedPacks(row, transaction) }
        // What others have not published yet is not waited for.
        guard let packs, packs.isEmpty || !writer.publishes else {
          missing.append(MissingChunk(index: index))
          continue
        }
        unsynced.formUnion(packs)
      }
      return (missing, unsynced)
    }
    guard !missing.isEmpty else {
      for name in unsynced { try writer.synchronizeOther(name) }
      return PreparedBlob(digest: digest, byteCount: bytes.count, chunks: chunks, hint: hint, codec: choice)
    }
    let search = BaseSearch(self, choice)
    for place in missing.indices {
      missing[place].features = search.features(
        UnsafeRawBufferPointer(rebasing: bytes[chunks[missing[place].index].range]), hint: hint)
    }
    let use = BaseSearch.Use(
      isWhole: chunks.count == 1 && hint == .unknown, archives: options.replacement == .archiveCurrent)
    let previous = try previousChunks(of: key, chunks, search, hint)
    if use.isWhole || missing.contains(where: { $0.features != nil })
      || previous.contains(where: { $0 != nil })
    {
      try catalog.read { (transaction) throws(BlobStorageError) in
        for place in missing.indices {
          let index = missing[place].index
          missing[place].found = try search.find(
            for: ChunkEntry(digest: chunks[index].digest, plainByteCount: chunks[index].range.count),
            missing[place].features, previous: previous[index], use, transaction)
          for base in missing[place].found.bases {
            unsynced.formUnion(try unsyncedPacks(base.row, transaction))
          }
        }
      }
    }
    for name in unsynced { try writer.synchronizeOther(name) }
    var guesses = BaseSearch.Guesses()
    for chunk in missing {
      let plain = UnsafeRawBufferPointer(rebasing: bytes[chunks[chunk.index].range])
      chunks[chunk.index].encoded = try search.encode(
        chunks[chunk.index].digest, plain, hint: hint, features: chunk.features, chunk.found, &guesses)
    }
    return PreparedBlob(digest: digest, byteCount: bytes.count, chunks: chunks, hint: hint, codec: choice)
  }

  /// For each chunk, what of the key's current version to try as its base.
  private func previousChunks(
    of key: [UInt8], _ chunks: [PreparedChunk], _ search: BaseSearch, _ hint: CompressibilityHint
  ) throws(BlobStorageError) -> [PreviousVersion.Candidate?] {
    guard search.triesBases(hint), let previous = try PreviousVersion(self, key: key) else {
      return chunks.map { _ in nil }
    }
    return try previous.candidates(
      for: chunks.map { ChunkEntry(digest: $0.digest, plainByteCount: $0.range.count) }, at: 0,
      isWhole: chunks.count == 1, from: self.chunks)
  }

  private struct MissingChunk {
    var index: Int
    var features: SIMD3<UInt32>?
    var found = BaseSearch.Found()
  }

  package func codecChoice(_ kind: CodecKind?) throws(BlobStorageError) -> CodecChoice {
    guard let kind, kind != codec.kind else { return codec }
    return try CodecChoice(kind)
  }

  package func encode(
    _ digest: Digest, _ plain: UnsafeRawBufferPointer, by choice: CodecChoice, hint: CompressibilityHint
  ) throws(BlobStorageError) -> EncodedChunk {
    try codecs.withEncoder { (encoder) throws(BlobStorageError) in
      try encoder.withEncoded(plain, by: choice, hint: hint) { (kind, stored) in
        EncodedChunk(
          record: ChunkRecord(digest: digest, plainByteCount: plain.count, codecNumber: kind.rawValue),
          stored: kind == .none ? nil : Array(stored))
      }
    }
  }
}
