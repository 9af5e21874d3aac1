/// Finds out which versions need something that is damaged or missing.
struct DamageSearch {
  /// A digest that a blob needs.
  struct Need {
    var digest: Digest
    var isPresent: Bool
    /// Whether the search itself came upon damage while it read it.
    var isDamaged = false
    /// The chunk that is encoded against it; nil when the blob needs it for itself.
    var dependent: Digest?
  }

  private let engine: Engine

  init(_ engine: Engine) { self.engine = engine }

  /// Calls `body` with every version and with those of the digests it needs that are missing, or that
  /// `isInteresting` says; a digest that is there and not interesting is left out.
  func forEachVersion(
    _ body: (_ key: String, _ digest: Digest, _ needs: [Need]) throws(BlobStorageError) -> Void,
    isInteresting: (Digest) -> Bool
  ) throws(BlobStorageError) {
    var last: String?
    // Most blobs are shared by few versions; the answer for the last many is kept.
    var known: [Digest: [Need]] = [:]
    while true {
      try CancellationFlag.check()
      let page = try engine.keys("", after: last, limit: 500)
      guard let end = page.last else { return }
      for entry in page {
        for version in try engine.versions(entry.key) {
          let needs: [Need]
          if let found = known[version.digest] {
            needs = found
          } else {
            needs = try self.needs(of: version.digest, isInteresting)
            if known.count > 100_000 { known = [:] }
            known[version.digest] = needs
          }
          // Dropped and collected since it was listed: then it misses nothing.
          if needs.contains(where: { !$0.isPresent }), try engine.version(entry.key, version.id) == nil {
            continue
          }
          try body(entry.key, version.digest, needs)
        }
      }
      last = end.key
    }
  }

  /// The digests that a blob needs and that are missing or interesting.
  func needs(
    of digest: Digest, _ isInteresting: (Digest) -> Bool
  ) throws(BlobStorageError) -> [Need] {
    var needs: [Need] = []
    // A hostile manifest names a chunk more often than memory could hold.
    var known: Set<Digest> = []
    func need(_ digest: Digest, isPresent: Bool, isDamaged: Bool = false, by dependent: Digest? = nil) {
      guard known.insert(digest).inserted else { return }
      needs.append(Need(digest: digest, isPresent: isPresent, isDamaged: isDamaged, dependent: dependent))
    }
    func look(_ digests: [Digest]) throws(BlobStorageError) {
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        for digest in digests {
          let row = try transaction.chunkRow(digest)
          if row == nil || isInteresting(digest) { need(digest, isPresent: row != nil) }
          if let base = row?.base {
            let isPresent = try transaction.chunkRow(base) != nil
            if !isPresent || isInteresting(base) { need(base, isPresent: isPresent, by: digest) }
          }
        }
      }
    }
    var group: [Digest] = []
    do throws(BlobStorageError) {
      guard let layout = try engine.blobs.layout(digest) else {
        return [Need(digest: digest, isPresent: false)]
      }
      if isInteresting(digest) { need(digest, isPresent: true) }
      if layout.byteCount == 0 { try look([digest]) }
      // With what the manifest says of each: one that names a list with another length is damaged.
      var lists: Set<ListEntry> = []
      try layout.forEachListedChunk(from: engine.chunks) { (list) throws(BlobStorageError) in
        guard lists.insert(list).inserted else { return false }
        group.append(list.digest)
        return true
      } _: { (chunk) throws(BlobStorageError) in
        group.append(chunk.digest)
        if group.count >= 4_096 {
          try CancellationFlag.check()
          try look(group)
          group.removeAll(keepingCapacity: true)
        }
      }
      try look(group)
    } catch {
      guard error.code == .corrupted else { throw error }
      // A list that cannot be read may be missing itself, or its base.
      try look(group)
      need(error.digest ?? digest, isPresent: true, isDamaged: true)
    }
    return needs
  }
}
