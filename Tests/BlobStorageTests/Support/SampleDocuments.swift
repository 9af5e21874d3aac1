import BlobStorageTestSupport
import Foundation

/// Small documents of one kind: the same fields, with values of their own.
struct SampleDocuments {
  private var random: SplitMix64
  private let words: [String]

  init(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    words = (0..<400).map { _ in
      let count = Int.random(in: 3...10, using: &random)
      return String(
        (0..<count).map { _ in "abcdefghijklmnopqrstuvwxyz".randomElement(using: &random) ?? "a" })
    }
    self.random = random
  }

  private mutating func word() -> String { words.randomElement(using: &random) ?? "" }

  /// A document of about 700 bytes.
  mutating func next() -> [UInt8] {
    let number = random.next()
    let tags = (0..<Int.random(in: 2...9, using: &random)).map { _ in "\"\(word())\"" }.joined(
      separator: ", ")
    let text = (0..<Int.random(in: 15...50, using: &random)).map { _ in word() }.joined(separator: " ")
    return Array(
      """
      {
        "identifier": "\(String(number, radix: 16))",
        "kind": "application/vnd.example.document+json",
        "revision": \(number % 50),
        "created": "2024-0\(number % 9 + 1)-1\(number % 10)T0\(number % 7):15:00Z",
        "attributes": {"visibility": "\(number % 3 == 0 ? "public" : "private")", "locale": "en-GB"},
        "owner": {"displayName": "\(word()) \(word())", "electronicMailAddress": "\(word())@example.org"},
        "tags": [\(tags)],
        "description": "\(text)"
      }

      """.utf8)
  }

  /// The document with a few bytes changed.
  mutating func edited(_ document: [UInt8]) -> [UInt8] {
    var bytes = document
    let offset = Int.random(in: 100..<bytes.count - 20, using: &random)
    bytes.replaceSubrange(offset..<offset + 6, with: Array(word().utf8.prefix(6)))
    return bytes
  }
}
