import BlobStorage
import Foundation

extension BlobCache {
  /// The value of a key; nil when there is none.
  ///
  /// - Throws: `sourceFailed` when the bytes are right and the conversion fails.
  public func value<Value: Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, as format: BlobFormat<Value>
  ) async throws(BlobStorageError) -> Value? {
    if let data = dataBeingStored(key) { return try format.value(of: data, key: key) }
    return try await read({ nil }) { (core) throws(BlobStorageError) in
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

  /// The value of a key, if its bytes are in this process's memory and can be converted: see ``cachedData(forKey:)``.
  ///
  /// - Complexity: converts the bytes at each call, on the caller's thread.
  public func cachedValue<Value: Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, as format: BlobFormat<Value>
  ) -> Value? {
    guard let data = cachedData(forKey: key) else { return nil }
    // A read or a making says what is wrong with the bytes.
    return try? format.value(of: data, key: key)
  }

  /// The same for JSON.
  public func cachedValue<Value: Codable & Sendable>(
    _ type: Value.Type = Value.self, forKey key: String
  ) -> Value? {
    cachedValue(type, forKey: key, as: .json)
  }

  /// Stores a value under a key; see ``set(_:forKey:priority:lifetime:mediaType:metadata:)-(Data,_,_,_,_,_)``.
  @discardableResult
  public func set<Value: Sendable>(
    _ value: Value, forKey key: String, as format: BlobFormat<Value>, priority: CachePriority = .normal,
    lifetime: Duration? = nil, mediaType: String? = nil, metadata: [UInt8] = []
  ) async throws(BlobStorageError) -> Bool {
    try await set(
      try format.data(of: value, key: key), forKey: key, priority: priority, lifetime: lifetime,
      mediaType: mediaType, metadata: metadata)
  }

  /// The same in JSON.
  @discardableResult
  public func set<Value: Codable & Sendable>(
    _ value: Value, forKey key: String, priority: CachePriority = .normal, lifetime: Duration? = nil,
    mediaType: String? = nil, metadata: [UInt8] = []
  ) async throws(BlobStorageError) -> Bool {
    try await set(
      value, forKey: key, as: .json, priority: priority, lifetime: lifetime, mediaType: mediaType,
      metadata: metadata)
  }
}
