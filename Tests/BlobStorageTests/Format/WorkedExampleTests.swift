import BlobStorage
import Foundation
import Testing

/// The bytes that stand in Format.md, under "A whole pack", are those that the writer makes.
@Suite("The worked example of Format.md")
struct WorkedExampleTests {
  static let document = URL(filePath: #filePath).deletingLastPathComponent()
    .appending(path: "../../../Sources/BlobStorage/BlobStorage.docc/Format.md").standardizedFileURL

  @Test("is the pack that a writer makes of one chunk and one ref")
  func example() throws {
    let place = try PackPlace()
    let header = PackPlace.header()
    let plain = Array("hello, blob\n".utf8)
    let version = Stamp(time: header.created + 1, writer: header.name.writer)
    let written = try place.write(
      header,
      [.chunk(plain), .ref("greeting", version, digest: BlobDigest.of(plain), byteCount: Int64(plain.count))])
    let bytes = try place.bytes(header.name)
    let text = try String(contentsOf: Self.document, encoding: .utf8)
    let documented = Self.hex(text, under: "## A whole pack")
    #expect(documented == bytes, "Format.md should show:\n\(Self.dump(bytes))")
    let (records, outcome) = try place.scan(header.name)
    #expect(records.map(\.summary) == written.map(\.summary))
    #expect(outcome.isSealed)
  }

  /// The bytes of the first `offset  bytes` listing after a heading.
  private static func hex(_ text: String, under heading: String) -> [UInt8] {
    guard let start = text.range(of: heading) else { return [] }
    var bytes: [UInt8] = []
    var isListing = false
    for line in text[start.upperBound...].split(separator: "\n", omittingEmptySubsequences: false) {
      if line.hasPrefix("```") {
        if isListing { return bytes }
        isListing = true
      } else if isListing {
        let columns = line.prefix(6 + 16 * 3).dropFirst(6)
        bytes += Hex.bytes(columns.filter { $0 != " " }) ?? []
      }
    }
    return bytes
  }

  private static func dump(_ bytes: [UInt8]) -> String {
    stride(from: 0, to: bytes.count, by: 16).map { start in
      let row = bytes[start..<min(start + 16, bytes.count)]
      let text = String(
        decoding: row.map { 32...126 ~= $0 ? $0 : UInt8(ascii: ".") }, as: UTF8.self)
      let hex = row.map { Hex.text([$0]) }.joined(separator: " ")
      return Hex.text(UInt16(start)) + "  " + hex.padding(toLength: 50, withPad: " ", startingAt: 0) + text
    }.joined(separator: "\n")
  }
}
