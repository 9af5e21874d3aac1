import Foundation

/// A value that converts to bytes and back.
public protocol BlobConvertible: Sendable {
  /// Makes the value from its bytes; throws when they are not such a value.
  init(blobData data: Data) throws
  /// The bytes of the value.
  func blobData() throws -> Data
}

/// Any `Codable` value, stored as JSON with sorted keys, so that equal values are equal bytes.
public struct JSONBlob<Value: Codable & Sendable>: BlobConvertible {
  public var value: Value

  /// Wraps a value.
  public init(_ value: Value) { self.value = value }

  public init(blobData data: Data) throws { value = try JSONDecoder().decode(Value.self, from: data) }

  public func blobData() throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = .sortedKeys
    return try encoder.encode(value)
  }
}

extension Data: BlobConvertible {
  public init(blobData data: Data) { self = data }
  public func blobData() -> Data { self }
}

extension String: BlobConvertible {
  public init(blobData data: Data) throws {
    guard let text = String(validating: data, as: UTF8.self) else {
      throw BlobStorageError(.sourceFailed, "The bytes are not UTF-8 text.")
    }
    self = text
  }

  public func blobData() -> Data { Data(utf8) }
}

extension BlobStore {
  /// Stores a value as the current version of a key. A value that cannot be converted changes nothing.
  ///
  /// - Throws: `sourceFailed` when the conversion fails, and what ``put(_:_:options:progress:)`` throws.
  @discardableResult
  public func set<Value: BlobConvertible>(
    _ key: String, toValue value: Value, options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> PutResult {
    try await run { (engine) throws(BlobStorageError) in
      let data: Data
      do { data = try value.blobData() } catch {
        throw BlobStorageError(
          .sourceFailed, "The value for key “\(key)” cannot be converted: \(error).", key: key)
      }
      return try engine.put(key, .data(data), options)
    }
  }

  /// The value of a key; nil when there is no such key.
  ///
  /// - Throws: `sourceFailed` when the bytes are right and the conversion fails, `corrupted` when they are not.
  public func value<Value: BlobConvertible>(
    _ type: Value.Type = Value.self, forKey key: String, version: BlobVersion.ID? = nil
  ) async throws(BlobStorageError) -> Value? {
    try await run { (engine) throws(BlobStorageError) in
      guard let data = try engine.data(key, version) else { return nil }
      do { return try Value(blobData: data) } catch {
        throw BlobStorageError(
          .sourceFailed, "The value of key “\(key)” cannot be converted: \(error).", key: key)
      }
    }
  }
}
