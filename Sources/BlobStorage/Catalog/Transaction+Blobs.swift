/// How many versions that can be seen point at a blob: counted only once a cache has asked for it, because each put
/// pays for it.
///
/// The counts follow the rows of `versions`. A rebuilt catalog has none until it is asked again.
extension ReadTransaction {
  /// Whether versions are counted: if not, all counts are 0.
  package func countsVersions() throws(BlobStorageError) -> Bool { try meta(.countsVersions) != 0 }

  /// How many versions that can be seen have this digest.
  package func versionCount(of digest: Digest) throws(BlobStorageError) -> Int {
    let key = digest.withUnsafeBytes { Array($0) }
    guard let value = try value(.blobs, key) else { return 0 }
    var reader = ByteReader(value)
    return Int(try reader.integer(UInt32.self))
  }

  /// Calls `body` with every blob that has a manifest, in no order, until it returns false.
  package func forEachManifest(
    after last: Digest? = nil,
    _ body: (Digest, ManifestRow) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let start = last?.withUnsafeBytes { Array($0) } ?? []
    try scan(.manifests, from: start) { (key, value) throws(BlobStorageError) in
      if last != nil, key.elementsEqual(start) { return true }
      guard key.count == Digest.byteCount else {
        throw BlobStorageError(.catalogDamaged, "The catalog has a manifest without a digest.")
      }
      return try body(Digest(algorithm: algorithm, bytes: key), try ManifestRow(value))
    }
  }
}

extension WriteTransaction {
  /// Counts all versions that there are, and from now on each that comes or goes.
  package func beginCountingVersions() throws(BlobStorageError) {
    guard try !countsVersions() else { return }
    try setMeta(.countsVersions, 1)
    try forEachKey(prefix: [], after: nil) { (_, name) throws(BlobStorageError) in
      try forEachVersion(key: name.key) { (version) throws(BlobStorageError) in
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
    let key = digest.withUnsafeBytes { Array($0) }
    guard count > 0 else {
      try remove(.blobs, key)
      return
    }
    var writer = ByteWriter(capacity: 4)
    writer.integer(UInt32(count))
    try put(.blobs, key, writer.bytes)
  }
}
