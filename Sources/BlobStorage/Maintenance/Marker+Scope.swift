/// What is live in a few packs, without following every version of the store.
///
/// The catalog counts the versions of each blob: a chunk that is a blob of its own is live while its count is not 0. A
/// chunk that is part of a longer blob is live while that blob is, so blobs with a manifest are followed, and only
/// they. A chunk that others are encoded against is not found this way: stores with similarity are marked whole.
extension Marker {
  /// Marks what versions need of these packs, and of other packs whatever longer blobs need.
  mutating func markLive(in packs: [PackName]) throws(BlobStorageError) {
    for name in packs {
      guard let file = try engine.backend.openPack(name) else { continue }
      defer { file.close() }
      var digests: [Digest] = []
      do throws(BlobStorageError) {
        _ = try PackScanner(file: file, name: name, codecs: engine.codecs).scan { record in
          if case .chunk(let chunk) = record.content { digests.append(chunk.digest) }
        }
      } catch {
        // What cannot be read is left alone when its content is looked at.
        guard error.code == .corrupted else { throw error }
      }
      for start in stride(from: 0, to: digests.count, by: Self.pageCount) {
        let page = digests[start..<min(start + Self.pageCount, digests.count)]
        try markBlobs(
          engine.catalog.read { (transaction) throws(BlobStorageError) in
            var live: [Digest] = []
            for digest in page where try transaction.versionCount(of: digest) > 0 { live.append(digest) }
            return live
          })
      }
    }
    try markLongBlobs()
  }

  private mutating func markLongBlobs() throws(BlobStorageError) {
    var last: Digest?
    while true {
      try CancellationFlag.check()
      var live: [Digest] = []
      var visitedCount = 0
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.forEachManifest(algorithm: engine.header.digestAlgorithm, after: last) {
          (digest, _) throws(BlobStorageError) in
          last = digest
          visitedCount += 1
          if try transaction.versionCount(of: digest) > 0 { live.append(digest) }
          return visitedCount < Self.pageCount
        }
      }
      if visitedCount == 0 { return }
      try markBlobs(live)
    }
  }
}
