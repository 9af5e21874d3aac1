/// A cache from the engine on.
extension Engine {
  /// Which keys of the store are a cache and what its limits are; nil when there is none.
  package func cacheSettings() throws(BlobStorageError) -> (prefix: String, limits: CacheLimits)? {
    try CacheFile.read(folder).map { (String(decoding: $0.prefix, as: UTF8.self), $0.limits) }
  }

  /// Has packs be as small as the store's cache needs them, if it has one: a large one can only be emptied as a whole.
  package func adoptCacheLimits() throws(BlobStorageError) {
    // Opening the cache reports damage.
    if case (_, let limits)?? = try unlessCorrupted(try cacheSettings()) {
      limitPacks(to: limits.packByteCountTarget)
    }
  }

  /// Collects garbage, after trimming the cache if there is one: so that its limit holds also while packs are
  /// compacted.
  package func trimAndCollectGarbage(
    _ options: CollectionOptions, progress: ProgressHandler?
  ) throws(BlobStorageError) -> CollectionReport {
    var options = options
    var evictedKeyCount = 0
    var freedByteCount: Int64 = 0
    if let (prefix, limits) = try cacheSettings() {
      options.batchByteCountMax = limits.copiedByteCountMax
      // In a small cache a reserve that has been used would push out values when it comes back.
      options.keepsReserve = limits.byteCountMax >= 64 << 20
      if !options.isDryRun {
        progress?(WorkProgress(phase: "trimming"))
        let cache = try CacheCore(
          engine: self, prefix: prefix, limits: nil, memoryByteCountMax: 0, durability: .relaxed)
        let trimmed = try cache.trim()
        evictedKeyCount = trimmed.evictedKeyCount + trimmed.expiredKeyCount
        freedByteCount = trimmed.freedByteCount
      }
    }
    var report = try collectGarbage(options, progress: progress)
    report.evictedKeyCount = evictedKeyCount
    report.freedByteCount += freedByteCount
    return report
  }
}
