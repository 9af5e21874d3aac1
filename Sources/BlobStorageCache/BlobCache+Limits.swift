import BlobStorage

extension BlobCache {
  /// The limits of the cache.
  public var limits: CacheLimits { core.limits }

  /// The prefix of all its keys in the store. Its methods take keys without it.
  public var prefix: String { core.prefix }

  /// Sets new limits for all processes and applies them at once. Another process that has the cache open heeds them
  /// when it next makes room or writes its notes.
  ///
  /// - Throws: `invalidArgument` for limits out of range and for a cache that was ended; nothing was changed.
  public func setLimits(_ limits: CacheLimits) async throws(BlobStorageError) {
    try await change { (core) throws(BlobStorageError) in try core.setLimits(limits) }
  }

  /// Drops expired values, finds keys that were put around the cache, and brings the folder below its limits.
  ///
  /// Calling it is optional: puts make room by themselves. Call it when the program is idle.
  ///
  /// - Throws: `invalidArgument` for a cache that was ended.
  /// - Complexity: follows every version of the store to its chunks.
  public func trim() async throws(BlobStorageError) -> CacheTrimReport {
    try await change { (core) throws(BlobStorageError) in try core.trim() }
  }

  /// Adopts keys that were put around the cache, with `BlobStore.put(_:forKey:options:)`, as just used, and brings the
  /// folder below its limits.
  ///
  /// - Throws: `invalidArgument` for a cache that was ended.
  public func adopt(_ keys: [String]) async throws(BlobStorageError) {
    try await change { (core) throws(BlobStorageError) in try core.adopt(keys) }
  }

  /// The current state of the cache.
  ///
  /// - Throws: `invalidArgument` for a cache that was ended.
  public func statistics() async throws(BlobStorageError) -> CacheStatistics {
    try await run { (core) throws(BlobStorageError) in try core.statistics() }
  }

  /// Writes the recorded uses now. Otherwise later puts write them.
  public func persistUsage() async throws(BlobStorageError) {
    try await change { (core) throws(BlobStorageError) in try core.writeNotes() }
  }
}

/// How this process uses a cache.
public struct CacheConfiguration: Sendable {
  /// How to use the store, if the cache opens it.
  public var store: StoreConfiguration
  /// Bytes of memory for recently used values and their keys.
  public var memoryByteLimit: Int
  /// The durability of a put.
  public var durability: Durability

  /// A configuration with these values.
  public init(
    store: StoreConfiguration = StoreConfiguration(cacheByteLimit: 1 << 20),
    memoryByteLimit: Int = 16 << 20, durability: Durability = .relaxed
  ) {
    self.store = store
    self.memoryByteLimit = memoryByteLimit
    self.durability = durability
  }
}

extension BlobStore {
  /// Turns the keys below a prefix into a cache, or opens the existing cache. Its keys begin with the prefix and a '/';
  /// no '/' is put behind `KeyPrefix.bytes(_:)`.
  ///
  /// The byte limit covers the whole folder, so other keys reduce the room of the cache. A store has one cache.
  ///
  /// With `evictsExistingKeys` the cache may evict keys that the store had before it was a cache. An existing cache
  /// evicts them anyway. ``cacheForecast(prefix:limits:)`` predicts what it would evict. If the file with the limits is
  /// damaged, this call writes it again and checks neither prefix nor keys.
  ///
  /// - Throws: `invalidArgument` for limits out of range, for a store in a bucket and for a store with a cache under
  ///   another prefix. Also for a store that is not a cache yet and whose keys may not be evicted.
  public func cache(
    prefix: some KeyPrefixConvertible = KeyPrefix.all, limits: CacheLimits, evictsExistingKeys: Bool = false,
    configuration: CacheConfiguration = CacheConfiguration()
  ) async throws(BlobStorageError) -> BlobCache {
    let prefix = prefix.keyPrefix.start
    let core = try await work { (engine) throws(BlobStorageError) in
      try CacheCore(
        engine: engine, prefix: prefix, limits: limits, memoryByteLimit: configuration.memoryByteLimit,
        durability: configuration.durability, takesKeys: evictsExistingKeys)
    }
    return BlobCache(store: self, core: core, memoryByteLimit: configuration.memoryByteLimit)
  }

  /// Predicts what turning the keys below a prefix into a cache, or changing its limits, would evict at once.
  ///
  /// - Throws: `invalidArgument` for limits out of range and for a store in a bucket.
  /// - Complexity: looks at every such key; twice if the limits are exceeded.
  public func cacheForecast(
    prefix: some KeyPrefixConvertible = KeyPrefix.all, limits: CacheLimits
  ) async throws(BlobStorageError) -> CacheForecast {
    let prefix = prefix.keyPrefix.start
    return try await work { (engine) throws(BlobStorageError) in
      try engine.cacheForecast(prefix: prefix, limits: limits)
    }
  }

  /// Collects garbage as `BlobStore.collectGarbage(_:progress:)` does, after it has trimmed the store's cache to its
  /// limits, if it has one. A dry run trims nothing.
  ///
  /// - Throws: `busy` when another process has been collecting for longer than `options.timeout`.
  public func trimAndCollectGarbage(
    _ options: GarbageCollectionOptions = GarbageCollectionOptions(), progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> GarbageCollectionReport {
    try await work { (engine) throws(BlobStorageError) in
      try engine.watched("gc", progress) { (progress) throws(BlobStorageError) in
        try engine.trimAndCollectGarbage(options, progress: progress)
      }
    }
  }

  /// Turns a cache into an ordinary store: its keys stay, and nothing evicts them.
  ///
  /// Other processes that have the cache open can still read it, and remove nothing. Their next put fails if it needs
  /// room or the cache had a limit of keys.
  ///
  /// - Returns: false when the store has no cache.
  /// - Durability: durable.
  @discardableResult
  public func removeCache() async throws(BlobStorageError) -> Bool {
    try await work { (engine) throws(BlobStorageError) in try engine.removeCache() }
  }

  /// The store's cache with its limits; nil when it has none.
  ///
  /// - Throws: `corrupted` if the file with the limits is damaged: `cache(prefix:limits:)` writes it again.
  public func cache(
    configuration: CacheConfiguration = CacheConfiguration()
  ) async throws(BlobStorageError) -> BlobCache? {
    let core = try await work { (engine) throws(BlobStorageError) -> CacheCore? in
      guard let (prefix, _) = try engine.cacheSettings() else { return nil }
      return try CacheCore(
        engine: engine, prefix: prefix, limits: nil, memoryByteLimit: configuration.memoryByteLimit,
        durability: configuration.durability)
    }
    return core.map { BlobCache(store: self, core: $0, memoryByteLimit: configuration.memoryByteLimit) }
  }
}
