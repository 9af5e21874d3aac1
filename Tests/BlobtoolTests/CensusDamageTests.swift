import Foundation
import Testing

/// One damaged line of the census makes no loss look like an absence, whatever else is damaged.
@Suite("A damaged line of the census")
struct CensusDamageTests {
  /// The store's only pack.
  private static func pack(_ workshop: Workshop) throws -> String {
    let names = try FileManager.default.contentsOfDirectory(atPath: workshop.path("store/packs"))
    #expect(names.count == 1)
    return try #require(names.first)
  }

  /// Flips a bit in the `number`th line of the census that names the pack and holds the word.
  ///
  /// - Returns: false if there are fewer such lines.
  private static func flip(_ number: Int, _ word: String, of pack: String, _ workshop: Workshop) throws
    -> Bool
  {
    var bytes = [UInt8](try #require(workshop.contents("store/census")))
    let text = String(decoding: bytes, as: UTF8.self)
    let places = text.ranges(of: "\(word) \(pack.dropLast(5)) ")
    guard number < places.count else { return false }
    bytes[text.utf8.distance(from: text.startIndex, to: places[number].lowerBound)] ^= 1
    try workshop.write(Data(bytes), to: "store/census")
    return true
  }

  @Test("hides no key of a pack that was cut at the end of a record, without a catalog", arguments: [0, 1])
  func threeDamages(_ line: Int) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: noise(10_000, seed: 1))
    let pack = try Self.pack(workshop)
    #expect(try Self.flip(line, "sealed", of: pack, workshop))
    // Its header alone: no record has been begun.
    try workshop.write(
      try #require(workshop.contents("store/packs/\(pack)")).prefix(64), to: "store/packs/\(pack)")
    try FileManager.default.removeItem(atPath: workshop.path("store/catalog"))
    let read = try await workshop.run(["get", "k"])
    #expect(read.status == 4, "\(read.errors)")
    try await workshop.expect(4, ["verify"])
  }

  @Test("is told by verify, and goes with the next collection or repair", arguments: ["gc", "repair"])
  func told(_ command: String) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: noise(10_000, seed: 1))
    #expect(!(try await workshop.expect(0, ["verify"]).text.contains("census")))
    #expect(try Self.flip(0, "sealed", of: try Self.pack(workshop), workshop))
    #expect(try await workshop.expect(0, ["verify"]).text.contains("1 damaged line"))
    struct Line: Decodable { var damagedCensusLines: Int? }
    #expect(
      try await workshop.expect(0, ["verify", "--json"]).json(Line.self).first?.damagedCensusLines == 1)
    try await workshop.expect(0, [command])
    #expect(
      try await workshop.expect(0, ["verify", "--json"]).json(Line.self).first?.damagedCensusLines == nil)
  }
}
