import BlobStorage

extension Engine {
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
