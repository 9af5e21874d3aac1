extension Digest.Algorithm {
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

extension Digest: LosslessStringConvertible {
  /// Reads `blake3:` or `sha256:` and 64 hexadecimal digits of either case; nil for anything else.
  public init?(_ text: String) {
    guard let colon = text.utf8.firstIndex(of: UInt8(ascii: ":")),
      let algorithm = Algorithm(name: text[..<colon])
    else { return nil }
    self.init(algorithm: algorithm, hex: text[text.utf8.index(after: colon)...])
  }

  /// Reads 64 hexadecimal digits of either case; nil for anything else.
  public init?(algorithm: Algorithm, hex: some StringProtocol) {
    let digits = hex.utf8
    guard digits.count == 2 * Self.byteCount else { return nil }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(Self.byteCount)
    var high: UInt8?
    for digit in digits {
      guard let value = Self.value(ofDigit: digit) else { return nil }
      if let upper = high {
        bytes.append(upper << 4 | value)
        high = nil
      } else {
        high = value
      }
    }
    self = bytes.withUnsafeBytes { Digest(algorithm: algorithm, bytes: $0) }
  }

  /// The 64 lower-case digits alone.
  public var hex: String {
    withUnsafeBytes { bytes in
      String(unsafeUninitializedCapacity: 2 * Self.byteCount) { digits in
        for (index, byte) in bytes.enumerated() {
          digits.initializeElement(at: 2 * index, to: Self.digit(of: byte >> 4))
          digits.initializeElement(at: 2 * index + 1, to: Self.digit(of: byte & 15))
        }
        return 2 * Self.byteCount
      }
    }
  }

  public var description: String { algorithm.name + ":" + hex }

  private static func digit(of value: UInt8) -> UInt8 {
    value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
  }

  private static func value(ofDigit digit: UInt8) -> UInt8? {
    switch digit {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
    default: nil
    }
  }
}

extension Digest: Codable {
  /// Reads its text.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let text = try container.decode(String.self)
    guard let digest = Digest(text) else {
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
