/// Encodes the chunks of sealed packs once more, most profitable packs first: ``Reencoder``.
///
/// It takes a few packs at a time through the same steps as a collection of their garbage (``Collector``). So each round
/// is whole, readers and writers go on, and a run that was ended goes on with the next. In a bucket, copies are published
/// before the old packs go. No pack is marked as done: a sample of its chunks tells whether anything is to be gained.
struct Recompression {
  /// What the sample of a pack promises.
  private struct Prospect {
    let number: UInt32
    let name: PackName
    let byteCount: Int64
    let savedByteCount: Int64
  }

  /// Packs that would save less stay as they are.
  private static let shareMin = 0.01
  /// Places of a pack that are sampled, and plain bytes of each.
  private static let spotCount = 4
  private static let spotByteCount = 512 << 10
  /// The part of a limited time that looking at packs may take.
  private static let lookingShare = 0.1
  /// Stored bytes of one round, during which no writer can share what its packs have. In a bucket, no other machine can
  /// collect garbage until the round ends.
  private static let roundByteCountMax: Int64 = 256 << 20
  private static let sharedRoundByteCountMax: Int64 = 128 << 20

  private let engine: Engine
  private let options: CollectionOptions
  private let progress: ProgressHandler
  private let removal: any PackRemoval
  private let reencoder: Reencoder
  private let start: Double

  /// Nil for a store that encodes nothing.
  init?(
    _ engine: Engine, _ options: CollectionOptions, _ progress: ProgressHandler?, by removal: any PackRemoval
  ) throws(BlobStorageError) {
    guard let reencoder = try Reencoder(engine) else { return nil }
    self.removal = removal
    self.engine = engine
    self.options = options
    self.progress = progress ?? { _ in }
    self.reencoder = reencoder
    start = engine.environment.time.now()
  }

  /// Adds what was saved, or on a dry run what would be, to the report of the collection before it.
  func run(_ report: inout CollectionReport) throws(BlobStorageError) {
    var rest = try prospects()[...]
    let total = rest.reduce(0) { $0 + $1.byteCount }
    var doneByteCount: Int64 = 0
    if options.isDryRun {
      report.recompressedPackCount = rest.count
      report.recompressionSavedByteCount = rest.reduce(0) { $0 + $1.savedByteCount }
      report.freedByteCount += report.recompressionSavedByteCount
      return
    }
    while !rest.isEmpty, secondsLeft > 0, report.obstacles.isEmpty {
      progress(
        WorkProgress(phase: "recompressing", doneByteCount: doneByteCount, totalByteCount: total))
      let round = nextRound(from: &rest, doneByteCount)
      let collector = try Collector(
        engine, CollectionOptions(garbageShareMin: 0, waitSeconds: options.waitSeconds),
        { [progress] in if $0.phase == "waiting" { progress($0) } }, scope: Set(round.map(\.number)),
        removal: removal)
      collector.reencoder = reencoder
      report.add(round: try collector.run())
      doneByteCount += round.reduce(0) { $0 + $1.byteCount }
    }
    report.seconds += engine.environment.time.now() - start
  }

  private var secondsLeft: Double {
    (options.secondsMax ?? .infinity) - (engine.environment.time.now() - start)
  }

  /// The next packs: one at first, then as many as the time left is enough for.
  private func nextRound(
    from rest: inout ArraySlice<Prospect>, _ doneByteCount: Int64
  ) -> [Prospect] {
    let seconds = max(engine.environment.time.now() - start, 0.001)
    let possible = Double(doneByteCount) / seconds * min(secondsLeft, 1e9)
    let limit = engine.ownsPacks ? Self.roundByteCountMax : Self.sharedRoundByteCountMax
    let byteCountMax = min(limit, Int64(min(possible, 1e18)))
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

  /// The packs that are worth it, most profitable first.
  private func prospects() throws(BlobStorageError) -> [Prospect] {
    let rows = try engine.catalog.packRows().filter {
      $0.row.isSealed && !$0.row.isDamaged && !$0.row.isLost && $0.row.state == .live
    }
    var found: [Prospect] = []
    var random = DrawnNumbers(next64: engine.environment.randomNumber)
    // In an order drawn at random: where the time does not suffice for all packs, the next run looks at others.
    for (index, (number, row)) in rows.shuffled(using: &random).enumerated() {
      try CancellationFlag.check()
      progress(WorkProgress(phase: "sampling", doneCount: index, totalCount: rows.count))
      if let limit = options.secondsMax,
        engine.environment.time.now() - start > limit * Self.lookingShare, !found.isEmpty
      {
        break
      }
      guard let share = try unlessCorrupted(try savedShare(row)), share >= Self.shareMin else { continue }
      let byteCount = row.recordsByteCount
      found.append(
        Prospect(
          number: number, name: row.name, byteCount: byteCount,
          savedByteCount: Int64(Double(byteCount) * share)))
    }
    return found.sorted { ($1.savedByteCount, $0.name) < ($0.savedByteCount, $1.name) }
  }

  /// What share of a pack's records could be saved, by a sample of its chunks.
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
    func choose() {
      let clusters = Reencoder.clusters(of: window, joins: joins)
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
    try engine.scan(row.name) { record in
      guard case .chunk = record.content else { return }
      window.append(record)
      if window.count == Reencoder.windowCount { choose() }
    }
    choose()
    return sample
  }
}

private struct DrawnNumbers: RandomNumberGenerator {
  let next64: @Sendable () -> UInt64

  mutating func next() -> UInt64 { next64() }
}

extension CollectionReport {
  /// Adds what a round of recompression did.
  fileprivate mutating func add(round: CollectionReport) {
    recompressedPackCount += round.compactedPackCount + round.deletedPackCount
    recompressionSavedByteCount += round.recompressionSavedByteCount
    deletedChunkCount += round.deletedChunkCount
    freedByteCount += round.freedByteCount
    copiedByteCount += round.copiedByteCount
    garbageByteCount = max(0, garbageByteCount - round.freedByteCount + round.recompressionSavedByteCount)
    obstacles += round.obstacles
  }
}
