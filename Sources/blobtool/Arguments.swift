import ArgumentParser
import BlobStorage
import BlobStorageCache
import Foundation

/// A value with a number in the library and a name for users.
protocol NamedChoice: CaseIterable, Sendable {
  var name: String { get }
  init?(name: String)
}

extension CodecKind: NamedChoice {}
extension BlobDigest.Algorithm: NamedChoice {}

/// A named value as the user typed it. The argument parser would print the value's number.
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

  /// A level as the user typed it. The codec refuses numbers that it does not have.
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

/// A number of bytes as the user typed it: `9M` and `9MiB` mean the same.
struct ByteCountArgument: ExpressibleByArgument, ExpressibleByIntegerLiteral {
  private static let units: KeyValuePairs<Character, Int64> = [
    "T": 1 << 40, "G": 1 << 30, "M": 1 << 20, "K": 1 << 10,
  ]

  var value: Int64

  init(integerLiteral value: Int64) { self.value = value }

  init?(argument: String) {
    var text = argument.uppercased()
    func unit() -> Int64? { Self.units.first { $0.key == text.last }?.value }
    if text.hasSuffix("IB") {
      text.removeLast(2)
      if unit() == nil { return nil }
    }
    let unit = unit()
    if unit != nil { text.removeLast() }
    guard let number = Int64(text), number >= 0 else { return nil }
    let (product, overflows) = number.multipliedReportingOverflow(by: unit ?? 1)
    guard !overflows else { return nil }
    value = product
  }

  var defaultValueDescription: String {
    guard value > 0, let unit = Self.units.first(where: { value % $0.value == 0 }) else { return "\(value)" }
    return "\(value / unit.value)\(unit.key)"
  }
}

/// A length of time as the user typed it: a number and s, m, h, d, w or y. A number alone means seconds.
struct DurationArgument: ExpressibleByArgument {
  var value: Duration
  /// Whether the user named a unit. Where a duration decides what is dropped, there must be one.
  let hasUnit: Bool
  private let text: String

  init?(argument: String) {
    let units: [Character: Double] = [
      "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400,
    ]
    let unit = argument.last.flatMap { units[$0] }
    guard let number = Double(unit == nil ? argument : String(argument.dropLast())), number > 0,
      number * (unit ?? 1) < 1e11
    else { return nil }
    value = .seconds(number * (unit ?? 1))
    hasUnit = unit != nil
    text = argument
  }

  init(seconds: Int) {
    value = .seconds(seconds)
    hasUnit = true
    text = "\(seconds)s"
  }

  var defaultValueDescription: String { text }
}

/// A share of the store as the user typed it: `2/7` is the second of seven.
struct ShareArgument: ExpressibleByArgument {
  var value: VerificationShare

  init?(argument: String) {
    let parts = argument.split(separator: "/", omittingEmptySubsequences: false).map { Int($0) }
    guard parts.count == 2, let number = parts[0], let count = parts[1],
      let share = VerificationShare(number: number, count: count)
    else { return nil }
    value = share
  }
}

/// A key as the user typed it.
struct KeyArgument: ExpressibleByArgument {
  var text: String

  init?(argument: String) { text = argument }

  static var defaultCompletionKind: CompletionKind { KeyCompletion.kind }

  /// - Throws: `ValidationError` for a key that is empty or too long.
  func checked() throws -> String {
    guard !text.isEmpty else {
      throw ValidationError("a key is empty: it has 1 to \(BlobLimits.maximumKeyByteCount) bytes")
    }
    guard text.utf8.count <= BlobLimits.maximumKeyByteCount else {
      throw ValidationError(
        "a key has at most \(BlobLimits.maximumKeyByteCount) bytes, and this one \(text.utf8.count)")
    }
    return text
  }
}

/// A version of a key as the user typed it: its ID, or the first digits.
struct VersionArgument: ExpressibleByArgument {
  /// The fewest digits of an ID that can name a version.
  static let digitCountMin = 6
  private static let digitCount = 32
  private static let namedCountMax = 5

  private var text: String

  init?(argument: String) {
    guard Self.digitCountMin...Self.digitCount ~= argument.count,
      argument.allSatisfy({ $0.isASCII && $0.isHexDigit })
    else {
      return nil
    }
    text = argument
  }

  /// The ID of the named version. If there is none, an ID that no version has.
  func id(of key: String, in store: BlobStore) async throws -> BlobVersion.ID {
    if let id = BlobVersion.ID(text) { return id }
    if let id = try await Self.find(text, of: key, in: store) { return id }
    guard let id = BlobVersion.ID(text.padding(toLength: Self.digitCount, withPad: "f", startingAt: 0)) else {
      throw ValidationError("\(text.printable) is no version")
    }
    return id
  }

  /// The ID that a text names; nil for no text.
  ///
  /// - Throws: `Failure` for a text that names no version of the key, or several.
  static func id(_ text: String?, of key: String, in store: BlobStore) async throws -> BlobVersion.ID? {
    guard let text else { return nil }
    if let id = BlobVersion.ID(text) { return id }
    guard Self(argument: text) != nil, let id = try await find(text, of: key, in: store) else {
      throw try await missing(text, of: key, in: store)
    }
    return id
  }

  private static func find(
    _ text: String, of key: String, in store: BlobStore
  ) async throws -> BlobVersion.ID? {
    let digits = text.lowercased()
    let found = try await store.validVersions(of: key).map(\.id).filter { $0.description.hasPrefix(digits) }
    guard found.count > 1 else { return found.first }
    let named = found.prefix(namedCountMax).map(\.description).joined(separator: ", ")
    let more = found.count > namedCountMax ? " and \(found.count - namedCountMax) more" : ""
    throw Failure(
      ExitStatus.wrongUsage,
      "The IDs of several versions of “\(key.printable)” begin with \(text): \(named)\(more); give more digits."
    )
  }

  /// The failure for a missing version.
  static func missing(_ text: String?, of key: String, in store: BlobStore) async throws -> Failure {
    if let text, try await store.validVersion(of: key) != nil { return .noVersion(text, of: key) }
    return .noKey(key)
  }
}

/// Versions as commands show them: a cache's expired ones are missing.
extension BlobStore {
  func validVersions(of key: String) async throws -> [BlobVersion] {
    CacheReads.valid(try await versions(of: key), by: try await cacheReads())
  }

  /// The current or named version.
  func validVersion(_ id: BlobVersion.ID? = nil, of key: String) async throws -> BlobVersion? {
    let version = if let id { try await version(id, of: key) } else { try await currentVersion(of: key) }
    return try await CacheReads.valid(version.map { [$0] } ?? [], by: cacheReads()).first
  }
}

/// A digest as the user typed it: with its algorithm, or its 64 digits alone.
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
