/// A small text file: lines of words, then a line with the CRC32C of everything before it.
enum CheckedLines {
  static func bytes(_ lines: [String]) -> [UInt8] {
    let text = lines.map { $0 + "\n" }.joined()
    return Array("\(text)\(checksum(text))\n".utf8)
  }

  /// The words of each line; nil for a checksum mismatch or a missing end.
  static func words(_ bytes: [UInt8]) -> [[Substring]]? {
    var lines = String(decoding: bytes, as: UTF8.self).split(
      separator: "\n", omittingEmptySubsequences: false)
    guard lines.popLast()?.isEmpty == true, let last = lines.popLast(),
      checksum(lines.map { $0 + "\n" }.joined()) == last
    else { return nil }
    return lines.map { $0.split(separator: " ", omittingEmptySubsequences: false) }
  }

  static func checksum(_ text: String) -> String { Hex.text(CRC32C.checksum(Array(text.utf8).span.bytes)) }
}
