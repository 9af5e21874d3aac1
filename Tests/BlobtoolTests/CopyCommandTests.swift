import Foundation
import Testing

/// `copy` between folders.
@Suite("copy", .serialized)
struct CopyCommandTests {
  struct Report: Decodable {
    var keys: Int
    var versions: Int
    var byteCount: Int64
    var newVersions: Int
    var unchangedVersions: Int
    var droppedVersions: Int
    var droppedKeys: Int
    var dryRun: Bool
    var refusal: String?
    var chunks: Int
    var newByteCount: Int64
    var storedByteCount: Int64
    var seconds: Double
  }

  private func report(_ outcome: Outcome) throws -> Report { try #require(outcome.json(Report.self).first) }

  /// Everything that a store shows, as its own words.
  static func shown(_ workshop: Workshop, _ store: String, more: [String: String] = [:]) async throws
    -> [String]
  {
    var lines: [String] = []
    for line in try await workshop.run(["list", "--json", "--store", store], environment: more).lines {
      lines.append(line)
      struct Key: Decodable { var key: String }
      let key = try JSONDecoder().decode(Key.self, from: Data(line.utf8)).key
      lines += try await workshop.run(["versions", key, "--json", "--store", store], environment: more).lines
    }
    return lines
  }

  @Test("brings a state of a name that the target has already, and commands then ask which is meant")
  func sameStateName() async throws {
    let workshop = try await Workshop()
    let other = workshop.path("other")
    try await workshop.expect(0, ["init", "--store", other])
    for (store, text) in [(workshop.storePath, "one"), (other, "two")] {
      _ = try await workshop.shell("mkdir -p tree; echo \(text) > tree/\(text)")
      try await workshop.expect(
        0, ["import", workshop.path("tree"), "--name", "monday", "--prefix", "\(text)/", "--store", store])
    }
    try await workshop.expect(0, ["copy", workshop.storePath, other])
    let refused = try await workshop.expect(64, ["list", "--at", "monday", "--store", other])
    #expect(refused.errors.contains("everal states have the name “monday”"))
    let listed = try await workshop.expect(0, ["list", "one/", "--at", "monday", "--store", other])
    #expect(listed.lines.contains { $0.hasSuffix("one/one") })
  }

  @Test("brings keys with all their versions, once, and says how much it was")
  func folders() async throws {
    let workshop = try await Workshop()
    let other = workshop.path("other")
    try await workshop.expect(0, ["init", "--store", other])
    try await workshop.expect(0, ["put", "a/1"], input: noise(300_000, seed: 1))
    try await workshop.expect(
      0, ["put", "a/1", "--archive"], input: noise(300_000, seed: 1) + noise(9, seed: 2))
    try await workshop.expect(0, ["put", "b"], input: Data("b".utf8))
    let first = try report(try await workshop.expect(0, ["copy", workshop.storePath, other, "--json"]))
    #expect(first.keys == 2 && first.versions == 3 && first.newVersions == 3)
    #expect(first.byteCount == 600_010)
    #expect(first.newByteCount < 500_000 && first.storedByteCount > 300_000 && first.chunks > 1)
    let expected = try await Self.shown(workshop, workshop.storePath)
    #expect(try await Self.shown(workshop, other) == expected)
    #expect(expected.count == 5)
    #expect(
      try await workshop.expect(0, ["get", "a/1", "--store", other]).bytes == noise(300_000, seed: 1)
        + noise(9, seed: 2))

    let second = try report(try await workshop.expect(0, ["copy", workshop.storePath, other, "--json"]))
    #expect(second.newVersions == 0 && second.unchangedVersions == 3 && second.chunks == 0)
    try await workshop.expect(0, ["delete", "b"])
    try await workshop.expect(0, ["put", "own", "--store", other], input: Data("o".utf8))
    let words = try await workshop.expect(0, ["copy", workshop.storePath, other, "--progress", "plain"])
    #expect(words.text.contains("versions dropped"))
    #expect(words.errors.contains("copying: 586 KiB of 586 KiB, 1 of 1 key"))
    #expect(try await workshop.expect(0, ["list", "--store", other]).lines.count == 2)
    // One of two keys is more than a tenth.
    let command = ["copy", workshop.storePath, other, "--mirror"]
    let refused = try await workshop.expect(1, command)
    #expect(refused.errors.contains("would drop 1 of 2 keys") && refused.errors.contains("--force"))
    let planned = try await workshop.expect(0, command + ["--dry-run"])
    #expect(planned.errors.contains("would be dropped: “own”"))
    #expect(planned.errors.contains("it would be refused"))
    #expect(planned.text.contains("keys to drop"))
    let plan = try report(try await workshop.expect(0, command + ["--dry-run", "--json"]))
    #expect(plan.dryRun && plan.droppedKeys == 1 && plan.refusal != nil)
    #expect(try await workshop.expect(0, ["list", "--store", other]).lines.count == 2)
    let mirror = try report(try await workshop.expect(0, command + ["--force", "--json"]))
    #expect(mirror.droppedVersions == 1 && mirror.droppedKeys == 1 && !mirror.dryRun)
    #expect(try await Self.shown(workshop, other) == (try await Self.shown(workshop, workshop.storePath)))
    try await workshop.expect(0, ["verify", "--store", other])
  }

  @Test("counts keys that the source has deleted, in a plan as well")
  func deleted() async throws {
    let workshop = try await Workshop()
    let other = workshop.path("other")
    try await workshop.expect(0, ["init", "--store", other])
    for index in 0..<30 { try await workshop.expect(0, ["put", "\(index)"], input: Data("x".utf8)) }
    let command = ["copy", workshop.storePath, other, "--json"]
    try await workshop.expect(0, command)
    for (key, options) in [("3", ["--mirror"]), ("4", [])] {
      try await workshop.expect(0, ["delete", key])
      for more in [["--dry-run"], []] {
        let done = try report(try await workshop.expect(0, command + options + more))
        #expect(done.droppedKeys == 1 && done.droppedVersions == 1, "\(options) \(more)")
      }
    }
  }

  @Test("with a prefix touches no other keys, and a dry run none at all")
  func prefix() async throws {
    let workshop = try await Workshop()
    let other = workshop.path("other")
    try await workshop.expect(0, ["init", "--store", other])
    for key in ["a/1", "a/2", "b"] {
      try await workshop.expect(0, ["put", key], input: Data("of the source".utf8))
    }
    for key in ["a/own", "c"] {
      try await workshop.expect(0, ["put", key, "--store", other], input: Data("of the target".utf8))
    }
    func keys() async throws -> [String] {
      try await workshop.expect(0, ["list", "--json", "--store", other]).json(ListLine.self).map(\.key)
    }
    let command = ["copy", workshop.storePath, other, "--prefix", "a/", "--json"]
    let plan = try report(try await workshop.expect(0, command + ["--dry-run"]))
    #expect(plan.dryRun && plan.newVersions == 2 && plan.keys == 2)
    #expect(try await keys() == ["a/own", "c"])
    let done = try report(try await workshop.expect(0, command))
    #expect(!done.dryRun && done.newVersions == 2 && done.droppedKeys == 0)
    #expect(try await keys() == ["a/1", "a/2", "a/own", "c"])
    let mirror = try report(try await workshop.expect(0, command + ["--mirror", "--force"]))
    #expect(mirror.droppedKeys == 1 && mirror.newVersions == 0)
    #expect(try await keys() == ["a/1", "a/2", "c"])
  }

  @Test("says in a sentence what it cannot do")
  func refusals() async throws {
    let workshop = try await Workshop()
    let store = workshop.storePath
    let missing = workshop.path("missing")
    let usage: [[String]] = [
      ["copy"], ["copy", store], ["copy", store, ""], ["copy", store, missing, "--source-state", "x"],
      ["copy", store, missing, "--target-profile", "x"], ["copy", store, missing, "--pack-cache", "1"],
      ["copy", store, missing, "--force"], ["copy", store, "s3://b"],
      ["copy", store, missing, "--store", store],
    ]
    for arguments in usage {
      let outcome = try await workshop.expect(64, arguments)
      #expect(outcome.errors.hasPrefix("blobtool: ") && outcome.errors.split(separator: "\n").count == 1)
    }
    for arguments in [["copy", store, missing], ["copy", missing, store]] {
      let outcome = try await workshop.expect(1, arguments)
      #expect(outcome.errors.contains("\(missing); `blobtool init PATH` creates one"))
    }
    #expect(!FileManager.default.fileExists(atPath: missing))
    let same = try await workshop.expect(1, ["copy", store, workshop.folder.path + "/./store"])
    #expect(same.errors.contains("cannot be copied to itself"))
    try await workshop.expect(0, ["init", "--store", missing, "--digest", "sha256"])
    #expect(try await workshop.expect(1, ["copy", store, missing]).errors.contains("by sha256"))
    #expect(try await workshop.expect(0, ["copy", "--help"]).text.contains("--mirror"))
  }

  @Test("reports what the source cannot read with 4, and copies the rest")
  func damaged() async throws {
    let workshop = try await Workshop()
    let other = workshop.path("other")
    try await workshop.expect(0, ["init", "--store", other])
    try await workshop.expect(0, ["put", "bad"], input: noise(100_000, seed: 1))
    let folder = workshop.path("store/packs")
    let pack = try #require(try FileManager.default.contentsOfDirectory(atPath: folder).first)
    var bytes = try Data(contentsOf: URL(filePath: "\(folder)/\(pack)"))
    bytes[5_000] ^= 1
    try bytes.write(to: URL(filePath: "\(folder)/\(pack)"))
    try await workshop.expect(0, ["put", "good"], input: noise(100_000, seed: 2))
    let outcome = try await workshop.expect(4, ["copy", workshop.storePath, other])
    #expect(outcome.errors.contains("not copied: “bad” version "))
    #expect(try await workshop.expect(0, ["list", "--store", other]).lines.count == 1)
    try await workshop.expect(0, ["verify", "--store", other])
    struct Line: Decodable {
      struct Uncopied: Decodable {
        var key: String; var version: String; var digest: String; var reason: String
      }
      var damaged: [Uncopied]
      var newVersions: Int
      var unchangedVersions: Int
    }
    let again = try await workshop.expect(4, ["copy", workshop.storePath, other, "--json"])
    let line = try #require(try again.json(Line.self).first)
    #expect((line.newVersions, line.unchangedVersions) == (0, 1))
    let versions = try await workshop.expect(0, ["versions", "bad", "--json"]).json(VersionLine.self)
    let bad = try #require(versions.first)
    let uncopied = try #require(line.damaged.first)
    #expect((uncopied.key, uncopied.version, uncopied.digest) == ("bad", bad.version, bad.digest))
    #expect(line.damaged.count == 1 && uncopied.reason.contains("damaged"))
    // The same of an export.
    struct Exported: Decodable { var files: Int; var byteCount: Int; var damaged: [ImportLine.SkippedFile] }
    let export = try #require(
      try await workshop.expect(4, ["export", "out", "--json"]).json(Exported.self).first)
    #expect((export.files, export.byteCount) == (1, 100_000))
    #expect(export.damaged.map(\.path) == ["bad"])
  }

  @Test("names ten of the keys that a mirror would drop, and counts the others")
  func manyDropped() async throws {
    let workshop = try await Workshop()
    let other = workshop.path("other")
    try await workshop.expect(0, ["init", "--store", other])
    for index in 10..<23 { try workshop.write(Data("\(index)".utf8), to: "tree/\(index)") }
    try await workshop.expect(0, ["import", "tree", "--store", other])
    let planned = try await workshop.expect(
      0, ["copy", workshop.storePath, other, "--mirror", "--force", "--dry-run"])
    var lines = (10..<20).map { "blobtool: would be dropped: “\($0)”" }
    lines.append("blobtool: would be dropped: 3 more keys")
    #expect(planned.errors.split(separator: "\n").map(String.init) == lines)
    #expect(planned.text.contains(/keys to drop +13\n/))
    #expect(try await workshop.expect(0, ["list", "--store", other]).lines.count == 13)
    let done = try await workshop.expect(0, ["copy", workshop.storePath, other, "--mirror", "--force"])
    #expect(done.text.contains(/keys dropped +13\n/))
    #expect(try await workshop.expect(0, ["list", "--store", other]).bytes.isEmpty)
  }

  @Test("goes on where it was killed, and shows nothing half")
  func kills() async throws {
    let workshop = try await Workshop(options: ["--chunk-size", "4096"])
    for index in 0..<20 {
      try workshop.write(noise(100_000 * (index % 5), seed: UInt64(index)), to: "tree/\(index)")
    }
    try workshop.write(noise(4_000_000, seed: 77), to: "tree/long")
    try await workshop.expect(0, ["import", "tree"])
    let other = workshop.path("other")
    try await workshop.expect(0, ["init", "--store", other])
    let expected = try await Self.shown(workshop, workshop.storePath)
    let command = ["copy", workshop.storePath, other, "--json"]
    var killedCount = 0
    var generator = SystemRandomNumberGenerator()
    var delay = 0.1
    for _ in 0..<12 {
      let running = try await workshop.start(command)
      running.signal(SIGKILL, inSeconds: delay * Double.random(in: 0...1, using: &generator))
      let outcome = try await running.outcome()
      if outcome.status == 0 { break }
      #expect(outcome.status == -SIGKILL, "\(outcome.errors)")
      killedCount += 1
      delay *= 1.4
      if killedCount % 5 == 0 {
        let seen = try await Self.shown(workshop, other)
        #expect(seen.allSatisfy { expected.contains($0) })
      }
    }
    #expect(killedCount > 0)
    try await workshop.expect(0, command)
    #expect(try await Self.shown(workshop, other) == expected)
    try await workshop.expect(0, ["verify", "--store", other])
  }
}
