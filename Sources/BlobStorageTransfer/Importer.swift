import BlobStorage
import BlobStorageCache
import Foundation
import SystemPackage

/// Stores files and trees of files: short ones read, cut and encoded on all cores and committed in batches, long ones
/// one after the other through the pipeline.
///
/// What was committed stays, whatever ends the import: the next one finds those files unchanged and goes on.
package final class Importer {
  /// What a file of a batch came to.
  private enum Outcome: Sendable {
    case unchanged
    case skipped(SkippedFile)
    case prepared(MemoryPut.Item)
  }

  private enum Work: Sendable {
    case batch([ImportSource])
    case large(ImportSource)
  }

  private enum Result: Sendable {
    case batch([(ImportSource, Outcome)], [JoinedChunks])
    case large(ImportSource)
  }

  private static let shortByteCountMax: Int64 = 1 << 20
  /// The pipeline runs dry at the end of each file: it took 1.3 times as long for photographs of 0.5 to 5 MB. But what
  /// is prepared at the same time cannot be a base of each other: only files that need none may be this long.
  private static let shortByteCountMaxIfCompressed: Int64 = 8 << 20
  private static let batchByteCount: Int64 = 4 << 20
  private static let batchCount = 256

  let engine: Engine
  let options: ImportOptions
  private let putOptions: PutOptions
  private let progress: ProgressHandler?
  let onFile: TransferHandler?
  var report = ImportReport()
  private var watermarks: [PackName: WriterSession.Watermark] = [:]
  /// What a dry run would have stored already.
  var plan = ImportPlan()
  private var scan = ImportScan()
  private let sourceCountMax: Int
  private let clock: WallClock
  private var lastProgress = Date.distantPast
  private var seenByteCount: Int64 = 0
  private var seenCount = 0
  /// The store's cache, if it has one: its limit holds while files are imported.
  var cache: CacheCore?
  var cachedKeys = RecentKeys()
  /// Nil before the import begins.
  private var limiter: RateLimiter?

  package init(
    _ engine: Engine, _ options: ImportOptions, _ progress: ProgressHandler?, onFile: TransferHandler? = nil,
    sourceCountMax: Int? = nil, clock: WallClock = .system
  ) {
    self.onFile = onFile
    self.engine = engine
    self.clock = clock
    self.sourceCountMax = sourceCountMax ?? ImportScan.sourceCountMax
    self.options = options
    self.progress = progress
    putOptions = PutOptions(durability: .relaxed, replacement: options.replacement, codec: options.codec)
  }

  package func run(_ paths: [String]) throws(BlobStorageError) -> ImportReport {
    let start = Date()
    try engine.checkOpen()
    limiter = try RateLimiter(bytesPerSecond: options.maximumByteRate, time: engine.environment.time)
    if paths.count > 1, let collision = try KeyCollision.find(paths, options) {
      throw BlobStorageError(
        .keysCollide,
        "“\(collision.key)” would be the key of \(collision.paths.joined(separator: " and of ")): import them one "
          + "after the other, each under a prefix of its own.", key: collision.key)
    }
    let context = try ImportContext(engine, clock)
    cache = try openCache()
    var walk = ImportWalk(paths, options, store: context.store)
    var isScanned = false
    if progress != nil {
      tell("scanning", force: true)
      scan = try ImportScan.run(paths, engine, options, context, sourceCountMax: sourceCountMax) {
        (scan, unchanged) in
        if let unchanged {
          if isCached(unchanged.key) { cachedKeys.insert(Array(unchanged.key.utf8)) }
          onFile?(TransferredFile(key: unchanged.key, isUnchanged: true))
        }
        tell("scanning", scan.byteCount, scan.count)
      }
      isScanned = scan.sources != nil
      (seenCount, seenByteCount) = (scan.unchangedCount, scan.unchangedByteCount)
    }
    if isScanned {
      report.skipped = scan.skipped
      report.countUnchanged(scan.unchangedCount, scan.unchangedByteCount)
    }
    tell(force: true)
    do throws(BlobStorageError) {
      try store(context) { () throws(BlobStorageError) in
        if isScanned { return scan.next() }
        defer { report.skipped += walk.removeSkipped() }
        return try walk.next()
      }
    } catch {
      // Callers say what is in the store: batches under way are not.
      (seenCount, seenByteCount) = (report.fileCount, report.byteCount)
      tell(force: true)
      throw error
    }
    try countEvicted()
    if options.durability == .durable, !options.isDryRun {
      tell("syncing", seenByteCount, seenCount, force: true)
      // One sync for all: the report is what says that the files are stored.
      for watermark in watermarks.values { try engine.writer.synchronize(watermark) }
      // The process that stored an unchanged file may not have made it durable.
      if report.unchangedFileCount > 0 { try engine.sharing.synchronizeFound(engine.writer) }
    } else {
      tell(force: true)
    }
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  /// Stores what `nextSource` finds.
  private func store(
    _ context: ImportContext, _ nextSource: () throws(BlobStorageError) -> ImportSource?
  ) throws(BlobStorageError) {
    var held: ImportSource?
    let cachePrefix = cache?.prefixBytes
    try engine.work.orderedMap(
      // Each is up to `batchByteCount` and one file more, plain and once more encoded.
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
          var outcomes: [(ImportSource, Outcome)] = []
          outcomes.reserveCapacity(sources.count)
          // Values of a cache are stored alone, and so is what lies beside them. A dry run wants all lengths.
          let hasCached = cachePrefix.map { prefix in sources.contains { $0.key.utf8.starts(with: prefix) } }
          let joins = !options.isDryRun && hasCached != true
          for source in sources {
            outcomes.append(
              (source, try Self.prepare(source, through: &trail, engine, options, context, joins: joins)))
          }
          let items = outcomes.compactMap { if case .prepared(let item) = $0.1 { item } else { nil } }
          return .batch(outcomes, !joins ? [] : try engine.memoryPut.joined(items, by: options.codec))
        }
      },
      consume: { (result: Result) throws(BlobStorageError) in
        switch result {
        case .large(let source): try self.commitLarge(source, context)
        case .batch(let outcomes, let joined): try self.commit(outcomes, joined)
        }
        self.tell()
      })
  }

  /// Whether the file can be held in memory whole; one that is unchanged is not read to find out.
  private func isShort(_ source: ImportSource, _ context: ImportContext) throws(BlobStorageError) -> Bool {
    if source.status.byteCount <= Self.shortByteCountMax { return true }
    // What may be too long for the cache is not prepared.
    if isCached(source.key) { return false }
    guard source.status.byteCount <= Self.shortByteCountMaxIfCompressed else { return false }
    return try Self.isUnchanged(source, engine, options, context) || source.isCompressed
  }

  // MARK: Small files

  private static func prepare(
    _ source: ImportSource, through trail: inout FolderTrail, _ engine: Engine, _ options: ImportOptions,
    _ context: ImportContext, joins: Bool
  ) throws(BlobStorageError) -> Outcome {
    if try isUnchanged(source, engine, options, context) { return .unchanged }
    return try read(
      source, through: &trail, byteCountMax: shortByteCountMaxIfCompressed, engine, options, context,
      joins: joins)
  }

  /// Reads a file whole and prepares it.
  private static func read(
    _ source: ImportSource, through trail: inout FolderTrail, byteCountMax: Int64, _ engine: Engine,
    _ options: ImportOptions, _ context: ImportContext, joins: Bool = false
  ) throws(BlobStorageError) -> Outcome {
    do throws(BlobStorageError) {
      let start = context.beginReading(source.status)
      let file = try source.open(through: &trail)
      // A file that grew is found by its status; one that says 0 may have bytes nevertheless, like those of /proc.
      let capacity = Int(max(1, min(file.status.byteCount, byteCountMax)))
      let bytes = try Data(filling: capacity) { (target) throws(BlobStorageError) in
        try file.read(into: target)
      }
      try file.checkUnchanged()
      guard Int64(bytes.count) == file.status.byteCount else {
        throw BlobStorageError(.sourceFailed, "it changed while it was read")
      }
      let putOptions = PutOptions(
        replacement: options.replacement, codec: options.codec,
        metadata: FileMark(file.status, readFrom: start).metadata)
      return .prepared(
        try engine.memoryPut.prepare(try Engine.keyBytes(source.key), bytes, putOptions, joins: joins))
    } catch {
      return .skipped(try skipped(source, error))
    }
  }

  private static func isUnchanged(
    _ source: ImportSource, _ engine: Engine, _ options: ImportOptions, _ context: ImportContext
  ) throws(BlobStorageError) -> Bool {
    if options.readsUnchanged { return false }
    return try source.isUnchanged(engine, context.presence)
  }

  /// Errors of the file itself leave it out; errors of the store end the import.
  private static func skipped(_ source: ImportSource, _ error: BlobStorageError) throws(BlobStorageError)
    -> SkippedFile
  {
    let isOfFile = error.path != nil && error.path?.hasSuffix(source.path.string) == true
    guard isOfFile || error.code == .sourceFailed else { throw error }
    return SkippedFile(path: source.path.string, code: error.code, reason: error.message, isFailure: true)
  }

  private func commit(
    _ outcomes: [(ImportSource, Outcome)], _ joined: [JoinedChunks] = []
  ) throws(BlobStorageError) {
    var items: [MemoryPut.Item] = []
    for (source, outcome) in outcomes {
      switch outcome {
      case .skipped(let skipped):
        report.skipped.append(skipped)
        see(source)
      case .unchanged: countUnchanged(source)
      case .prepared(let item):
        items.append(item)
        limiter?.pace(Int64(item.plan.byteCount))
        see(source)
      }
    }
    guard !items.isEmpty else { return }
    if options.isDryRun {
      for item in items { plan(item) }
      return
    }
    let cached = items.filter { isCached($0.key) }
    if !cached.isEmpty { try storeInCache(cached) }
    if cached.count == items.count { return }
    count(try engine.memoryPut.commit(items.filter { !isCached($0.key) }, joined: joined, by: options.codec))
    try cache?.holdLimit()
  }

  func count(_ stored: ([PutResult], WriterSession.Watermark?)) {
    let (results, watermark) = stored
    if let watermark { watermarks[watermark.pack] = watermark }
    for result in results { count(result) }
  }

  // MARK: Large files

  private func commitLarge(_ source: ImportSource, _ context: ImportContext) throws(BlobStorageError) {
    if try Self.isUnchanged(source, engine, options, context) {
      countUnchanged(source)
      return
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
      let start = context.beginReading(source.status)
      let file = try source.open()
      let key = try Engine.keyBytes(source.key)
      if options.isDryRun {
        try plan(file, key, progress: readOn)
        return
      }
      var options = putOptions
      options.metadata = FileMark(file.status, readFrom: start).metadata
      var put = try engine.streamPut(options)
      put.progress = readOn
      let (result, watermark) = try put.run(key, file)
      count(([result], watermark))
      try cache?.holdLimit()
    } catch {
      report.skipped.append(try Self.skipped(source, error))
    }
  }

  private func putLargeIntoCache(
    _ source: ImportSource, _ context: ImportContext
  ) throws(BlobStorageError) {
    guard let byteCountMax = cache?.limits.valueByteLimit, source.status.byteCount <= byteCountMax else {
      see(source)
      return try refuse(source, "it is too long for the cache's limit")
    }
    var trail = FolderTrail()
    let outcome = try Self.read(
      source, through: &trail, byteCountMax: Int64(byteCountMax), engine, options, context)
    try commit([(source, outcome)])
  }

  // MARK: Counting

  private func count(_ result: PutResult) {
    report.fileCount += 1
    report.newFileCount += 1
    onFile?(TransferredFile(key: result.version.key, isUnchanged: false))
    report.byteCount += result.version.byteCount
    report.newByteCount += result.newByteCount
    report.duplicateByteCount += result.version.byteCount - result.newByteCount
    report.storedByteCount += result.storedByteCount
  }

  private func countUnchanged(_ source: ImportSource) {
    report.countUnchanged(1, source.status.byteCount)
    if isCached(source.key) { cachedKeys.insert(Array(source.key.utf8)) }
    // What the scan has found unchanged counts as seen from the beginning: it says nothing of how fast reading is.
    if scan.unchangedCount == 0 {
      see(source)
      onFile?(TransferredFile(key: source.key, isUnchanged: true))
    }
  }

  private func see(_ source: ImportSource) {
    seenCount += 1
    seenByteCount += source.status.byteCount
  }

  /// Says how far the storing is.
  private func tell(force: Bool = false, extra: Int64 = 0) {
    tell(options.isDryRun ? "planning" : "importing", seenByteCount + extra, seenCount, force: force)
  }

  private func tell(_ phase: String, _ byteCount: Int64 = 0, _ count: Int = 0, force: Bool = false) {
    guard let progress else { return }
    let now = Date()
    guard force || now.timeIntervalSince(lastProgress) > 0.1 else { return }
    lastProgress = now
    // Files that grew, or that came meanwhile, are more than was counted.
    progress(
      WorkProgress(
        phase: phase, doneByteCount: byteCount,
        totalByteCount: scan.count > 0 ? max(byteCount, scan.byteCount) : 0,
        doneCount: count, totalCount: scan.count > 0 ? max(count, scan.count) : 0))
  }
}

extension ImportReport {
  fileprivate mutating func countUnchanged(_ count: Int, _ byteCount: Int64) {
    fileCount += count
    unchangedFileCount += count
    self.byteCount += byteCount
    duplicateByteCount += byteCount
  }
}
