import BlobStorage
import Foundation

/// Makes a report in three walks over all versions. The first marks what is live. The second finds the chunks that
/// several keys need. The last adds up what each key needs alone.
///
/// Memory: four bits for each record, and the keys that are listed.
final class Reporter {
  /// The number of spans that divide the history.
  static let spanCount = 48

  private let engine: Engine
  private let keyCountMax: Int
  private let progress: ProgressHandler
  private let needed: NeededChunks
  private var keyCount = 0
  private var doneCount = 0
  /// Chunks that any key needs, and chunks that several keys need.
  private var seen = PlaceSet()
  private var shared = PlaceSet()
  /// The same for manifests, so that a blob with many keys is followed twice and not for each.
  private var seenManifests = PlaceSet()
  private var sharedManifests = PlaceSet()
  private var codecs: [UInt8: StoreReport.Codec] = [:]
  private var times: ClosedRange<UInt64>?

  init(_ engine: Engine, keyCountMax: Int, _ progress: ProgressHandler?) {
    self.engine = engine
    self.keyCountMax = keyCountMax
    self.progress = progress ?? { _ in }
    needed = NeededChunks(engine.blobs)
  }

  func run() throws(BlobStorageError) -> StoreReport {
    let start = Date()
    progress(WorkProgress(phase: "marking"))
    let (statistics, packs) = try StoreStatistics.countWithPacks(engine) { [progress] count in
      progress(WorkProgress(phase: "marking", doneCount: count))
    }
    var report = StoreReport(statistics: statistics)
    report.packs = packs
    keyCount = statistics.keyCount
    try engine.forEachKey { (entry) throws(BlobStorageError) in
      try survey(entry)
      tell("comparing")
    }
    for blob in try engine.heldBlobs() { try surveyHeld(blob) }
    doneCount = 0
    var largest = Largest<StoreReport.Key>(countMax: keyCountMax)
    var busiest = Largest<StoreReport.Key>(countMax: keyCountMax)
    report.history = emptyHistory()
    try engine.forEachKey { (entry) throws(BlobStorageError) in
      let key = try measure(entry)
      largest.insert(key, rank: key.exclusiveByteCount)
      if key.versionCount > 1 { busiest.insert(key, rank: Int64(key.versionCount)) }
      addToHistory(entry, &report.history)
      tell("counting")
    }
    report.largestKeys = largest.descending
    report.busiestKeys = busiest.descending
    report.codecs = codecs.values.sorted { ($1.storedByteCount, $0.name) < ($0.storedByteCount, $1.name) }
    report.unreadable = try engine.confirmed(needed.unreadableMessages)
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  private func tell(_ phase: String) {
    doneCount += 1
    // Keys put after the count can exceed it.
    guard doneCount % 1_024 == 0 else { return }
    progress(WorkProgress(phase: phase, doneCount: doneCount, totalCount: max(doneCount, keyCount)))
  }

  // MARK: Which chunks have more than one key

  private func survey(_ entry: Engine.KeyVersions) throws(BlobStorageError) {
    var own = PlaceSet()
    for blob in Set((entry.versions + entry.replaced).map(\.row.digest)) {
      if let manifest = try manifestPlace(blob) {
        // The second key marks all its chunks as shared, so that further keys add nothing.
        if sharedManifests.contains(manifest) { continue }
        if !seenManifests.insert(manifest) { sharedManifests.insert(manifest) }
      }
      try needed.forEachChunk(of: blob) { row in
        guard own.insert(row.place) else { return }
        if seen.insert(row.place) { count(row) } else { shared.insert(row.place) }
      }
    }
    if InternalKey.isInternal(entry.key) { return }
    for version in entry.versions {
      let time = version.row.created
      times = times.map { min($0.lowerBound, time)...max($0.upperBound, time) } ?? time...time
    }
  }

  /// What a hold needs stays when all keys are deleted.
  private func surveyHeld(_ blob: BlobDigest) throws(BlobStorageError) {
    try needed.forEachChunk(of: blob) { row in
      if seen.insert(row.place) { count(row) }
      shared.insert(row.place)
    }
  }

  private func manifestPlace(_ blob: BlobDigest) throws(BlobStorageError) -> Place? {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.manifestRow(blob)?.place
    }
  }

  private func count(_ row: ChunkRow) {
    let kind = row.codecNumber
    let name = CodecKind(rawValue: kind)?.name ?? "\(kind)"
    var codec =
      codecs[kind] ?? StoreReport.Codec(name: name, chunkCount: 0, plainByteCount: 0, storedByteCount: 0)
    codec.chunkCount += 1
    codec.plainByteCount += Int64(row.plainByteCount)
    codec.storedByteCount += Int64(row.storedByteCount)
    codecs[kind] = codec
  }

  // MARK: What each key has alone

  private func measure(_ entry: Engine.KeyVersions) throws(BlobStorageError) -> StoreReport.Key {
    var key = StoreReport.Key(
      key: InternalKey.shown(entry.key), versionCount: entry.versions.count, byteCount: 0,
      exclusiveByteCount: 0)
    var own = PlaceSet()
    for version in entry.versions { key.byteCount = key.byteCount.addingClamped(version.row.byteCount) }
    for blob in Set((entry.versions + entry.replaced).map(\.row.digest)) {
      if let manifest = try manifestPlace(blob), sharedManifests.contains(manifest) { continue }
      try needed.forEachChunk(of: blob) { row in
        guard !shared.contains(row.place), own.insert(row.place) else { return }
        key.exclusiveByteCount += Int64(row.storedByteCount)
      }
    }
    return key
  }

  // MARK: History

  private func emptyHistory() -> [StoreReport.Span] {
    guard let times else { return [] }
    let count = times.lowerBound == times.upperBound ? 1 : Self.spanCount
    func date(_ index: Int) -> Date {
      let share = Double(index) / Double(count)
      let milliseconds =
        Double(times.lowerBound) + share * Double(times.upperBound - times.lowerBound)
      return Date(timeIntervalSince1970: milliseconds / 1_000)
    }
    return (0..<count).map {
      StoreReport.Span(start: date($0), end: date($0 + 1), versionCount: 0, byteCount: 0)
    }
  }

  private func addToHistory(_ entry: Engine.KeyVersions, _ history: inout [StoreReport.Span]) {
    guard let times, !history.isEmpty, !InternalKey.isInternal(entry.key) else { return }
    let span = Double(times.upperBound - times.lowerBound)
    for version in entry.versions {
      // A version put after the second walk may be younger than all others.
      let time = min(max(version.row.created, times.lowerBound), times.upperBound)
      let share = span > 0 ? Double(time - times.lowerBound) / span : 0
      let index = min(history.count - 1, Int(share * Double(history.count)))
      history[index].versionCount += 1
      history[index].byteCount = history[index].byteCount.addingClamped(version.row.byteCount)
    }
  }
}
