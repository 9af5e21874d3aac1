/// Makes text safe for a terminal: file names, keys and server messages may hold control characters.
enum TerminalText {
  /// The text with visible control characters. Line ends and tabs stay.
  static func safe(_ text: String) -> String {
    escape(text) { "\\u{\(String($0.value, radix: 16))}" }
  }

  /// Replaces each scalar that a terminal would obey. All are below U+10000.
  static func escape(_ text: String, _ escaped: (Unicode.Scalar) -> String) -> String {
    // Nearly no text has such a scalar, and its bytes show that.
    guard text.utf8.contains(where: mayBegin), text.unicodeScalars.contains(where: isObeyed) else {
      return text
    }
    var result = ""
    for scalar in text.unicodeScalars {
      if isObeyed(scalar) { result += escaped(scalar) } else { result.unicodeScalars.append(scalar) }
    }
    return result
  }

  /// Whether a terminal obeys a scalar: controls of ASCII and ISO 6429, marks that reverse the direction of text, and
  /// line ends other than U+000A.
  static func isObeyed(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0x09, 0x0A: false
    case ..<0x20, 0x7F...0x9F, 0x061C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069: true
    default: false
    }
  }

  /// Whether such a scalar may begin with a byte.
  private static func mayBegin(_ byte: UInt8) -> Bool {
    byte < 0x20 && byte != 0x0A || byte == 0x7F || byte == 0xC2 || byte == 0xD8 || byte == 0xE2
  }
}
