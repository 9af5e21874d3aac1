import Logging

/// Continues after a killed collection, and collects on a full disk.
extension Collector {
  /// Ends what a collection that was killed has begun.
  func finishLast() throws(BlobStorageError) {
    // Before all else: on a full disk their space is what the rest needs.
    try engine.backend.finishLeaving()
    // Its writer may have ended since.
    if try unsyncedPack() != nil { try engine.recoverDeadWriters() }
    let names = try engine.backend.packNames()
    for name in names.retired { try Retirement.finish(name, engine: engine) }
    pardon()
    let live = Set(names.live)
    var lacksFile = false
    for (_, row) in try packRows() where row.state == .retired {
      guard live.contains(row.name) else {
        lacksFile = true
        continue
      }
      try synchronizeOpenPacks()
      try rename([row.name])
    }
    if lacksFile { try forgetRetired() }
  }

  /// Waits for the commits that may rely on condemned packs, including those whose process died.
  func awaitCommits() throws(BlobStorageError) {
    let seconds = engine.environment.commitPatienceSeconds
    var recovered: Set<PackName> = []
    while let dead = try engine.catalog.awaitCommits(seconds: seconds, ignoring: recovered) {
      // After recovery the catalog has what the dead writer's last commit relies on.
      try withReserve { () throws(BlobStorageError) in try engine.recoverDeadWriters() }
      recovered.insert(dead)
    }
  }

  /// Forgets retired packs whose files went before their records: see ``PackRetraction``.
  private func forgetRetired() throws(BlobStorageError) {
    do throws(BlobStorageError) {
      try engine.catalog.rebuild(because: nil)
    } catch {
      // Until there is room they do no harm: some garbage is kept for longer.
      guard error.code == .noSpace else { throw error }
    }
  }

  /// Pardons condemned packs that stay.
  func pardon() {
    do throws(BlobStorageError) {
      guard try packRows().contains(where: { $0.row.state == .condemned }) else { return }
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        for (number, row) in try transaction.packRows() where row.state == .condemned {
          try transaction.updatePack(number) { $0.state = .live }
        }
      }
    } catch {
      // Condemned packs are read and not shared: the next collection pardons or removes them.
      engine.logger.warning(
        "Condemned packs could not be pardoned.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Syncs open packs. Rows may point into them, and unsynced copies must not be the only ones (H1, H7).
  func synchronizeOpenPacks() throws(BlobStorageError) {
    if engine.weaknesses.contains(.retiresBeforeSync) { return }
    for (_, row) in try packRows() where !row.isSealed && row.state == .live {
      if try !engine.writer.synchronizeOther(row.name) { throw Self.failedSync(row.name) }
    }
    try checkSyncs()
  }

  /// - Throws: `busy` while a pack is under way whose sync has failed.
  func checkSyncs() throws(BlobStorageError) {
    if let name = try unsyncedPack() { throw Self.failedSync(name) }
  }

  /// An open pack whose sync has failed. What the catalog relies on may not be on the medium, and no later sync reports
  /// that. Its writer has to end, so that the next opening writes the pack again.
  private func unsyncedPack() throws(BlobStorageError) -> PackName? {
    try packRows().first { $0.row.isPoisoned && !$0.row.isSealed && $0.row.state == .live }?.row.name
  }

  private static func failedSync(_ name: PackName) -> BlobStorageError {
    BlobStorageError(
      .busy, "A sync of pack \(name) has failed: close the store wherever it is open, and collect again.",
      pack: name.description)
  }

  /// While something is lost, nothing may be removed: the rest may be the only evidence.
  func addLosses() throws(BlobStorageError) -> Bool {
    if engine.weaknesses.contains(.collectsDespiteObstacles) { return false }
    let losses = try engine.losses()
    for name in losses.lostPacks {
      report.obstacles.append("Pack \(name) is missing: run repair.")
    }
    for name in losses.damagedPacks {
      report.obstacles.append("Pack \(name) is damaged: run repair.")
    }
    for key in losses.uncertainKeys {
      report.obstacles.append(
        "The newest state of key “\(key)” is lost: put it again, or accept the loss with repair.")
    }
    return !losses.isEmpty
  }

  /// Replaces the census by one without repetitions, if that makes it much smaller.
  func shortenCensus() {
    guard let file = engine.backend.census, scope == nil, !options.isDryRun else { return }
    do throws(BlobStorageError) {
      let census = try file.read()
      guard census.lineCount > 64 + 2 * census.events.count || census.damagedLineCount > 0 else { return }
      try file.replace(by: census)
    } catch {
      engine.logger.warning("The census could not be shortened.", metadata: ["reason": "\(error.message)"])
    }
  }

  // MARK: A full disk

  /// Runs `body`, and releases the reserve if the disk is full.
  func withReserve(_ body: () throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    try engine.folder.withReserve(body)
  }

  /// Restores the reserve if there is room for it.
  func keepReserve() {
    guard !options.isDryRun else { return }
    do throws(BlobStorageError) {
      try engine.folder.keepReserve()
    } catch {
      engine.logger.warning("There is no room for the reserve.", metadata: ["reason": "\(error.message)"])
    }
  }
}
