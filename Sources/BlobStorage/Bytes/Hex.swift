/// Converts bytes to lower-case hexadecimal text, and back.
package enum Hex {
  /// Two digits for each byte.
  package static func text(_ bytes: some Collection<UInt8>) -> String {
    String(unsafeUninitializedCapacity: 2 * bytes.count) { digits in
      for (index, byte) in bytes.enumerated() {
        digits.initializeElement(at: 2 * index, to: digit(of: byte >> 4))
        digits.initializeElement(at: 2 * index + 1, to: digit(of: byte & 15))
      }
      return 2 * bytes.count
    }
  }

  /// An integer with all its digits, most significant first.
  package static func text<T: FixedWidthInteger & UnsignedInteger>(_ value: T) -> String {
    withUnsafeBytes(of: value.bigEndian) { text($0) }
  }

  /// Parses an even number of hexadecimal digits; nil for any other text.
  package static func bytes(_ text: some StringProtocol) -> [UInt8]? {
    let digits = Array(text.utf8)
    guard digits.count.isMultiple(of: 2) else { return nil }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(digits.count / 2)
    for index in stride(from: 0, to: digits.count, by: 2) {
      guard let high = nibble(digits[index]), let low = nibble(digits[index + 1]) else { return nil }
      bytes.append(high << 4 | low)
    }
    return bytes
  }

  /// Parses an integer with exactly all its digits; nil for any other text.
  package static func integer<T: FixedWidthInteger & UnsignedInteger>(
    _ type: T.Type, _ text: some StringProtocol
  ) -> T? {
    integer(type, text.utf8)
  }

  /// Parses an integer with exactly all its digits from the bytes of a text; nil for any other text.
  package static func integer<T: FixedWidthInteger & UnsignedInteger>(
    _ type: T.Type, _ digits: some Collection<UInt8>
  ) -> T? {
    guard digits.count == MemoryLayout<T>.size * 2 else { return nil }
    // No type has more bits. Generic arithmetic is slow in a debug build.
    var value: UInt64 = 0
    for digit in digits {
      guard let nibble = nibble(digit) else { return nil }
      value = value << 4 | UInt64(nibble)
    }
    return T(value)
  }

  private static func digit(of value: UInt8) -> UInt8 {
    value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
  }

  private static func nibble(_ digit: UInt8) -> UInt8? {
    switch digit {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
    default: nil
    }
  }
}
