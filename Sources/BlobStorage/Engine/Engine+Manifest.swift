/// Manifests as commits append them.
extension Engine {
  /// Appends the manifest of a blob of few chunks, unless it is there.
  package func appendManifest(
    _ digest: Digest, _ entries: [ChunkEntry], _ commit: inout WriterSession.Commit
  ) throws(BlobStorageError) -> Int {
    if try isManifestThere(digest, commit) { return 0 }
    return try append(digest, entries, &commit)
  }

  /// Appends the manifest of a blob of many chunks, unless it is there.
  package func appendManifest(
    _ digest: Digest, _ lists: [ListEntry], _ byteCount: Int64, _ chunkCount: Int64,
    _ commit: inout WriterSession.Commit
  ) throws(BlobStorageError) -> Int {
    if try isManifestThere(digest, commit) { return 0 }
    return try append(digest, lists, byteCount, chunkCount, &commit)
  }

  /// Appends a manifest that names the chunks as the layout does. One that is there may name others, which are not: this
  /// one takes its place.
  ///
  /// - Parameter unlessThere: the one that is there is known to do.
  package func appendManifest(
    of layout: BlobLayout, unlessThere: Bool, _ commit: inout WriterSession.Commit
  ) throws(BlobStorageError) -> Int {
    // A blob of one chunk has no manifest, an empty one no list.
    guard layout.chunkCount > 1 else { return 0 }
    if unlessThere, try isManifestThere(layout.digest, commit) { return 0 }
    switch layout.listed {
    case .chunks(let entries): return try append(layout.digest, entries, &commit)
    case .lists(let lists):
      return try append(layout.digest, lists, layout.byteCount, layout.chunkCount, &commit)
    }
  }

  private func isManifestThere(
    _ digest: Digest, _ commit: WriterSession.Commit
  ) throws(BlobStorageError) -> Bool {
    guard let row = try commit.transaction.manifestToShare(digest) else { return false }
    return try commit.canRefer(to: row.place)
  }

  private func append(
    _ digest: Digest, _ entries: [ChunkEntry], _ commit: inout WriterSession.Commit
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
      try commit.append(.manifest(record), payload: raw)
    }
  }

  private func append(
    _ digest: Digest, _ lists: [ListEntry], _ byteCount: Int64, _ chunkCount: Int64,
    _ commit: inout WriterSession.Commit
  ) throws(BlobStorageError) -> Int {
    guard lists.count <= Limits.manifestListCountMax else {
      throw BlobStorageError(.limitExceeded, "The blob has more chunks than a manifest can name.")
    }
    var payload = ByteWriter(capacity: lists.count * ListEntry.byteCount)
    for list in lists { list.encode(into: &payload) }
    let record = ManifestRecord(
      digest: digest, byteCount: byteCount, chunkCount: chunkCount, depth: 1, listedCount: lists.count)
    return try bridge(payload.bytes) { (raw) throws(BlobStorageError) in
      try commit.append(.manifest(record), payload: raw)
    }
  }
}
