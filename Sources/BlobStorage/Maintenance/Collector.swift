import Foundation
import Logging

/// Collects garbage: plans, condemns, marks again, copies live records, and removes packs.
///
/// Invariants, in the order of the steps; nothing rests on elapsed time:
/// 1. One collector at a time (a lock that dies with its process).
/// 2. Only packs that were sealed before marking began can go: a chunk's row may move to any other pack meanwhile, and
///    marks name places. First the catalog *condemns* the packs to go. From then on no writer relies on their records.
/// 3. Then it waits for commits that began before, reads leases, marks versions again, and reads leases again. One of
///    these sees every commit, version or lease that relied on a condemned pack. Later commits see the pack condemned.
/// 4. It copies live records into new packs and syncs those packs and their names before anything goes.
/// 5. It retires a pack in the catalog only after checking again that no live row points into it. Then it syncs every
///    open pack, because rows may point there instead. Then it renames the file, durably. Only then it takes the
///    records out of the catalog and removes the file.
/// 6. A record that hides versions goes only when no other pack has a copy of their refs.
///
/// Killed at any point, the store is valid, and the next collection goes on.
package final class Collector {
  /// One pack that is to go.
  package struct Candidate {
    var number: UInt32
    package var row: PackRow
    var content: PackContent
  }

  /// Packs smaller than this are merged when there are many of them.
  private static let smallPackByteCount: Int64 = 4 << 20
  private static let smallPackCountMax = 32
  /// Packs that go together: they share their syncs.
  private static let deadPackCountOfBatch = 64

  package let engine: Engine
  package let options: CollectionOptions
  private let removal: any PackRemoval
  package let progress: ProgressHandler
  var marker: Marker
  /// Marks and candidates go by the numbers of this generation of the catalog.
  private var generation: String?
  /// Packs that were sealed when marking began.
  private(set) var sealed: Set<UInt32> = []
  package var report = CollectionReport()
  /// For the small chunks of packs that are copied from.
  var dictionary: DictionaryPlan?
  var isDictionaryStored = false
  /// What dictionaries saved in packs that have been copied from and are not gone yet.
  var gains: [PackName: Compaction.Gain] = [:]
  /// By how much packs become smaller or larger without garbage going.
  var gainedByteCount: Int64 = 0
  /// The packs to take away, and no others; nil to look at all and to take what is worthwhile.
  let scope: Set<UInt32>?
  /// Why packs stay whose chunks have another copy, which turned out to be damaged.
  private var damagedCopies: [String] = []

  package init(
    _ engine: Engine, _ options: CollectionOptions, _ progress: ProgressHandler?, scope: Set<UInt32>? = nil,
    removal: any PackRemoval = LocalRemoval()
  ) throws(BlobStorageError) {
    guard 0...1 ~= options.garbageShareMin else {
      throw BlobStorageError(.invalidArgument, "The share of garbage must be from 0 to 1.")
    }
    guard options.archivedCountMax ?? 0 >= 0 else {
      throw BlobStorageError(.invalidArgument, "The number of archived versions to keep must be 0 or more.")
    }
    try engine.checkOpen()
    if scope != nil {
      try engine.requireOwnPacks(
        "Making room is not possible yet for a store of objects (\(engine.information.path)).")
    }
    self.removal = removal
    self.engine = engine
    self.options = options
    self.progress = progress ?? { _ in }
    self.scope = scope
    marker = Marker(engine)
    report.isDryRun = options.isDryRun
  }

  package func run() throws(BlobStorageError) -> CollectionReport {
    let start = Date()
    let lock = try CollectionLock(engine, waitSeconds: options.waitSeconds)
    defer { withExtendedLifetime(lock) {} }
    if try addLosses() {
      report.seconds = Date().timeIntervalSince(start)
      return report
    }
    try engine.catalog.clearDeadReaders()
    if scope != nil {
      try withReserve { () throws(BlobStorageError) in try removal.finishLast(self) }
    } else if !options.isDryRun {
      try withReserve { () throws(BlobStorageError) in
        try removal.finishLast(self)
        try engine.recoverDeadWriters()
        if let count = options.archivedCountMax {
          // A refused caller has dropped nothing.
          if !engine.backend.publishes { try checkSyncs() }
          _ = try engine.keep(upTo: count, prefix: "", .durable)
        }
        try engine.writer.rollOver()
      }
    }
    try beginMarking()
    let rows = try markScope()
    let garbageByteCount = rows.reduce(0) {
      $0 + $1.row.recordsByteCount - marker.marks.liveByteCount($1.number)
    }
    addObstacles(rows)
    var candidates = try planned(rows.filter { sealed.contains($0.number) })
    if !engine.backend.publishes, !options.isDryRun { try checkSyncs() }
    // What hides other records may not be on the medium: first it is copied to where it is.
    if candidates.contains(where: \.row.isPoisoned) { candidates.removeAll { !$0.row.isPoisoned } }
    if options.isDryRun {
      try tryDictionary(candidates)
      account(candidates)
    } else if report.obstacles.isEmpty {
      try removal.remove(candidates, rows, self)
    }
    if scope == nil, options.keepsReserve { keepReserve() }
    shortenCensus()
    report.freedByteCount += gainedByteCount
    report.garbageByteCount = max(0, garbageByteCount + gainedByteCount - report.freedByteCount)
    report.seconds = Date().timeIntervalSince(start)
    return report
  }

  /// Condemns the candidates, and removes those of them that nothing needs once the commits under way have ended.
  func removeCondemned(
    _ candidates: [Candidate], _ rows: [(number: UInt32, row: PackRow)]
  ) throws(BlobStorageError) {
    guard !candidates.isEmpty else { return }
    try withReserve { () throws(BlobStorageError) in try setState(.condemned, candidates) }
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
    try engine.packs.forget { (name) throws(BlobStorageError) in
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.packNumber(name) == nil
      }
    }
  }

  // MARK: Planning

  func beginMarking() throws(BlobStorageError) {
    generation = engine.catalog.generation
    // What is sealed later may get rows of chunks that were marked elsewhere before: those packs are not looked at.
    sealed = Set(try packRows().lazy.filter(\.row.isSealed).map(\.number))
  }

  func mark() throws(BlobStorageError) {
    let progress = progress
    let archivedCountMax = options.isDryRun ? options.archivedCountMax : nil
    let total = try engine.keyCountMax()
    try marker.markVersions(archivedCountMax: archivedCountMax) {
      progress(WorkProgress(phase: "marking", doneCount: $0, totalCount: max($0, total)))
    }
    _ = try markLeases()
  }

  /// Marks what all leases hold. Returns which packs of living writers have chunks of unfinished puts.
  private func markLeases() throws(BlobStorageError) -> Leases {
    if engine.weaknesses.contains(.ignoresLeases) { return Leases() }
    let leases = try Leases.read(
      folder: engine.folder.leases, files: engine.folder.files, algorithm: engine.header.digestAlgorithm)
    var chunks: [Digest] = []
    var blobs: [Digest] = []
    for held in leases.held {
      switch held {
      case .chunk(let digest): chunks.append(digest)
      case .blob(let digest): blobs.append(digest)
      }
    }
    try marker.markHeld(blobs: blobs, chunks: chunks)
    return leases
  }

  /// Lets bases go that cost more than they save, by storing what depends on them again.
  func rebase() throws(BlobStorageError) {
    // One machine alone does not see what others are about to encode against a base.
    if engine.backend.publishes { return }
    guard marker.unreadable.isEmpty else { return }
    progress(WorkProgress(phase: "rebasing"))
    var rebasing = Rebasing(engine, isDryRun: options.isDryRun)
    var marks = marker.marks
    do throws(BlobStorageError) { try rebasing.run(&marks) } catch {
      // It only saves space later: packs that need no room can still go.
      guard error.code == .noSpace else { throw error }
      engine.logger.warning("There is no room to store chunks without their bases.")
      return
    }
    marker.marks = marks
    report.reencodedChunkCount = rebasing.reencodedChunkCount
    gainedByteCount -= rebasing.addedByteCount
  }

  package func packRows() throws(BlobStorageError) -> [(number: UInt32, row: PackRow)] {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in try transaction.packRows() }
  }

  /// What cannot be read might need anything: then nothing is removed (H11).
  package func addObstacles(_ rows: [(number: UInt32, row: PackRow)]) {
    if engine.weaknesses.contains(.collectsDespiteObstacles) { return }
    report.obstacles = marker.unreadable.map(\.message) + damagedCopies
    removal.addObstacles(rows, self)
    for (_, row) in rows where row.isDamaged {
      report.obstacles.append("Pack \(row.name) is damaged: run repair.")
    }
  }

  /// A chunk that is needed and missing may need anything that is condemned.
  package func addAbsent() {
    for digest in marker.missing.sorted().prefix(10) {
      report.obstacles.append("Chunk or manifest \(digest) is needed and not there: run verify.")
    }
  }

  func addDamaged() {
    for digest in marker.damaged.sorted().prefix(10) {
      report.obstacles.append("Chunk or manifest \(digest) is needed and damaged: run verify.")
    }
  }

  func plan(_ rows: [(number: UInt32, row: PackRow)]) throws(BlobStorageError) -> [Candidate] {
    let leases = try markLeases()
    let open = rows.filter {
      $0.row.isSealed && !$0.row.isDamaged && $0.row.state == .live && !isProtected($0.row, leases)
    }
    let condemned = removal.condemned
    let small = open.filter { $0.row.recordsByteCount < Self.smallPackByteCount }
    let merges = small.count > Self.smallPackCountMax
    var candidates: [Candidate] = []
    // Oldest first: by the time a record that hides versions is looked at, their refs are gone.
    for (number, row) in open.sorted(by: { $1.row.isYounger(than: $0.row) }) {
      try CancellationFlag.check()
      if let scope, !scope.contains(number) { continue }
      let gain = dictionary?.savedByteCount(number) ?? 0
      let live = marker.marks.liveByteCount(number) - gain
      let isSmall =
        scope != nil || condemned.contains(row.name)
        || (merges && row.recordsByteCount < Self.smallPackByteCount)
      // What was not synced for sure is stored again.
      guard
        isSmall || row.isPoisoned
          || Self.isWorthwhile(row.recordsByteCount, kept: live, options.garbageShareMin)
      else {
        continue
      }
      let content: PackContent
      do throws(BlobStorageError) {
        content = try PackContent(
          engine, number: number, row: row, marks: marker.marks, small: dictionary?.chunks)
      } catch {
        guard error.code == .corrupted else { throw error }
        report.obstacles.append(error.message)
        continue
      }
      guard
        isSmall || row.isPoisoned
          || Self.isWorthwhile(
            content.recordsByteCount, kept: content.keptByteCount - gain, options.garbageShareMin)
      else { continue }
      candidates.append(Candidate(number: number, row: row, content: content))
    }
    return candidates
  }

  private static func isWorthwhile(_ total: Int64, kept: Int64, _ shareMin: Double) -> Bool {
    if kept == 0 { return true }
    let garbage = total - kept
    return garbage > 0 && Double(garbage) >= Double(total) * shareMin
  }

  private func isProtected(_ row: PackRow, _ leases: Leases) -> Bool {
    guard let first = leases.firstPacks[row.name.writer] else { return false }
    return row.name.sequence >= first
  }

  // MARK: Executing

  /// Marks again now that no writer relies on the candidates any more, and leaves out those that are protected.
  func confirm(_ candidates: [Candidate]) throws(BlobStorageError) -> [Candidate] {
    let before = try markLeases()
    try markAgain(candidates)
    let after = try markLeases()
    try dictionary?.confirm(
      engine, marker.marks, in: Set(candidates.map(\.number)), leased: before.held.union(after.held))
    var confirmed: [Candidate] = []
    for candidate in candidates
    where !isProtected(candidate.row, before) && !isProtected(candidate.row, after) {
      let content = try PackContent(
        engine, number: candidate.number, row: candidate.row, marks: marker.marks, small: dictionary?.chunks,
        checksCopies: true)
      if let damage = content.damagedCopy {
        damagedCopies.append(damage.message)
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
    // What needs no space goes first, so that a full disk has room for the rest.
    let dead = candidates.filter { $0.content.keptCount == 0 }
    for start in stride(from: 0, to: dead.count, by: Self.deadPackCountOfBatch) {
      try step("deleting")
      let part = Array(dead[start..<min(start + Self.deadPackCountOfBatch, dead.count)])
      try removeFiles(part)
      doneCount += part.count
    }
    var batch: [Candidate] = []
    var batchByteCount: Int64 = 0
    func compactBatch() throws(BlobStorageError) {
      try compact(batch)
      (batch, batchByteCount) = ([], 0)
    }
    // Those that there was no room to copy, until others have gone.
    var delayed: [Candidate] = []
    for candidate in candidates where candidate.content.keptCount > 0 {
      try step("compacting")
      let byteCount = candidate.content.keptByteCount
      if !batch.isEmpty, try !hasRoom(batchByteCount + byteCount) { try compactBatch() }
      guard try hasRoom(byteCount) else {
        delayed.append(candidate)
        continue
      }
      batch.append(candidate)
      batchByteCount += byteCount
      doneCount += 1
      if batchByteCount >= options.batchByteCountMax { try compactBatch() }
    }
    if !batch.isEmpty { try compactBatch() }
    delayed.sort { $0.content.keptByteCount < $1.content.keptByteCount }
    for (index, candidate) in delayed.enumerated() {
      try step("compacting")
      guard try hasRoom(candidate.content.keptByteCount) else {
        throw Self.noRoom(toCopy: delayed[index...])
      }
      try compact([candidate])
      doneCount += 1
    }
  }

  /// Whether copies of that many bytes fit on the disk before the old packs go.
  private func hasRoom(_ byteCount: Int64) throws(BlobStorageError) -> Bool {
    // A footer of tiny records is up to an eighth as long, and the catalog changes.
    try engine.folder.files.availableByteCount(at: engine.folder.packs) / 5 * 4 >= byteCount
      + StoreFolder.reserveByteCount
  }

  private static func noRoom(toCopy candidates: ArraySlice<Candidate>) -> BlobStorageError {
    let kept = candidates.lazy.map(\.content.keptByteCount)
    let freed = candidates.reduce(0) { $0 + $1.content.recordsByteCount } - kept.reduce(0, +)
    return BlobStorageError(
      .noSpace,
      "There is no space to copy what is live in \(candidates.count) packs, which would free \(freed) bytes: "
        + "make room for \(kept.min() ?? 0) bytes and collect again.")
  }

  /// Copies what is live in the packs into a new one, and takes them away once that is on the medium.
  private func compact(_ batch: [Candidate]) throws(BlobStorageError) {
    let session = engine.newSession()
    var copied: [Candidate] = []
    if batch.contains(where: \.content.hasSmall) { try storeDictionary(in: session) }
    for candidate in batch {
      do throws(BlobStorageError) {
        copied.append(try copy(candidate, to: session))
      } catch {
        // A damaged record keeps its whole pack; what was copied of it is garbage in the new one.
        guard error.code == .corrupted else { throw error }
        report.obstacles.append(error.message)
      }
    }
    if engine.weaknesses.contains(.retiresBeforeSync) {
      _ = try session.commit(on: []) { _ in }
    } else {
      try session.rollOver()
    }
    try removeFiles(copied)
  }

  private func removeFiles(_ candidates: [Candidate]) throws(BlobStorageError) {
    try checkSyncs()
    var retired: [Candidate] = []
    for candidate in candidates {
      do throws(BlobStorageError) {
        let isRetired = try engine.folder.withReserve { () throws(BlobStorageError) in try retire(candidate) }
        if isRetired { retired.append(candidate) }
      } catch {
        guard error.code == .corrupted else { throw error }
        report.obstacles.append(error.message)
      }
    }
    try synchronizeOpenPacks()
    guard !retired.isEmpty else { return }
    try rename(retired.map(\.row.name))
    account(retired)
  }

  /// Renames retired packs out of the store, inside a transaction. A catalog that is rebuilt between check and rename
  /// does not know them as retired, and others may rely on them (H5).
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
    for name in renamed { try Retirement.finish(name, engine: engine) }
  }

  /// Retires a pack in the catalog, unless something that is live still points into it.
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

  private func setState(_ state: PackRow.State, _ candidates: [Candidate]) throws(BlobStorageError) {
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      try checkGeneration()
      for candidate in candidates {
        try transaction.updatePack(candidate.number) { $0.state = state }
      }
      try transaction.bumpEpoch()
    }
  }

  /// Called inside a write transaction, during which no process rebuilds the catalog (H5).
  func checkGeneration() throws(BlobStorageError) {
    if engine.weaknesses.contains(.ignoresRebuilds) { return }
    guard engine.catalog.generation == generation else {
      throw BlobStorageError(
        .busy, "The catalog was rebuilt while garbage was being collected: collect again.")
    }
  }
}
