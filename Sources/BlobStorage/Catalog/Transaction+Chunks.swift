/// Chunks and manifests.
extension ReadTransaction {
  package func chunkRow(_ digest: Digest) throws(BlobStorageError) -> ChunkRow? {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      guard let value = try value(.chunks, key) else { return nil }
      return try ChunkRow(value, algorithm: digest.algorithm)
    }
  }

  /// Calls `body` with each chunk's row, nil when the store does not have it.
  ///
  /// Cheapest in the order of digests: one cursor finds what lies on the same page without descending the tree.
  func forEachChunkRow(
    _ digests: some Sequence<Digest>, _ body: (Digest, ChunkRow?) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    try withCursor(.chunks) { (cursor) throws(BlobStorageError) in
      for digest in digests {
        let row = try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
          try cursor.value(key).map { (value) throws(BlobStorageError) in
            try ChunkRow(value, algorithm: digest.algorithm)
          }
        }
        try body(digest, row)
      }
    }
  }

  package func manifestRow(_ digest: Digest) throws(BlobStorageError) -> ManifestRow? {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      guard let value = try value(.manifests, key) else { return nil }
      return try ManifestRow(value)
    }
  }

  /// Calls `body` with every chunk after a digest, in the order of digests, until it returns false.
  package func forEachChunk(
    after last: Digest? = nil,
    _ body: (Digest, ChunkRow) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let start = last?.withUnsafeBytes { Array($0) } ?? []
    try scan(.chunks, from: start) { (key, value) throws(BlobStorageError) in
      if last != nil, key.elementsEqual(start) { return true }
      guard key.count == Digest.byteCount else {
        throw BlobStorageError(.catalogDamaged, "The catalog has a chunk without a digest.")
      }
      return try body(
        Digest(algorithm: algorithm, bytes: key), try ChunkRow(value, algorithm: algorithm))
    }
  }

  /// Whether any chunk was found damaged since the catalog was made, or before and is still.
  package func hasSuspects() throws(BlobStorageError) -> Bool { try meta(.hasSuspects) != 0 }

  /// Whether a writer may rely on records in `pack`: it is there, and not about to go.
  package func isTrusted(_ pack: UInt32) throws(BlobStorageError) -> Bool {
    guard let row = try packRow(pack) else { return false }
    return row.state == .live && !row.isPoisoned && !row.isLost
  }

  /// The chunk, if a writer may deduplicate onto it: it and its base are there, undamaged and not about to go.
  package func chunkToShare(_ digest: Digest) throws(BlobStorageError) -> ChunkRow? {
    guard let row = try chunkRow(digest), !row.isSuspect, try isTrusted(row.place.pack) else { return nil }
    if let base = row.base {
      guard let baseRow = try chunkRow(base), !baseRow.isSuspect, baseRow.base == nil,
        try isTrusted(baseRow.place.pack)
      else {
        return nil
      }
    }
    return row
  }

  /// The manifest, if a writer may deduplicate onto it.
  package func manifestToShare(_ digest: Digest) throws(BlobStorageError) -> ManifestRow? {
    guard let row = try manifestRow(digest), try isTrusted(row.place.pack) else { return nil }
    return row
  }
}

extension WriteTransaction {
  func setChunkRow(_ digest: Digest, _ row: ChunkRow?) throws(BlobStorageError) {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      if let row { try put(.chunks, key, row) } else { try remove(.chunks, key) }
    }
    if row?.isSuspect == true, try !hasSuspects() { try setMeta(.hasSuspects, 1) }
  }

  func setManifestRow(_ digest: Digest, _ row: ManifestRow?) throws(BlobStorageError) {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      if let row { try put(.manifests, key, row) } else { try remove(.manifests, key) }
    }
  }
}
