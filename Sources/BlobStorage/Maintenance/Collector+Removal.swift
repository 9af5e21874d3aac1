import Logging

/// Condemns packs, empties and removes them; finishes what a killed collection has begun.
extension Collector {
  /// Packs that are removed together and share their syncs.
  private static let deadPackCountOfBatch = 64

  /// Condemns the candidates. Once the commits in progress have ended, copies what is live in them and removes them.
  func removeCondemned(
    _ candidates: [Candidate], _ rows: [(number: UInt32, row: PackRow)]
  ) throws(BlobStorageError) {
    guard !candidates.isEmpty else { return }
    let haveRowsMoved = try engine.folder.withReserve { () throws(BlobStorageError) in
      try condemn(candidates)
    }
    // Such a row may point into a candidate. The blob that needs it was marked before, so it would not be walked again.
    if haveRowsMoved { marker = Marker(engine.blobs, engine.folder) }
    do throws(BlobStorageError) {
      try awaitCommits()
      let confirmed = try confirm(candidates)
      addObstacles(rows)
      if report.obstacles.isEmpty { try remove(confirmed) }
    } catch {
      pardon()
      throw error
    }
    pardon()
    try engine.packs.forget { (name) throws(BlobStorageError) in try engine.catalog.packRow(name) == nil }
  }

  /// Marks again, now that no writer relies on the candidates. Leaves out those that leases protect, and those with a
  /// live record whose copy in another pack is damaged.
  func confirm(_ candidates: [Candidate]) throws(BlobStorageError) -> [Candidate] {
    let before = try markLeases()
    try markAgain(candidates)
    let after = try markLeases()
    var confirmed: [Candidate] = []
    for candidate in candidates
    where !isProtected(candidate.row, before) && !isProtected(candidate.row, after) {
      let content = try packContent(candidate.number, candidate.row, checksCopies: true)
      if let damage = content.damagedCopy {
        damagedCopies.append(.unreadable(damage))
        continue
      }
      confirmed.append(Candidate(number: candidate.number, row: candidate.row, content: content))
    }
    return confirmed
  }

  private func remove(_ candidates: [Candidate]) throws(BlobStorageError) {
    var doneCount = 0
    func step(_ phase: String) throws(BlobStorageError) {
      try CancellationFlag.check()
      progress(WorkProgress(phase: phase, doneCount: doneCount, totalCount: candidates.count))
    }
    // Packs that need no space to copy go first, so that a full disk has room for the rest.
    let dead = candidates.filter { $0.content.keptCount == 0 }
    for part in dead.parts(of: Self.deadPackCountOfBatch) {
      try step("deleting")
      try removeFiles(part)
      doneCount += part.count
    }
    var batch: [Candidate] = []
    var batchSize = (recordCount: 0, byteCount: Int64(0))
    func compactBatch() throws(BlobStorageError) {
      try compact(batch)
      (batch, batchSize) = ([], (0, 0))
    }
    // Candidates without room to copy them until others have gone.
    var delayed: [Candidate] = []
    for candidate in candidates where candidate.content.keptCount > 0 {
      try step("compacting")
      let kept = candidate.content
      func hasRoom() throws(BlobStorageError) -> Bool {
        try Self.need(batchSize.recordCount + kept.keptCount, batchSize.byteCount + kept.keptByteCount)
          <= availableByteCount()
      }
      if !batch.isEmpty, try !hasRoom() { try compactBatch() }
      guard try hasRoom() else {
        delayed.append(candidate)
        continue
      }
      batch.append(candidate)
      batchSize.recordCount += kept.keptCount
      batchSize.byteCount += kept.keptByteCount
      doneCount += 1
      if batchSize.byteCount >= options.batchByteCountMax { try compactBatch() }
    }
    if !batch.isEmpty { try compactBatch() }
    let ordered = delayed.map { (need: Self.need($0.content.keptCount, $0.content.keptByteCount), $0) }
      .sorted { $0.need < $1.need }.map(\.1)
    for (index, candidate) in ordered.enumerated() {
      try step("compacting")
      try makeRoom(toCopy: ordered[index...])
      try compact([candidate])
      doneCount += 1
    }
  }

  /// Bytes that must be free on the disk to copy so many records and remove the old packs.
  ///
  /// - Parameter pagesByteCountMax: the most that the catalog needs.
  private static func need(
    _ recordCount: Int, _ byteCount: Int64, pagesByteCountMax: Int64 = StoreFolder.reserveByteCount
  ) -> Int64 {
    // A footer of tiny records is up to an eighth as long. A record changes up to three pages of the catalog.
    byteCount / 4 * 5 + min(pagesByteCountMax, 64 << 10 + Int64(recordCount) * (12 << 10))
  }

  private func availableByteCount() throws(BlobStorageError) -> Int64 {
    try engine.folder.files.availableByteCount(at: engine.folder.packs)
  }

  /// Releases the reserve if the first candidate cannot be copied without it, but certainly can with it.
  ///
  /// - Parameter candidates: the one that needs the least room first.
  /// - Throws: `noSpace` if the first cannot be copied with the reserve either; the reserve stays.
  private func makeRoom(toCopy candidates: ArraySlice<Candidate>) throws(BlobStorageError) {
    let kept = candidates.lazy.map(\.content)
    guard let first = kept.first else { return }
    let available = try availableByteCount()
    let need = Self.need(first.keptCount, first.keptByteCount)
    if need <= available { return }
    // A copy that does not fit would use the reserve up, and leave none to the next collection.
    let needAtMost = Self.need(first.keptCount, first.keptByteCount, pagesByteCountMax: .max)
    if try needAtMost <= available + engine.folder.reservedByteCount() {
      return try engine.folder.releaseReserve()
    }
    let freed = kept.reduce(0) { $0 + $1.recordsByteCount - $1.keptByteCount }
    let packs = candidates.count == 1 ? "a pack" : "\(candidates.count) packs"
    // The next collection also writes a little before it comes here.
    let missing = need - available + 64 << 10
    throw BlobStorageError(
      .noSpace,
      "The disk is too full to copy the live records of \(packs), which would free \(freed) bytes: "
        + "make room for \(missing) bytes more and collect again.")
  }

  /// Copies what is live in the packs into a new one. Removes them once that is on the medium.
  private func compact(_ batch: [Candidate]) throws(BlobStorageError) {
    // The new pack is dated later than these, so that a rebuild prefers the copies even if a clock was wrong (V5).
    let session = engine.newSession(laterThan: batch.lazy.map(\.row.created).max())
    var copied: [Candidate] = []
    for candidate in batch {
      // A damaged record keeps its whole pack; what was copied of it is garbage in the new one.
      if let copy = try unlessObstacle(try copy(candidate, to: session)) { copied.append(copy) }
    }
    if engine.weaknesses.contains(.retiresBeforeSync) {
      _ = try session.commit(on: []) { _ in }
    } else {
      try session.rollOver()
    }
    try removeFiles(copied)
  }

  private func removeFiles(_ candidates: some Sequence<Candidate>) throws(BlobStorageError) {
    try checkSyncs()
    var retired: [Candidate] = []
    for candidate in candidates {
      let isRetired = try unlessObstacle(
        try engine.folder.withReserve { () throws(BlobStorageError) in try retire(candidate) })
      if isRetired ?? false { retired.append(candidate) }
    }
    try synchronizeOpenPacks()
    guard !retired.isEmpty else { return }
    try rename(retired.map(\.row.name))
    account(retired)
  }

  /// Renames retired packs out of the store, inside a transaction. A catalog that was rebuilt between check and rename
  /// would not have them as retired, and other processes could rely on them (H5).
  func rename(_ names: [PackName]) throws(BlobStorageError) {
    let renamed = try engine.folder.withReserve { () throws(BlobStorageError) in
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        var retired: [PackName] = []
        for name in names {
          let state = try transaction.pack(name)?.row.state
          guard state == .retired || engine.weaknesses.contains(.ignoresRebuilds) else { continue }
          retired.append(name)
        }
        try engine.backend.retirePacks(retired)
        return retired
      }
    }
    for name in renamed { try forget(name) }
  }

  /// Removes the records of a pack whose file has been renamed out of the store from the catalog, and then the file.
  ///
  /// On a full disk the records go a few at a time, in the room of the reserve. Without any room, the file goes first:
  /// it is not part of the store any more.
  private func forget(_ name: PackName) throws(BlobStorageError) {
    func remove() throws(BlobStorageError) {
      try engine.backend.removeRetiredPack(name)
      // As long as this process has the file open, its space stays taken.
      engine.packs.forget([name])
    }
    guard try engine.catalog.packRow(name) != nil, let file = try engine.backend.openPack(name) else {
      return try remove()
    }
    defer { file.close() }
    var retraction = PackRetraction(name, catalog: engine.catalog, packs: engine.packs)
    do throws(BlobStorageError) {
      try engine.folder.withReserve { () throws(BlobStorageError) in try retraction.run(file) }
    } catch {
      if error.isUnreadable {
        // Which records it has is not known any more: the catalog is made anew without it.
        file.close()
        try remove()
        return try engine.catalog.rebuild(because: nil)
      }
      guard error.code == .noSpace else { throw error }
      return try retraction.run(file) { () throws(BlobStorageError) in
        file.close()
        try remove()
      }
    }
    try remove()
  }

  /// Retires a pack in the catalog, unless something live still points into it.
  private func retire(_ candidate: Candidate) throws(BlobStorageError) -> Bool {
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      try checkGeneration()
      guard var row = try transaction.packRow(candidate.number), row.state == .condemned else { return false }
      if try isNeeded(candidate, transaction) { return false }
      try addGarbage(candidate, transaction)
      row.state = .retired
      try transaction.setPackRow(candidate.number, row)
      try transaction.bumpEpoch()
      return true
    }
  }

  /// Condemns the candidates. From then on no read points the catalog at a record of theirs.
  ///
  /// - Returns: whether a read has done so since marking began.
  private func condemn(_ candidates: [Candidate]) throws(BlobStorageError) -> Bool {
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      try checkGeneration()
      for candidate in candidates {
        try transaction.updatePack(candidate.number) { $0.state = .condemned }
      }
      try transaction.bumpEpoch()
      return try transaction.meta(.movedRows) != movedRowCount
    }
  }

  /// Checks that the marks and the candidates still name places of the catalog in use. During a write transaction, no
  /// process rebuilds the catalog (H5).
  ///
  /// - Throws: `busy` if the catalog was rebuilt.
  func checkGeneration() throws(BlobStorageError) {
    if engine.weaknesses.contains(.ignoresRebuilds) { return }
    guard engine.catalog.generation == generation else {
      throw BlobStorageError(
        .busy, "The catalog was rebuilt while garbage was being collected: collect again.")
    }
  }

  // MARK: What is marked and checked on the way

  /// Marks what is live in the packs that may go. Returns all packs.
  func markScope() throws(BlobStorageError) -> [(number: UInt32, row: PackRow)] {
    guard let scope else {
      try mark()
      // Listed first: what rebasing adds is live, and in packs of its own.
      let rows = try engine.catalog.packRows()
      try removal.rebase(self)
      return rows
    }
    let rows = try engine.catalog.packRows()
    _ = try marker.markLive(in: rows.filter { scope.contains($0.number) }.map(\.row.name))
    return rows
  }

  /// Marks what versions and new chunks need, now that packs are condemned.
  func markAgain(_ candidates: [Candidate]) throws(BlobStorageError) {
    if scope != nil, try marker.markLive(in: candidates.map(\.row.name)) { return }
    try marker.markVersions(countsRefs: false)
    try markNewBases()
  }

  /// Counts copies of blobs that were dropped meanwhile as garbage of the new pack. The catalog counted them for the
  /// old pack.
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

  /// Whether something live points into a pack.
  func isNeeded(_ candidate: Candidate, _ transaction: ReadTransaction) throws(BlobStorageError) -> Bool {
    var isNeeded = false
    try forEachRecord(of: candidate) { (record, place) throws(BlobStorageError) in
      if isNeeded { return }
      if case .ref(let ref) = record.content {
        isNeeded = try transaction.needs(ref, at: place)
      } else if let found = try transaction.place(of: record.content), found.pack == place.pack,
        // The offset alone identifies the record, whatever ordinal the catalog has.
        found.offset == place.offset
      {
        isNeeded = marker.marks.contains(found)
      }
    }
    return isNeeded
  }

  /// Reads the records of a pack once more. Keeping those of all candidates would take too much memory.
  private func forEachRecord(
    of candidate: Candidate, _ body: (PackRecord, Place) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var ordinal = 0
    let outcome = try engine.packs.scan(candidate.row.name) { (record) throws(BlobStorageError) in
      try body(record, Place(pack: candidate.number, offset: record.offset, ordinal: ordinal))
      ordinal += 1
    }
    try PackContent.checkWhole(outcome, candidate.row)
  }

  /// Marks the bases of all chunks in packs that were not sealed when marking began.
  ///
  /// A put may find a base before its pack is condemned, commit after that, and release its lease before gc reads it.
  /// The row of its chunk can then replace one without a base. The manifest that names the chunk was marked before, so
  /// it is not walked again.
  func markNewBases() throws(BlobStorageError) {
    if engine.weaknesses.contains(.forgetsNewBases) { return }
    for (number, row) in try engine.catalog.packRows() where !sealed.contains(number) {
      var bases: Set<BlobDigest> = []
      let outcome = try engine.packs.scan(row.name) { record in
        if case .chunk(let chunk) = record.content, let base = chunk.base { bases.insert(base) }
      }
      if let error = outcome?.unreadable { throw error }
      try marker.markChunks(Array(bases))
    }
  }

  // MARK: Where a pack goes only after its copies are published

  /// Whether something live is missing.
  package var lacksSomething: Bool { !marker.missing.isEmpty }

  /// Marks what is live again, according to the current catalog.
  package func markAnew() throws(BlobStorageError) {
    if engine.weaknesses.contains(.removesByOldListing) { return }
    repeat {
      marker = Marker(engine.blobs, engine.folder)
      try beginMarking()
      try mark()
      if marker.missing.isEmpty { break }
      // Another pack may have a copy of what is missing.
    } while try engine.sharing.completeCatalog()
  }

  /// Returns the condemned packs with what is live in them. Reports what keeps a pack from being emptied.
  package func condemned(
    _ rows: [(number: UInt32, row: PackRow)]
  ) throws(BlobStorageError) -> [Candidate] {
    var all: [Candidate] = []
    for (number, row) in rows {
      try CancellationFlag.check()
      let content = try unlessObstacle(try packContent(number, row, checksCopies: true))
      guard let content else { continue }
      if content.damagedCopy == nil {
        all.append(Candidate(number: number, row: row, content: content))
      } else {
        report.obstacles.append(
          GarbageObstacle(
            .damagedPack, "Another copy of a record in pack \(row.name) is damaged: run repair.",
            pack: row.name.description))
      }
    }
    return all
  }

  /// Copies what is live in the packs, makes the copies durable, and returns the packs that nothing needs any more.
  package func evacuate(_ candidates: inout [Candidate]) throws(BlobStorageError) -> [Candidate] {
    let session = engine.writer
    let names = candidates.map(\.row.name)
    // From now on a copy counts rather than the record that it was copied from.
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      try checkGeneration()
      // The candidates were examined for where records were before a read of this collection found damage.
      guard try transaction.meta(.movedRows) == movedRowCount else {
        throw BlobStorageError(.busy, "Damage was found while garbage was being collected: collect again.")
      }
      try CatalogBuilder.condemn(names, in: transaction)
    }
    let kept = candidates.indices.filter { candidates[$0].content.keptCount > 0 }
    for (doneCount, index) in kept.enumerated() {
      try CancellationFlag.check()
      progress(WorkProgress(phase: "compacting", doneCount: doneCount, totalCount: kept.count))
      if let copy = try unlessObstacle(try copy(candidates[index], to: session)) { candidates[index] = copy }
    }
    // Makes all copies durable, or throws.
    try session.rollOver()
    var gone: [Candidate] = []
    for candidate in candidates where try isEmpty(candidate) { gone.append(candidate) }
    return gone
  }

  /// Whether nothing live points into a pack any more.
  private func isEmpty(_ candidate: Candidate) throws(BlobStorageError) -> Bool {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try checkGeneration()
      return try !isNeeded(candidate, transaction)
    }
  }

  // MARK: Recovery

  /// Finishes what a killed collection has begun.
  func finishLast() throws(BlobStorageError) {
    // Before the listing: only files that have been renamed can be removed below.
    try engine.backend.finishLeaving()
    // The pack's writer may have ended since.
    if try unsyncedPack() != nil { try engine.recoverDeadWriters() }
    let names = try engine.backend.packNames()
    for name in names.retired { try forget(name) }
    pardon()
    let live = Set(names.live)
    var lacksFile = false
    for (_, row) in try engine.catalog.packRows() where row.state == .retired {
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
      try engine.folder.withReserve { () throws(BlobStorageError) in try engine.recoverDeadWriters() }
      recovered.insert(dead)
    }
  }

  /// Forgets retired packs whose files went before their records: see ``PackRetraction``.
  private func forgetRetired() throws(BlobStorageError) {
    do throws(BlobStorageError) {
      try engine.catalog.rebuild(because: nil)
    } catch {
      // Without room for that they do no harm: some garbage is kept for longer.
      guard error.code == .noSpace else { throw error }
    }
  }

  /// Pardons the condemned packs that stay.
  func pardon() {
    do throws(BlobStorageError) {
      for (number, row) in try engine.catalog.packRows() where row.state == .condemned {
        try pardon(number, row.name)
      }
    } catch {
      // Condemned packs are read and not shared: the next collection pardons or removes them.
      engine.logger.warning(
        "Condemned packs could not be pardoned.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Records that one transaction points to a pardoned pack. A hostile pack can have millions.
  private static let replacedCountMax = 1 << 15

  /// Pardons a pack. Records that were stored again meanwhile have their rows elsewhere. Each row goes to the copy that
  /// a rebuild would choose (V5).
  private func pardon(_ number: UInt32, _ name: PackName) throws(BlobStorageError) {
    var seen = PlaceSet()
    var state = PackRow.State.condemned
    while true {
      let replaced = try replacedRecords(number, name, &seen)
      // More may have been stored again before the pack was pardoned.
      if state == .live, replaced.isEmpty { return }
      let isThere = try engine.catalog.write { (transaction) throws(BlobStorageError) in
        // A catalog that was rebuilt meanwhile has no condemned packs.
        guard let (number, row) = try transaction.pack(name), row.state == state else { return false }
        var pardoned = row
        pardoned.state = .live
        try transaction.setPackRow(number, pardoned)
        for (record, ordinal) in replaced {
          let place = Place(pack: number, offset: record.offset, ordinal: ordinal)
          try transaction.applyAgain(record, at: place, in: pardoned)
        }
        return true
      }
      guard isThere else { return }
      state = .live
    }
  }

  /// The first chunks and manifests of a pack whose rows point elsewhere, with their ordinals. They go into one
  /// transaction.
  ///
  /// - Parameter seen: the places of those that were returned before.
  private func replacedRecords(
    _ number: UInt32, _ name: PackName, _ seen: inout PlaceSet
  ) throws(BlobStorageError) -> [(record: PackRecord, ordinal: Int)] {
    guard let file = try engine.backend.openPack(name) else { return [] }
    defer { file.close() }
    var replaced: [(record: PackRecord, ordinal: Int)] = []
    var group: [(record: PackRecord, ordinal: Int)] = []
    var ordinal = 0
    func select() throws(BlobStorageError) {
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        for (record, ordinal) in group {
          guard replaced.count < Self.replacedCountMax, let place = try transaction.place(of: record.content),
            place.pack != number,
            seen.insert(Place(pack: number, offset: record.offset, ordinal: ordinal))
          else { continue }
          replaced.append((record, ordinal))
        }
      }
      group = []
    }
    do throws(BlobStorageError) {
      _ = try engine.packs.scanner(name, file).scan {
        (record) throws(BlobStorageError) in
        group.append((record, ordinal))
        ordinal += 1
        if group.count == 4_096 { try select() }
      }
      try select()
    } catch {
      // Unreadable records do not count.
      guard error.code == .corrupted else { throw error }
    }
    return replaced
  }

  /// Syncs open packs. Rows may point into them, and unsynced copies must not be the only ones (H1, H7).
  func synchronizeOpenPacks() throws(BlobStorageError) {
    if engine.weaknesses.contains(.retiresBeforeSync) { return }
    try checkSyncs()
    try engine.writer.synchronizeOpenPacks(exceptFailed: [])
    try checkSyncs()
  }

  /// - Throws: `busy` if the sync of an open pack has failed.
  func checkSyncs() throws(BlobStorageError) {
    guard let name = try unsyncedPack() else { return }
    throw BlobStorageError(
      .busy, "A sync of pack \(name) has failed: close the store wherever it is open, and collect again.",
      pack: name.description)
  }

  /// An open pack whose sync has failed. What the catalog relies on may not be on the medium, and no later sync reports
  /// that. The pack's writer must end, so that the next opening writes the pack again.
  private func unsyncedPack() throws(BlobStorageError) -> PackName? {
    try engine.catalog.packRows().first { $0.row.isPoisoned && !$0.row.isSealed && $0.row.state == .live }?
      .row.name
  }

  /// Reports losses. Returns whether there are any: then nothing may be removed, because the rest may be the only
  /// evidence.
  func addLosses() throws(BlobStorageError) -> Bool {
    if engine.weaknesses.contains(.collectsDespiteObstacles) { return false }
    let losses = try engine.losses()
    for name in losses.lostPacks {
      report.obstacles.append(.missing(name))
    }
    for name in losses.damagedPacks {
      report.obstacles.append(.damaged(name))
    }
    return !losses.isEmpty
  }

  func shortenCensus() {
    if scope == nil, !options.isDryRun { engine.shortenCensus() }
  }
}
