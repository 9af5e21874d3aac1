import ArgumentParser
import BlobStorage

/// A value with a number in the library and a name for users.
protocol NamedChoice: CaseIterable, Sendable {
  var name: String { get }
  init?(name: String)
}

extension CodecKind: NamedChoice {}
extension BlobDigest.Algorithm: NamedChoice {}

/// A named value as it was typed. The argument parser would print the value's number.
struct Choice<Value: NamedChoice>: ExpressibleByArgument {
  var value: Value

  init(_ value: Value) { self.value = value }

  init?(argument: String) {
    guard let value = Value(name: argument) else { return nil }
    self.value = value
  }

  static var allValueStrings: [String] { Value.allCases.map(\.name) }
  static var defaultCompletionKind: CompletionKind { .list(allValueStrings) }
  var defaultValueDescription: String { value.name }
}

extension CodecLevel {
  /// The levels that have a word.
  static let words: KeyValuePairs<String, CodecLevel> = ["fast": .fast, "default": .default, "max": .max]

  /// A level as it was typed. The codec refuses numbers that it does not have.
  init(argument: String) throws {
    if let level = Self.words.first(where: { $0.key == argument })?.value {
      self = level
    } else if let number = Int(argument) {
      self = .number(number)
    } else {
      throw ValidationError("a level is fast, default, max, or 1 to 19 for zstd, 1 to 9 for zlib, 0 for none")
    }
  }
}

extension BlobVersion.ID: ExpressibleByArgument {}

/// A length of time as it was typed: a number and s, m, h or d.
struct DurationArgument: ExpressibleByArgument {
  var value: Duration

  init?(argument: String) {
    let units: [Character: Double] = ["s": 1, "m": 60, "h": 3_600, "d": 86_400]
    guard let unit = argument.last.flatMap({ units[$0] }), let number = Double(argument.dropLast()),
      number > 0, number < 1e9
    else { return nil }
    value = .seconds(number * unit)
  }
}

/// A key as it was typed.
struct KeyArgument: ExpressibleByArgument {
  var text: String

  init?(argument: String) { text = argument }

  /// - Throws: `ValidationError` for an empty key. The store refuses keys that are too long.
  func checked() throws -> String {
    guard !text.isEmpty else {
      throw ValidationError("a key is empty: it has 1 to \(BlobLimits.maximumKeyByteCount) bytes")
    }
    return text
  }
}

/// A version of a key, as it was typed.
struct VersionArgument {
  /// The ID; nil for a text that can be no version's ID.
  static func id(_ text: String?, of key: String) throws -> BlobVersion.ID? {
    guard let text else { return nil }
    guard let id = BlobVersion.ID(text) else { throw Failure.noVersion(text, of: key) }
    return id
  }

  /// The failure for a missing version.
  static func missing(_ text: String?, of key: String, in store: BlobStore) async throws -> Failure {
    if let text, try await store.currentVersion(of: key) != nil { return .noVersion(text, of: key) }
    return .noKey(key)
  }
}

/// A digest as it was typed: with its algorithm, or its 64 digits alone.
struct DigestArgument: ExpressibleByArgument {
  private var text: String

  init?(argument: String) {
    guard BlobDigest(argument) != nil || BlobDigest(algorithm: .blake3, hex: argument) != nil else {
      return nil
    }
    text = argument
  }

  /// The digest. Digits alone mean the store's algorithm.
  func digest(in store: BlobStore) -> BlobDigest? {
    BlobDigest(text) ?? BlobDigest(algorithm: store.information.digestAlgorithm, hex: text)
  }
}
