import Foundation

/// A value that converts to bytes and back.
public protocol ValueConverter {
  associatedtype T
  /// The converter with the value that `data` encodes; nil if it encodes none.
  static func from(data: Data) -> Self?
  /// The encoded value; nil if it cannot be converted.
  var toData: Data? { get }
  /// The value.
  var value: T { get }
}

/// Any `Codable` value, as JSON.
public struct JSONValueConverter<T: Codable>: ValueConverter {
  public var value: T

  /// Wraps a value.
  public init(value: T) { self.value = value }

  // Nil means that the conversion failed: the protocol has no place for the reason.
  public static func from(data: Data) -> JSONValueConverter? {
    (try? JSONDecoder().decode(T.self, from: data)).map { JSONValueConverter(value: $0) }
  }

  public var toData: Data? { try? JSONEncoder().encode(value) }
}

extension JSONValueConverter: Sendable where T: Sendable {}

/// An image in the bytes of its format, PNG or JPEG for instance: they are stored and come back as they are.
public struct ImageDataConverter: ValueConverter, Sendable {
  /// The encoded image.
  public var value: Data

  /// Wraps an encoded image.
  public init(value: Data) { self.value = value }

  /// Nil for empty bytes, which are no image.
  public static func from(data: Data) -> ImageDataConverter? {
    data.isEmpty ? nil : ImageDataConverter(value: data)
  }

  public var toData: Data? { value.isEmpty ? nil : value }
}

/// Bytes that are their own value.
struct DataValueConverter: ValueConverter {
  let value: Data

  static func from(data: Data) -> DataValueConverter? { DataValueConverter(value: data) }

  var toData: Data? { value }
}

/// A conversion from bytes to a value, for use on another thread.
///
/// Unchecked for the reason that ``Handed`` gives.
struct Conversion<Value>: @unchecked Sendable {
  /// The value; nil if the conversion fails.
  let value: (Data) -> Value?
  /// The converter's name in failures.
  let name: String

  init<Converter: ValueConverter>(_ type: Converter.Type) where Converter.T == Value {
    value = { type.from(data: $0)?.value }
    name = "\(type)"
  }
}
