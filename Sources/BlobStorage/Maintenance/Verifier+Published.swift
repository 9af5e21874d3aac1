/// Where packs are published, it is the published pack that is verified, and not what this machine keeps of it.
extension Verifier {
  /// The packs that are to be there, by what the catalog says or because later ones of their writers are there, and that
  /// no listing has; one that a collector has removed is not among them.
  func missingPacks(_ rows: [PackRow]) throws(BlobStorageError) -> Set<PackName> {
    if let missing = try engine.sharing.missingPacks(rows) { return missing }
    return Set(try engine.knownLosses().lostPacks)
  }

  /// Has a pack read from where everybody reads it; false when its ends are not as they were.
  func readsPublished(_ row: PackRow) throws(BlobStorageError) -> Bool {
    guard row.durableByteCount > 0 else { return true }
    return try engine.sharing.readAnew(row.name)
  }

  /// What is to be said of a pack that went while it was read: nothing, if another machine has collected it.
  func resultOfGone(_ row: PackRow) throws(BlobStorageError) -> PackResult {
    try engine.catchUp()
    let isKnown = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.packNumber(row.name) != nil
    }
    return isKnown ? Self.missing(row.name) : PackResult()
  }

  static func missing(_ name: PackName) -> PackResult {
    var result = PackResult()
    result.findings.append(Finding(digest: nil, pack: name, offset: 0, reason: "the pack is not there"))
    return result
  }
}
