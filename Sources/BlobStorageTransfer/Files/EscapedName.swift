import BlobStorage
import SystemPackage

/// Converts file names to parts of keys and back. A key is UTF-8; a file name is any bytes but NUL and `/`.
///
/// A byte that is no part of a UTF-8 character becomes U+FFFD and two hexadecimal digits: `caf\xE9` has the key
/// `caf�E9`. The bytes of a name's own U+FFFD are escaped in the same way, so that no two names get one key.
public enum EscapedName {
  private static let mark = Array("\u{FFFD}".utf8)

  /// The path as a part of a key, and whether any bytes were escaped.
  public static func key(of path: some Collection<UInt8>) -> (text: String, isEscaped: Bool) {
    let bytes = Array(path)
    if let text = String(validating: bytes, as: UTF8.self), !contains(mark, in: bytes) {
      return (text, false)
    }
    var escaped: [UInt8] = []
    var rest = bytes[...]
    while let first = rest.first {
      let count = characterByteCount(rest)
      if count == 0 || rest.prefix(mark.count).elementsEqual(mark) {
        escaped += mark
        let digits = String(first, radix: 16, uppercase: true)
        escaped += Array((digits.count < 2 ? "0" + digits : digits).utf8)
        rest = rest.dropFirst()
        // The other bytes of a U+FFFD are escaped in turn.
        continue
      }
      escaped += rest.prefix(count)
      rest = rest.dropFirst(count)
    }
    return (String(decoding: escaped, as: UTF8.self), true)
  }

  /// The same for the last component of a path.
  static func key(ofLastIn path: FilePath) -> (text: String, isEscaped: Bool) {
    key(of: path.lastComponent.map { FilePath(root: nil, [$0]).bytes } ?? [])
  }

  /// The path that a part of a key stands for; nil for an invalid escape.
  public static func path(ofKey key: some Collection<UInt8>) -> [UInt8]? {
    var path: [UInt8] = []
    var rest = Array(key)[...]
    while let first = rest.first {
      if rest.prefix(mark.count).elementsEqual(mark) {
        let digits = String(decoding: rest.dropFirst(mark.count).prefix(2), as: UTF8.self)
        guard digits.utf8.count == 2, let byte = UInt8(digits, radix: 16), byte != 0,
          byte != UInt8(ascii: "/")
        else { return nil }
        path.append(byte)
        rest = rest.dropFirst(mark.count + 2)
      } else {
        path.append(first)
        rest = rest.dropFirst()
      }
    }
    return path
  }

  private static func contains(_ part: [UInt8], in bytes: [UInt8]) -> Bool {
    guard let first = part.first else { return false }
    return bytes.indices.contains { bytes[$0] == first && bytes[$0...].starts(with: part) }
  }

  /// The length in bytes of the first character; 0 if the bytes begin with none.
  private static func characterByteCount(_ bytes: ArraySlice<UInt8>) -> Int {
    for count in 1...4 where count <= bytes.count {
      if String(validating: bytes.prefix(count), as: UTF8.self) != nil { return count }
    }
    return 0
  }
}
