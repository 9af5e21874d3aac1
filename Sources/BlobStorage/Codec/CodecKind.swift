/// The codec that encoded a chunk's stored bytes. The number is on disk.
///
/// 0…2 are used, 3…127 are reserved for later builds, and 128…255 are never assigned.
public enum CodecKind: UInt8, Sendable, CaseIterable {
  /// The stored bytes are the plain bytes.
  case none = 0
  /// One Zstandard frame (RFC 8878) without content size, checksum and dictionary number: the chunk record has its own
  /// length and checksum.
  case zstd = 1
  /// One zlib stream (RFC 1950).
  case zlib = 2

  /// The codec's name on the command line.
  public var name: String {
    switch self {
    case .none: "none"
    case .zstd: "zstd"
    case .zlib: "zlib"
    }
  }

  /// The codec with that name, or nil.
  public init?(name: String) {
    guard let kind = Self.allCases.first(where: { $0.name == name }) else { return nil }
    self = kind
  }

  /// Whether it can encode a chunk against a base.
  package var takesBase: Bool { self == .zstd }
}
