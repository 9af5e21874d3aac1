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

  private let engine: Engine

  init(_ engine: Engine) { self.engine = engine }

  /// Calls `body` with every hold, as ``forEachVersion(_:isInteresting:)`` does with versions. Skips holds whose blobs
  /// were never stored, because a process died first.
  private func forEachHold(
    _ body: (_ owner: Owner, _ digest: BlobDigest, _ needs: [Need]) throws(BlobStorageError) -> Void,
    _ isInteresting: (BlobDigest) -> Bool
  ) throws(BlobStorageError) {
    for hold in try HoldFile(engine.folder).read() {
      let isStored = try engine.catalog.read { (transaction) throws(BlobStorageError) in
        if try transaction.chunkRow(hold.digest) != nil { return true }
        return try transaction.manifestRow(hold.digest) != nil
      }
      guard isStored else { continue }
      try body(
        Owner(name: "hold " + hold.name), hold.digest, try needs(of: hold.digest, isInteresting))
    }
  }

  /// Calls `body` with every hold and version, and with the digests that it needs and that are missing, unreadable, or
  /// interesting according to `isInteresting`.
  func forEachVersion(
    _ body: (_ owner: Owner, _ digest: BlobDigest, _ needs: [Need]) throws(BlobStorageError) -> Void,
    isInteresting: (BlobDigest) -> Bool
  ) throws(BlobStorageError) {
    try forEachHold(body, isInteresting)
    for version in try engine.internalVersions(includesArchived: true) {
      try body(
        Owner(
          name: InternalKey.description(of: version.key),
          version: (version.key, BlobVersion.ID(version.stamp))),
        version.row.digest, try needs(of: version.row.digest, isInteresting))
    }
    // Versions may share a blob: the results for recent blobs are kept.
    var known: [BlobDigest: [Need]] = [:]
    try engine.forEachPage(countMax: 500) { (page) throws(BlobStorageError) in
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
          // If the version was dropped and collected since it was listed, nothing is missing.
          if needs.contains(where: { !$0.isPresent }), try engine.version(entry.key, version.id) == nil {
            continue
          }
          try body(
            Owner(name: entry.key, version: (Array(entry.key.utf8), version.id)), version.digest, needs)
        }
      }
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
    let walk = LiveWalk(engine.blobs)
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
