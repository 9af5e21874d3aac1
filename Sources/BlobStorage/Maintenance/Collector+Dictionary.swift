/// Encoding small chunks with a dictionary on the way, and counting what a collection does.
extension Collector {
  /// Plans with the dictionary that would pay for itself in the packs that are to go, if there is one.
  func planWithDictionary(_ rows: [(number: UInt32, row: PackRow)]) throws(BlobStorageError) -> [Candidate] {
    guard report.obstacles.isEmpty else { return try plan(rows) }
    progress(WorkProgress(phase: "training"))
    dictionary = try DictionaryPlan.make(
      engine, marker.marks, in: Set(rows.map(\.number)), isDryRun: options.isDryRun)
    let candidates = try plan(rows)
    guard let found = dictionary, found.isNew, report.obstacles.isEmpty else { return candidates }
    let savedByteCount = candidates.reduce(0) { $0 + found.savedByteCount($1.number) }
    if savedByteCount >= found.recordByteCount * DictionaryPolicy.paybackMin { return candidates }
    dictionary = nil
    if !options.isDryRun { try DictionaryPlan.recordTrial(found.chunks.count, engine) }
    return try plan(rows)
  }

  /// Writes a new dictionary before the first chunk that needs it.
  func storeDictionary(in session: WriterSession) throws(BlobStorageError) {
    guard let dictionary, dictionary.isNew, !isDictionaryStored else { return }
    let (record, payload) = try dictionary.ownRecord(engine)
    try bridge(payload) { (raw) throws(BlobStorageError) in
      _ = try session.append(.chunk(record), payload: raw)
    }
    countDictionary(dictionary)
  }

  /// On a dry run: what encoding with the dictionary would bring.
  func tryDictionary(_ candidates: [Candidate]) throws(BlobStorageError) {
    guard let dictionary else { return }
    for candidate in candidates where candidate.content.hasSmall {
      try CancellationFlag.check()
      if dictionary.isNew, !isDictionaryStored { countDictionary(dictionary) }
      _ = try copy(candidate, to: nil)
    }
  }

  /// Copies what is live in a pack that is to go, and says what that was. Without a session it only tells the gain.
  func copy(_ candidate: Candidate, to session: WriterSession?) throws(BlobStorageError) -> Candidate {
    var candidate = candidate
    var compaction = try Compaction(of: candidate.row.name, engine: engine, to: session, dictionary)
    candidate.content = try PackContent(
      engine, number: candidate.number, row: candidate.row, marks: marker.marks, small: dictionary?.chunks
    ) { (record) throws(BlobStorageError) in try compaction.copy(record) }
    gains[candidate.row.name] = compaction.gain
    return candidate
  }

  private func countDictionary(_ dictionary: DictionaryPlan) {
    isDictionaryStored = true
    report.addedDictionaryCount += 1
    gainedByteCount -= dictionary.recordByteCount
  }

  /// Counts packs that are gone, or would be.
  package func account(_ candidates: [Candidate]) {
    for candidate in candidates {
      report.deletedChunkCount += candidate.content.deletedChunkCount
      report.copiedByteCount += candidate.content.keptByteCount
      report.freedByteCount += candidate.content.recordsByteCount - candidate.content.keptByteCount
      if candidate.content.keptCount == 0 {
        report.deletedPackCount += 1
      } else {
        report.compactedPackCount += 1
      }
      guard let gain = gains.removeValue(forKey: candidate.row.name) else { continue }
      report.dictionaryChunkCount += gain.chunkCount
      gainedByteCount += gain.savedByteCount
    }
  }
}
