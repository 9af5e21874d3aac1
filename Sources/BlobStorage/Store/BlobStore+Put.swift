import Foundation

extension BlobStore {
  /// Stores bytes as the current version of a key.
  ///
  /// - Parameters:
  ///   - key: 1 to 4,096 bytes of UTF-8 without NUL; compared byte by byte.
  ///   - content: the bytes, a file, an open descriptor or a closure.
  ///   - options: durability, condition, codec, metadata, and what happens to the previous version.
  ///   - progress: receives the bytes of long content that were read, and the total if it is known.
  /// - Throws: `invalidArgument`, `conditionFailed`, `sourceFailed`, `noSpace`, `busy`, `poisoned`, `io`, `cancelled`;
  ///   the key is then unchanged. In a store in a bucket a durable put also throws why it cannot be published, or
  ///   `cancelled` while it waits. Then this machine has the new version and publishes it later.
  /// - Durability: as `options` says, including every chunk that the blob shares with others.
  /// - Complexity: memory is bounded for any length. A small blob takes one append and, if durable, one sync.
  @discardableResult
  public func put(
    _ key: String, _ content: BlobContent, options: PutOptions = PutOptions(),
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> PutResult {
    try await run { (engine) throws(BlobStorageError) in
      if case .data = content { return try engine.put(key, content, options, progress) }
      return try engine.watched("put", on: key, byteCountMin: 16 << 20, progress) {
        (progress) throws(BlobStorageError) in try engine.put(key, content, options, progress)
      }
    }
  }

  /// Stores bytes as the current version of a key and drops the previous one.
  @discardableResult
  public func set(
    _ key: String, to data: Data, durability: Durability = .durable
  ) async throws(BlobStorageError) -> PutResult {
    try await put(key, .data(data), options: PutOptions(durability: durability))
  }

  /// Stores bytes as the current version of a key and keeps the previous one in its history.
  @discardableResult
  public func archive(
    _ key: String, andSet data: Data, durability: Durability = .durable
  ) async throws(BlobStorageError) -> PutResult {
    try await put(key, .data(data), options: PutOptions(durability: durability, replacement: .archiveCurrent))
  }

  /// Stores several blobs in one commit: all of them or none. Meant for many small ones.
  ///
  /// Ignores the metadata of `options`, because each item has its own.
  ///
  /// - Returns: one result per item, in their order.
  @discardableResult
  public func put(
    _ items: [PutItem], options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> [PutResult] {
    try await run { (engine) throws(BlobStorageError) in try engine.put(items, options) }
  }

  /// Makes several changes in one commit: all of them or none. A batch of deletions succeeds on a full disk.
  ///
  /// There is at most one change for each key.
  ///
  /// - Returns: for each change, in their order, what a put stored, and nil for a deletion.
  /// - Throws: `conditionFailed` when a condition does not hold; `invalidArgument` for conditions in a store in a
  ///   bucket.
  @discardableResult
  public func apply(
    _ changes: [BlobChange], durability: Durability = .durable
  ) async throws(BlobStorageError) -> [PutResult?] {
    try await run { (engine) throws(BlobStorageError) in try engine.change(changes, durability) }
  }

  /// Drops keys with all their versions, in one commit.
  ///
  /// - Returns: the number of keys that existed.
  @discardableResult
  public func delete(
    _ keys: [String], durability: Durability = .durable
  ) async throws(BlobStorageError) -> Int {
    try await run { (engine) throws(BlobStorageError) in try engine.delete(keys, durability) }
  }

  /// Drops a key with all its versions; false when it did not exist.
  ///
  /// - Throws: `conditionFailed` when `condition` does not hold.
  @discardableResult
  public func delete(
    _ key: String, if condition: ChangeCondition = .always, durability: Durability = .durable
  ) async throws(BlobStorageError) -> Bool {
    try await run { (engine) throws(BlobStorageError) in
      try engine.delete([key], durability, if: condition) > 0
    }
  }

  /// Drops every key that begins with `prefix`.
  ///
  /// - Returns: the number of keys that existed.
  /// - Throws: `invalidArgument` for the empty prefix, which is most often a mistake: ``deleteAllKeys(durability:)``
  ///   drops every key.
  @discardableResult
  public func delete(
    prefix: String, durability: Durability = .durable
  ) async throws(BlobStorageError) -> Int {
    try await run { (engine) throws(BlobStorageError) in
      try engine.delete(prefix: Engine.nonempty(prefix, elseSay: "deleteAllKeys()"), durability)
    }
  }

  /// Drops every key.
  ///
  /// - Returns: the number of keys that existed.
  @discardableResult
  public func deleteAllKeys(durability: Durability = .durable) async throws(BlobStorageError) -> Int {
    try await run { (engine) throws(BlobStorageError) in try engine.delete(prefix: "", durability) }
  }

  /// Keeps the current version of a key and its youngest `archivedCount` archived ones, and drops the others.
  ///
  /// - Throws: `invalidArgument` for a negative count; nothing was changed.
  @discardableResult
  public func keep(
    upTo archivedCount: Int, of key: String, durability: Durability = .durable
  ) async throws(BlobStorageError) -> RetentionResult {
    try await run { (engine) throws(BlobStorageError) in
      try engine.keep(upTo: archivedCount, keys: [key], durability)
    }
  }

  /// The same for every key that begins with `prefix`.
  ///
  /// - Throws: `invalidArgument` for the empty prefix, which is most often a mistake:
  ///   ``keepInAllKeys(upTo:durability:)`` means every key.
  @discardableResult
  public func keep(
    upTo archivedCount: Int, prefix: String, durability: Durability = .durable
  ) async throws(BlobStorageError) -> RetentionResult {
    try await run { (engine) throws(BlobStorageError) in
      let prefix = try Engine.nonempty(prefix, elseSay: "keepInAllKeys(upTo:)")
      return try engine.keep(upTo: archivedCount, prefix: prefix, durability)
    }
  }

  /// The same for every key.
  @discardableResult
  public func keepInAllKeys(
    upTo archivedCount: Int, durability: Durability = .durable
  ) async throws(BlobStorageError) -> RetentionResult {
    try await run { (engine) throws(BlobStorageError) in
      try engine.keep(upTo: archivedCount, prefix: "", durability)
    }
  }
}
