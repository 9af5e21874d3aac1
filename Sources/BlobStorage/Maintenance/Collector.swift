import Foundation
import Logging
import SystemPackage

/// Collects garbage: plans, condemns, marks again, copies live records, and removes packs.
///
/// Invariants, in the order of the steps; nothing rests on elapsed time:
/// 1. One collector runs at a time. Its lock ends with its process.
/// 2. Only packs that were sealed before marking began can go: a commit may move a chunk's row to any other pack
///    meanwhile, and marks name places. First the catalog *condemns* the packs to go. No later commit relies on
///    their records, and no read moves a row into them. If a read has moved a row before, marking begins anew.
/// 3. It waits until the commits in progress have ended, reads the leases, marks again, and reads the leases again. One
///    of these sees every commit, version or lease that relied on a condemned pack. Later commits see the pack
///    condemned.
/// 4. It copies the live records of a pack into a new one, and syncs that pack and its name before the old one goes.
/// 5. It retires a pack in the catalog only after checking again that no live row points into it. Then it syncs every
///    open pack, because rows may point there instead. Then it renames the file, durably. Only then it takes the
///    records out of the catalog and removes the file.
/// 6. A tombstone goes only when no other pack has a copy of a ref that it hides.
///
/// If the collector is killed at any point, the store is valid, and the next collection continues.
package final class Collector {
  /// A pack that is to be removed.
  package struct Candidate {
    var number: UInt32
    package var row: PackRow
    var content: PackContent
  }

  /// Packs smaller than this are merged when there are many of them.
  private static let smallPackByteCount: Int64 = 4 << 20
  private static let smallPackCountMax = 32

  package let engine: Engine
  package let options: GarbageCollectionOptions
  let removal: any PackRemoval
  package let progress: ProgressHandler
  var marker: Marker
  /// The generation of the catalog whose pack numbers the marks and the candidates use.
  private(set) var generation: String?
  /// Packs that were sealed when marking began.
  private(set) var sealed: Set<UInt32> = []
  /// How many rows reads had moved when marking began: ``ReadTransaction/Meta/movedRows``.
  private(set) var movedRowCount: UInt64 = 0
  package var report = GarbageCollectionReport()
  /// Bytes that recompression saved in packs that were copied from and are not removed yet.
  var savedByteCounts: [PackName: Int64] = [:]
  /// Recompresses the chunks that are copied.
  var reencoder: Reencoder?
  /// Bytes of garbage that were removed with their packs.
  private var collectedByteCount: Int64 = 0
  /// Bytes by which packs become smaller, or larger if negative, without removing garbage.
  var gainedByteCount: Int64 = 0
  /// The packs to remove, and no others; nil to examine all packs and remove those that are worth it.
  let scope: Set<UInt32>?
  /// Why packs stay: their chunks have another copy, which turned out to be damaged.
  var damagedCopies: [GarbageObstacle] = []

  package init(
    _ engine: Engine, _ options: GarbageCollectionOptions, _ progress: ProgressHandler?,
    scope: Set<UInt32>? = nil,
    removal: any PackRemoval = LocalRemoval()
  ) throws(BlobStorageError) {
    guard 0...1 ~= options.minimumGarbageShare else {
      throw BlobStorageError(.invalidArgument, "The share of garbage must be from 0 to 1.")
    }
    guard options.archivedVersionLimit ?? 0 >= 0 else {
      throw BlobStorageError(.invalidArgument, "The number of archived versions to keep must be 0 or more.")
    }
    try engine.checkOpen()
    self.removal = removal
    self.engine = engine
    self.options = options
    self.progress = progress ?? { _ in }
    self.scope = scope
    marker = Marker(engine.blobs, engine.folder)
    report.isDryRun = options.isDryRun
  }

  /// Plans and runs the collection.
  ///
  /// - Throws: `busy` if another collection, a commit under way or a pack whose sync failed is in the way, or if the
  ///   catalog was rebuilt meanwhile; `noSpace` if no more packs can be copied. What was removed before stays removed.
  package func run() throws(BlobStorageError) -> GarbageCollectionReport {
    let start = Date()
    let lock = try CollectionLock(engine, waitSeconds: options.timeout.seconds, progress)
    defer { withExtendedLifetime(lock) {} }
    if try addLosses() {
      report.duration = .seconds(Date().timeIntervalSince(start))
      return report
    }
    try engine.catalog.clearDeadReaders()
    if !options.isDryRun {
      try engine.folder.withReserve { () throws(BlobStorageError) in
        try removal.finishLast(self)
        if scope != nil { return }
        try engine.recoverDeadWriters()
        if let count = options.archivedVersionLimit {
          // Checked first, so that a refused call has dropped nothing.
          try checkSyncs()
          _ = try engine.keep(upTo: count, prefix: .all, .durable)
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
    var candidates = try plan(rows.filter { sealed.contains($0.number) })
    if !options.isDryRun { try checkSyncs() }
    // Tombstones in poisoned packs may not be on the medium. Those packs are copied before any other.
    if candidates.contains(where: \.row.isPoisoned) { candidates.removeAll { !$0.row.isPoisoned } }
    if options.isDryRun {
      account(try afterDead(candidates))
    } else if report.obstacles.isEmpty {
      do throws(BlobStorageError) { try removal.remove(candidates, rows, self) } catch {
        keepReserve()
        throw error
      }
    }
    keepReserve()
    shortenCensus()
    report.freedByteCount += gainedByteCount
    report.garbageByteCount = max(0, garbageByteCount - collectedByteCount)
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  private func keepReserve() {
    if scope == nil, options.keepsReserve, !options.isDryRun { engine.keepReserve() }
  }

  // MARK: Planning

  func beginMarking() throws(BlobStorageError) {
    generation = engine.catalog.generation
    // Packs that are sealed later may get rows of chunks that were marked elsewhere: they are not examined.
    (sealed, movedRowCount) = try engine.catalog.read { (view) throws(BlobStorageError) in
      (Set(try view.packRows().lazy.filter(\.row.isSealed).map(\.number)), try view.meta(.movedRows))
    }
  }

  func mark() throws(BlobStorageError) {
    let progress = progress
    let archivedCountMax = options.isDryRun ? options.archivedVersionLimit : nil
    let total = try engine.catalog.keyCountMax()
    repeat {
      try marker.markVersions(archivedCountMax: archivedCountMax) {
        progress(WorkProgress(phase: "marking", doneCount: $0, totalCount: max($0, total)))
      }
      _ = try markLeases()
    } while try replacesBaseless()
  }

  /// Points the catalog at other copies of chunks whose bases are missing. Begins marking anew if it found any.
  private func replacesBaseless() throws(BlobStorageError) -> Bool {
    var isReplaced = false
    for digest in marker.baseless.sorted() {
      guard try engine.chunks.hasOtherCopy(digest) else { continue }
      let isWhole = try engine.catalog.read { (transaction) throws(BlobStorageError) in
        guard let base = try transaction.chunkRow(digest)?.base else { return true }
        return try transaction.chunkRow(base) != nil
      }
      isReplaced = isReplaced || isWhole
    }
    if isReplaced {
      marker = Marker(engine.blobs, engine.folder)
      try beginMarking()
    }
    return isReplaced
  }

  /// Marks what leases and holds need. Returns the leases, which name the packs of living writers that unfinished puts
  /// need.
  func markLeases() throws(BlobStorageError) -> Leases {
    if engine.weaknesses.contains(.ignoresLeases) { return Leases() }
    let leases = try Leases.read(
      folder: engine.folder.leases, files: engine.folder.files, algorithm: engine.header.digestAlgorithm
    ) { (held) throws(BlobStorageError) in
      var chunks: [BlobDigest] = []
      var blobs: [BlobDigest] = []
      for slot in held {
        switch slot {
        case .chunk(let digest): chunks.append(digest)
        case .blob(let digest): blobs.append(digest)
        case .firstPack: break
        }
      }
      try marker.markHeld(blobs: blobs, chunks: chunks)
    }
    try marker.markHolds()
    return leases
  }

  /// Turns bases that cost more than they save into garbage, by storing their dependants again.
  func rebase() throws(BlobStorageError) {
    guard marker.unreadable.isEmpty else { return }
    progress(WorkProgress(phase: "rebasing"))
    var marks = marker.marks
    do throws(BlobStorageError) {
      let added = try Rebasing(engine: engine, isDryRun: options.isDryRun).run(&marks)
      marker.marks = marks
      report.reencodedChunkCount = added.chunkCount
      gainedByteCount -= added.byteCount
    } catch {
      // Rebasing only saves space later: packs that need no room can still go.
      guard error.code == .noSpace else { throw error }
      engine.logger.warning("There is no room to store chunks without their bases.")
    }
  }

  /// Adds obstacles to the report. Nothing is removed then: what cannot be read might need anything (H11).
  package func addObstacles(_ rows: [(number: UInt32, row: PackRow)]) {
    if engine.weaknesses.contains(.collectsDespiteObstacles) { return }
    report.obstacles = marker.unreadable.map(GarbageObstacle.unreadable) + damagedCopies
    removal.addObstacles(rows, self)
    for (_, row) in rows where row.isDamaged {
      report.obstacles.append(.damaged(row.name.description))
    }
  }

  /// Adds missing chunks as obstacles: they may need anything that is condemned.
  package func addAbsent() {
    addObstacles(of: marker.missing, .missingChunk, "not there")
  }

  func addDamaged() { addObstacles(of: marker.damaged, .damagedChunk, "damaged") }

  private func addObstacles(
    of digests: Set<BlobDigest>, _ code: GarbageObstacle.Code, _ state: String
  ) {
    for digest in digests.sorted().prefix(10) {
      report.obstacles.append(
        GarbageObstacle(
          code, "Chunk or manifest \(digest) is needed and \(state): run verify.", digest: digest))
    }
  }

  /// The value; nil if reading it finds damage, which becomes an obstacle.
  func unlessObstacle<T>(
    _ value: @autoclosure () throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T? {
    do throws(BlobStorageError) { return try value() } catch {
      guard error.code == .corrupted else { throw error }
      report.obstacles.append(.unreadable(error))
      return nil
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
    // Oldest first: refs then tend to go before the tombstones that hide them.
    for (number, row) in open.sorted(by: { $1.row.isYounger(than: $0.row) }) {
      try CancellationFlag.check()
      if let scope, !scope.contains(number) { continue }
      // A pack whose sync failed is stored again.
      let goes =
        scope != nil || row.isPoisoned || condemned.contains(row.name)
        || (merges && row.recordsByteCount < Self.smallPackByteCount)
      guard goes || isWorthwhile(row.recordsByteCount, kept: marker.marks.liveByteCount(number)),
        let content = try unlessObstacle(try packContent(number, row)),
        goes || isWorthwhile(content.recordsByteCount, kept: content.keptByteCount)
      else { continue }
      candidates.append(Candidate(number: number, row: row, content: content))
    }
    return candidates
  }

  /// For a dry run: examines candidates again as if those that keep nothing had gone. They then keep fewer tombstones.
  private func afterDead(_ candidates: [Candidate]) throws(BlobStorageError) -> [Candidate] {
    var gone: PackContent.HiddenCopies = [:]
    for candidate in candidates where candidate.content.keptCount == 0 {
      let hidden = try unlessObstacle(try PackContent.hiddenCopies(candidate.row, engine.blobs))
      gone.merge(hidden ?? [:], uniquingKeysWith: +)
    }
    guard !gone.isEmpty else { return candidates }
    var left = candidates
    for index in left.indices where left[index].content.keptCount > 0 {
      let (number, row) = (left[index].number, left[index].row)
      let content = try unlessObstacle(try packContent(number, row, gone: gone))
      if let content { left[index].content = content }
    }
    return left
  }

  /// Finds what must be kept of a pack, according to the marks.
  func packContent(
    _ number: UInt32, _ row: PackRow, gone: PackContent.HiddenCopies = [:], checksCopies: Bool = false,
    _ body: (PackContent.Kept) throws(BlobStorageError) -> Void = { _ in }
  ) throws(BlobStorageError) -> PackContent {
    try PackContent(
      engine.blobs, number: number, row: row, marks: marker.marks, gone: gone, checksCopies: checksCopies,
      weaknesses: engine.weaknesses, body)
  }

  private func isWorthwhile(_ total: Int64, kept: Int64) -> Bool {
    if kept == 0 { return true }
    let garbage = total - kept
    return garbage > 0 && Double(garbage) >= Double(total) * options.minimumGarbageShare
  }

  func isProtected(_ row: PackRow, _ leases: Leases) -> Bool {
    guard let first = leases.firstPacks[row.name.writer] else { return false }
    return row.name.sequence >= first
  }

  // MARK: Copying

  /// Copies what is live in a pack. Returns the candidate with what was copied.
  func copy(_ candidate: Candidate, to session: WriterSession) throws(BlobStorageError) -> Candidate {
    var candidate = candidate
    let before = session.addedByteCount
    var compaction = try Compaction(of: candidate.row.name, engine: engine, to: session, reencoder)
    candidate.content = try packContent(candidate.number, candidate.row) {
      (record) throws(BlobStorageError) in try compaction.copy(record)
    }
    try compaction.finish()
    savedByteCounts[candidate.row.name] = compaction.savedByteCount
    // Refs take a different number of bytes: they share records, and name chunks by other places. Small chunks are
    // joined.
    candidate.content.copiedByteCount = session.addedByteCount - before + compaction.savedByteCount
    return candidate
  }

  /// Counts packs that are removed, or would be on a dry run.
  package func account(_ candidates: [Candidate]) {
    for candidate in candidates {
      report.deletedChunkCount += candidate.content.deletedChunkCount
      let content = candidate.content
      let copiedByteCount = content.copiedByteCount ?? content.keptByteCount
      report.copiedByteCount += copiedByteCount
      report.freedByteCount += content.recordsByteCount - copiedByteCount
      collectedByteCount += content.recordsByteCount - content.keptByteCount
      if candidate.content.keptCount == 0 {
        report.deletedPackCount += 1
      } else {
        report.compactedPackCount += 1
      }
      let savedByteCount = savedByteCounts.removeValue(forKey: candidate.row.name) ?? 0
      report.recompressionSavedByteCount += savedByteCount
      gainedByteCount += savedByteCount
    }
  }
}

/// The lock of the one collector of all processes. It ends with its process.
package final class CollectionLock: Sendable {
  private let file: any File

  /// Waits at most `waitSeconds` for another collector. Meanwhile it reports the phase "waiting", without counts.
  ///
  /// - Throws: `busy`, `cancelled`.
  package init(
    _ engine: Engine, waitSeconds: Double, _ progress: ProgressHandler? = nil
  ) throws(BlobStorageError) {
    let (files, path) = (engine.folder.files, engine.folder.collecting)
    let file: any File
    do throws(BlobStorageError) { file = try files.open(path, .openOrCreate) } catch {
      throw files.explained(error, path)
    }
    self.file = file
    let isLocked = try engine.environment.time.retry(
      withinSeconds: waitSeconds, pauseSeconds: 0.05...0.05,
      failed: { () throws(BlobStorageError) in
        try CancellationFlag.check()
        progress?(WorkProgress(phase: "waiting"))
      }
    ) { () throws(BlobStorageError) in try file.lock(.exclusive, wait: false) }
    guard isLocked else {
      throw BlobStorageError(
        .busy,
        "Another process has been collecting garbage in \(engine.folder.path) for \(Int(waitSeconds)) s: try again later.",
        path: engine.folder.path.string)
    }
  }

  deinit { file.close() }
}

/// How a collection removes packs from a store: the steps that differ between one machine and several.
package protocol PackRemoval {
  /// Packs that are condemned already. The collection removes them whatever they hold.
  var condemned: Set<PackName> { get }

  /// Finishes what a killed collection has begun.
  func finishLast(_ collector: Collector) throws(BlobStorageError)

  /// Turns bases that cost more than they save into garbage. Everything live is marked.
  func rebase(_ collector: Collector) throws(BlobStorageError)

  /// The most stored bytes of one round of recompression, unless its only pack has more. Until the round ends, no
  /// writer can share what its packs have.
  var recompressedByteCountMax: Int64 { get }

  /// Adds obstacles to the report: reasons why nothing may be removed.
  func addObstacles(_ rows: [(number: UInt32, row: PackRow)], _ collector: Collector)

  /// Condemns the planned packs, copies what is live in them, and removes them.
  func remove(
    _ candidates: [Collector.Candidate], _ rows: [(number: UInt32, row: PackRow)], _ collector: Collector
  ) throws(BlobStorageError)
}

/// Removes packs on the authority of this machine: a pack goes once the commits that began before it was condemned have
/// ended.
package struct LocalRemoval: PackRemoval {
  package init() {}

  package var condemned: Set<PackName> { [] }
  package var recompressedByteCountMax: Int64 { 256 << 20 }

  package func finishLast(_ collector: Collector) throws(BlobStorageError) { try collector.finishLast() }

  package func rebase(_ collector: Collector) throws(BlobStorageError) { try collector.rebase() }

  package func addObstacles(_ rows: [(number: UInt32, row: PackRow)], _ collector: Collector) {
    collector.addAbsent()
    collector.addDamaged()
  }

  package func remove(
    _ candidates: [Collector.Candidate], _ rows: [(number: UInt32, row: PackRow)], _ collector: Collector
  ) throws(BlobStorageError) { try collector.removeCondemned(candidates, rows) }
}
