import BlobStorage
import Foundation

/// The keys that a store would lose at once if it became a cache with certain limits.
public struct CacheForecast: Sendable, Hashable {
  /// Keys that the cache would have.
  public var keyCount = 0
  /// Plain bytes of their current versions.
  public var byteCount: Int64 = 0
  /// About how many of the keys would be evicted.
  public var evictedKeyCount = 0
  /// About how many plain bytes those have.
  public var evictedByteCount: Int64 = 0
  /// Bytes that the store's folder now takes on the medium.
  public var diskByteCount: Int64 = 0

  public init() {}
}

extension Engine {
  /// Predicts what limits would evict at once of the keys that begin with `prefix`: the oldest keys. Groups keys by the
  /// time of their puts, so that memory does not grow with their number.
  ///
  /// - Throws: `invalidArgument` for limits out of range and for a store that cannot be a cache.
  package func cacheForecast(
    prefix: String, limits: CacheLimits
  ) throws(BlobStorageError) -> CacheForecast {
    try limits.check()
    try requireFolderForCache()
    var forecast = CacheForecast()
    forecast.diskByteCount = try folder.allocatedByteCount()
    let now = clock.now()
    let oldestGood = limits.lifetime.map { now - min(now, $0.milliseconds) } ?? 0
    var expired = (count: 0, byteCount: Int64(0))
    var (first, last) = (Double.infinity, -Double.infinity)
    try forEachPage(prefix: .bytes(prefix)) { page in
      for version in page.lazy.map(\.current) {
        forecast.keyCount += 1
        forecast.byteCount = forecast.byteCount.addingClamped(version.byteCount)
        let created = version.created.timeIntervalSince1970
        (first, last) = (min(first, created), max(last, created))
        if created * 1_000 < Double(oldestGood) {
          expired.count += 1
          expired.byteCount = expired.byteCount.addingClamped(version.byteCount)
        }
      }
    }
    let excess = forecast.diskByteCount - limits.byteLimit
    let excessCount = limits.keyLimit.map { forecast.keyCount - $0 } ?? 0
    if excess > 0 || excessCount > 0 {
      var steps = [(count: Int, byteCount: Int64)](repeating: (0, 0), count: 1_024)
      try forEachPage(prefix: .bytes(prefix)) { page in
        for version in page.lazy.map(\.current) {
          let share = (version.created.timeIntervalSince1970 - first) / max(last - first, 0.001)
          let step = Int(min(max(share, 0), 1) * Double(steps.count - 1))
          steps[step].count += 1
          steps[step].byteCount = steps[step].byteCount.addingClamped(version.byteCount)
        }
      }
      for step in steps where step.count > 0 {
        // A difference of whole numbers could be less than one holds.
        let missing = max(
          (Double(excess) - Double(forecast.evictedByteCount)) / Double(max(step.byteCount, 1)),
          Double(excessCount - forecast.evictedKeyCount) / Double(step.count))
        guard missing > 0 else { break }
        forecast.evictedKeyCount += Int((Double(step.count) * min(missing, 1)).rounded(.up))
        forecast.evictedByteCount = forecast.evictedByteCount.addingClamped(
          Int64(min(Double(step.byteCount) * min(missing, 1), 9e18)))
      }
    }
    forecast.evictedKeyCount = max(forecast.evictedKeyCount, expired.count)
    forecast.evictedByteCount = max(forecast.evictedByteCount, expired.byteCount)
    return forecast
  }

  /// Turns a store with a cache into an ordinary store: its keys stay, and nothing evicts them.
  ///
  /// - Returns: whether there was a cache.
  package func removeCache() throws(BlobStorageError) -> Bool {
    try checkOpen()
    guard try folder.files.status(of: folder.cache) != nil else { return false }
    let lock = try folder.files.open(folder.cacheLock, .openOrCreate)
    defer { lock.close() }
    try lock.locked { () throws(BlobStorageError) in try CacheFile.remove(folder) }
    try catalog.write { (transaction) throws(BlobStorageError) in try transaction.forgetCachedKeys() }
    limitPacks(to: .max)
    return true
  }

  /// Refuses a store without packs of its own: a cache limits its folder by removing packs.
  func requireFolderForCache() throws(BlobStorageError) {
    try sharing.requireOwnPacks(
      "\(information.path) cannot be a cache: a cache is a store in a folder of its own.")
  }

  /// Collects garbage, after trimming the cache if there is one, so that its limit also holds while packs are
  /// compacted.
  package func trimAndCollectGarbage(
    _ options: GarbageCollectionOptions, progress: ProgressHandler?
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    guard let (prefix, _) = try cacheSettings(), !options.isDryRun else {
      return try collectGarbage(options, progress: progress)
    }
    progress?(WorkProgress(phase: "trimming"))
    let cache = try CacheCore(
      engine: self, prefix: prefix, limits: nil, memoryByteLimit: 0, durability: .relaxed)
    let trimmed = try cache.trim()
    var report = try collectGarbage(options, progress: progress)
    report.evictedKeyCount = trimmed.evictedKeyCount + trimmed.expiredKeyCount
    report.freedByteCount += trimmed.freedByteCount
    return report
  }
}
