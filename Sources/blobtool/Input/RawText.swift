import ArgumentParser
import SystemPackage

/// Encodes arguments that are not UTF-8 for the argument parser: a NUL, which no argument holds, and the digits of the
/// bytes.
enum RawText {
  static func text(of bytes: some Collection<UInt8>) -> String {
    if let text = String(validating: bytes, as: UTF8.self) { return text }
    return "\0" + bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }

  static func isRaw(_ text: String) -> Bool { text.utf8.first == 0 }

  static func bytes(of text: String) -> [UInt8] {
    guard isRaw(text) else { return Array(text.utf8) }
    let digits = text.utf8.dropFirst().map { UInt8(Character(UnicodeScalar($0)).hexDigitValue ?? 0) }
    return stride(from: 0, to: digits.count - 1, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
  }

  static func path(of text: String) -> FilePath { path(of: bytes(of: text)) }

  static func path(of bytes: [UInt8]) -> FilePath {
    FilePath(platformString: bytes.map { CChar(bitPattern: $0) } + [0])
  }

  /// Throws for a text that must be UTF-8 and is not: a repaired text would name another key.
  static func check(_ texts: [String]) throws {
    for text in texts where isRaw(text) {
      let shown = String(decoding: bytes(of: text), as: UTF8.self)
      throw ValidationError("“\(shown.printable)” is not UTF-8: only paths of files and patterns may be that")
    }
  }
}

/// A path as the user typed it. It need not be UTF-8.
struct PathArgument: ExpressibleByArgument {
  let path: FilePath

  init?(argument: String) {
    guard !argument.isEmpty else { return nil }
    path = RawText.path(of: argument)
  }
}
