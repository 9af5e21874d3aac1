/// Where packs are published, it is the published pack that is verified, and not what this machine keeps of it.
extension Verifier {
  /// The packs that should be listed and are not, because the catalog or later packs of their writers say so. Packs
  /// that a collector has removed are not among them.
  func missingPacks(_ rows: [PackRow]) throws(BlobStorageError) -> Set<PackName> {
    if let missing = try engine.sharing.missingPacks(rows) { return missing }
    return Set(try engine.knownLosses().lostPacks)
  }

  /// Reads a pack from the object store; false if its ends have changed.
  func readsPublished(_ row: PackRow) throws(BlobStorageError) -> Bool {
    guard row.durableByteCount > 0 else { return true }
    return try engine.sharing.readAnew(row.name)
  }

  /// The findings for a pack that disappeared while it was read: none, if another machine has collected it.
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
