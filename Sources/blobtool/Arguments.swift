import ArgumentParser
import BlobStorage

/// What the library knows by a number and a user by a name.
protocol NamedChoice: CaseIterable, Sendable {
  var name: String { get }
  init?(name: String)
}

extension CodecKind: NamedChoice {}
extension Digest.Algorithm: NamedChoice {}

/// One of those as it was typed. The argument parser would show the number of one that it knows as such.
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

extension BlobVersion.ID: ExpressibleByArgument {}

/// A key as it was typed.
struct KeyArgument: ExpressibleByArgument {
  var text: String

  init?(argument: String) { text = argument }

  /// - Throws: `ValidationError` for an empty key; one that is too long is the store's to refuse, as a limit.
  func checked() throws -> String {
    guard !text.isEmpty else {
      throw ValidationError("a key is empty: it has 1 to \(Limits.keyByteCountMax) bytes")
    }
    return text
  }
}

/// A version of a key, as a command names it.
struct VersionArgument {
  /// The ID that a text names; a text that is no ID names nothing that could be in a store.
  static func id(_ text: String?, of key: String) throws -> BlobVersion.ID? {
    guard let text else { return nil }
    guard let id = BlobVersion.ID(text) else { throw Failure.noVersion(text, of: key) }
    return id
  }

  /// What is missing when there is no such version.
  static func missing(_ text: String?, of key: String, in store: BlobStore) async throws -> Failure {
    if let text, try await store.current(key) != nil { return .noVersion(text, of: key) }
    return .noKey(key)
  }
}

/// A digest as it was typed: with its algorithm, or its 64 digits alone.
struct DigestArgument: ExpressibleByArgument {
  private var text: String

  init?(argument: String) {
    guard Digest(argument) != nil || Digest(algorithm: .blake3, hex: argument) != nil else { return nil }
    text = argument
  }

  /// The digest; digits alone are of the store's algorithm.
  func digest(in store: BlobStore) -> Digest? {
    Digest(text) ?? Digest(algorithm: store.information.digestAlgorithm, hex: text)
  }
}
