/// Chunks and manifests of a commit: what it can share, and what it appends.
extension WriterSession.Commit {
  /// Appends the manifest that names the chunks as the layout does. One that is there may name others, which are not: this
  /// one takes its place.
  ///
  /// - Parameter unlessThere: the one that is there is known to do.
  package mutating func appendManifest(
    of layout: BlobLayout, unlessThere: Bool = true
  ) throws(BlobStorageError) -> Int {
    // A blob of one chunk has no manifest, an empty one no list.
    guard layout.chunkCount > 1 else { return 0 }
    if unlessThere, let row = try transaction.manifestToShare(layout.digest), try canRefer(to: row.place) {
      return 0
    }
    let (record, payload) = try layout.manifest()
    return try append(.manifest(record), payload: payload.span.bytes)
  }

  /// Whether this commit may refer to the chunk: found, trusted, and on the medium or before it in its own pack.
  func canShare(_ digest: BlobDigest, isLookedUp: Bool) throws(BlobStorageError) -> Bool {
    if trustsCondemnedPacks { return try transaction.chunkRow(digest) != nil }
    guard let row = try transaction.chunkToShare(digest) else { return false }
    if try canRefer(to: row.place) {
      guard let base = row.base, let baseRow = try transaction.chunkRow(base) else { return true }
      if try canRefer(to: baseRow.place) { return true }
    }
    guard isLookedUp else {
      throw BlobStorageError(.needsLookup, "The pack of a chunk has to be synced first.")
    }
    return false
  }

  /// Appends small chunks together, those that are not there yet.
  ///
  /// - Returns: the bytes that each takes.
  mutating func append(
    _ group: JoinedChunks, by choice: CodecChoice, _ codecs: CodecPool
  ) throws(BlobStorageError) -> [BlobDigest: Int] {
    var there: Set<BlobDigest> = []
    for digest in group.members.lazy.map(\.digest) {
      if hasPendingChunk(digest) {
        there.insert(digest)
      } else if try canShare(digest, isLookedUp: true) {
        there.insert(digest)
      }
    }
    var added: [BlobDigest: Int] = [:]
    for part in try group.parts(by: choice, codecs, except: { there.contains($0) }) {
      switch part {
      case .frame(let frame, let stored):
        _ = try append(frame, payload: stored.span.bytes)
        let members = frame.records(at: 0, payloadByteCount: stored.count)
        for (member, record) in zip(frame.members, members) { added[member.digest] = record.byteCount }
      case .chunk(let chunk, let stored):
        added[chunk.digest] = try append(.chunk(chunk), payload: stored.span.bytes)
      }
    }
    return added
  }

  /// Checks that chunks are there which leases should have kept.
  ///
  /// - Parameter remedy: what the caller can do about a chunk that is gone.
  package func check(_ digests: some Sequence<BlobDigest>, remedy: String) throws(BlobStorageError) {
    for digest in digests where !hasPendingChunk(digest) {
      guard try transaction.chunkRow(digest) == nil else { continue }
      throw BlobStorageError(
        .busy, "Chunk \(digest) was removed while it was being shared: \(remedy).", digest: digest)
    }
  }

  /// Whether the base of an encoded chunk, if it has one, can still be counted on.
  func canUseBase(of record: ChunkRecord) throws(BlobStorageError) -> Bool {
    guard let base = record.base else { return true }
    guard try transaction.chunkRow(record.digest) == nil, try !transaction.isBase(record.digest),
      let row = try transaction.baseToShare(base)
    else { return false }
    return try canRefer(to: row.place)
  }
}
