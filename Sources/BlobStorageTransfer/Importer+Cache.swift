import BlobStorage
import BlobStorageCache
import SystemPackage

/// Imports into a cache: keys under its prefix are stored as a put to the cache would store them. So the limit holds at
/// every moment of the import, not only at its end.
extension Importer {
  /// The store's cache; nil when it has none, or when nothing is to be changed.
  func openCache() throws(BlobStorageError) -> CacheCore? {
    guard !options.isDryRun, let (prefix, _) = try engine.cacheSettings() else { return nil }
    return try CacheCore(
      engine: engine, prefix: prefix, limits: nil, memoryByteLimit: 0, durability: .relaxed)
  }

  /// Whether a key is one of the cache's.
  func isCached(_ key: String) -> Bool { isCached(Array(key.utf8)) }

  func isCached(_ key: [UInt8]) -> Bool { cache.map { key.starts(with: $0.prefixBytes) } ?? false }

  /// Stores prepared files in room that the cache makes for them.
  func storeInCache(_ items: [MemoryPut.Item]) throws(BlobStorageError) {
    guard let cache else { return }
    var group = CacheCore.Group()
    for item in items {
      let value = CacheCore.Value(item: item, mark: CacheMark(metadata: item.ref.metadata))
      if group.add(value, cache.limits) { continue }
      try store(group, in: cache)
      group = CacheCore.Group()
      _ = group.add(value, cache.limits)
    }
    try store(group, in: cache)
  }

  private func store(_ group: CacheCore.Group, in cache: CacheCore) throws(BlobStorageError) {
    if let stored = try cache.store(group, .relaxed) {
      for value in group.values { cachedKeys.insert(value.item.key) }
      return count(stored)
    }
    for value in group.values {
      try refuse(
        String(decoding: value.item.key, as: UTF8.self), value.item.key, "the cache's limit leaves no room")
    }
  }

  /// Notes how many of the files the cache has evicted again since.
  func countEvicted() throws(BlobStorageError) {
    guard let cache else { return }
    try cache.holdLimit()
    var presentCount = 0
    var last: String?
    while true {
      let page = try engine.keys(cache.prefix, after: last, limit: 1_000)
      presentCount += page.count { cachedKeys.contains(Array($0.key.utf8)) }
      guard page.count == 1_000, let end = page.last else { break }
      last = end.key
    }
    report.evictedFileCount = cachedKeys.count - presentCount
  }

  /// Leaves a file out. What was there before is not what its key should have.
  func refuse(_ source: ImportSource, _ reason: String) throws(BlobStorageError) {
    try refuse(source.path.string, Array(source.key.utf8), reason)
  }

  private func refuse(_ path: String, _ key: [UInt8], _ reason: String) throws(BlobStorageError) {
    report.skipped.append(SkippedFile(path: path, code: .limitExceeded, reason: reason, isFailure: true))
    guard let cache else { return }
    let rest = String(decoding: key.dropFirst(cache.prefixBytes.count), as: UTF8.self)
    // A key that is the prefix itself cannot be named to the cache, and was put past it.
    if !rest.isEmpty { _ = try cache.remove([rest]) }
  }
}

/// The keys of a cache that an import has stored or found unchanged, by their hashes: the last million of them.
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
