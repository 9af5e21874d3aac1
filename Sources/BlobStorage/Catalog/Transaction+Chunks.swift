/// Chunks and manifests.
extension ReadTransaction {
  package func chunkRow(_ digest: Digest) throws(BlobStorageError) -> ChunkRow? {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      guard let value = try value(.chunks, key) else { return nil }
      return try chunkRow(value)
    }
  }

  private func chunkRow(_ value: UnsafeRawBufferPointer) throws(BlobStorageError) -> ChunkRow {
    try ChunkRow(value) { (place) throws(BlobStorageError) in
      guard let base = try self.value(.chunkBases, fixed: Self.baseKey(place)) else { return nil }
      var reader = ByteReader(base)
      return Digest(algorithm: algorithm, bytes: try reader.bytes(Digest.byteCount))
    }
  }

  /// Where the record of a chunk with a base lies.
  fileprivate static func baseKey(_ place: Place) -> (UInt32, UInt32) {
    (place.pack.bigEndian, UInt32(place.offset).bigEndian)
  }

  /// Calls `body` with each chunk's row, nil when the store does not have it.
  ///
  /// Cheapest in the order of digests: what lies on one page is found without descending the tree.
  func forEachChunkRow(
    _ digests: some Sequence<Digest>, _ body: (Digest, ChunkRow?) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    try withPackedLookUp(.chunks) { (lookUp) throws(BlobStorageError) in
      for digest in digests {
        let row = try digest.withUnsafeBytes { (key) throws(BlobStorageError) -> ChunkRow? in
          guard let value = try lookUp.value(key) else { return nil }
          return try chunkRow(value)
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
    try scanDigests(.chunks, after: last) { (digest, value) throws(BlobStorageError) in
      try body(digest, try chunkRow(value))
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
  /// Sets the row of a chunk, or removes it for nil.
  ///
  /// - Parameter old: the row that is there.
  func setChunkRow(
    _ digest: Digest, _ row: ChunkRow?, insteadOf old: ChunkRow?
  ) throws(BlobStorageError) {
    if let old, old.base != nil, row?.base == nil || row?.place != old.place {
      try remove(.chunkBases, fixed: Self.baseKey(old.place))
    }
    if let row, let base = row.base, row.place != old?.place || base != old?.base {
      try base.withUnsafeBytes { (base) throws(BlobStorageError) in
        try withUnsafeBytes(of: Self.baseKey(row.place)) { (key) throws(BlobStorageError) in
          try put(.chunkBases, key, bytes: base)
        }
      }
    }
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      if let row { try put(.chunks, key, row) } else { try remove(.chunks, key) }
    }
    if row?.isSuspect == true, try !hasSuspects() { try setMeta(.hasSuspects, 1) }
  }

  /// Marks a chunk as damaged: the next put of the same bytes stores it again.
  package func setSuspect(_ digest: Digest, _ row: ChunkRow) throws(BlobStorageError) {
    var suspect = row
    suspect.isSuspect = true
    try setChunkRow(digest, suspect, insteadOf: row)
  }

  package func setManifestRow(_ digest: Digest, _ row: ManifestRow?) throws(BlobStorageError) {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      if let row { try put(.manifests, key, row) } else { try remove(.manifests, key) }
    }
  }
}

/// How many versions that can be seen point at a blob: counted only once a cache has asked for it, because each put
/// pays for it.
///
/// The counts follow the versions that can be seen. A rebuilt catalog has none until it is asked again.
extension ReadTransaction {
  /// Whether versions are counted: if not, all counts are 0.
  package func countsVersions() throws(BlobStorageError) -> Bool { try meta(.countsVersions) != 0 }

  /// How many versions that can be seen have this digest.
  package func versionCount(of digest: Digest) throws(BlobStorageError) -> Int {
    let count: UInt32? = try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      try number(.blobs, key)
    }
    return Int(count ?? 0)
  }

  /// Calls `body` with every blob that has a manifest, in no order, until it returns false.
  package func forEachManifest(
    after last: Digest? = nil,
    _ body: (Digest, ManifestRow) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    try scanDigests(.manifests, after: last) { (digest, value) throws(BlobStorageError) in
      try body(digest, try ManifestRow(value))
    }
  }
}

extension WriteTransaction {
  /// Counts all versions that there are, and from now on each that comes or goes.
  package func beginCountingVersions() throws(BlobStorageError) {
    guard try !countsVersions() else { return }
    try setMeta(.countsVersions, 1)
    try forEachKey(prefix: [], after: nil) { (_, name) throws(BlobStorageError) in
      try forEachVersion(of: name) { (version) throws(BlobStorageError) in
        try countVersion(of: version.row.digest, by: 1)
        return true
      }
      return true
    }
  }

  func countVersion(of digest: Digest, by change: Int) throws(BlobStorageError) {
    guard try countsVersions() else { return }
    let count = try versionCount(of: digest) + change
    guard count >= 0 else {
      throw BlobStorageError(.catalogDamaged, "The catalog has counted more versions gone than there were.")
    }
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      try setNumber(.blobs, key, count > 0 ? UInt32(count) : nil)
    }
  }
}
