/// A small text file: lines of words, and a last line with the CRC32C of all before it.
enum CheckedLines {
  static func bytes(_ lines: [String]) -> [UInt8] {
    let text = lines.map { $0 + "\n" }.joined()
    return Array("\(text)\(checksum(text))\n".utf8)
  }

  /// The words of each line; nil if the checksum differs or the end is missing.
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
