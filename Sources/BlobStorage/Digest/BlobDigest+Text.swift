extension BlobDigest.Algorithm {
  /// The name in a digest's text.
  public var name: String {
    switch self {
    case .blake3: "blake3"
    case .sha256: "sha256"
    }
  }

  /// The algorithm of that name, or nil.
  public init?(name: some StringProtocol) {
    guard let found = Self.allCases.first(where: { $0.name == name }) else { return nil }
    self = found
  }
}

extension BlobDigest: LosslessStringConvertible {
  /// Reads `blake3:` or `sha256:` and 64 hexadecimal digits of either case; nil for anything else.
  public init?(_ text: String) {
    guard let colon = text.utf8.firstIndex(of: UInt8(ascii: ":")),
      let algorithm = Algorithm(name: text[..<colon])
    else { return nil }
    self.init(algorithm: algorithm, hex: text[text.utf8.index(after: colon)...])
  }

  /// Reads 64 hexadecimal digits of either case; nil for anything else.
  public init?(algorithm: Algorithm, hex: some StringProtocol) {
    guard hex.utf8.count == 2 * Self.byteCount, let bytes = Hex.bytes(hex) else { return nil }
    self = bytes.withUnsafeBytes { BlobDigest(algorithm: algorithm, bytes: $0) }
  }

  /// The 64 lower-case digits alone.
  public var hex: String { withUnsafeBytes { Hex.text($0) } }

  public var description: String { algorithm.name + ":" + hex }
}

extension BlobDigest: Codable {
  /// Reads its text.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let text = try container.decode(String.self)
    guard let digest = BlobDigest(text) else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a digest: \(text)")
    }
    self = digest
  }

  /// Writes its text.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(description)
  }
}
