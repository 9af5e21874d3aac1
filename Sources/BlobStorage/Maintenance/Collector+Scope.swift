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
  func addGarbage(_ candidate: Candidate, _ transaction: WriteTransaction) throws(BlobStorageError) {
    guard !candidate.content.keptBlobs.isEmpty else { return }
    try forEachRecord(of: candidate) { (record, place) throws(BlobStorageError) in
      guard case .chunk(let chunk) = record.content, candidate.content.keptBlobs.contains(place),
        try transaction.versionCount(of: chunk.digest) == 0,
        let row = try transaction.chunkRow(chunk.digest)
      else { return }
      try transaction.addGarbage(row.place.pack, Int64(row.recordByteCount))
    }
  }

  /// Whether something that is live points into a pack.
  func isNeeded(_ candidate: Candidate, _ transaction: ReadTransaction) throws(BlobStorageError) -> Bool {
    var isNeeded = false
    try forEachRecord(of: candidate) { (record, place) throws(BlobStorageError) in
      if isNeeded { return }
      let found: Place?
      switch record.content {
      case .chunk(let chunk): found = try transaction.chunkRow(chunk.digest)?.place
      case .manifest(let manifest): found = try transaction.manifestRow(manifest.digest)?.place
      case .ref(let ref): found = try transaction.place(of: ref)
      case .drop, .skipped: found = nil
      }
      // Whatever the catalog counts: the offset alone tells which record it is.
      guard let found, found.pack == place.pack, found.offset == place.offset else { return }
      if case .ref = record.content { isNeeded = true } else { isNeeded = marker.marks.contains(found) }
    }
    return isNeeded
  }

  /// Reads the records of a pack once more: to keep those of all packs that are to go would take memory for each.
  private func forEachRecord(
    of candidate: Candidate, _ body: (PackRecord, Place) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let name = candidate.row.name
    guard let file = try engine.backend.openPack(name) else {
      throw BlobStorageError(.corrupted, "Pack \(name) is not there.", pack: name.description)
    }
    defer { file.close() }
    var ordinal = 0
    _ = try PackScanner(file: file, name: name, codecs: engine.codecs, store: engine.header).scan {
      (record) throws(BlobStorageError) in
      try body(record, Place(pack: candidate.number, offset: record.offset, ordinal: ordinal))
      ordinal += 1
    }
  }
}
