import BlobStorage
import Foundation
import SystemPackage
import Testing

/// `second_reader.py` was written from the Format page alone: what it reads, the page says.
@Suite("The second reader")
struct SecondReaderTests {
  private struct Output: Decodable {
    struct Pack: Decodable, Equatable {
      var name: String
      var isSealed: Bool
      var end: Int
    }
    struct Current: Decodable {
      var version: String
      var isCurrent: Bool
    }

    var packs: [Pack]
    var chunkCount: Int
    var manifestCount: Int
    var met: [String]
    var versions: [FrozenStoreTests.Listed]
    var currents: [Current]

    private enum CodingKeys: CodingKey { case packs, chunkCount, manifestCount, met, versions }

    init(from decoder: any Decoder) throws {
      let values = try decoder.container(keyedBy: CodingKeys.self)
      packs = try values.decode([Pack].self, forKey: .packs)
      chunkCount = try values.decode(Int.self, forKey: .chunkCount)
      manifestCount = try values.decode(Int.self, forKey: .manifestCount)
      met = try values.decode([String].self, forKey: .met)
      versions = try values.decode([FrozenStoreTests.Listed].self, forKey: .versions)
      currents = try values.decode([Current].self, forKey: .versions)
    }
  }

  @Test("lists a frozen store as it was frozen, and verifies every chunk", arguments: FrozenStoreTests.names)
  func reads(_ name: String) throws {
    var expected = try JSONDecoder().decode(
      [FrozenStoreTests.Listed].self, from: try Fixtures.data("stores/\(name).json"))
    for index in expected.indices {
      expected[index].bytes = nil
      expected[index].seed = nil
    }
    let found = try Self.listed(Fixtures.url("stores/\(name)"))
    try #require(found.versions == expected)
    #expect(found.packs.map(\.isSealed).sorted { $0 && !$1 } == [true, true, false])
    #expect(
      found.met == [
        "census: begun", "census: sealed", "census: store", "compressed entries", "content in the meta",
        "content in the payload", "continued commit", "drop of several versions", "further stamp of kind 0",
        "further stamp of kind 1", "further stamp of kind 2", "member with features", "plain entries",
        "skipped record", "stamp with its writer",
      ])
    #expect(found.chunkCount > 30)
    #expect(found.manifestCount == 4)
    // Versions of a key are listed newest first.
    for (index, version) in found.currents.enumerated() {
      let isFirst = index == 0 || expected[index - 1].key != expected[index].key
      #expect(version.isCurrent == isFirst, "\(version.version)")
    }
  }

  @Test("refuses a sealed pack with a flipped bit, and ends an unsealed one before it")
  func flips() throws {
    let temporary = try TemporaryFolder()
    let store = URL(filePath: temporary.path.appending("store").string)
    try FileManager.default.copyItem(at: Fixtures.url("stores/v2-sha256"), to: store)
    let whole = try Self.listed(store)
    for pack in whole.packs {
      let file = store.appending(path: "packs/\(pack.name).pack")
      let bytes = try Data(contentsOf: file)
      // The header, the first record, the middle of the records, their end, the footer, the trailer.
      for place in Set([
        17, 67, pack.end / 2, pack.end - 5, (pack.end + bytes.count - 65) / 2, bytes.count - 30,
      ]) {
        var flipped = bytes
        flipped[place] ^= 1 << UInt8(place % 8)
        try flipped.write(to: file)
        let (status, output, problem) = try Self.run(store)
        if pack.isSealed && place < bytes.count - 64 {
          #expect(status == 1, "\(pack.name), \(place)")
          #expect(output.isEmpty && problem.contains(pack.name) && problem.hasSuffix(".\n"), "\(problem)")
        } else if status == 0 {
          // A crash could have left it: a footer that is not whole, or a torn tail.
          let found = try JSONDecoder().decode(Output.self, from: output)
          #expect(found.packs != whole.packs, "\(pack.name), \(place)")
          #expect(pack.isSealed == (found.versions == whole.versions), "\(pack.name), \(place)")
        } else {
          #expect(status == 1 && problem.contains(pack.name), "\(problem)")
        }
      }
      try bytes.write(to: file)
    }
  }

  private static func listed(_ store: URL) throws -> Output {
    let (status, output, problem) = try run(store)
    try #require(status == 0, "\(problem)")
    return try JSONDecoder().decode(Output.self, from: output)
  }

  private static func run(_ store: URL) throws -> (status: Int32, output: Data, problem: String) {
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "second_reader.py")
    process.arguments = ["python3", "-B", script.path, store.path]
    let (output, problem) = (Pipe(), Pipe())
    process.standardOutput = output
    process.standardError = problem
    try process.run()
    // One sentence fits into a pipe.
    let bytes = try output.fileHandleForReading.readToEnd() ?? Data()
    let text = try problem.fileHandleForReading.readToEnd() ?? Data()
    process.waitUntilExit()
    try #require(
      process.terminationStatus != 127, "python3 is needed: apt install python3, or brew install python")
    return (process.terminationStatus, bytes, String(decoding: text, as: UTF8.self))
  }
}
