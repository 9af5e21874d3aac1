/// Finds the versions and holds that need something damaged or missing.
struct DamageSearch {
  /// A digest that a blob needs.
  struct Need {
    var digest: BlobDigest
    var isPresent: Bool
    /// Whether the search itself found the damage when it read the blob.
    var isDamaged = false
    /// The chunk that is encoded against this one; nil if the blob itself needs it.
    var dependent: BlobDigest?
  }

  /// The version or hold that needs a blob.
  struct Owner {
    /// Its name in reports: a key, a state, a hold.
    var name: String
    /// The version, also of an internal key; nil for a hold on a blob.
    var version: (key: [UInt8], id: BlobVersion.ID)?
  }

  let catalog: Catalog
  let blobs: BlobSource
  let folder: StoreFolder

  /// Calls `body` with every hold and version, and with the digests that it needs and that are missing, unreadable, or
  /// interesting according to `isInteresting`. Skips holds whose blobs were never stored, because a process died first.
  func forEachVersion(
    _ body: (_ owner: Owner, _ digest: BlobDigest, _ needs: [Need]) throws(BlobStorageError) -> Void,
    isInteresting: (BlobDigest) -> Bool
  ) throws(BlobStorageError) {
    for hold in try HoldFile(folder).read() {
      let isStored = try catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.place(ofBlob: hold.digest) != nil
      }
      guard isStored else { continue }
      try body(
        Owner(name: "hold " + hold.name), hold.digest, try needs(of: hold.digest, isInteresting))
    }
    // Versions may share a blob: the results for recent blobs are kept.
    var known: [BlobDigest: [Need]] = [:]
    for prefix in [InternalKey.prefix, []] {
      var pages = KeyPages(catalog, prefix: prefix, countMax: 500)
      while let page = try pages.next({ (key, name, transaction) throws(BlobStorageError) in
        var versions: [(stamp: Stamp, digest: BlobDigest)] = []
        try transaction.forEachVersion(of: name) { version in
          versions.append((version.stamp, version.row.digest))
          return true
        }
        return ((key, versions), versions.count)
      }) {
        for (key, versions) in page {
          for (stamp, digest) in versions {
            let needs =
              if let found = known[digest] { found } else { try self.needs(of: digest, isInteresting) }
            if needs.contains(where: { !$0.isPresent || $0.isDamaged }) {
              // If the version was dropped and collected since it was listed, nothing is missing.
              guard try isThere(key, stamp) else { continue }
            } else {
              if known.count > 100_000 { known = [:] }
              known[digest] = needs
            }
            try body(
              Owner(name: InternalKey.shown(key), version: (key, BlobVersion.ID(stamp))), digest, needs)
          }
        }
      }
    }
  }

  private func isThere(_ key: [UInt8], _ version: Stamp) throws(BlobStorageError) -> Bool {
    try catalog.read { (transaction) throws(BlobStorageError) in
      guard let name = try transaction.nameRow(key) else { return false }
      return try transaction.versionRow(of: name, version) != nil
    }
  }

  /// The digests that a blob needs and that are missing, unreadable or interesting.
  func needs(
    of digest: BlobDigest, _ isInteresting: (BlobDigest) -> Bool
  ) throws(BlobStorageError) -> [Need] {
    var needs: [Need] = []
    // A hostile manifest can name a chunk more often than memory can hold.
    var known: Set<BlobDigest> = []
    func need(_ digest: BlobDigest, isPresent: Bool, isDamaged: Bool = false, by dependent: BlobDigest? = nil)
    {
      guard known.insert(digest).inserted else { return }
      needs.append(Need(digest: digest, isPresent: isPresent, isDamaged: isDamaged, dependent: dependent))
    }
    let walk = LiveWalk(blobs)
    let outcome = try walk.outcome(of: digest) { (layout) throws(BlobStorageError) in
      if isInteresting(digest) { need(digest, isPresent: true) }
      try walk.forEachRow(of: layout) { part, row in
        guard row == nil || isInteresting(part.digest) else { return }
        need(part.digest, isPresent: row != nil, by: part.dependent)
      }
    }
    switch outcome {
    case .whole: break
    case .missing: need(digest, isPresent: false)
    case .unreadable(let error): need(error.digest ?? digest, isPresent: true, isDamaged: true)
    }
    return needs
  }
}
