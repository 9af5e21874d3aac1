/// The chunks that reads found damaged, with their places. Footers, from which catalogs are built, do not record this.
struct SuspectChunks {
  private struct Suspect {
    var digest: BlobDigest
    var pack: PackName
    var offset: Int64
  }

  private var suspects: [Suspect] = []

  /// Collects the damaged chunks among the database's own rows.
  ///
  /// - Complexity: reads every chunk of the database, if any was marked since the catalog was made.
  init(in database: Database) throws(BlobStorageError) {
    suspects = try database.read { (transaction) throws(BlobStorageError) in
      guard try transaction.hasSuspects() else { return [] }
      var found: [(digest: BlobDigest, place: Place)] = []
      try transaction.forEachOwnChunk { (digest, row) in
        if row.isSuspect { found.append((digest, row.place)) }
        return true
      }
      var suspects: [Suspect] = []
      for (digest, place) in found {
        guard let pack = try transaction.packRow(place.pack)?.name else { continue }
        suspects.append(Suspect(digest: digest, pack: pack, offset: place.offset))
      }
      return suspects
    }
  }

  /// Marks the same chunks in another catalog, unless it has a row for another copy.
  func mark(in transaction: WriteTransaction) throws(BlobStorageError) {
    for suspect in suspects {
      guard let row = try transaction.chunkRow(suspect.digest), row.place.offset == suspect.offset,
        try transaction.packRow(row.place.pack)?.name == suspect.pack
      else { continue }
      try transaction.setSuspect(suspect.digest, row)
    }
  }
}
