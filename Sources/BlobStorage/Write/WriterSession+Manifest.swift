/// Manifests as commits append them.
extension WriterSession.Commit {
  /// Appends the manifest of a blob of few chunks, unless it is there.
  package mutating func appendManifest(
    _ digest: Digest, _ entries: [ChunkEntry]
  ) throws(BlobStorageError) -> Int {
    if try isManifestThere(digest) { return 0 }
    return try append(digest, entries)
  }

  /// Appends the manifest of a blob of many chunks, unless it is there.
  package mutating func appendManifest(
    _ digest: Digest, _ lists: [ListEntry], _ byteCount: Int64, _ chunkCount: Int64
  ) throws(BlobStorageError) -> Int {
    if try isManifestThere(digest) { return 0 }
    return try append(digest, lists, byteCount, chunkCount)
  }

  /// Appends a manifest that names the chunks as the layout does. One that is there may name others, which are not: this
  /// one takes its place.
  ///
  /// - Parameter unlessThere: the one that is there is known to do.
  package mutating func appendManifest(
    of layout: BlobLayout, unlessThere: Bool
  ) throws(BlobStorageError) -> Int {
    // A blob of one chunk has no manifest, an empty one no list.
    guard layout.chunkCount > 1 else { return 0 }
    if unlessThere, try isManifestThere(layout.digest) { return 0 }
    switch layout.listed {
    case .chunks(let entries): return try append(layout.digest, entries)
    case .lists(let lists):
      return try append(layout.digest, lists, layout.byteCount, layout.chunkCount)
    }
  }

  private func isManifestThere(_ digest: Digest) throws(BlobStorageError) -> Bool {
    guard let row = try transaction.manifestToShare(digest) else { return false }
    return try canRefer(to: row.place)
  }

  private mutating func append(
    _ digest: Digest, _ entries: [ChunkEntry]
  ) throws(BlobStorageError) -> Int {
    var payload = ByteWriter(capacity: entries.count * ChunkEntry.byteCount)
    var byteCount: Int64 = 0
    for entry in entries {
      entry.encode(into: &payload)
      byteCount += Int64(entry.plainByteCount)
    }
    let record = ManifestRecord(
      digest: digest, byteCount: byteCount, chunkCount: Int64(entries.count), depth: 0,
      listedCount: entries.count)
    return try bridge(payload.bytes) { (raw) throws(BlobStorageError) in
      try append(.manifest(record), payload: raw)
    }
  }

  private mutating func append(
    _ digest: Digest, _ lists: [ListEntry], _ byteCount: Int64, _ chunkCount: Int64
  ) throws(BlobStorageError) -> Int {
    guard lists.count <= Limits.manifestListCountMax else {
      throw BlobStorageError(.limitExceeded, "The blob has more chunks than a manifest can name.")
    }
    var payload = ByteWriter(capacity: lists.count * ListEntry.byteCount)
    for list in lists { list.encode(into: &payload) }
    let record = ManifestRecord(
      digest: digest, byteCount: byteCount, chunkCount: chunkCount, depth: 1, listedCount: lists.count)
    return try bridge(payload.bytes) { (raw) throws(BlobStorageError) in
      try append(.manifest(record), payload: raw)
    }
  }
}
