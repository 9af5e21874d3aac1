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
/// If the folder is deleted or exchanged while the cache is open, a cache without a prefix opens or creates the store at
/// its path again, with the limits that it had, and continues there. Nothing needs to be done.
///
/// Unless a method says otherwise, it throws what those of `BlobStore` throw. The configuration sets the durability of
/// a put: relaxed by default, so that a power cut leaves each value whole or not at all. A get takes microseconds and
/// writes nothing. A put takes one append, and makes room now and then.
public final class BlobCache: Sendable {
  /// The store that the cache is on.
  public let store: BlobStore
  let opened: OpenedCache
  /// The threads for changes. Each change may wait for room that another process makes.
  private let changes = OperationPool()
  let makings: Makings

  var core: CacheCore { opened.core }

  init(store: BlobStore, core: CacheCore, memoryByteLimit: Int) {
    self.store = store
    opened = OpenedCache(store: store, core: core, memoryByteLimit: memoryByteLimit)
    makings = Makings(storingByteCountMax: memoryByteLimit)
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

  /// Closes the cache and its store, after the values that were made are stored.
  public func close() async throws(BlobStorageError) {
    await makings.waitForStoring()
    let opened = opened
    try await store.close { () throws(BlobStorageError) in try opened.close() }
  }

  /// The cache's operations on the caller's thread.
  public var blocking: BlockingBlobCache { BlockingBlobCache(cache: self) }

  // MARK: Reading

  /// The bytes of a key; nil when there are none, or when they have expired.
  ///
  /// - Complexity: no write. The use is recorded in memory; a later put or a task of its own writes it.
  public func data(forKey key: String) async throws(BlobStorageError) -> Data? {
    if let data = dataBeingStored(key) { return data }
    return try await read({ nil }) { (core) throws(BlobStorageError) in try core.data(key) }
  }

  /// The bytes of several keys: one element for each key, in their order, nil for a key without a value.
  public func data(forKeys keys: [String]) async throws(BlobStorageError) -> [Data?] {
    try await read({ keys.map { _ in nil } }) { (core) throws(BlobStorageError) in
      var found: [Data?] = []
      for key in keys {
        try CancellationFlag.check()
        if let data = self.dataBeingStored(key) {
          found.append(data)
        } else {
          found.append(try core.data(key))
        }
      }
      return found
    }
  }

  /// The bytes of a key, if they are in this process's memory: returns at once and reads no file.
  ///
  /// Counts as a use. Returns nil for an expired value and for one that this process has replaced or removed. A value
  /// that another process has replaced or removed is returned until this process notices, for example in
  /// ``data(forKey:)``. Reads and puts keep values in memory: see ``CacheConfiguration/memoryByteLimit``.
  public func cachedData(forKey key: String) -> Data? {
    dataBeingStored(key) ?? core.valueInMemory(key)?.data
  }

  /// The bytes of a key with everything that is kept with them; nil when there are none, or when they have expired.
  public func item(forKey key: String) async throws(BlobStorageError) -> CacheItem? {
    try await read({ nil }) { (core) throws(BlobStorageError) in
      try core.value(key).map { CacheItem(key: key, $0) }
    }
  }

  /// Whether a key has a value. This does not count as a use.
  public func contains(key: String) async throws(BlobStorageError) -> Bool {
    if dataBeingStored(key) != nil { return true }
    return try await run({ false }) { (core) throws(BlobStorageError) in try core.contains(key) }
  }

  // MARK: Changing

  /// Stores bytes under a key.
  ///
  /// - Parameters:
  ///   - data: the bytes.
  ///   - key: 1 to 4,096 bytes of UTF-8 without NUL, less the cache's prefix.
  ///   - priority: values of a lower priority are evicted first.
  ///   - lifetime: how long it is valid; nil for the lifetime of the cache's limits.
  ///   - mediaType: the kind of value, such as `image/jpeg`; ``item(forKey:)`` returns it.
  ///   - metadata: bytes of your own; ``item(forKey:)`` returns them.
  /// - Returns: false when they were not stored: too long for the cache, or no room could be made. Then the key has no
  ///   value at all, not an older one.
  /// - Durability: relaxed, unless the configuration says otherwise.
  @discardableResult
  public func set(
    _ data: Data, forKey key: String, priority: CachePriority = .normal, lifetime: Duration? = nil,
    mediaType: String? = nil, metadata: [UInt8] = []
  ) async throws(BlobStorageError) -> Bool {
    let item = CacheItem(
      key: key, data: data, priority: priority, lifetime: lifetime, mediaType: mediaType, metadata: metadata)
    return try await set([item])[0]
  }

  /// Stores several values, in as few commits as their length allows.
  ///
  /// - Returns: whether each value was stored. False also if the folder is gone and cannot be created again.
  /// - Throws: `invalidArgument` for a cache that was ended, unless the values fit into the open pack and the cache had
  ///   no limit of keys.
  @discardableResult
  public func set(_ items: [CacheItem]) async throws(BlobStorageError) -> [Bool] {
    try await change({ items.map { _ in false } }) { [makings] (core) throws(BlobStorageError) in
      try Self.set(items, core, makings)
    }
  }

  static func set(
    _ items: [CacheItem], _ core: CacheCore, _ makings: Makings
  ) throws(BlobStorageError) -> [Bool] {
    let keys = items.map(\.key)
    makings.outdate(keys)
    return try core.put(
      items,
      if: {
        // Again in the commit: the put may have waited for room, and values began to be made meanwhile.
        makings.outdate(keys)
        return true
      })
  }

  /// Stores bytes under a key as `BlobStore.put(_:forKey:options:)` does, in room that the cache makes first.
  ///
  /// Unlike ``set(_:forKey:priority:lifetime:mediaType:metadata:)-(Data,_,_,_,_,_)``, a put that is refused leaves the
  /// key's earlier value.
  ///
  /// - Throws: `limitExceeded` for more bytes than `CacheLimits.valueByteLimit`, or if the limit leaves no room.
  ///   `noSpace` on a full medium, `busy` while another process makes room for too long. `invalidArgument` for a cache
  ///   that was ended, if the put needs room or the cache had a limit of keys.
  @discardableResult
  public func put(
    _ data: Data, forKey key: String, options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> PutResult {
    try await change { [makings] (core) throws(BlobStorageError) in
      try Self.put(data, key, options, core, makings)
    }
  }

  static func put(
    _ data: Data, _ key: String, _ options: PutOptions, _ core: CacheCore, _ makings: Makings
  ) throws(BlobStorageError) -> PutResult {
    makings.outdate([key])
    return try core.put(
      key, data, CacheMark.unmistakable(options),
      if: {
        makings.outdate([key])
        return true
      })
  }

  /// Drops a key. Returns false if it had no value.
  ///
  /// - Throws: `invalidArgument` for a cache that was ended; nothing was changed.
  @discardableResult
  public func remove(_ key: String) async throws(BlobStorageError) -> Bool { try await remove([key]) > 0 }

  /// Drops keys and returns how many existed.
  ///
  /// - Throws: `invalidArgument` for a cache that was ended; nothing was changed.
  @discardableResult
  public func remove(_ keys: [String]) async throws(BlobStorageError) -> Int {
    makings.outdate(keys)
    return try await change { (core) throws(BlobStorageError) in try core.remove(keys) }
  }

  /// Drops the keys of a prefix and returns how many existed.
  ///
  /// - Throws: `invalidArgument` for a cache that was ended, and for the empty prefix, which is most often a mistake:
  ///   ``removeAll()`` drops every key.
  @discardableResult
  public func removeAll(prefix: some KeyPrefixConvertible) async throws(BlobStorageError) -> Int {
    let prefix = prefix.keyPrefix
    makings.outdate(prefix: prefix)
    return try await change { (core) throws(BlobStorageError) in
      try core.removeAll(prefix: Engine.nonempty(prefix, elseSay: "removeAll()"))
    }
  }

  /// Drops all keys of the cache. Later puts reuse their space; `BlobStore.trimAndCollectGarbage` frees it at once.
  ///
  /// - Throws: `invalidArgument` for a cache that was ended.
  @discardableResult
  public func removeAll() async throws(BlobStorageError) -> Int {
    makings.outdate(prefix: .all)
    return try await change { (core) throws(BlobStorageError) in try core.removeAll() }
  }

  /// The bytes of a key that were made and are being stored.
  func dataBeingStored(_ key: String) -> Data? {
    guard let data = makings.dataBeingStored(key), data.count <= core.limits.valueByteLimit else {
      return nil
    }
    return data
  }

  /// Waits until the values that were made are stored.
  package func waitForStoring() async { await makings.waitForStoring() }

  /// How many callers wait for values that are being made.
  package var waiterCount: Int { makings.waiterCount }

  // MARK: Threads

  /// Runs a read. A separate task writes the notes of reads, so that no read waits for it.
  ///
  /// - Parameter fallback: the result without a folder.
  func read<T: Sendable>(
    _ fallback: @escaping @Sendable () -> T,
    _ body: @escaping @Sendable (CacheCore) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let value = try await run(fallback, body)
    if core.areNotesToWrite() {
      // A closed store has written them already.
      Task(priority: .utility) { try? await change { $0.writeNotesOfReads() } }
    }
    return value
  }

  func run<T: Sendable>(
    _ fallback: (@Sendable () -> T)? = nil,
    _ body: @escaping @Sendable (CacheCore) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let opened = opened
    return try await store.read { (_) throws(BlobStorageError) in try opened.perform(ifLost: fallback, body) }
  }

  /// Runs a change, which may wait for room, on a thread that neither reads nor other stores need.
  func change<T: Sendable>(
    _ fallback: (@Sendable () -> T)? = nil,
    _ body: @escaping @Sendable (CacheCore) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let opened = opened
    return try await changes.run { () throws(BlobStorageError) in
      try opened.perform(ifLost: fallback, body)
    }
  }
}
