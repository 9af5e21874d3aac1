import BlobStorage
import Foundation
import Logging

/// A cache whose operations run on the caller's thread and return when they are done: for programs without tasks.
///
/// Do not use it inside a task: it would block one of the few threads that all tasks share. The ``BlobCache`` method of
/// the same name documents what an operation does and throws.
public struct BlockingBlobCache: Sendable {
  /// The same cache for tasks.
  public let cache: BlobCache

  /// Opens the cache at a path, and creates it if there is none.
  public static func open(
    at path: some PathConvertible, limits: CacheLimits,
    configuration: CacheConfiguration = CacheConfiguration()
  ) throws(BlobStorageError) -> BlockingBlobCache {
    let store = try BlockingBlobStore.openOrCreate(
      at: path, options: limits.storeOptions, configuration: configuration.store
    ).store
    let core = try CacheCore(
      engine: store.engine, prefix: "", limits: limits, memoryByteLimit: configuration.memoryByteLimit,
      durability: configuration.durability, takesKeys: false)
    return BlobCache(store: store, core: core, memoryByteLimit: configuration.memoryByteLimit).blocking
  }

  /// Closes the cache and its store.
  public func close() throws(BlobStorageError) { try cache.opened.close() }

  /// The bytes of a key; nil when there are none, or when they have expired.
  public func data(forKey key: String) throws(BlobStorageError) -> Data? {
    if let data = cache.dataBeingStored(key) { return data }
    return try read({ nil }) { (core) throws(BlobStorageError) in try core.data(key) }
  }

  /// The bytes of a key, if they are in this process's memory.
  public func cachedData(forKey key: String) -> Data? { cache.cachedData(forKey: key) }

  /// The bytes of a key with everything that is kept with them.
  public func item(forKey key: String) throws(BlobStorageError) -> CacheItem? {
    try read({ nil }) { (core) throws(BlobStorageError) in try core.value(key).map { CacheItem(key: key, $0) }
    }
  }

  /// Whether a key has a value. This does not count as a use.
  public func contains(key: String) throws(BlobStorageError) -> Bool {
    if cache.dataBeingStored(key) != nil { return true }
    return try cache.opened.perform(ifLost: { false }) { (core) throws(BlobStorageError) in
      try core.contains(key)
    }
  }

  /// Stores bytes under a key.
  @discardableResult
  public func set(
    _ data: Data, forKey key: String, priority: CachePriority = .normal, lifetime: Duration? = nil,
    mediaType: String? = nil, metadata: [UInt8] = []
  ) throws(BlobStorageError) -> Bool {
    let item = CacheItem(
      key: key, data: data, priority: priority, lifetime: lifetime, mediaType: mediaType, metadata: metadata)
    return try set([item])[0]
  }

  /// Stores several values, in as few commits as their length allows.
  @discardableResult
  public func set(_ items: [CacheItem]) throws(BlobStorageError) -> [Bool] {
    try cache.opened.perform(ifLost: { items.map { _ in false } }) { (core) throws(BlobStorageError) in
      try BlobCache.set(items, core, cache.makings)
    }
  }

  /// Stores bytes under a key, or changes nothing.
  @discardableResult
  public func put(
    _ data: Data, forKey key: String, options: PutOptions = PutOptions()
  ) throws(BlobStorageError) -> PutResult {
    try cache.opened.perform { (core) throws(BlobStorageError) in
      try BlobCache.put(data, key, options, core, cache.makings)
    }
  }

  /// Drops a key. Returns false if it had no value.
  @discardableResult
  public func remove(_ key: String) throws(BlobStorageError) -> Bool { try remove([key]) > 0 }

  /// Drops keys and returns how many existed.
  @discardableResult
  public func remove(_ keys: [String]) throws(BlobStorageError) -> Int {
    cache.makings.outdate(keys)
    return try cache.opened.perform { (core) throws(BlobStorageError) in try core.remove(keys) }
  }

  /// Drops all keys that begin with `prefix`, which is not empty, and returns how many existed.
  @discardableResult
  public func removeAll(prefix: some KeyPrefixConvertible) throws(BlobStorageError) -> Int {
    let prefix = prefix.keyPrefix
    cache.makings.outdate(prefix: prefix)
    return try cache.opened.perform { (core) throws(BlobStorageError) in
      try core.removeAll(prefix: Engine.nonempty(prefix, elseSay: "removeAll()"))
    }
  }

  /// Drops all keys of the cache.
  @discardableResult
  public func removeAll() throws(BlobStorageError) -> Int {
    cache.makings.outdate(prefix: .all)
    return try cache.opened.perform { (core) throws(BlobStorageError) in try core.removeAll() }
  }

  /// The value of a key; nil when there is none.
  public func value<Value: Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, as format: BlobFormat<Value>
  ) throws(BlobStorageError) -> Value? {
    try data(forKey: key).map { (data) throws(BlobStorageError) in try format.value(of: data, key: key) }
  }

  /// The same for JSON.
  public func value<Value: Codable & Sendable>(
    _ type: Value.Type = Value.self, forKey key: String
  ) throws(BlobStorageError) -> Value? {
    try value(type, forKey: key, as: .json)
  }

  /// Stores a value under a key.
  @discardableResult
  public func set<Value: Sendable>(
    _ value: Value, forKey key: String, as format: BlobFormat<Value>, priority: CachePriority = .normal,
    lifetime: Duration? = nil
  ) throws(BlobStorageError) -> Bool {
    try set(try format.data(of: value, key: key), forKey: key, priority: priority, lifetime: lifetime)
  }

  /// The same in JSON.
  @discardableResult
  public func set<Value: Codable & Sendable>(
    _ value: Value, forKey key: String, priority: CachePriority = .normal, lifetime: Duration? = nil
  ) throws(BlobStorageError) -> Bool {
    try set(value, forKey: key, as: .json, priority: priority, lifetime: lifetime)
  }

  /// Drops expired values, finds keys that were put around the cache, and brings the folder below its limits.
  @discardableResult
  public func trim() throws(BlobStorageError) -> CacheTrimReport {
    try cache.opened.perform { (core) throws(BlobStorageError) in try core.trim() }
  }

  /// The current state of the cache.
  public func statistics() throws(BlobStorageError) -> CacheStatistics {
    try cache.opened.perform { (core) throws(BlobStorageError) in try core.statistics() }
  }

  /// Writes the recorded uses now.
  public func persistUsage() throws(BlobStorageError) {
    try cache.opened.perform { (core) throws(BlobStorageError) in try core.writeNotes() }
  }

  /// Runs a read, and writes the notes of reads when they are due.
  private func read<T>(
    _ fallback: @escaping () -> T, _ body: (CacheCore) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let value = try cache.opened.perform(ifLost: fallback, body)
    let core = cache.core
    if core.areNotesToWrite() { core.writeNotesOfReads() }
    return value
  }
}
