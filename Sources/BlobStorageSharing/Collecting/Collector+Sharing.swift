import BlobStorage

/// Removes packs that machines share: a pack goes once every writer has acknowledged the condemnation, has left, or is
/// fenced.
struct SharedRemoval: PackRemoval {
  /// That of the engine that collects.
  let store: SharedStore
  /// Called while other writers are waited for.
  let waiting: (Collections) throws(BlobStorageError) -> Void

  var condemned: Set<PackName> { store.backend.said.condemned }

  func finishLast(_ collector: Collector) throws(BlobStorageError) { try collector.finishLast(store) }

  func noteObstacles(_ rows: [(number: UInt32, row: PackRow)], _ collector: Collector) {
    // What is published by now is looked through once more before anything is removed.
    collector.noteMissing(rows, store.backend)
  }

  func remove(
    _ candidates: [Collector.Candidate], _ rows: [(number: UInt32, row: PackRow)], _ collector: Collector
  ) throws(BlobStorageError) { try collector.removeShared(candidates, self) }
}

/// Collecting on a store that machines share. The order of the steps, and why it is safe, stands in "Many machines".
///
/// The engine only collects and has a state folder of its own: its catalog knows only published packs. What a process
/// of this machine has dropped or copied, and not published yet, may never be. Condemned packs count in it like all
/// others until the copying begins, so that where a chunk is looked for depends on the packs alone.
extension Collector {
  /// Packs to condemn at once: one entry of the log names them all.
  private static let condemnedCountMax = 1 << 20

  /// Extends the catalog, and ends what a collection that was killed has begun.
  func finishLast(_ store: SharedStore) throws(BlobStorageError) {
    let backend = store.backend
    try engine.catchUp()
    if try engine.catalog.packRows().contains(where: { $0.row.state == .condemned }) {
      // A collection that did not come to its end has begun to copy.
      try engine.catalog.rebuild(because: nil)
      try engine.catchUp()
    }
    if try store.remote.maintainer() != nil, let kept = try PendingLogEntry(engine.folder).read(),
      kept.number > backend.said.number
    {
      _ = try backend.objects.put(SharedNames.collection(kept.number), .bytes(kept.bytes), ifAbsent: true)
      try engine.catchUp()
    }
    // Their names stand for nothing, for ever.
    for name in backend.lastListing?.leftovers ?? [] { try backend.objects.delete(SharedNames.pack(name)) }
  }

  /// Adds packs to the obstacles that are neither listed nor removed: their objects were deleted and may be needed.
  func noteMissing(_ rows: [(number: UInt32, row: PackRow)], _ backend: RemoteBackend) {
    guard let listing = backend.lastListing else { return }
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
  func removeShared(_ planned: [Candidate], _ removal: SharedRemoval) throws(BlobStorageError) {
    let backend = removal.store.backend
    guard !planned.isEmpty || !backend.said.condemned.isEmpty else { return }
    if lacksSomething {
      try markAnew()
      noteAbsent()
      guard report.obstacles.isEmpty else { return }
    }
    // Under another number it could publish copies of what a collector has forgotten that waited for this one in vain.
    let put = try engine.leases.beginPut(from: engine.writer.currentSequence)
    defer { engine.leases.endPut(put) }
    do throws(BlobStorageError) {
      try engine.writer.join()
      try removeJoined(planned, removal)
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

  private func removeJoined(_ planned: [Candidate], _ removal: SharedRemoval) throws(BlobStorageError) {
    let backend = removal.store.backend
    let canFence = try removal.store.remote.maintainer() == nil
    let entry = PendingLogEntry(engine.folder)
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
      fenced = try wait.run(seconds: options.waitSeconds, progress: progress, removal.waiting)
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

  /// Copies what is live in condemned packs, and returns those that nothing needs any more.
  private func evacuated(_ mine: Collections) throws(BlobStorageError) -> [Candidate] {
    try markAnew()
    let rows = try engine.catalog.packRows()
    noteObstacles(rows)
    noteAbsent()
    if rows.contains(where: { $0.row.durableByteCount == 0 }) {
      report.obstacles.append("What an earlier collection has copied could not be published yet.")
    }
    guard report.obstacles.isEmpty else { return [] }
    var all = try condemned(rows.filter { mine.condemned.contains($0.row.name) })
    guard report.obstacles.isEmpty else { return [] }
    return try evacuate(&all)
  }

  private static var another: BlobStorageError {
    BlobStorageError(.busy, "Another machine collects garbage at the same time: try again later.")
  }
}
