import Foundation
import Testing

/// Arguments that look harmless and must not lose data.
@Suite struct ArgumentTests {
  @Test("delete --all takes neither a prefix nor keys", arguments: [["--prefix", "a/"], ["a/1"]])
  func deleteAll(_ others: [String]) async throws {
    let workshop = try await Workshop()
    for key in ["a/1", "b/1"] { try await workshop.expect(0, ["put", key], input: Data("x".utf8)) }
    try await workshop.expect(64, ["delete", "--all"] + others)
    #expect(
      try await workshop.expect(0, ["list", "--json"]).json(ListLine.self).map(\.key) == ["a/1", "b/1"])
    try await workshop.expect(0, ["delete", "--all"])
    #expect(try await workshop.expect(0, ["list"]).bytes.isEmpty)
  }

  @Test("an empty standard input without a writer is refused, and `-` stores no bytes")
  func emptyInput() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: Data("value".utf8))
    for input in ["< /dev/null", "<&-"] {
      let refused = try await workshop.shell("$TOOL put k \(input)")
      #expect(refused.status == 64, "\(input): \(refused.errors)")
      #expect(refused.errors.contains("- to store no bytes"))
      #expect(try await workshop.expect(0, ["get", "k"]).text == "value")
    }
    // What is not empty counts, whatever it comes from.
    #expect(try await workshop.shell("head -c 3 /dev/zero | $TOOL put zeros").status == 0)
    #expect(try await workshop.expect(0, ["get", "zeros"]).bytes == Data(count: 3))
    for (index, input) in ["- < /dev/null", "< empty", "/dev/null"].enumerated() {
      let stored = try await workshop.shell(
        ": > empty; echo value | $TOOL put \(index) && $TOOL put \(index) \(input)")
      #expect(stored.status == 0, "\(input): \(stored.errors)")
      #expect(try await workshop.expect(0, ["get", "\(index)"]).bytes.isEmpty)
    }
  }

  @Test(
    "a store's path that means another place is refused with the right spelling",
    arguments: [
      "s3:/x", "s3:x", "S3://x", "sftp://host/x", "sftp:host:/x", "host:/x", "file:///x", "~other/x", "~x",
    ])
  func places(_ path: String) async throws {
    let workshop = try await Workshop(hasStore: false)
    for arguments in [
      ["init", "--store=" + path], ["copy", path, "b"],
    ] {
      let refused = try await workshop.expect(64, arguments)
      #expect(refused.errors.contains("./\(path)"), "\(refused.errors)")
    }
    try await workshop.expect(0, ["init", "--store", "./\(path.replacingOccurrences(of: "/", with: "_"))"])
    #expect(
      try FileManager.default.contentsOfDirectory(atPath: workshop.folder.path).count {
        $0.hasPrefix("~") || $0.contains(":")
      } == 1)
  }

  @Test("a store's path that begins with ~/ is in the home folder")
  func home() async throws {
    let workshop = try await Workshop(hasStore: false)
    let environment = ["HOME": workshop.path("home"), "BLOBTOOL_STORE": "~/x"]
    _ = try workshop.write(Data(), to: "home/file")
    #expect(try await workshop.run(["init"], environment: environment).status == 0)
    #expect(try await workshop.run(["list", "--store=~/x"], environment: environment).status == 0)
    #expect(workshop.contents("home/x/store") != nil)
    #expect(!FileManager.default.fileExists(atPath: workshop.path("~")))
  }

  private struct CacheLine: Decodable {
    var keys: Int
    var diskByteCount: Int64
  }

  @Test("a limit lets keys of a store go only with --evict, which a dry look precedes, and can be removed")
  func limits() async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    for index in 0..<24 { _ = try workshop.write(noise(1_000_000, seed: UInt64(index)), to: "tree/\(index)") }
    try await workshop.expect(0, ["import", "tree"])
    for limit in ["10M", "1G"] {
      let refused = try await workshop.expect(64, ["cache", "set-limit", limit])
      #expect(refused.errors.contains("--evict"))
      #expect(refused.errors.contains("24 keys"))
      #expect(
        refused.errors.contains(limit == "1G" ? "none of them" : "about 15 of them"), "\(refused.errors)")
    }
    try await workshop.expect(1, ["cache", "stats"])
    try await workshop.expect(0, ["verify"])
    #expect(try await workshop.expect(0, ["list"]).lines.count == 24)
    try await workshop.expect(1, ["cache", "remove-limit"])

    let set = try await workshop.expect(0, ["cache", "set-limit", "10M", "--evict", "--json"])
    #expect(set.errors.contains("about 15 of them"))
    let line = try #require(try set.json(CacheLine.self).first)
    #expect(line.diskByteCount <= 10 << 20)
    #expect(line.keys >= 5, "far more went than had to")
    // It is a cache now: a limit that takes nothing away needs no word.
    try await workshop.expect(0, ["cache", "set-limit", "12M"])
    try await workshop.expect(64, ["cache", "set-limit", "12M", "--count", "2"])

    try await workshop.expect(0, ["cache", "remove-limit"])
    try await workshop.expect(1, ["cache", "remove-limit"])
    try await workshop.expect(1, ["cache", "stats"])
    // From now on everything stays.
    let before = try await workshop.expect(0, ["list"]).lines.count
    try await workshop.expect(0, ["import", "tree", "--prefix", "again/"])
    try await workshop.expect(0, ["gc"])
    #expect(try await workshop.expect(0, ["list"]).lines.count == before + 24)
    // And all of it is known to the next cache.
    let again = try await workshop.expect(0, ["cache", "set-limit", "1G", "--evict", "--json"])
    #expect(try again.json(CacheLine.self).first?.keys == before + 24)
  }

  @Test("a put that a cache refuses changes nothing", arguments: ["file", "pipe", "input"])
  func refusedPut(_ way: String) async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    try await workshop.expect(0, ["cache", "set-limit", "10M"])
    for index in 0..<8 {
      try await workshop.expect(0, ["put", "k\(index)"], input: noise(1_000_000, seed: UInt64(index)))
    }
    let before = try await workshop.expect(0, ["list", "--json"]).text
    #expect(before.split(separator: "\n").count == 8)
    _ = try workshop.write(noise(20_000_000, seed: 99), to: "long")
    let command = ["file": "put k7 long", "pipe": "put k7 < <(cat long)", "input": "put k7 - < long"]
    let refused = try await workshop.shell("$TOOL \(try #require(command[way]))")
    #expect(refused.status == 1)
    #expect(refused.errors.contains("nothing was changed"))
    #expect(try await workshop.expect(0, ["list", "--json"]).text == before)
    #expect(try await workshop.expect(0, ["get", "k7"]).bytes == noise(1_000_000, seed: 7))
    try await workshop.expect(0, ["put", "k7"], input: Data("new".utf8))
    #expect(try await workshop.expect(0, ["get", "k7"]).text == "new")
  }
}
