import BlobStorage
import Foundation
import Logging
import SystemPackage

extension BlobCache {
  /// Returns the value of a key. Makes and stores a missing value, once for all concurrent callers of this `BlobCache`.
  ///
  /// Other callers of the same type wait for the value that is being made, and get its error if that fails. A stored
  /// value that cannot be converted is made again, and so is one that cannot be read. The value is returned as soon as
  /// it is made: it is stored afterwards, and reads of this `BlobCache` already return it. If it cannot be stored, the
  /// logger gets the reason. Two processes may make the same value; the later put stays. If the key is set or removed
  /// meanwhile by this `BlobCache`, the value is returned to those who asked before, and is not stored.
  ///
  /// `make` runs in a task of its own. A cancelled caller stops waiting at once. When the last caller has left, the task
  /// is cancelled and its value is not stored, unless a caller has passed `keepsMaking: true`.
  ///
  /// `make` may ask for values of other keys.
  ///
  /// - Throws: the error of `make`; `CancellationError` for a cancelled caller; `invalidArgument` for an invalid key,
  ///   and if `make` asks for its own key, also by way of other keys; `closed` for a closed cache.
  public func value<Value: Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, as format: BlobFormat<Value>,
    priority: CachePriority = .normal, lifetime: Duration? = nil, keepsMaking: Bool = false,
    make: @escaping @Sendable () async throws -> Value
  ) async throws -> Value {
    try Task.checkCancellation()
    try opened.checkOpen()
    let name = try makingName(key)
    let endCount = makings.endCount
    if let value = await found(key, format) { return value }
    try Task.checkCancellation()
    let item = CacheItem(key: key, data: Data(), priority: priority, lifetime: lifetime)
    return try await makings.value(type, of: Array(key.utf8), name, isKept: keepsMaking) { number, identity in
      Task {
        // Another task may have made it since the lookup.
        if self.makings.endCount != endCount, let value = await self.found(key, format) {
          _ = self.makings.finish(number, .success(value))
          return
        }
        await self.make(item, format, number, identity, make)
      }
    }
  }

  /// The same in JSON.
  public func value<Value: Codable & Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, priority: CachePriority = .normal,
    lifetime: Duration? = nil, keepsMaking: Bool = false, make: @escaping @Sendable () async throws -> Value
  ) async throws -> Value {
    try await value(
      type, forKey: key, as: .json, priority: priority, lifetime: lifetime, keepsMaking: keepsMaking,
      make: make)
  }

  /// The bytes of a key, made and stored if they are missing: see
  /// ``value(_:forKey:as:priority:lifetime:keepsMaking:make:)``.
  public func value(
    _ type: Data.Type = Data.self, forKey key: String, priority: CachePriority = .normal,
    lifetime: Duration? = nil, keepsMaking: Bool = false, make: @escaping @Sendable () async throws -> Data
  ) async throws -> Data {
    try await value(
      type, forKey: key, as: .bytes, priority: priority, lifetime: lifetime, keepsMaking: keepsMaking,
      make: make)
  }

  /// Makes and stores the values of those keys that have none, for example of images that will soon be shown.
  ///
  /// To stop, cancel the task that calls this. It then returns at once, and makings that no other caller waits for are
  /// cancelled. A making that fails is only logged, so that the others continue.
  ///
  /// - Parameters:
  ///   - keys: in the order in which they are looked at.
  ///   - maximumConcurrency: how many values are made at the same time.
  ///   - priority: values of a lower priority are evicted first.
  ///   - lifetime: how long the values are valid; nil for the lifetime of the cache's limits.
  ///   - make: makes the value of a key; see ``value(_:forKey:as:priority:lifetime:keepsMaking:make:)``.
  /// - Returns: the number of keys that had a value or got one.
  /// - Throws: `CancellationError`; `closed` for a closed cache.
  @discardableResult
  public func prefetch(
    _ keys: [String], maximumConcurrency: Int = 4, priority: CachePriority = .normal,
    lifetime: Duration? = nil,
    make: @escaping @Sendable (_ key: String) async throws -> Data
  ) async throws -> Int {
    try opened.checkOpen()
    return try await withThrowingTaskGroup(of: Bool.self) { group in
      var rest = keys.makeIterator()
      func addNext() {
        guard let key = rest.next() else { return }
        group.addTask { try await self.prefetch(key, priority, lifetime, make) }
      }
      for _ in 0..<max(1, maximumConcurrency) { addNext() }
      var count = 0
      while let hasValue = try await group.next() {
        try Task.checkCancellation()
        if hasValue { count += 1 }
        addNext()
      }
      return count
    }
  }

  /// Whether the key has a value, or got one.
  private func prefetch(
    _ key: String, _ priority: CachePriority, _ lifetime: Duration?,
    _ make: @escaping @Sendable (String) async throws -> Data
  ) async throws -> Bool {
    try Task.checkCancellation()
    do {
      if try await contains(key: key) { return true }
    } catch {
      if error.isCancellation { throw CancellationError() }
      // The lookup of the value reports it.
    }
    do {
      _ = try await value(Data.self, forKey: key, priority: priority, lifetime: lifetime) {
        try await make(key)
      }
      return true
    } catch {
      try Task.checkCancellation()
      try opened.checkOpen()
      core.engine.logger.warning(
        "A value could not be prefetched.", metadata: ["key": "\(key)", "reason": "\(error)"])
      return false
    }
  }

  private func makingName(_ key: String) throws(BlobStorageError) -> MakingIdentity.Name {
    let core = core
    return MakingIdentity.Name(
      folder: core.engine.folder.path.string, key: try Engine.keyBytes(core.prefix + key))
  }

  /// The stored value. A lookup that fails, and bytes that cannot be converted, count as a miss.
  private func found<Value: Sendable>(_ key: String, _ format: BlobFormat<Value>) async -> Value? {
    do { return try await value(forKey: key, as: format) } catch {
      guard error.code != .sourceFailed, !error.isCancellation else { return nil }
      let core = core
      core.counted(nil)
      core.engine.logger.warning(
        "A value could not be read and is made again.",
        metadata: ["key": "\(key)", "reason": "\(error.message)"])
      return nil
    }
  }

  /// Makes a value, gives it to all who wait, and stores it.
  private func make<Value: Sendable>(
    _ item: CacheItem, _ format: BlobFormat<Value>, _ number: Makings.Number, _ identity: MakingIdentity,
    _ make: @Sendable () async throws -> Value
  ) async {
    let value: Value
    do {
      await makings.waitForRoom()
      try Task.checkCancellation()
      value = try await MakingIdentity.$chain.withValue(MakingIdentity.chain + [identity]) {
        try await make()
      }
    } catch {
      _ = makings.finish(number, .failure(error))
      return
    }
    var item = item
    do throws(BlobStorageError) {
      item.data = try format.data(of: value, key: item.key)
    } catch {
      _ = makings.finish(number, .success(value))
      return warn(error, item.key)
    }
    guard makings.finish(number, .success(value), data: item.data) else { return }
    do throws(BlobStorageError) {
      _ = try await change { [item, makings] (core) throws(BlobStorageError) in
        try core.put([item], if: { makings.isFound(number) })
      }
    } catch {
      if error.code != .conditionFailed { warn(error, item.key) }
    }
    makings.endStoring(number)
  }

  private func warn(_ error: BlobStorageError, _ key: String) {
    core.engine.logger.warning(
      "A value was made and could not be stored.", metadata: ["key": "\(key)", "reason": "\(error.message)"])
  }
}
