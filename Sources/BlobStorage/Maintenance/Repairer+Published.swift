/// Handles a damaged pack that is published: no machine has it whole, and no machine may remove it.
extension Repairer {
  private static let countOfCommit = 1_000

  /// Marks chunks and manifests of a pack as missing, except for whole records, so that the next put of the same bytes
  /// stores them again.
  ///
  /// - Returns: the chunks.
  func distrust(_ pack: UInt32, except whole: [PackRecord]) throws(BlobStorageError) -> Set<Digest> {
    let offsets = Set(whole.map(\.offset))
    var chunks: [Digest] = []
    var manifests: [Digest] = []
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.forEachChunk { (digest, row) in
        if row.place.pack == pack, !offsets.contains(row.place.offset) { chunks.append(digest) }
        return true
      }
      try transaction.forEachManifest { (digest, row) in
        if row.place.pack == pack, !offsets.contains(row.place.offset) { manifests.append(digest) }
        return true
      }
    }
    for start in stride(from: 0, to: chunks.count, by: Self.countOfCommit) {
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        for digest in chunks[start..<min(start + Self.countOfCommit, chunks.count)] {
          guard var row = try transaction.chunkRow(digest), row.place.pack == pack else { continue }
          row.isSuspect = true
          try transaction.setChunkRow(digest, row)
        }
      }
    }
    for start in stride(from: 0, to: manifests.count, by: Self.countOfCommit) {
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        for digest in manifests[start..<min(start + Self.countOfCommit, manifests.count)] {
          guard let row = try transaction.manifestRow(digest), row.place.pack == pack else { continue }
          try transaction.setManifestRow(digest, nil)
        }
      }
    }
    return Set(chunks)
  }
}
