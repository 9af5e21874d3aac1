import Synchronization

/// Recompresses the chunks of sealed packs with ``Reencoder``, most profitable packs first.
///
/// It takes a few packs at a time through the same steps as a collection of their garbage (``Collector``). So each
/// round is complete, readers and writers go on, and the next run continues one that was interrupted. In a bucket,
/// copies are published before the old packs go. No pack is marked as done: a sample of its chunks shows whether
/// anything can be gained.
struct Recompression {
  /// The gain that the sample of a pack promises.
  private struct Prospect {
    let number: UInt32
    let name: PackName
    let byteCount: Int64
    let savedByteCount: Int64
  }

  /// Packs that would save less stay as they are.
  private static func savedByteCountMin(_ byteCount: Int64) -> Int64 { max(1, byteCount / 100) }
  /// Places of a pack that are sampled, and plain bytes of each.
  private static let spotCount = 4
  private static let spotByteCount = 512 << 10
  /// The share of the remaining time that sampling may take once it has found a pack that gains.
  private static let lookingShare = 0.1

  private let engine: Engine
  private let options: GarbageCollectionOptions
  private let progress: ProgressHandler
  private let removal: any PackRemoval
  private let reencoder: Reencoder
  private let start: Double

  /// Nil for a store that encodes nothing.
  init?(
    _ engine: Engine, _ options: GarbageCollectionOptions, _ progress: ProgressHandler?,
    by removal: any PackRemoval
  ) throws(BlobStorageError) {
    guard let reencoder = try Reencoder(engine.codec, engine.codecs, engine.weaknesses) else { return nil }
    self.removal = removal
    self.engine = engine
    self.options = options
    self.progress = progress ?? { _ in }
    self.reencoder = reencoder
    start = engine.environment.time.now()
  }

  /// Adds what was saved, or would be on a dry run, to the report of the collection before it.
  func run(_ report: inout GarbageCollectionReport) throws(BlobStorageError) {
    let (prospects, damages) = try prospects()
    // At the end, so that the packs that can be read are recompressed all the same.
    defer { report.obstacles += damages }
    var rest = prospects[...]
    let total = rest.reduce(0) { $0 + $1.byteCount }
    var doneByteCount: Int64 = 0
    if options.isDryRun {
      report.recompressedPackCount = rest.count
      report.recompressionSavedByteCount = rest.reduce(0) { $0 + $1.savedByteCount }
      report.freedByteCount += report.recompressionSavedByteCount
      return
    }
    func reportDone(_ byteCount: Int64) {
      progress(WorkProgress(phase: "recompressing", doneByteCount: byteCount, totalByteCount: total))
    }
    while !rest.isEmpty, secondsLeft > 0, report.obstacles.isEmpty {
      reportDone(doneByteCount)
      let round = nextRound(from: &rest, doneByteCount)
      let roundByteCount = round.reduce(0) { $0 + $1.byteCount }
      let collector = try Collector(
        engine, GarbageCollectionOptions(minimumGarbageShare: 0, timeout: options.timeout),
        { [progress] in if $0.phase == "waiting" { progress($0) } }, scope: Set(round.map(\.number)),
        removal: removal)
      collector.reencoder = reporting(progress, doneByteCount, roundByteCount, total)
      report.add(round: try collector.run())
      doneByteCount += roundByteCount
    }
    if doneByteCount > 0 { reportDone(doneByteCount) }
    report.duration += .seconds(engine.environment.time.now() - start)
  }

  /// The reencoder of a round, which reports each group that it has encoded.
  private func reporting(
    _ progress: @escaping ProgressHandler, _ before: Int64, _ roundByteCount: Int64, _ total: Int64
  ) -> Reencoder {
    var reencoder = reencoder
    let encoded = Atomic<Int64>(0)
    reencoder.didEncode = { byteCount in
      // What the round copies unchanged counts at its end.
      let done = encoded.add(Int64(byteCount), ordering: .relaxed).newValue
      progress(
        WorkProgress(
          phase: "recompressing", doneByteCount: before + min(done, roundByteCount), totalByteCount: total))
    }
    return reencoder
  }

  private var secondsLeft: Double {
    (options.timeLimit?.seconds ?? .infinity) - (engine.environment.time.now() - start)
  }

  /// Removes and returns the next packs: one at first, then as many as the remaining time allows.
  private func nextRound(
    from rest: inout ArraySlice<Prospect>, _ doneByteCount: Int64
  ) -> [Prospect] {
    let seconds = max(engine.environment.time.now() - start, 0.001)
    let possible = Double(doneByteCount) / seconds * min(secondsLeft, 1e9)
    let byteCountMax = min(removal.recompressedByteCountMax, Int64(min(possible, 1e18)))
    var round: [Prospect] = []
    var byteCount: Int64 = 0
    while let next = rest.first, round.isEmpty || byteCount + next.byteCount <= byteCountMax {
      round.append(next)
      byteCount += next.byteCount
      rest.removeFirst()
    }
    return round
  }

  // MARK: Looking at packs

  /// The packs that are worth it, most profitable first, and the reasons why others could not be read.
  private func prospects() throws(BlobStorageError) -> (found: [Prospect], damages: [GarbageObstacle]) {
    let lookingEnd = engine.environment.time.now() + secondsLeft * Self.lookingShare
    let rows = try engine.catalog.packRows().filter {
      $0.row.isSealed && !$0.row.isDamaged && !$0.row.isLost && $0.row.state == .live
    }
    var found: [Prospect] = []
    var damages: [GarbageObstacle] = []
    var random = DrawnNumbers(next64: engine.environment.randomNumber)
    // In random order: if the time does not suffice for all packs, the next run samples others.
    for (index, (number, row)) in rows.shuffled(using: &random).enumerated() {
      try CancellationFlag.check()
      progress(WorkProgress(phase: "sampling", doneCount: index, totalCount: rows.count))
      let isLate = !found.isEmpty && engine.environment.time.now() > lookingEnd
      if isLate || secondsLeft <= 0 { break }
      do throws(BlobStorageError) {
        let byteCount = row.recordsByteCount
        let savedByteCount = Int64(Double(byteCount) * (try currentSavedShare(row)))
        guard savedByteCount >= Self.savedByteCountMin(byteCount) else { continue }
        found.append(
          Prospect(number: number, name: row.name, byteCount: byteCount, savedByteCount: savedByteCount))
      } catch {
        guard error.code == .corrupted else { throw error }
        // Another process may have removed the pack meanwhile.
        if try engine.catalog.packRow(row.name)?.state == .live {
          damages.append(.unreadable(error))
        }
      }
    }
    return (found.sorted { ($1.savedByteCount, $0.name) < ($0.savedByteCount, $1.name) }, damages)
  }

  /// The share that could be saved. Samples again if a chunk could not be read, because its base may have gone with a
  /// pack that was removed meanwhile.
  private func currentSavedShare(_ row: PackRow) throws(BlobStorageError) -> Double {
    if let share = try unlessCorrupted(try savedShare(row)) { return share }
    return try savedShare(row)
  }

  /// Estimates the share of a pack's records that could be saved, from a sample of its chunks.
  private func savedShare(_ row: PackRow) throws(BlobStorageError) -> Double {
    guard let file = try engine.packs.file(row.name) else { return 0 }
    let joins = try engine.joinsWhatItCopies()
    var reader = Reencoder.Reader(file, row.name, engine.chunks, joins: joins)
    var groups: [Reencoder.Group] = []
    var before = 0
    for cluster in try sample(row, joins: joins) {
      before += cluster.records.reduce(0) { $0 + $1.byteCount }
      if let full = try reader.add(cluster) { groups.append(full) }
    }
    if let last = reader.end() { groups.append(last) }
    guard before > 0 else { return 0 }
    var saved = 0
    try reencoder.encode(groups, on: engine.work) { (group, parts) in
      guard let parts else { return }
      saved += group.byteCount - parts.reduce(0) { $0 + $1.recordByteCount }
    }
    return Double(saved) / Double(before)
  }

  /// Clusters from a few places of a pack.
  private func sample(_ row: PackRow, joins: Bool) throws(BlobStorageError) -> [Reencoder.Cluster] {
    let spotCount = max(1, Self.spotCount / (1 + row.recordCount / Reencoder.windowCount))
    var sample: [Reencoder.Cluster] = []
    var window: [PackRecord] = []
    func choose() throws(BlobStorageError) {
      let clusters = Reencoder.clusters(of: try readable(window), joins: joins)
      let byteCountOfSpot = max(1, clusters.reduce(0) { $0 + $1.plainByteCount } / spotCount)
      var (byteCount, spot, restOfSpot) = (0, -1, 0)
      for cluster in clusters {
        if byteCount / byteCountOfSpot > spot {
          (spot, restOfSpot) = (byteCount / byteCountOfSpot, Self.spotByteCount)
        }
        byteCount += cluster.plainByteCount
        guard restOfSpot > 0 else { continue }
        let part = cluster.prefix(plainByteCount: restOfSpot)
        restOfSpot -= part.plainByteCount
        sample.append(part)
      }
      window = []
    }
    let outcome = try engine.packs.scan(row.name) { (record) throws(BlobStorageError) in
      guard case .chunk = record.content else { return }
      window.append(record)
      if window.count == Reencoder.windowCount { try choose() }
    }
    // A pack that the medium cannot read seems to have few chunks or none, so that nothing could be saved.
    try PackContent.checkWhole(outcome, row)
    try choose()
    return sample
  }

  /// The chunks without those whose bases have been collected, which are garbage.
  private func readable(_ chunks: [PackRecord]) throws(BlobStorageError) -> [PackRecord] {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var readable: [PackRecord] = []
      for record in chunks {
        if let base = record.chunk?.base, try transaction.chunkRow(base) == nil { continue }
        readable.append(record)
      }
      return readable
    }
  }
}

private struct DrawnNumbers: RandomNumberGenerator {
  let next64: @Sendable () -> UInt64

  mutating func next() -> UInt64 { next64() }
}

extension GarbageCollectionReport {
  /// Adds the result of a round of recompression.
  fileprivate mutating func add(round: GarbageCollectionReport) {
    recompressedPackCount += round.compactedPackCount + round.deletedPackCount
    recompressionSavedByteCount += round.recompressionSavedByteCount
    deletedChunkCount += round.deletedChunkCount
    freedByteCount += round.freedByteCount
    copiedByteCount += round.copiedByteCount
    garbageByteCount = max(0, garbageByteCount - round.freedByteCount + round.recompressionSavedByteCount)
    obstacles += round.obstacles
  }
}
