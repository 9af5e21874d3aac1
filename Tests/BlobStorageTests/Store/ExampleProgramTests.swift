import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// The programs of Tests/Examples: what each prints shows that it does what it is for.
@Suite("The example programs")
struct ExampleProgramTests {
  private static let expected: [(name: String, lines: [String])] = [
    ("image-cache", ["fetched 5", "fetched 6"]),
    (
      "documents",
      ["documents 0", "saved over another window's work: false", "versions 2", "Dear Ada"]
    ),
    (
      "photo-import",
      [
        "100 % of 12 files, 300000 bytes were duplicates", "12 unchanged, 1 new",
        "restored 13 files",
      ]
    ),
    (
      "ranges",
      [
        "whole 200 video/mp4 true", "bytes=100-199 206 video/mp4 true", "bytes=2999000- 206 video/mp4 true",
        "bytes=-500 206 video/mp4 true", "bytes=3000000- 416 video/mp4 true", "cached 304", "missing 404",
      ]
    ),
    ("maintenance", ["dropped 2 freed some true", "problems 0", "versions 8 same true"]),
  ]

  @Test("do what they are for", arguments: expected.map(\.name))
  func run(_ name: String) throws {
    let folder = try TemporaryFolder()
    let process = Process()
    process.executableURL = URL(fileURLWithPath: try BuiltProgram.path("Examples"))
    process.arguments = [name, folder.path.string]
    let output = Pipe()
    process.standardOutput = output
    try process.run()
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    #expect(process.terminationStatus == 0)
    let lines = text.split(separator: "\n").map(String.init)
    for line in Self.expected.first(where: { $0.name == name })?.lines ?? ["?"] {
      #expect(lines.contains { $0.hasSuffix(line) }, "\(line) of \(text)")
    }
  }
}
