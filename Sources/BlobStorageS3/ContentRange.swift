/// Parses the header that says which part of an object a response holds: `Content-Range: bytes 0-9/443` (RFC 9110,
/// 14.4).
package struct ContentRange: Hashable, Sendable {
  package let range: Range<Int64>
  /// The length of the object.
  package let byteCount: Int64

  package init?(_ text: String) {
    guard text.hasPrefix("bytes ") else { return nil }
    let parts = text.dropFirst(6).split(whereSeparator: { $0 == "-" || $0 == "/" })
    guard parts.count == 3, let first = Int64(parts[0]), let last = Int64(parts[1]),
      let count = Int64(parts[2]),
      first >= 0, first <= last, last < count
    else { return nil }
    range = first..<(last + 1)
    byteCount = count
  }
}
