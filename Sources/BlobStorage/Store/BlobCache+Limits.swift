extension BlobCache {
  /// What the cache may take.
  public var limits: CacheLimits { core.limits }

  /// What all its keys begin with in the store; not part of the keys that its methods take.
  public var prefix: String { core.prefix }

  /// Sets other limits, for all processes, and holds them at once.
  ///
  /// - Throws: `invalidArgument` for limits out of range; nothing was changed.
  public func setLimits(_ limits: CacheLimits) async throws(BlobStorageError) {
    try await run { (core) throws(BlobStorageError) in try core.setLimits(limits) }
  }

  /// Drops what is too old, finds keys that were put past the cache, and brings the folder below its limits.
  ///
  /// Calling it is optional: puts make room by themselves. Call it when the program is idle.
  ///
  /// - Complexity: follows every version of the store to its chunks.
  public func trim() async throws(BlobStorageError) -> CacheTrimReport {
    try await run { (core) throws(BlobStorageError) in try core.trim() }
  }

  /// Takes in keys that were put past the cache, with ``BlobStore/put(_:_:options:)``, as just used, and brings the
  /// folder below its limits.
  public func adopt(_ keys: [String]) async throws(BlobStorageError) {
    try await run { (core) throws(BlobStorageError) in try core.adopt(keys) }
  }

  /// How the cache stands.
  public func statistics() async throws(BlobStorageError) -> CacheStatistics {
    try await run { (core) throws(BlobStorageError) in try core.statistics() }
  }

  /// Writes down which keys were used, which otherwise happens with later puts.
  public func flush() async throws(BlobStorageError) {
    try await run { (core) throws(BlobStorageError) in try core.flushTouches() }
  }
}

/// How this process uses a cache.
public struct CacheConfiguration: Sendable {
  /// How it uses the store, if the cache opens it.
  public var store: StoreConfiguration
  /// Bytes of recently used values that are kept in memory.
  public var memoryByteCountMax: Int
  /// How far a value is on its way to the medium when a put returns.
  public var durability: Durability

  /// A configuration with these values.
  public init(
    store: StoreConfiguration = StoreConfiguration(cacheByteCountMax: 1 << 20),
    memoryByteCountMax: Int = 16 << 20, durability: Durability = .relaxed
  ) {
    self.store = store
    self.memoryByteCountMax = memoryByteCountMax
    self.durability = durability
  }
}

extension BlobStore {
  /// Makes the store's keys that begin with `prefix` a cache, or opens the cache that they are.
  ///
  /// The byte limit is one for the whole folder: what other keys take, the cache cannot. A store has one cache.
  ///
  /// - Parameter evictsExistingKeys: whether the cache may evict keys that the store had before it was a cache. A
  ///   store that is a cache already evicts all the same; ``cacheForecast(prefix:limits:)`` says what would go.
  /// - Throws: `invalidArgument` for limits out of range, when the store has a cache under another prefix, and when it
  ///   has such keys, is no cache yet, and they may not be evicted.
  public func cache(
    prefix: String = "", limits: CacheLimits, evictsExistingKeys: Bool = false,
    configuration: CacheConfiguration = CacheConfiguration()
  ) async throws(BlobStorageError) -> BlobCache {
    let core = try await run { (engine) throws(BlobStorageError) in
      try CacheCore(
        engine: engine, prefix: prefix, limits: limits, memoryByteCountMax: configuration.memoryByteCountMax,
        durability: configuration.durability, takesKeys: evictsExistingKeys)
    }
    return BlobCache(store: self, core: core)
  }

  /// What making the keys that begin with `prefix` a cache, or giving it other limits, would evict at once.
  ///
  /// - Throws: `invalidArgument` for limits out of range and for a store in a bucket.
  /// - Complexity: looks at every such key twice.
  public func cacheForecast(
    prefix: String = "", limits: CacheLimits
  ) async throws(BlobStorageError) -> CacheForecast {
    try await run { (engine) throws(BlobStorageError) in
      try engine.cacheForecast(prefix: prefix, limits: limits)
    }
  }

  /// Makes an ordinary store of one with a cache: its keys stay and nothing evicts them any more.
  ///
  /// Other processes that have the cache open can still read it; their next put that needs room fails.
  ///
  /// - Returns: false when the store has no cache.
  /// - Durability: durable.
  @discardableResult
  public func removeCache() async throws(BlobStorageError) -> Bool {
    try await run { (engine) throws(BlobStorageError) in try engine.removeCache() }
  }

  /// The cache that the store has, with the limits it has; nil when it has none.
  public func cache(
    configuration: CacheConfiguration = CacheConfiguration()
  ) async throws(BlobStorageError) -> BlobCache? {
    let core = try await run { (engine) throws(BlobStorageError) -> CacheCore? in
      guard let (prefix, _) = try engine.cacheSettings() else { return nil }
      return try CacheCore(
        engine: engine, prefix: prefix, limits: nil, memoryByteCountMax: configuration.memoryByteCountMax,
        durability: configuration.durability)
    }
    return core.map { BlobCache(store: self, core: $0) }
  }
}
