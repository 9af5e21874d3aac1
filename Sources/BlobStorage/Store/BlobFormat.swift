import Foundation

/// Converts values of a type to bytes and back.
///
/// ``json`` and ``propertyList`` take any `Codable` value. A format of your own takes two closures:
///
/// ```swift
/// extension BlobFormat where Value == Int {
///   static var decimal: Self {
///     Self { Data("\($0)".utf8) } decode: { data in
///       guard let number = Int(String(decoding: data, as: UTF8.self)) else { throw CocoaError(.formatting) }
///       return number
///     }
///   }
/// }
/// ```
public struct BlobFormat<Value: Sendable>: Sendable {
  private let encoder: @Sendable (Value) throws -> Data
  private let decoder: @Sendable (Data) throws -> Value

  /// Creates a format from two closures. `decode` throws for bytes that represent no such value.
  public init(
    encode: @escaping @Sendable (Value) throws -> Data, decode: @escaping @Sendable (Data) throws -> Value
  ) {
    encoder = encode
    decoder = decode
  }

  /// The bytes of a value.
  ///
  /// - Throws: `sourceFailed` if the value cannot be converted.
  package func data(of value: Value, key: String) throws(BlobStorageError) -> Data {
    do { return try encoder(value) } catch {
      throw BlobStorageError(
        .sourceFailed, "The value for key “\(key)” cannot be converted: \(error).", key: key,
        underlying: error)
    }
  }

  /// The value that bytes represent.
  ///
  /// - Throws: `sourceFailed` if they represent none.
  package func value(of data: Data, key: String) throws(BlobStorageError) -> Value {
    do { return try decoder(data) } catch {
      throw BlobStorageError(
        .sourceFailed, "The value of key “\(key)” cannot be converted: \(error).", key: key, underlying: error
      )
    }
  }
}

extension BlobFormat where Value: Codable {
  /// JSON with sorted keys, so that equal values have equal bytes and are stored once. Exceptions are a `Set`, and a
  /// `Dictionary` with keys other than strings and integers: they have no fixed order.
  public static var json: Self {
    Self { value in
      let encoder = JSONEncoder()
      encoder.outputFormatting = .sortedKeys
      return try encoder.encode(value)
    } decode: {
      try JSONDecoder().decode(Value.self, from: $0)
    }
  }

  /// A binary property list. Its dictionaries have no fixed order, so equal values may be stored twice.
  public static var propertyList: Self {
    Self { value in
      let encoder = PropertyListEncoder()
      encoder.outputFormat = .binary
      return try encoder.encode(value)
    } decode: {
      try PropertyListDecoder().decode(Value.self, from: $0)
    }
  }
}

extension BlobFormat where Value == String {
  /// The text itself, in UTF-8.
  public static var text: Self {
    Self {
      Data($0.utf8)
    } decode: { data in
      guard let text = String(validating: data, as: UTF8.self) else {
        throw BlobStorageError(.sourceFailed, "The bytes are not UTF-8 text.")
      }
      return text
    }
  }
}

extension BlobFormat where Value == Data {
  /// The bytes themselves.
  public static var bytes: Self {
    Self {
      $0
    } decode: {
      $0
    }
  }
}
