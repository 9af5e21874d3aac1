import BlobStorage
import Foundation
import Logging
import Synchronization

/// A cache on a store, or on the keys of one that begin with a prefix. It evicts values to keep the folder below its
/// limit.
///
/// The limit covers what the folder really takes, garbage and catalog included; see the page Caching. A put makes room
/// before it needs it: there is no daemon. Any number of processes can share a cache, each with a `BlobCache` of its
/// own. A read returns a value whole and right, or none. Never rely on a value being present. All methods may be called
/// from any task. After `BlobStore.reopen()` they throw `closed`: get another with `BlobStore.cache(configuration:)`.
///
/// Unless a method says otherwise, it throws what those of `BlobStore` throw. The configuration sets the durability of
/// a put: relaxed by default, so that a power cut leaves each value whole or not at all. A get takes microseconds and
/// writes nothing. A put takes one append, and makes room now and then.
public final class BlobCache: Sendable {
  /// The store that the cache is on.
  public let store: BlobStore
  let core: CacheCore
  /// The threads for changes. Each change may wait for room that another process makes.
  private let changes = OperationPool()
  private let making = Mutex(Making())

  /// The values that are being made.
  private struct Making: Sendable {
    /// By the keys' bytes: as strings, composed and decomposed letters would be equal.
    var tasks: [[UInt8]: (number: Int, task: Task<Data, any Error>)] = [:]
    var lastNumber = 0
  }

  init(store: BlobStore, core: CacheCore) {
    self.store = store
    self.core = core
  }

  /// Opens the cache at a path, and creates it if there is none. The whole store is the cache.
  ///
  /// - Throws: `notAStore` for a path that holds anything else, `invalidArgument` for limits out of range and for a
  ///   store that is no cache and has keys: `BlobStore.cache(prefix:limits:evictsExistingKeys:configuration:)` can make
  ///   it one.
  public static func open(
    at path: some PathConvertible, limits: CacheLimits,
    configuration: CacheConfiguration = CacheConfiguration()
  ) async throws(BlobStorageError) -> BlobCache {
    let store = try await BlobStore.openOrCreate(
      at: path, options: limits.storeOptions, configuration: configuration.store)
    return try await store.cache(limits: limits, configuration: configuration)
  }

  /// Closes the cache and its store.
  public func close() async throws(BlobStorageError) {
    let core = core
    try await store.close { core.close() }
  }

  // MARK: Values

  /// The bytes of a key; nil when there are none, or when they have expired.
  ///
  /// - Complexity: no write. The use is recorded in memory; a later put or a task of its own writes it.
  public func data(forKey key: String) async throws(BlobStorageError) -> Data? {
    try await read { (core) throws(BlobStorageError) in try core.data(key) }
  }

  /// The bytes of several keys: one element for each key, in their order, nil for a key without a value.
  public func data(forKeys keys: [String]) async throws(BlobStorageError) -> [Data?] {
    try await read { (core) throws(BlobStorageError) in
      var found: [Data?] = []
      for key in keys {
        try CancellationFlag.check()
        found.append(try core.data(key))
      }
      return found
    }
  }

  /// Whether a key has a value. This does not count as a use.
  public func contains(_ key: String) async throws(BlobStorageError) -> Bool {
    try await run { (core) throws(BlobStorageError) in try core.contains(key) }
  }

  /// Stores bytes under a key.
  ///
  /// - Returns: false when they were not stored: too long for the cache, or no room could be made. Then the key has no
  ///   value at all, not an older one.
  /// - Durability: relaxed, unless the configuration says otherwise.
  @discardableResult
  public func set(
    _ key: String, to data: Data, priority: CachePriority = .normal, lifetime: Duration? = nil
  ) async throws(BlobStorageError) -> Bool {
    try await set([CacheItem(key: key, data: data, priority: priority, lifetime: lifetime)])[0]
  }

  /// Stores several values, in as few commits as their length allows.
  ///
  /// - Returns: whether each value was stored.
  /// - Throws: `invalidArgument` for a cache that was ended, unless the values fit into the open pack and the cache had
  ///   no limit of keys.
  @discardableResult
  public func set(_ items: [CacheItem]) async throws(BlobStorageError) -> [Bool] {
    let keys = items.map(\.key)
    outdate(keys)
    return try await change { (core) throws(BlobStorageError) in
      try core.put(
        items,
        if: {
          // Again in the commit: the put may have waited for room, and values began to be made meanwhile.
          self.outdate(keys)
          return true
        })
    }
  }

  /// Stores bytes under a key as `BlobStore.put(_:forKey:options:)` does, in room that the cache makes first.
  ///
  /// Unlike ``set(_:to:priority:lifetime:)-(_,Data,_,_)``, a put that is refused leaves the key's earlier value.
  ///
  /// - Throws: `limitExceeded` for more bytes than `CacheLimits.valueByteLimit`, or if the limit leaves no room.
  ///   `noSpace` on a full medium, `busy` while another process makes room for too long. `invalidArgument` for a cache
  ///   that was ended, if the put needs room or the cache had a limit of keys.
  @discardableResult
  public func put(
    _ key: String, _ data: Data, options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> PutResult {
    outdate([key])
    return try await change { (core) throws(BlobStorageError) in
      try core.put(
        key, data, options,
        if: {
          self.outdate([key])
          return true
        })
    }
  }

  /// Drops keys and returns how many existed.
  ///
  /// - Throws: `invalidArgument` for a cache that was ended; nothing was changed.
  @discardableResult
  public func remove(_ keys: [String]) async throws(BlobStorageError) -> Int {
    outdate(keys)
    return try await change { (core) throws(BlobStorageError) in try core.remove(keys) }
  }

  /// Drops the keys that begin with `prefix` and returns how many existed.
  ///
  /// - Throws: `invalidArgument` for a cache that was ended, and for the empty prefix, which is most often a mistake:
  ///   ``removeAll()`` drops every key.
  @discardableResult
  public func remove(prefix: String) async throws(BlobStorageError) -> Int {
    outdate(prefix: prefix)
    return try await change { (core) throws(BlobStorageError) in
      try core.removeAll(prefix: Engine.nonempty(prefix, elseSay: "removeAll()"))
    }
  }

  /// Drops all keys of the cache. Later puts reuse their space; `BlobStore.trimAndCollectGarbage` frees it at once.
  ///
  /// - Throws: `invalidArgument` for a cache that was ended.
  @discardableResult
  public func removeAll() async throws(BlobStorageError) -> Int {
    outdate(prefix: "")
    return try await change { (core) throws(BlobStorageError) in try core.removeAll() }
  }

  // MARK: Values

  /// The value of a key; nil when there is none.
  ///
  /// - Throws: `sourceFailed` when the bytes are right and the conversion fails.
  public func value<Value: Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, as format: BlobFormat<Value>
  ) async throws(BlobStorageError) -> Value? {
    try await read { (core) throws(BlobStorageError) in
      guard let data = try core.data(key) else { return nil }
      return try format.value(of: data, key: key)
    }
  }

  /// The same for bytes.
  public func value(
    _ type: Data.Type = Data.self, forKey key: String
  ) async throws(BlobStorageError) -> Data? {
    try await value(type, forKey: key, as: .bytes)
  }

  /// The same for JSON.
  public func value<Value: Codable & Sendable>(
    _ type: Value.Type = Value.self, forKey key: String
  ) async throws(BlobStorageError) -> Value? {
    try await value(type, forKey: key, as: .json)
  }

  /// Stores a value under a key; see ``set(_:to:priority:lifetime:)-(_,Data,_,_)``.
  @discardableResult
  public func set<Value: Sendable>(
    _ key: String, to value: Value, as format: BlobFormat<Value>, priority: CachePriority = .normal,
    lifetime: Duration? = nil
  ) async throws(BlobStorageError) -> Bool {
    try await set(key, to: try format.data(of: value, key: key), priority: priority, lifetime: lifetime)
  }

  /// The same in JSON.
  @discardableResult
  public func set<Value: Codable & Sendable>(
    _ key: String, to value: Value, priority: CachePriority = .normal, lifetime: Duration? = nil
  ) async throws(BlobStorageError) -> Bool {
    try await set(key, to: value, as: .json, priority: priority, lifetime: lifetime)
  }

  /// Returns the value of a key. Makes and stores a missing value, once for all concurrent callers in this process.
  ///
  /// Other callers wait for the value that is being made, and get its error if that fails. Two processes may make the
  /// same value; the later put stays. `make` runs in a task of its own and continues when the caller is cancelled,
  /// because others may wait for it. A value that cannot be stored is still returned. A stored value that cannot be
  /// converted is made again.
  ///
  /// If the key is set or removed in this process meanwhile, the value is returned to those who asked before, and is
  /// not stored.
  public func value<Value: Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, as format: BlobFormat<Value>,
    priority: CachePriority = .normal, lifetime: Duration? = nil,
    make: @escaping @Sendable () async throws -> Value
  ) async throws -> Value {
    if let value = try await stored(key, format) { return value }
    let bytes = Array(key.utf8)
    let task = making.withLock { making in
      if let known = making.tasks[bytes] { return known.task }
      making.lastNumber += 1
      let number = making.lastNumber
      let task = Task {
        defer { self.making.withLock { if $0.tasks[bytes]?.number == number { $0.tasks[bytes] = nil } } }
        // Another task may have made it meanwhile.
        if let value = try await self.stored(key, format) { return try format.data(of: value, key: key) }
        let data = try format.data(of: try await make(), key: key)
        do throws(BlobStorageError) {
          let item = CacheItem(key: key, data: data, priority: priority, lifetime: lifetime)
          _ = try await self.change { (core) throws(BlobStorageError) in
            try core.put([item], if: { self.isWanted(bytes, number) })
          }
        } catch {
          if error.code == .conditionFailed { return data }
          self.core.engine.logger.warning(
            "A value was made and could not be stored.", metadata: ["reason": "\(error.message)"])
        }
        return data
      }
      making.tasks[bytes] = (number, task)
      return task
    }
    return try format.value(of: try await task.value, key: key)
  }

  /// Whether the key was neither set nor removed since its value is being made.
  private func isWanted(_ key: [UInt8], _ number: Int) -> Bool {
    making.withLock { $0.tasks[key]?.number == number }
  }

  /// Keeps the values that are being made for these keys from being stored. Comes before the change of the keys.
  private func outdate(_ keys: [String]) {
    making.withLock { making in
      guard !making.tasks.isEmpty else { return }
      for key in keys { making.tasks[Array(key.utf8)] = nil }
    }
  }

  private func outdate(prefix: String) {
    making.withLock { making in
      making.tasks = making.tasks.filter { !$0.key.starts(with: prefix.utf8) }
    }
  }

  /// The same in JSON.
  public func value<Value: Codable & Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, priority: CachePriority = .normal,
    lifetime: Duration? = nil, make: @escaping @Sendable () async throws -> Value
  ) async throws -> Value {
    try await value(type, forKey: key, as: .json, priority: priority, lifetime: lifetime, make: make)
  }

  /// The bytes of a key, made and stored if they are missing: see ``value(_:forKey:as:priority:lifetime:make:)``.
  public func value(
    _ type: Data.Type = Data.self, forKey key: String, priority: CachePriority = .normal,
    lifetime: Duration? = nil,
    make: @escaping @Sendable () async throws -> Data
  ) async throws -> Data {
    try await value(type, forKey: key, as: .bytes, priority: priority, lifetime: lifetime, make: make)
  }

  /// The value, unless it is missing or cannot be converted.
  private func stored<Value: Sendable>(
    _ key: String, _ format: BlobFormat<Value>
  ) async throws(BlobStorageError) -> Value? {
    do throws(BlobStorageError) { return try await value(forKey: key, as: format) } catch {
      guard error.code == .sourceFailed else { throw error }
      return nil
    }
  }

  /// Runs a read. A separate task writes the notes of reads, so that no read waits for it.
  private func read<T: Sendable>(
    _ body: @escaping @Sendable (CacheCore) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let value = try await run(body)
    if core.areNotesToWrite() {
      // A closed store has written them already.
      Task(priority: .utility) { try? await change { $0.writeNotesOfReads() } }
    }
    return value
  }

  func run<T: Sendable>(
    _ body: @escaping @Sendable (CacheCore) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let core = core
    return try await store.read { (_) throws(BlobStorageError) in try body(core) }
  }

  /// Runs a change, which may wait for room, on a thread that neither reads nor other stores need.
  func change<T: Sendable>(
    _ body: @escaping @Sendable (CacheCore) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let core = core
    return try await changes.run { () throws(BlobStorageError) in try body(core) }
  }
}
