/// What is live in a few packs, without following every version of the store.
///
/// The catalog counts the versions of each blob: a chunk that is a blob of its own is live while its count is not 0. A
/// chunk that is part of a longer blob is live while that blob is, so blobs with a manifest are followed, and only
/// they. A chunk that any record is encoded against, live or not, is kept as well: the catalog counts those records.
extension Marker {
  /// Marks what versions and bases need of these packs, and of other packs whatever longer blobs need.
  ///
  /// - Returns: false when the catalog counts nothing, and everything had to be marked.
  mutating func markLive(in packs: [PackName]) throws(BlobStorageError) -> Bool {
    let isCounted = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.countsVersions()
    }
    // The catalog was rebuilt, and the cache has not asked again.
    guard isCounted else {
      try markVersions(countsRefs: false)
      return false
    }
    for name in packs {
      var digests: [Digest] = []
      // What cannot be read is left alone when its content is looked at.
      _ = try unlessCorrupted(
        try engine.scan(name) { record in
          if case .chunk(let chunk) = record.content { digests.append(chunk.digest) }
        })
      for page in digests.parts(of: Self.pageCount) {
        let (live, bases) = try engine.catalog.read { (transaction) throws(BlobStorageError) in
          var live: [Digest] = []
          var bases: [Digest] = []
          for digest in page {
            if try transaction.versionCount(of: digest) > 0 { live.append(digest) }
            if try transaction.isBase(digest) { bases.append(digest) }
          }
          return (live, bases)
        }
        try markBlobs(live)
        try markChunks(bases)
      }
    }
    try engine.forEachManifestPage { (page) throws(BlobStorageError) in
      try markBlobs(
        try engine.catalog.read { (transaction) throws(BlobStorageError) in
          var live: [Digest] = []
          for (digest, _) in page where try transaction.versionCount(of: digest) > 0 { live.append(digest) }
          return live
        })
    }
    return true
  }
}
