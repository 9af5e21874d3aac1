import BlobStorage

/// Removes packs of a shared store, once each writer has acknowledged the condemnation, has left, or is fenced.
struct SharedRemoval: PackRemoval {
  /// The store of the collecting engine.
  let store: SharedStore
  /// Runs repeatedly while the collector waits for other writers.
  let waiting: (Collections) throws(BlobStorageError) -> Void

  var condemned: Set<PackName> { store.backend.collections.condemned }
  /// Small, because no other machine can collect garbage until the round ends.
  var recompressedByteCountMax: Int64 { 128 << 20 }

  /// Extends the catalog, rebuilds it after an unfinished collection, and deletes the objects of removed packs.
  ///
  /// - Throws: `corrupted` if the log in the bucket lacks entries that this machine has read.
  func finishLast(_ collector: Collector) throws(BlobStorageError) {
    let (engine, backend) = (collector.engine, store.backend)
    try engine.extend()
    if try engine.catalog.packRows().contains(where: { $0.row.state == .condemned }) {
      // An unfinished collection has begun to copy.
      try engine.catalog.rebuild(because: nil)
      try engine.extend()
    }
    try store.repeatEntry(of: engine)
    guard try backend.log.holds(backend.collections) else { throw store.otherLog }
    // Removed names are never used again.
    for name in backend.lastListing?.leftovers ?? [] { try backend.objects.delete(SharedNames.pack(name)) }
  }

  func rebase(_ collector: Collector) {
    // Does nothing: one machine does not see which bases other machines are about to encode against.
  }

  /// Reports packs that are neither listed nor removed, because their objects were deleted, and packs whose objects
  /// were cut. Absent chunks are no obstacle yet: the collector marks again before it removes anything.
  func addObstacles(_ rows: [(number: UInt32, row: PackRow)], _ collector: Collector) {
    let backend = store.backend
    guard let listing = backend.lastListing else { return }
    let published = rows.lazy.map(\.row).filter { $0.durableByteCount > 0 }
    let lost = published.map(\.name).filter { name in
      listing.isMissing(name) && backend.publishedByteCount(name) == nil && !backend.isRemoved(name)
    }
    for name in Set(listing.missing).union(lost).sorted() {
      collector.report.obstacles.append(.missing(name.description))
    }
    for row in published where !row.isDamaged {
      guard let byteCount = listing.packs[row.name], byteCount != row.durableByteCount else { continue }
      collector.report.obstacles.append(.damaged(row.name.description))
    }
  }

  func remove(
    _ candidates: [Collector.Candidate], _ rows: [(number: UInt32, row: PackRow)], _ collector: Collector
  ) throws(BlobStorageError) { try collector.removeShared(candidates, self) }
}

/// Collects garbage of a shared store. "Many machines" explains the order of the steps and why it is safe.
///
/// The engine only collects and has its own state folder, so its catalog has only published packs. This machine's
/// unpublished drops and copies may never be published. Until it begins to copy, its catalog treats condemned packs
/// like others. So the place of a chunk depends on the packs alone.
extension Collector {
  /// The most packs to condemn at once, because one log entry must name them all.
  private static let condemnedCountMax = 1 << 20

  /// Condemns the planned packs, then removes all condemned packs, including those of earlier collections.
  func removeShared(_ planned: [Candidate], _ removal: SharedRemoval) throws(BlobStorageError) {
    let backend = removal.store.backend
    guard !planned.isEmpty || !backend.collections.condemned.isEmpty else { return }
    if lacksSomething {
      try markAnew()
      addAbsent()
      guard report.obstacles.isEmpty else { return }
    }
    // An open put keeps the writer's number. Under a new number, a fenced collector could publish copies of forgotten
    // records.
    let put = try engine.leases.beginPut(from: engine.writer.currentSequence)
    defer { engine.leases.endPut(put) }
    do throws(BlobStorageError) {
      let canFence = try removal.store.remote.maintainer() == nil
      var wait = WriterWait(
        backend.collections, backend, own: engine.writer.writerID, canFence: canFence,
        fencePatienceSeconds: removal.store.remote.fencePatienceSeconds, time: engine.environment.time)
      // Without conditional put there is no other collector.
      if canFence { try wait.yield(seconds: options.timeout.seconds, progress: progress) }
      try engine.writer.join()
      if canFence { try checkConditionalPuts(backend) }
      try removeJoined(planned, removal, &wait)
    } catch {
      throw error.code == .fenced ? Self.another : error
    }
  }

  private func removeJoined(
    _ planned: [Candidate], _ removal: SharedRemoval, _ wait: inout WriterWait
  ) throws(BlobStorageError) {
    let backend = removal.store.backend
    let log = try removal.store.log(of: engine)
    let collections = backend.collections
    // Puts store condemned chunks again. So condemn no more packs while a writer delays the removal of condemned ones.
    let isHeldUp = try isHeldUp(collections, backend)
    let names = planned.lazy.map(\.row.name).filter { !isHeldUp && !collections.removed.contains($0) }
    let (last, keptCount) = (backend.lastChange, removal.store.remote.keptChangeCount)
    let horizon = backend.hasChanges && last > keptCount ? last - keptCount : 0
    let condemned = try log.condemn(
      names.prefix(Self.condemnedCountMax), horizon: horizon, after: collections, by: engine.writer.writerID)
    guard let mine = condemned else { throw Self.another }
    backend.adopt(mine)
    if engine.weaknesses.contains(.deletesChangesEarly) { try backend.removeOldChanges(mine) }
    var fenced: Set<UInt64> = []
    if !engine.weaknesses.contains(.removesBeforeAllPassed) {
      fenced = try wait.run(mine, seconds: options.timeout.seconds, progress: progress, removal.waiting)
    }
    if !engine.weaknesses.contains(.removesByOldListing) { try engine.extend() }
    guard backend.collections == mine else { throw Self.another }
    let gone = try evacuated(mine)
    guard !gone.isEmpty else { return }
    let emptied = Set(gone.map(\.row.name))
    let ends = backend.lastListing?.ends(without: emptied) ?? []
    guard let done = try log.remove(emptied, ends: ends, after: mine, by: mine.collector) else {
      throw Self.another
    }
    backend.adopt(done)
    account(gone)
    // Before the objects are deleted: a machine that reads an older index needs their footers.
    removal.store.keepIndex()
    for name in emptied.sorted() + ends { try backend.objects.delete(SharedNames.pack(name)) }
    for writer in fenced.sorted() { try backend.objects.delete(SharedNames.writer(writer)) }
    try Membership.removeAcks(before: mine.epoch + 1, backend.objects)
    try backend.removeOldChanges(mine)
    try engine.extend()
  }

  /// Whether a living writer has not acknowledged the last condemnation, whose packs are not yet removed.
  private func isHeldUp(
    _ collections: Collections, _ backend: RemoteBackend
  ) throws(BlobStorageError) -> Bool {
    guard !collections.condemned.isEmpty else { return false }
    let passed = try Membership.passed(collections.epoch, backend.objects)
    return try Membership.writers(backend.objects).contains { writer in
      writer != engine.writer.writerID && !passed.contains(writer)
        && backend.lastListing?.fences[writer] == nil
    }
  }

  /// Tests conditional put again: the bucket may have moved behind another service, or the service was updated.
  ///
  /// - Throws: `invalidArgument` if the object store ignores `If-None-Match`; `notAStore` if the object `store` is
  ///   missing; `busy` if another machine collects.
  private func checkConditionalPuts(_ backend: RemoteBackend) throws(BlobStorageError) {
    let (objects, number) = (backend.objects, backend.collections.number)
    try ConditionalPutProbe.removeTrials(before: number, on: objects, below: objects.trialFolder)
    guard let header = try objects.get(SharedNames.store, 0..<1_024) else {
      throw BlobStorageError(
        .notAStore, "The object `store` is missing in \(objects.place): restore it before you collect.",
        path: objects.place)
    }
    // The same bytes, so that a service which ignores the condition changes nothing.
    let probe = ConditionalPutProbe(
      roundCount: 2, contenderCount: 4, isInline: engine.environment.worksInline)
    guard try objects.put(SharedNames.store, .bytes(header), ifAbsent: true) == .exists,
      try probe.run(on: objects, below: objects.trialFolder, number: number) == .holds
    else {
      // The test may have failed because a later collector deleted its trial objects.
      let log = CollectionLog(objects, storeID: backend.storeID)
      guard try log.read(after: backend.collections).number == number else { throw Self.another }
      throw BlobStorageError(
        .invalidArgument,
        "The object store in \(objects.place) ignores If-None-Match now, and nothing was collected: reach it as when"
          + " the store was created, or copy the store into a new one.", path: objects.place)
    }
  }

  /// Copies live records out of condemned packs, and returns the packs without live records.
  private func evacuated(_ mine: Collections) throws(BlobStorageError) -> [Candidate] {
    try markAnew()
    let rows = try engine.catalog.packRows()
    addObstacles(rows)
    addAbsent()
    if rows.contains(where: { $0.row.durableByteCount == 0 }) {
      report.obstacles.append(
        GarbageObstacle(
          .unpublished, "Copies of an earlier collection could not be published yet: collect again later."))
    }
    guard report.obstacles.isEmpty else { return [] }
    var all = try condemned(rows.filter { mine.condemned.contains($0.row.name) })
    guard report.obstacles.isEmpty else { return [] }
    return try evacuate(&all)
  }

  static var another: BlobStorageError {
    BlobStorageError(.busy, "Another machine collects garbage at the same time: try again later.")
  }
}
