/// Percent-encodes as signatures require (RFC 3986): everything but letters, digits and `-._~`, in upper-case digits.
package enum PercentEncoding {
  /// Encodes a query's name or value, or a path with `keepingSlashes`.
  package static func encode(_ text: some StringProtocol, keepingSlashes: Bool = false) -> String {
    let digits = Array("0123456789ABCDEF".utf8)
    var encoded: [UInt8] = []
    for byte in text.utf8 {
      if byte.isLetterOrDigit(or: keepingSlashes ? "-._~/" : "-._~") {
        encoded.append(byte)
      } else {
        encoded += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      }
    }
    return String(decoding: encoded, as: UTF8.self)
  }

  /// Decodes a text; nil if it is malformed.
  ///
  /// - Parameter isForm: whether a `+` means a space, as in a form but not in an address.
  package static func decode(_ encoded: some StringProtocol, isForm: Bool = true) -> String? {
    var bytes: [UInt8] = []
    var rest = Substring(encoded).utf8
    while let byte = rest.popFirst() {
      switch byte {
      case UInt8(ascii: "%"):
        guard let high = rest.popFirst(), let low = rest.popFirst(),
          let high = Character(UnicodeScalar(high)).hexDigitValue,
          let low = Character(UnicodeScalar(low)).hexDigitValue
        else { return nil }
        bytes.append(UInt8(high << 4 | low))
      case UInt8(ascii: "+") where isForm: bytes.append(UInt8(ascii: " "))
      default: bytes.append(byte)
      }
    }
    return String(validating: bytes, as: UTF8.self)
  }
}

extension UInt8 {
  /// Whether the byte is an ASCII letter or digit, or one of `others`.
  func isLetterOrDigit(or others: String) -> Bool {
    switch self {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"):
      true
    default: others.utf8.contains(self)
    }
  }
}
