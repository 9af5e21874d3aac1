/// The codec that made a chunk's stored bytes from its plain bytes. The number is on disk.
///
/// 0…2 are used, 3…127 are reserved for later builds, and 128…255 are never given out.
public enum CodecKind: UInt8, Sendable, CaseIterable {
  /// Stored bytes are the plain bytes.
  case none = 0
  /// One Zstandard frame (RFC 8878) without content size, checksum and dictionary number: the chunk record
  /// has the length and a checksum of its own.
  case zstd = 1
  /// One zlib stream (RFC 1950).
  case zlib = 2

  /// The name on the command line.
  public var name: String {
    switch self {
    case .none: "none"
    case .zstd: "zstd"
    case .zlib: "zlib"
    }
  }

  /// The codec of that name, or nil if there is none.
  public init?(name: String) {
    guard let kind = Self.allCases.first(where: { $0.name == name }) else { return nil }
    self = kind
  }

  /// Whether a chunk can be encoded against a base by it.
  package var takesBase: Bool { self == .zstd }
}
