import BlobStorage
import Foundation
import Testing

/// What a terminal would obey never reaches it.
@Suite struct TerminalTests {
  /// Scalars that a terminal obeys, or that turn the direction of text around.
  private static let obeyed: [UInt32] =
    Array(0x01...0x1F) + Array(0x7F...0x9F) + [0x061C, 0x200E, 0x200F] + Array(0x2028...0x202E)
    + Array(0x2066...0x2069)

  private static func obeyed(_ text: String) -> [UInt32] {
    text.unicodeScalars.map(\.value).filter { obeyed.contains($0) && ![0x09, 0x0A].contains($0) }
  }

  /// A key, or a file's name, with all of them.
  private let name =
    "a" + obeyed.map { String(Unicode.Scalar($0).map(Character.init) ?? "?") }.joined() + "z"

  private struct KeyLine: Decodable {
    var key: String
  }

  private func check(_ outcome: Outcome, _ place: String) {
    #expect(Self.obeyed(outcome.errors) == [], "\(place) on standard error")
    #expect(Self.obeyed(outcome.text) == [], "\(place) on standard output")
  }

  @Test("keys and paths in errors, listings and JSON are escaped, and JSON gives them back as they are")
  func everywhere() async throws {
    let workshop = try await Workshop()
    check(try await workshop.expect(0, ["put", "--", name], input: Data("value".utf8)), "put")
    for arguments in [["list"], ["list", "--json"], ["versions", name, "--json"], ["report"]] {
      let outcome = try await workshop.expect(0, arguments)
      check(outcome, arguments[0])
      #expect(outcome.text.contains(arguments.contains("--json") ? "\\u009b" : "\\u{9b}"), "\(arguments[0])")
    }
    let keys = try await workshop.expect(0, ["list", "--json"]).json(KeyLine.self).map(\.key)
    #expect(keys.map { Array($0.utf8) } == [Array(name.utf8)])
    check(try await workshop.expect(3, ["get", "--", name + "?"]), "get")
    check(try await workshop.expect(1, ["get", name, "-o", "no/\(name)"]), "get -o")
    check(try await workshop.expect(1, ["put", "k", name]), "put of a missing file")
    check(try await workshop.expect(1, ["list", "--store", workshop.path(name)]), "a missing store")
    check(try await workshop.expect(64, [name]), "a command")
    check(try await workshop.expect(64, ["get", "k", "--offset", name]), "an option")
    check(try await workshop.expect(64, ["list", "--store", "s3://\(name)"]), "a bucket")
    // Messages of the library, which does not escape.
    check(try await workshop.expect(1, ["export", "/dev/null/\(name)"]), "export")
    check(try await workshop.expect(1, ["import", name]), "an import of nothing")
    check(try await workshop.expect(1, ["put", "k", workshop.path("store")]), "a put of a folder")
  }

  @Test("names of files that an import leaves out or an export cannot write are escaped")
  func files() async throws {
    let workshop = try await Workshop()
    let folder = workshop.path("tree")
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    #expect(mkfifo("\(folder)/\(name)", 0o600) == 0)
    check(try await workshop.expect(0, ["import", folder]), "import")
    let json = try await workshop.expect(0, ["import", folder, "--json"])
    check(json, "import --json")
    #expect(try json.json(ImportLine.self).first?.skipped.first?.path.hasSuffix(name) == true)
    try await workshop.expect(0, ["put", "--", "../" + name], input: Data("x".utf8))
    check(try await workshop.expect(1, ["export", "out"]), "export")
  }

  @Test(
    "work is shown with a bar on a terminal, and watch writes over what it has shown",
    .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/script"), "there is no terminal"))
  func terminal() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: noise(300_000, seed: 1))
    for style in ["auto", "none"] {
      let shown = try await workshop.shell(
        "script -qec \"$TOOL verify --progress \(style)\" /dev/null < /dev/null")
      #expect(shown.text.contains("\r\u{1b}[K[##") == (style == "auto"), "\(style): \(shown.text)")
      #expect(shown.text.contains("] verifying: ") == (style == "auto"), "\(style)")
      #expect(shown.text.contains("damaged  0"))
    }
    let watched = try await workshop.shell(
      "script -qec \"timeout -s INT 3 $TOOL watch --interval 0.2\" /dev/null < /dev/null")
    #expect(watched.text.contains("\u{1b}[1A\r\u{1b}[JNothing is running."), "\(watched.text)")
    let once = try await workshop.shell("script -qec \"$TOOL watch --once\" /dev/null < /dev/null")
    #expect(once.text == "Nothing is running.\r\n")
  }

  @Test(
    "watch shows a bar on a terminal whatever numbers another process reports",
    .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/script"), "there is no terminal"))
  func wrongNumbers() async throws {
    let workshop = try await Workshop()
    let store = try await BlobStore.open(at: workshop.storePath)
    let folder = store.engine.folder
    try folder.makePart(folder.activities)
    // This process has locked it, and so counts as the one that works.
    let file = try OwnedFiles(folder: folder.activities, files: folder.files).create("0.activity")
    defer { file.close() }
    for (done, total) in [(Int64.min, Int64(1)), (.max, 1), (.min, .max), (.max, .min), (-1, 0)] {
      let record = ActivityRecord(
        operation: "put", processID: 1, started: .max, updated: .max, phase: "storing", doneByteCount: done,
        totalByteCount: total, doneCount: done, totalCount: total, bytesPerSecond: .max,
        millisecondsLeft: .max, subject: "k")
      try file.put(record.encoded(), at: 0)
      let shown = try await workshop.shell("script -qec \"$TOOL watch --once\" /dev/null < /dev/null")
      #expect(shown.status == 0 && shown.text.contains("storing: "), "\(done), \(total): \(shown.text)")
    }
    try await store.close()
  }

  @Test("keys stay as they are where nothing obeys them", arguments: ["a\\b", "ä é e\u{301}", "👩‍👩‍👧 ✓", "日本"])
  func plain(_ key: String) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", key], input: Data("value".utf8))
    let line = try await workshop.expect(0, ["list", "--json"]).text
    #expect(line.utf8.starts(with: "{".utf8))
    let keys = try await workshop.expect(0, ["list", "--json"]).json(KeyLine.self).map { Array($0.key.utf8) }
    #expect(keys == [Array(key.utf8)])
    let text = try await workshop.expect(0, ["list"]).text
    // A joined picture has a mark inside that is shown as its number.
    #expect(text.contains(key) || key.contains("👩"))
  }
}
