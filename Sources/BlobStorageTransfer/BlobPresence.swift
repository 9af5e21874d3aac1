import BlobStorage

/// Checks whether a blob's chunks exist, by the catalog and the listing of the packs. Reads none of its bytes.
///
/// While no damage or loss is known, everything visible exists, and it looks up only the blob itself. Otherwise it
/// reads the manifest and looks up each chunk.
struct BlobPresence: Sendable {
  private let catalog: Catalog
  private let blobs: BlobSource
  private let looksAtChunks: Bool
  /// Numbers of packs that the catalog lists and the store lacks.
  private let lostPacks: Set<UInt32>

  /// - Parameter lost: packs that are missing.
  /// - Complexity: one row a pack.
  init(_ blobs: BlobSource, lost: Set<PackName>, census: any CensusLog) throws(BlobStorageError) {
    self.blobs = blobs
    catalog = blobs.catalog
    let (rows, hasSuspects) = try catalog.read { (transaction) throws(BlobStorageError) in
      (try transaction.packRows(), try transaction.hasSuspects())
    }
    lostPacks = Set(rows.filter { $0.row.isLost || lost.contains($0.row.name) }.map(\.number))
    // The catalog keeps no rows for the chunks of a pack that was set aside.
    let isAnySetAside = try census.read().hasSetAside
    looksAtChunks =
      hasSuspects || isAnySetAside || !lost.isEmpty || rows.contains { $0.row.isDamaged || $0.row.isLost }
  }

  /// Whether the blob is readable, as far as the catalog knows.
  func isPresent(_ digest: BlobDigest) throws(BlobStorageError) -> Bool {
    if looksAtChunks, let layout = try blobs.layout(digest) {
      guard try areThere(layout.listDigests) else { return false }
      return try LiveWalk(blobs).forEachGroup(of: layout) {
        (digests) throws(BlobStorageError) in
        try areThere(digests)
      }
    }
    return try catalog.read { (transaction) throws(BlobStorageError) in
      if try transaction.chunkRow(digest) != nil { return true }
      return try transaction.manifestRow(digest) != nil
    }
  }

  private func areThere(_ digests: [BlobDigest]) throws(BlobStorageError) -> Bool {
    try catalog.read { (transaction) throws(BlobStorageError) in
      func isThere(_ row: ChunkRow?) -> Bool {
        row.map { !$0.isSuspect && !lostPacks.contains($0.place.pack) } ?? false
      }
      for digest in digests {
        guard let row = try transaction.chunkRow(digest), isThere(row) else { return false }
        if let base = row.base, !isThere(try transaction.chunkRow(base)) { return false }
      }
      return true
    }
  }
}

extension LiveWalk {
  /// Calls `visit` with the blob's chunks (not its lists) in groups of 1,024, until it returns false.
  ///
  /// - Returns: false if `visit` returned false.
  /// - Throws: `corrupted` for an unreadable list; an unfinished group is not visited then.
  @discardableResult
  func forEachGroup(
    of layout: BlobLayout, _ visit: ([BlobDigest]) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) -> Bool {
    var group: [BlobDigest] = []
    var goesOn = true
    try forEachPart(of: layout) { (part) throws(BlobStorageError) in
      guard part.kind == .chunk else { return true }
      group.append(part.digest)
      guard group.count >= 1_024 else { return true }
      goesOn = try visit(group)
      group.removeAll(keepingCapacity: true)
      return goesOn
    }
    return goesOn ? try visit(group) : false
  }
}
