/// Where packs are published, it is the published pack that is verified, and not what this machine keeps of it.
extension Verifier {
  /// The packs that should be listed and are not, because the catalog or later packs of their writers say so. Packs
  /// that a collector has removed are not among them.
  func missingPacks(_ rows: [PackRow]) throws(BlobStorageError) -> Set<PackName> {
    guard let backend = engine.backend as? any PublishingBackend else {
      return Set(try engine.knownLosses().lostPacks)
    }
    let published = rows.filter { $0.durableByteCount > 0 && $0.state != .retired }.map(\.name)
    let listing = try backend.publishedPacks()
    return Set(published.filter { listing.packs[$0] == nil && !listing.collections.removed.contains($0) })
      .union(listing.missing)
  }

  /// Reads a pack from the object store; false if its ends have changed.
  func readsPublished(_ row: PackRow) throws(BlobStorageError) -> Bool {
    guard let backend = engine.backend as? any PublishingBackend, row.durableByteCount > 0 else {
      return true
    }
    backend.forgetRecords(row.name)
    try engine.packs.forget { (name) in name == row.name }
    return try !backend.hasOtherFooter(row.name)
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
