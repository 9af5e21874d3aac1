/// A version that cannot be read.
struct LostVersion {
  /// Also an internal one, which reports call by another name.
  var key: [UInt8]
  var report: UnreadableVersion
}

/// Accepts a loss: drops versions that cannot be read, unless the same bytes were put again meanwhile.
extension Repairer {
  private static let dropCountOfCommit = 1_000
  /// How often a version is examined while other processes keep changing its chunks.
  private static let lookCountMax = 8

  /// What a blob lacks, by what the catalog says of it.
  private struct Lack {
    var layout: KnownLayout
    var needs: [DamageSearch.Need]
  }

  /// Which record of the catalog in use says what a blob is made of. What that record says never changes.
  private struct KnownLayout: Equatable {
    var generation: String?
    var chunk: Place?
    var isSuspect: Bool
    var manifest: Place?

    init(
      _ blob: BlobDigest, generation: String?, _ transaction: ReadTransaction
    ) throws(BlobStorageError) {
      self.generation = generation
      let row = try transaction.chunkRow(blob)
      chunk = row?.place
      isSuspect = row?.isSuspect ?? false
      manifest = try transaction.manifestRow(blob)?.place
    }
  }

  /// Drops versions that cannot be read, so that their keys answer with the newest version that can be.
  ///
  /// Other processes write meanwhile, and the missing bytes may have been put again. So each version is examined again,
  /// and the commit that drops it checks that it still lacks the same. No other process can write in between.
  ///
  /// - Parameter lost: chunks that were there and damaged.
  /// - Returns: the versions that were dropped, and those that stay because other processes kept changing them.
  func drop(
    _ versions: [LostVersion], lost: Set<BlobDigest>
  ) throws(BlobStorageError) -> (dropped: [LostVersion], left: [LostVersion]) {
    let session = engine.newSession()
    var dropped: [LostVersion] = []
    var left: [LostVersion] = []
    for part in versions.parts(of: Self.dropCountOfCommit) {
      var waiting = Array(part)
      for _ in 0..<Self.lookCountMax where !waiting.isEmpty {
        // Not inside the commit, for which all other writers wait: a long blob has many lists.
        let lacks = try lacks(waiting, lost)
        let found = waiting.filter { lacks[$0.report.digest] != nil }
        waiting = []
        guard !found.isEmpty else { break }
        let (gone, changed) = try session.commit { (commit) throws(BlobStorageError) in
          var gone: [LostVersion] = []
          var changed: [LostVersion] = []
          for version in found {
            let digest = version.report.digest
            guard let lack = lacks[digest], try isStillThere(lack, digest, lost, commit.transaction)
            else {
              changed.append(version)
              continue
            }
            try commit.drop([version.report.version.stamp], of: version.key)
            gone.append(version)
          }
          return (gone, changed)
        }.result
        dropped += gone
        waiting = changed
      }
      left += waiting
    }
    try session.rollOver()
    return (dropped, left)
  }

  /// What the blobs of these versions lack; those that lack nothing are left out.
  private func lacks(
    _ versions: [LostVersion], _ lost: Set<BlobDigest>
  ) throws(BlobStorageError) -> [BlobDigest: Lack] {
    let search = DamageSearch(engine)
    var lacks: [BlobDigest: Lack] = [:]
    var known: Set<BlobDigest> = []
    for version in versions where known.insert(version.report.digest).inserted {
      try CancellationFlag.check()
      let blob = version.report.digest
      // In this order, so that the commit notices later changes.
      let generation = engine.catalog.generation
      let layout = try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try KnownLayout(blob, generation: generation, transaction)
      }
      let needs = try search.needs(of: blob) { lost.contains($0) }
      let missing = try engine.catalog.read { (transaction) throws(BlobStorageError) in
        var missing: [DamageSearch.Need] = []
        for need in needs where try isMissing(need, of: blob, lost, transaction) { missing.append(need) }
        return missing
      }
      if !missing.isEmpty { lacks[blob] = Lack(layout: layout, needs: missing) }
    }
    return lacks
  }

  /// Whether a blob still lacks the same. Called inside a write transaction, during which no process rebuilds the
  /// catalog.
  private func isStillThere(
    _ lack: Lack, _ blob: BlobDigest, _ lost: Set<BlobDigest>, _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> Bool {
    guard try KnownLayout(blob, generation: engine.catalog.generation, transaction) == lack.layout else {
      return false
    }
    for need in lack.needs where try isMissing(need, of: blob, lost, transaction) { return true }
    return false
  }

  private func isMissing(
    _ need: DamageSearch.Need, of blob: BlobDigest, _ lost: Set<BlobDigest>, _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> Bool {
    // Stored again, it may have another base, or none.
    if let dependent = need.dependent, try transaction.chunkRow(dependent)?.base != need.digest {
      return false
    }
    if let row = try transaction.chunkRow(need.digest), !row.isSuspect || !lost.contains(need.digest) {
      return false
    }
    // What is not there as one chunk, or is damaged, may be there in several.
    if need.digest != blob { return true }
    return try transaction.manifestRow(blob) == nil
  }
}
