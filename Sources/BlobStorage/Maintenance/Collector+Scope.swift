/// Taking away some packs and no others: what a cache does to make room, without looking at the whole store.
extension Collector {
  /// Plans what is to go; a dictionary is worth the trouble only where all packs are looked at.
  func planned(_ rows: [(number: UInt32, row: PackRow)]) throws(BlobStorageError) -> [Candidate] {
    guard scope != nil else { return try planWithDictionary(rows) }
    return try plan(rows)
  }

  /// Marks what is live in the packs that may go; says which packs there are.
  func markScope() throws(BlobStorageError) -> [(number: UInt32, row: PackRow)] {
    guard let scope else {
      try mark()
      // What rebasing adds is live, and in packs of its own.
      let rows = try packRows()
      try rebase()
      return rows
    }
    let rows = try packRows()
    _ = try marker.markLive(in: rows.filter { scope.contains($0.number) }.map(\.row.name))
    return rows
  }

  /// Marks what versions and new chunks need of packs that are condemned by now.
  func markAgain(_ candidates: [Candidate]) throws(BlobStorageError) {
    if scope != nil, try marker.markLive(in: candidates.map(\.row.name)) { return }
    try marker.markVersions(countsRefs: false)
    try markNewBases()
  }

  /// What died while it was copied was noted for the pack that goes: it is garbage of the new one.
  func noteGarbage(_ content: PackContent, _ transaction: Transaction) throws(BlobStorageError) {
    for digest in content.keptBlobs where try transaction.versionCount(of: digest) == 0 {
      guard let row = try transaction.chunkRow(digest) else { continue }
      try transaction.addGarbage(row.place.pack, Int64(row.recordByteCount))
    }
  }

  /// Whether something that is live points into a pack.
  func isNeeded(_ candidate: Candidate, _ transaction: Transaction) throws(BlobStorageError) -> Bool {
    for record in candidate.content.records {
      let place: Place?
      switch record.content {
      case .chunk(let chunk): place = try transaction.chunkRow(chunk.digest)?.place
      case .manifest(let manifest): place = try transaction.manifestRow(manifest.digest)?.place
      case .ref(let ref): place = try transaction.place(of: ref)
      case .drop, .skipped: place = nil
      }
      guard let place, place.pack == candidate.number, place.offset == record.offset else { continue }
      if case .ref = record.content { return true }
      if marker.marks.contains(place) { return true }
    }
    return false
  }
}
