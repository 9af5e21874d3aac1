import Foundation
import SystemPackage

/// Collecting on a store that machines share. The order of the steps, and why it is safe, stands in "Many machines".
///
/// The engine only collects and has a state folder of its own: its catalog knows only published packs. What a process
/// of this machine has dropped or copied, and not published yet, may never be. Condemned packs count in it like all
/// others until the copying begins, so that where a chunk is looked for depends on the packs alone.
extension Collector {
  /// Packs to condemn at once: one entry of the log names them all.
  private static let condemnedCountMax = 1 << 20

  /// Gets ready: what others published is known, and what they removed is gone for good.
  func finishLastShared() throws(BlobStorageError) {
    guard let backend = engine.backend as? RemoteBackend else { return }
    try engine.catchUp()
    if try packRows().contains(where: { $0.row.state == .condemned }) {
      // A collection that did not come to its end has begun to copy.
      try engine.catalog.rebuild(because: nil)
      try engine.catchUp()
    }
    if try engine.remote?.maintainer() != nil, let kept = try KeptEntry(engine.folder).read(),
      kept.number > backend.said.number
    {
      _ = try backend.objects.put(SharedNames.collection(kept.number), .bytes(kept.bytes), ifAbsent: true)
      try engine.catchUp()
    }
    // Their names stand for nothing, for ever.
    for name in backend.lastListing?.leftovers ?? [] { try backend.objects.delete(SharedNames.pack(name)) }
  }

  /// Reports packs that are neither listed nor removed: their objects were deleted, and their records may be needed.
  func noteMissing(_ rows: [(number: UInt32, row: PackRow)]) {
    guard let backend = engine.backend as? RemoteBackend, let listing = backend.lastListing else { return }
    let lost = rows.lazy.map(\.row).filter { row in
      row.durableByteCount > 0 && listing.packs[row.name] == nil
        && backend.publishedByteCount(row.name) == nil
        && !backend.said.removed.contains(row.name)
    }
    for name in Set(listing.missing).union(lost.map(\.name)).sorted() {
      report.obstacles.append("Pack \(name) is missing, and no collection has removed it.")
    }
  }

  /// Condemns what was planned, and removes that and what others have condemned.
  func removeShared(_ planned: [Candidate]) throws(BlobStorageError) {
    guard let backend = engine.backend as? RemoteBackend,
      !planned.isEmpty || !backend.said.condemned.isEmpty
    else { return }
    if !marker.missing.isEmpty {
      try markAnew()
      noteAbsent()
      guard report.obstacles.isEmpty else { return }
    }
    // Under another number it could publish copies of what a collector has forgotten that waited for this one in vain.
    let put = try engine.leases.beginPut(from: engine.writer.currentSequence)
    defer { engine.leases.endPut(put) }
    do throws(BlobStorageError) {
      try engine.writer.join()
      try removeShared(planned, backend)
    } catch {
      if error.code == .fenced { throw Self.another }
      guard error.code == .packGone else { throw error }
      // One that did not wait for this one may have removed what it was about to copy.
      try engine.catchUp()
      let gone = error.pack.flatMap { PackName($0) }
      if let gone, backend.said.removed.contains(gone) { throw Self.another }
      throw BlobStorageError(
        .corrupted, "\(error.message) No collection has removed it: run verify.", pack: error.pack)
    }
  }

  private func removeShared(_ planned: [Candidate], _ backend: RemoteBackend) throws(BlobStorageError) {
    let canFence = try engine.remote?.maintainer() == nil
    let entry = KeptEntry(engine.folder)
    let log =
      canFence
      ? CollectionLog(backend.objects, storeID: backend.storeID)
      : CollectionLog(backend.objects, storeID: backend.storeID) { (number, bytes) throws(BlobStorageError) in
        try entry.keep(number, bytes)
      }
    let said = backend.said
    let names = planned.lazy.map(\.row.name).filter { !said.removed.contains($0) }
    let condemned = try log.condemn(
      names.prefix(Self.condemnedCountMax), after: said, by: engine.writer.writerID)
    guard let mine = condemned else { throw Self.another }
    backend.note(mine)
    var fenced: Set<UInt64> = []
    if !engine.weaknesses.contains(.removesBeforeAllPassed) {
      var wait = WriterWait(
        mine, backend, own: engine.writer.writerID, canFence: canFence, time: engine.environment.time)
      fenced = try wait.run(seconds: options.waitSeconds, progress: progress, waiting)
    }
    if !engine.weaknesses.contains(.removesByOldListing) { try engine.catchUp() }
    guard backend.said == mine else { throw Self.another }
    let gone = try evacuated(mine)
    guard !gone.isEmpty else { return }
    guard let done = try log.remove(gone.map(\.row.name), after: mine, by: mine.collector) else {
      throw Self.another
    }
    backend.note(done)
    account(gone)
    for candidate in gone { try backend.objects.delete(SharedNames.pack(candidate.row.name)) }
    for writer in fenced.sorted() { try backend.objects.delete(SharedNames.writer(writer)) }
    try Membership.removeAcks(before: mine.epoch + 1, backend.objects)
    try engine.catchUp()
  }

  /// Copies what is live in condemned packs, and returns those in which nothing is any more.
  private func evacuated(_ mine: Collections) throws(BlobStorageError) -> [Candidate] {
    try markAnew()
    let rows = try packRows()
    noteObstacles(rows)
    noteAbsent()
    if rows.contains(where: { $0.row.durableByteCount == 0 }) {
      report.obstacles.append("What an earlier collection has copied could not be published yet.")
    }
    guard report.obstacles.isEmpty else { return [] }
    let condemned = rows.filter { mine.condemned.contains($0.row.name) }
    try dictionary?.confirm(engine, marker.marks, in: Set(condemned.map(\.number)), leased: [])
    var all: [Candidate] = []
    for (number, row) in condemned {
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
    guard report.obstacles.isEmpty else { return [] }
    try copy(&all)
    var gone: [Candidate] = []
    for candidate in all where try isEmpty(candidate) { gone.append(candidate) }
    return gone
  }

  /// What is needed and not there may need anything that is condemned.
  func noteAbsent() {
    for digest in marker.missing.sorted().prefix(10) {
      report.obstacles.append("Chunk or manifest \(digest) is needed and not there: run verify.")
    }
  }

  /// Works out what is live from nothing but what is published by now.
  private func markAnew() throws(BlobStorageError) {
    if engine.weaknesses.contains(.removesByOldListing) { return }
    var isComplete = false
    repeat {
      marker = Marker(engine)
      try beginMarking()
      try mark()
      if marker.missing.isEmpty { break }
      // A second pack may have it.
      isComplete = try engine.publishedPacks?.completeCatalog() != true
    } while !isComplete
    guard let dictionary, !dictionary.isNew else { return }
    let isThere = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.baseToShare(dictionary.digest) != nil
    }
    // Nothing else may need it any more than what is about to be encoded with it.
    if isThere { try marker.markChunks([dictionary.digest]) } else { self.dictionary = nil }
  }

  private func copy(_ candidates: inout [Candidate]) throws(BlobStorageError) {
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
    // Published, all of it: else this throws.
    try session.rollOver()
  }

  /// Whether nothing that is live points into a pack any more.
  private func isEmpty(_ candidate: Candidate) throws(BlobStorageError) -> Bool {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try checkGeneration()
      return try !isNeeded(candidate, transaction)
    }
  }

  private static var another: BlobStorageError {
    BlobStorageError(.busy, "Another machine collects garbage at the same time: try again later.")
  }
}
