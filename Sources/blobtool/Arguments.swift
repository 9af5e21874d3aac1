import ArgumentParser
import BlobStorage

extension CodecKind: ExpressibleByArgument {
  public init?(argument: String) { self.init(name: argument) }
  public static var allValueStrings: [String] { allCases.map(\.name) }
  public var defaultValueDescription: String { name }
}

extension Digest.Algorithm: ExpressibleByArgument {
  public init?(argument: String) { self.init(name: argument) }
  public static var allValueStrings: [String] { allCases.map(\.name) }
  public var defaultValueDescription: String { name }
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
