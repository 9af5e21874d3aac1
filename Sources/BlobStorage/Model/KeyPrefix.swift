/// The keys that a prefix means: those of a folder, if keys are paths.
///
/// ```swift
/// for try await entry in store.keys(prefix: "web") {}  // web and web/index.html, not web-archive/a
/// try await store.delete(prefix: .bytes("log-2025"))   // log-2025-01 and log-2025.txt
/// ```
///
/// A string literal means ``below(_:)``.
public struct KeyPrefix: Sendable {
  /// The text as the caller gave it.
  public let text: String
  private let isOfBytes: Bool

  private init(_ text: String, isOfBytes: Bool) {
    self.text = text
    self.isOfBytes = isOfBytes
  }

  /// Every key.
  public static let all = KeyPrefix("", isOfBytes: true)

  /// The key with this name, and the keys below it: `web` and all that begin with `web/`. A text that ends in `/` means
  /// the keys below it alone; the empty text means every key.
  public static func below(_ path: String) -> KeyPrefix { KeyPrefix(path, isOfBytes: path.isEmpty) }

  /// Every key that begins with these bytes, also in the middle of a name.
  public static func bytes(_ text: String) -> KeyPrefix { KeyPrefix(text, isOfBytes: true) }

  /// Whether it means every key.
  public var isAll: Bool { text.isEmpty }

  public func contains(_ key: String) -> Bool { contains(key.utf8) }

  /// What the keys begin with, except the one that has the prefix as its name: `web/` for `web`.
  public var start: String {
    isOfBytes || text.utf8.last == UInt8(ascii: "/") ? text : text + "/"
  }

  /// The key that has the prefix as its name; nil if it is not meant.
  package var own: String? { isOfBytes || text.utf8.last == UInt8(ascii: "/") ? nil : text }

  package func contains(_ key: some Collection<UInt8>) -> Bool {
    key.starts(with: start.utf8) || (own.map { key.elementsEqual($0.utf8) } ?? false)
  }

  /// Whether it has all keys that begin with these bytes.
  package func containsAll(beginningWith bytes: some Collection<UInt8>) -> Bool {
    bytes.starts(with: start.utf8)
  }

  /// Whether it has keys that begin with these bytes.
  package func overlaps(_ bytes: some Collection<UInt8>) -> Bool {
    bytes.starts(with: start.utf8) || start.utf8.starts(with: bytes)
      || (own.map { $0.utf8.starts(with: bytes) } ?? false)
  }
}

extension KeyPrefix: ExpressibleByStringInterpolation {
  public init(stringLiteral value: String) { self = .below(value) }
}

/// Compares by bytes, as the store compares keys.
extension KeyPrefix: Hashable {
  public static func == (one: Self, other: Self) -> Bool {
    one.isOfBytes == other.isOfBytes && one.text.utf8.elementsEqual(other.text.utf8)
  }

  public func hash(into hasher: inout Hasher) {
    hasher.combine(isOfBytes)
    hasher.combine(Array(text.utf8))
  }
}

/// What a call accepts as a prefix: text, which means ``KeyPrefix/below(_:)``, or a ``KeyPrefix``.
public protocol KeyPrefixConvertible: Sendable {
  var keyPrefix: KeyPrefix { get }
}

extension KeyPrefix: KeyPrefixConvertible {
  public var keyPrefix: KeyPrefix { self }
}

extension String: KeyPrefixConvertible {
  public var keyPrefix: KeyPrefix { .below(self) }
}

extension KeyPrefixConvertible where Self == KeyPrefix {
  /// Every key.
  public static var all: KeyPrefix { KeyPrefix.all }

  /// The key with this name, and the keys below it: ``KeyPrefix/below(_:)``.
  public static func below(_ path: String) -> KeyPrefix { KeyPrefix.below(path) }

  /// Every key that begins with these bytes.
  public static func bytes(_ text: String) -> KeyPrefix { KeyPrefix.bytes(text) }
}
