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
