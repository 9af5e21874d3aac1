/// The chunks that were found damaged, and where. The footers that a catalog is made of do not say it.
struct SuspectChunks {
  private struct Suspect {
    var digest: BlobDigest
    var pack: PackName
    var offset: Int64
  }

  private var suspects: [Suspect] = []

  /// What a catalog says of its own rows.
  ///
  /// - Complexity: looks at every chunk of the database.
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

  /// Tells another catalog, as far as it knows of no other copy.
  func mark(in transaction: WriteTransaction) throws(BlobStorageError) {
    for suspect in suspects {
      guard let row = try transaction.chunkRow(suspect.digest), row.place.offset == suspect.offset,
        try transaction.packRow(row.place.pack)?.name == suspect.pack
      else { continue }
      try transaction.setSuspect(suspect.digest, row)
    }
  }
}
