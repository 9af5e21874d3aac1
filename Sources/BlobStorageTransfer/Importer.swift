import BlobStorage
import BlobStorageCache
import BlobStorageTrees
import Foundation
import SystemPackage

/// Stores files and trees of files. Reads, cuts and encodes short files on all cores and commits them in batches. Puts
/// long files one after the other through the pipeline.
///
/// An interrupted import keeps what it committed, and the next import finds those files unchanged.
package final class Importer {
  private enum Work: Sendable {
    case batch([ImportSource])
    case large(ImportSource)
  }

  private enum Result: Sendable {
    case batch([(ImportSource, ImportOutcome)], [JoinedChunks])
    case large(ImportSource)
  }

  private static let shortByteCountMax: Int64 = 1 << 20
  /// The pipeline runs dry at the end of each file: it took 1.3 times as long for photographs of 0.5 to 5 MB. But files
  /// that are prepared together cannot be bases of each other: only files that need no base may be this long.
  private static let shortByteCountMaxIfCompressed: Int64 = 8 << 20
  private static let batchByteCount: Int64 = 4 << 20
  private static let batchCount = 256

  let engine: Engine
  private(set) var options: ImportOptions
  private let progress: ProgressHandler?
  let onFile: TransferHandler?
  var report = ImportReport()
  private var watermarks: [PackName: WriterSession.Watermark] = [:]
  /// Nil before the import begins.
  private var state: ImportedState?
  /// What a dry run has counted so far.
  var plan = ImportPlan()
  /// Counts the files to import; nil if no progress is shown.
  private var counter: ImportCount?
  private let countingDelaySeconds: Double
  /// The totals, once they are known.
  private var total: ImportCount.Total?
  private let clock: WallClock
  private var lastProgress = Date.distantPast
  private var seenByteCount: Int64 = 0
  private var seenCount = 0
  /// The store's cache, if it has one: its limit holds during the import.
  var cache: CacheCore?
  var cachedKeys = RecentKeys()
  /// Nil before the import begins.
  private var limiter: RateLimiter?
  /// Nil unless keys of missing files are dropped.
  private var missing: MissingKeys?

  package init(
    _ engine: Engine, _ options: ImportOptions, _ progress: ProgressHandler?, onFile: TransferHandler? = nil,
    countingDelaySeconds: Double = ImportCount.delaySeconds, clock: WallClock = .system
  ) {
    self.onFile = onFile
    self.engine = engine
    self.clock = clock
    self.countingDelaySeconds = countingDelaySeconds
    self.options = options
    self.progress = progress
  }

  package func run(_ paths: [some PathConvertible]) throws(BlobStorageError) -> ImportReport {
    let paths = try paths.map { (path) throws(BlobStorageError) in try path.filePath() }
    let start = Date()
    let created = engine.clock.date
    try engine.checkOpen()
    let lossCount = engine.sharing.keptLossCount(of: engine.writer)
    limiter = try RateLimiter(bytesPerSecond: options.maximumByteRate, time: engine.environment.time)
    if paths.count > 1, let collision = try KeyCollision.find(paths, options) {
      throw BlobStorageError(
        .keysCollide,
        "“\(collision.key)” would be the key of \(collision.paths.joined(separator: " and of ")): import them one "
          + "after the other, each under a prefix of its own.", key: collision.key)
    }
    cache = try openCache()
    // A cache gets no state, because its values come and go.
    let prefix = options.prefix.start
    if let cache, cache.prefix.utf8.starts(with: prefix.utf8) || isCached(prefix) {
      options.recordsState = false
    }
    // The record of a state has no room for so long a prefix.
    if options.stateName == nil, prefix.utf8.count > StateRecorder.prefixByteCountMax {
      options.recordsState = false
    }
    // What is found in these is stored again.
    let failedPacks = try engine.failedPacks()
    let context = try ImportContext(engine, options, clock, cachePrefix: cache?.prefixBytes)
    let state = try ImportedState(engine, options, paths, created: created)
    self.state = state
    report.uselessPatterns = Self.uselessPatterns(options, paths)
    if options.dropsMissing { missing = MissingKeys(engine, options, paths, start: start) }
    defer { self.state = nil }
    var walk = ImportWalk(paths, options, store: context.store)
    if progress != nil {
      counter = ImportCount(paths, options, store: context.store, delaySeconds: countingDelaySeconds)
    }
    defer { counter?.stop() }
    tell(force: true)
    do throws(BlobStorageError) {
      try store(context) { () throws(BlobStorageError) in
        while true {
          let item = try walk.next()
          report.skipped += walk.removeSkipped()
          switch item {
          case .source(let source):
            missing?.insert(source.key)
            return source
          case .folder(let folder): try self.record(folder)
          case nil: return nil
          }
        }
      }
    } catch {
      // Reports only what the store holds: unfinished batches do not count.
      (seenCount, seenByteCount) = (report.fileCount, report.byteCount)
      tell(force: true)
      throw error
    }
    counter?.stop()
    let gone = try missing?.find(unseen: walk.unseen, cachePrefix: cache?.prefixBytes) ?? []
    try checkSources(paths, emptyRoots: walk.emptyRoots, areGone: !gone.isEmpty)
    try countEvicted()
    total = ImportCount.Total(fileCount: seenCount, byteCount: seenByteCount)
    try synchronize(exceptFailed: failedPacks, since: lossCount, recordsState: state.isRecorded)
    // Last: everything that a state names must be on the medium before the state.
    report.state = try state.finish(failed: report.skipped.filter(\.isFailure).map(\.path), options)
    // States keep the versions, so they come first.
    report.droppedKeyCount = options.isDryRun ? gone.count : try drop(gone)
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  /// Makes durable what was stored and found.
  private func synchronize(
    exceptFailed failedPacks: Set<PackName>, since lossCount: Int, recordsState: Bool
  ) throws(BlobStorageError) {
    if options.durability == .durable, !options.isDryRun {
      tell("syncing", seenByteCount, seenCount, force: true)
      // One sync for all files: only the report promises that they are durable.
      for watermark in watermarks.values { try engine.writer.synchronize(watermark) }
      // Another process may have stored versions that were found, or kept for a state, without syncing them.
      try engine.sharing.synchronizeFound(engine.writer, exceptFailed: failedPacks)
      // A pack that was sealed meanwhile. In a bucket, what others have not published was not found.
      if engine.backend.isDurableOnceSynced,
        let lost = try engine.failedPacks().subtracting(failedPacks).first
      {
        throw .unsynced(lost)
      }
      try engine.sharing.checkKept(of: engine.writer, since: lossCount)
    } else {
      tell(force: true)
      // A state names versions that other processes may not have synced (H1).
      if recordsState {
        try engine.writer.synchronizeOpenPacks(exceptFailed: failedPacks, isOfOthers: true)
      }
    }
  }

  /// Stores the files that `nextSource` returns.
  private func store(
    _ context: ImportContext, _ nextSource: () throws(BlobStorageError) -> ImportSource?
  ) throws(BlobStorageError) {
    var held: ImportSource?
    try engine.work.orderedMap(
      // A batch holds up to `batchByteCount` and one file more, plain and encoded.
      inFlightMax: engine.work.width + 2,
      next: { () throws(BlobStorageError) -> Work? in
        try CancellationFlag.check()
        var batch: [ImportSource] = []
        var byteCount: Int64 = 0
        while true {
          var next = held.take()
          if next == nil { next = try nextSource() }
          guard let source = next else { break }
          if !(try self.isShort(source, context)) {
            if batch.isEmpty { return .large(source) }
            held = source
            break
          }
          batch.append(source)
          byteCount += source.status.byteCount
          if byteCount >= Self.batchByteCount || batch.count >= Self.batchCount { break }
        }
        return batch.isEmpty ? nil : .batch(batch)
      },
      transform: { [engine, options] (work) throws(BlobStorageError) in
        switch work {
        case .large(let source): return .large(source)
        case .batch(let sources):
          var trail = FolderTrail()
          var outcomes: [(ImportSource, ImportOutcome)] = []
          outcomes.reserveCapacity(sources.count)
          // A batch with values of a cache joins nothing. A dry run needs the length of each record.
          let joins = !options.isDryRun && !sources.contains { context.isCached($0.key) }
          for source in sources {
            if let version = try context.unchangedVersion(of: source) {
              outcomes.append((source, .unchanged(version)))
            } else {
              let outcome = try context.read(
                source, through: &trail, byteCountMax: Self.shortByteCountMaxIfCompressed, joins: joins)
              outcomes.append((source, outcome))
            }
          }
          let items = outcomes.compactMap { if case .prepared(let item, _, _) = $0.1 { item } else { nil } }
          return .batch(outcomes, !joins ? [] : try engine.memoryPut.joined(items, by: options.codec))
        }
      },
      consume: { (result: Result) throws(BlobStorageError) in
        switch result {
        case .large(let source): try self.commitLarge(source, context)
        case .batch(let outcomes, let joined): try self.commit(outcomes, joined, context)
        }
        self.tell()
      })
  }

  /// Whether to hold the whole file in memory. Does not read an unchanged file to find out.
  private func isShort(_ source: ImportSource, _ context: ImportContext) throws(BlobStorageError) -> Bool {
    if source.status.byteCount <= Self.shortByteCountMax { return true }
    // A value that may be too long for the cache is not prepared here.
    if isCached(source.key) { return false }
    guard source.status.byteCount <= Self.shortByteCountMaxIfCompressed else { return false }
    return try context.unchangedVersion(of: source) != nil || source.isCompressed
  }

  // MARK: Small files

  private func commit(
    _ outcomes: [(ImportSource, ImportOutcome)], _ joined: [JoinedChunks], _ context: ImportContext
  ) throws(BlobStorageError) {
    var items: [MemoryPut.Item] = []
    var sources: [ImportSource] = []
    var changes: [(ImportSource, SourceChange)] = []
    var long: [[UInt8]: MemoryPut.Item] = [:]
    for (source, outcome) in outcomes {
      switch outcome {
      case .skipped(let skipped):
        report.skipped.append(skipped)
        see(source)
      case .unchanged(let version):
        countUnchanged(source, version)
        see(source)
      case .same(let version):
        countSame(source, version)
        limiter?.pace(version.byteCount)
        see(source)
      case .long where isCached(source.key):
        try refuse(source, "it is too long for the cache's limit")
        see(source)
      case .long: try commitLarge(source, context)
      case .prepared(let item, let attributes, let change):
        items.append(item)
        sources.append(source)
        if let change { changes.append((source, change)) }
        if let attributes { long[attributes.key] = attributes }
        limiter?.pace(Int64(item.plan.byteCount))
        see(source)
      }
    }
    guard !items.isEmpty else { return }
    for (source, change) in changes { report.uncertain.append(UncertainFile(source, change)) }
    if options.isDryRun {
      for (item, source) in zip(items, sources) { try plan(item, source) }
      return
    }
    // The attributes of many files can be too long for one commit.
    if long.values.reduce(0, { $0 + $1.plan.byteCount }) > Self.batchByteCount {
      for item in long.values { try commitLong(item) }
      long = [:]
    }
    let cached = items.filter { isCached($0.key) }
    if !cached.isEmpty { try storeInCache(cached) }
    if cached.count == items.count { return }
    let stored = zip(items, sources).filter { !isCached($0.0.key) }
    count(
      try engine.memoryPut.commit(stored.map(\.0) + long.values, joined: joined, by: options.codec),
      of: stored.map(\.1))
    try cache?.holdLimit()
  }

  /// - Parameter sources: the sources of the first results; empty for values of a cache.
  func count(_ stored: ([PutResult], WriterSession.Watermark?), of sources: [ImportSource] = []) {
    let (results, watermark) = stored
    if let watermark { watermarks[watermark.pack] = watermark }
    for (index, result) in results.enumerated() {
      if sources.indices.contains(index) {
        count(result, isLink: sources[index].isLink)
        state?.add(sources[index], result.version)
      } else if sources.isEmpty {
        count(result, isLink: false)
      } else {
        report.storedByteCount += result.storedByteCount
      }
    }
  }

  // MARK: Attributes

  private func record(_ folder: ImportedFolder) throws(BlobStorageError) {
    report.folderCount += 1
    guard let state, state.isRecorded else { return }
    var mark = folder.mark
    do throws(BlobStorageError) { try commitLong(mark.moveLongAttributes(engine)) } catch {
      guard error.code == .sourceFailed else { throw error }
      report.skipped.append(
        SkippedFile(path: folder.path, code: error.code, reason: error.message, isFailure: true))
      mark.attributes?.extended = []
    }
    state.addFolder(folder.key, mark)
  }

  /// Stores attributes that are too long for metadata.
  private func commitLong(_ item: MemoryPut.Item?) throws(BlobStorageError) {
    guard let item, !options.isDryRun else { return }
    let (results, watermark) = try engine.memoryPut.commit([item], by: options.codec)
    if let watermark { watermarks[watermark.pack] = watermark }
    for result in results { report.storedByteCount += result.storedByteCount }
  }

  // MARK: Large files

  private func commitLarge(_ source: ImportSource, _ context: ImportContext) throws(BlobStorageError) {
    if let version = try context.unchangedVersion(of: source) {
      countUnchanged(source, version)
      return see(source)
    }
    if isCached(source.key) { return try putLargeIntoCache(source, context) }
    defer { see(source) }
    var pacedByteCount: Int64 = 0
    func readOn(to done: Int64) {
      limiter?.pace(max(0, done - pacedByteCount))
      pacedByteCount = max(pacedByteCount, done)
      tell(extra: done)
    }
    do throws(BlobStorageError) {
      do throws(BlobStorageError) {
        return try putLarge(source, context, isLastAttempt: false, readOn)
      } catch {
        guard error.code == .sourceFailed else { throw error }
      }
      // It was rewritten while it was read.
      try putLarge(source, context, isLastAttempt: true, readOn)
    } catch {
      report.skipped.append(try context.skipped(source, error))
    }
  }

  private func putLarge(
    _ source: ImportSource, _ context: ImportContext, isLastAttempt: Bool,
    _ progress: @escaping (Int64) -> Void
  ) throws(BlobStorageError) {
    let start = context.beginReading(source.status)
    let file = try source.open(writesBack: context.showsChanges(source))
    let key = try source.keyToPut(engine, options)
    if options.isDryRun { return try plan(source, file, key, isLastAttempt: isLastAttempt, progress) }
    var (mark, long) = try context.newMark(
      of: source, file, readFrom: start, context.extendedAttributes(of: file))
    let digest = { () throws(BlobStorageError) in
      try file.digest(self.engine.header.digestAlgorithm)
    }
    if let same = try source.sameVersion(digest, mark, engine, options, context.presence) {
      return options.readsUnchanged ? countSame(source, same) : countUnchanged(source, same)
    }
    try commitLong(long)
    var put = try engine.streamPut(context.putOptions(mark))
    put.progress = progress
    var change: SourceChange?
    let (result, watermark) = try put.run(key, file) { (found, options) throws(BlobStorageError) in
      if found == .rewritten, !isLastAttempt { throw file.changedError }
      change = found
      mark.isUncertain = true
      options.metadata = mark.metadata
    }
    if let change { report.uncertain.append(UncertainFile(source, change)) }
    count(([result], watermark), of: [source])
    try cache?.holdLimit()
  }

  private func putLargeIntoCache(
    _ source: ImportSource, _ context: ImportContext
  ) throws(BlobStorageError) {
    guard let byteCountMax = cache?.limits.valueByteLimit, source.status.byteCount <= byteCountMax else {
      see(source)
      return try refuse(source, "it is too long for the cache's limit")
    }
    var trail = FolderTrail()
    let outcome = try context.read(source, through: &trail, byteCountMax: Int64(byteCountMax))
    try commit([(source, outcome)], [], context)
  }

  // MARK: Counting

  /// Counts a file or link that was stored, or would be in a dry run.
  func countNew(_ key: String, isLink: Bool, _ byteCount: Int64) {
    onFile?(TransferredFile(key: key, isUnchanged: false))
    if isLink {
      report.linkCount += 1
    } else {
      report.fileCount += 1
      report.newFileCount += 1
      report.byteCount += byteCount
    }
  }

  private func count(_ result: PutResult, isLink: Bool) {
    countNew(result.version.key, isLink: isLink, result.version.byteCount)
    report.newByteCount += result.newByteCount
    if !isLink { report.duplicateByteCount += result.version.byteCount - result.newByteCount }
    report.storedByteCount += result.storedByteCount
  }

  /// Counts a file that was read because all are, and equals its version.
  private func countSame(_ source: ImportSource, _ version: BlobVersion) {
    count(([PutResult(version: version, newByteCount: 0, storedByteCount: 0)], nil), of: [source])
    if isCached(source.key) { cachedKeys.insert(Array(source.key.utf8)) }
  }

  private func countUnchanged(_ source: ImportSource, _ version: BlobVersion) {
    if source.isLink {
      report.linkCount += 1
    } else {
      report.fileCount += 1
      report.unchangedFileCount += 1
      report.byteCount += source.status.byteCount
      report.duplicateByteCount += source.status.byteCount
    }
    state?.add(source, version)
    if isCached(source.key) { cachedKeys.insert(Array(source.key.utf8)) }
    onFile?(TransferredFile(key: source.key, isUnchanged: true))
  }

  private func see(_ source: ImportSource) {
    seenCount += 1
    // A sparse file can be as long as a number holds.
    seenByteCount = seenByteCount.addingClamped(source.status.byteCount)
  }

  /// Reports the progress of storing.
  private func tell(force: Bool = false, extra: Int64 = 0) {
    let byteCount = seenByteCount.addingClamped(extra)
    tell(options.isDryRun ? "planning" : "importing", byteCount, seenCount, force: force)
  }

  private func tell(_ phase: String, _ byteCount: Int64 = 0, _ count: Int = 0, force: Bool = false) {
    guard let progress else { return }
    let now = Date()
    guard force || now.timeIntervalSince(lastProgress) > 0.1 else { return }
    lastProgress = now
    if total == nil { total = counter?.total }
    // Files that grew or appeared after the count can exceed the totals.
    progress(
      WorkProgress(
        phase: phase, doneByteCount: byteCount,
        totalByteCount: total.map { max(byteCount, $0.byteCount) } ?? 0,
        doneCount: count, totalCount: total.map { max(count, $0.fileCount) } ?? 0))
  }
}

/// Imports into a cache: stores keys under its prefix as a put to the cache does. So the limit holds throughout the
/// import, not only at its end.
extension Importer {
  /// The store's cache; nil if it has none, or in a dry run.
  func openCache() throws(BlobStorageError) -> CacheCore? {
    guard !options.isDryRun, let (prefix, _) = try engine.cacheSettings() else { return nil }
    return try CacheCore(
      engine: engine, prefix: prefix, limits: nil, memoryByteLimit: 0, durability: .relaxed)
  }

  /// Whether a key belongs to the cache.
  func isCached(_ key: String) -> Bool { isCached(Array(key.utf8)) }

  func isCached(_ key: [UInt8]) -> Bool { cache.map { key.starts(with: $0.prefixBytes) } ?? false }

  /// Stores prepared files in room that the cache makes for them.
  func storeInCache(_ items: [MemoryPut.Item]) throws(BlobStorageError) {
    guard let cache else { return }
    var group = CacheCore.Group()
    for item in items {
      if group.add(item, cache.limits) { continue }
      try store(group, in: cache)
      group = CacheCore.Group()
      _ = group.add(item, cache.limits)
    }
    try store(group, in: cache)
  }

  private func store(_ group: CacheCore.Group, in cache: CacheCore) throws(BlobStorageError) {
    if let stored = try cache.store(group, .relaxed) {
      for item in group.items { cachedKeys.insert(item.key) }
      return count(stored)
    }
    for item in group.items {
      try refuse(String(decoding: item.key, as: UTF8.self), item.key, "the cache's limit leaves no room")
    }
  }

  /// Counts the imported keys that the cache has evicted since.
  func countEvicted() throws(BlobStorageError) {
    guard let cache else { return }
    try cache.holdLimit()
    var presentCount = 0
    try engine.forEachPage(prefix: .bytes(cache.prefix)) { page in
      presentCount += page.count { cachedKeys.contains(Array($0.key.utf8)) }
    }
    report.evictedFileCount = cachedKeys.count - presentCount
  }

  /// Skips a file, and drops its key's earlier value, which is out of date.
  func refuse(_ source: ImportSource, _ reason: String) throws(BlobStorageError) {
    try refuse(source.path.string, Array(source.key.utf8), reason)
  }

  private func refuse(_ path: String, _ key: [UInt8], _ reason: String) throws(BlobStorageError) {
    report.skipped.append(SkippedFile(path: path, code: .limitExceeded, reason: reason, isFailure: true))
    guard let cache else { return }
    let rest = String(decoding: key.dropFirst(cache.prefixBytes.count), as: UTF8.self)
    // The cache cannot name a key that equals its prefix.
    if !rest.isEmpty { _ = try cache.remove([rest]) }
  }
}

/// Hashes of the cache keys that an import stored or found unchanged: the last half to one million.
struct RecentKeys {
  private static let countMax = 1 << 19
  private var earlier: Set<Int> = []
  private var latest: Set<Int> = []

  var count: Int { earlier.count + latest.count }

  func contains(_ key: [UInt8]) -> Bool {
    earlier.contains(key.hashValue) || latest.contains(key.hashValue)
  }

  mutating func insert(_ key: [UInt8]) {
    if contains(key) { return }
    if latest.count == Self.countMax {
      earlier = latest
      latest = []
    }
    latest.insert(key.hashValue)
  }
}
