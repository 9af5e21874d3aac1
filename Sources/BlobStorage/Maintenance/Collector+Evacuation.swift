/// Emptying condemned packs by the engine's own session, where a pack goes only after its copies are published.
extension Collector {
  /// Whether something is needed and missing.
  package var lacksSomething: Bool { !marker.missing.isEmpty }

  /// Marks anew what is live, by what the catalog says now.
  package func markAnew() throws(BlobStorageError) {
    if engine.weaknesses.contains(.removesByOldListing) { return }
    repeat {
      marker = Marker(engine)
      try beginMarking()
      try mark()
      if marker.missing.isEmpty { break }
      // A second pack may have it.
    } while try engine.sharing.completeCatalog()
    guard let dictionary, !dictionary.isNew else { return }
    let isThere = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.baseToShare(dictionary.digest) != nil
    }
    // Nothing else may need it any more than what is about to be encoded with it.
    if isThere { try marker.markChunks([dictionary.digest]) } else { self.dictionary = nil }
  }

  /// The condemned packs with what is live in them. Adds to the report what keeps a pack from being emptied.
  package func condemned(
    _ rows: [(number: UInt32, row: PackRow)]
  ) throws(BlobStorageError) -> [Candidate] {
    try dictionary?.confirm(engine, marker.marks, in: Set(rows.map(\.number)), leased: [])
    var all: [Candidate] = []
    for (number, row) in rows {
      try CancellationFlag.check()
      do throws(BlobStorageError) {
        let content = try PackContent(
          engine, number: number, row: row, marks: marker.marks, small: dictionary?.chunks, checksCopies: true
        )
        guard content.damagedCopy == nil else {
          report.obstacles.append("Another copy of what pack \(row.name) has is damaged: run repair.")
          continue
        }
        all.append(Candidate(number: number, row: row, content: content))
      } catch {
        guard error.code == .corrupted else { throw error }
        report.obstacles.append(error.message)
      }
    }
    return all
  }

  /// Copies what is live in the packs, makes the copies durable, and returns the packs that nothing needs any more.
  package func evacuate(_ candidates: inout [Candidate]) throws(BlobStorageError) -> [Candidate] {
    let session = engine.writer
    let names = candidates.map(\.row.name)
    // From now on a copy counts over what it was copied from.
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      try checkGeneration()
      try CatalogBuilder.condemn(names, in: transaction)
    }
    if candidates.contains(where: \.content.hasSmall) { try storeDictionary(in: session) }
    let kept = candidates.indices.filter { candidates[$0].content.keptCount > 0 }
    for (doneCount, index) in kept.enumerated() {
      try CancellationFlag.check()
      progress(WorkProgress(phase: "compacting", doneCount: doneCount, totalCount: kept.count))
      do throws(BlobStorageError) {
        candidates[index] = try copy(candidates[index], to: session)
      } catch {
        guard error.code == .corrupted else { throw error }
        report.obstacles.append(error.message)
      }
    }
    // Durable, all of it: else this throws.
    try session.rollOver()
    var gone: [Candidate] = []
    for candidate in candidates where try isEmpty(candidate) { gone.append(candidate) }
    return gone
  }

  /// Whether nothing that is live points into a pack any more.
  private func isEmpty(_ candidate: Candidate) throws(BlobStorageError) -> Bool {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try checkGeneration()
      return try !isNeeded(candidate, transaction)
    }
  }
}
