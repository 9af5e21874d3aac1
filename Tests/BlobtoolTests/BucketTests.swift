import Foundation
import Testing

#if canImport(FoundationNetworking)
  import FoundationNetworking
#endif

/// Needs an S3 service: `tools/test` starts a mock of one and names it by `BLOB_STORAGE_S3_MOCK`.
@Suite(
  "A store in a bucket", .enabled(if: ProcessInfo.processInfo.environment["BLOB_STORAGE_S3_MOCK"] != nil))
struct BucketTests {
  let workshop: Workshop
  let prefix = "tool/\(UUID().uuidString)"

  init() async throws { workshop = try await Workshop() }

  /// Runs the tool as on a machine of that name.
  func run(
    _ machine: String, _ arguments: [String], input: Data = Data(), more: [String: String] = [:]
  ) async throws -> Outcome {
    try await workshop.run(
      arguments, input: input, environment: environment(machine).merging(more) { $1 })
  }

  private func environment(_ machine: String) -> [String: String] {
    [
      "AWS_ENDPOINT_URL": ProcessInfo.processInfo.environment["BLOB_STORAGE_S3_MOCK"] ?? "",
      "AWS_ACCESS_KEY_ID": "mock", "AWS_SECRET_ACCESS_KEY": "very-secret", "AWS_CONFIG_FILE": "/nonexistent",
      "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "BLOBTOOL_STORE": "s3://blob-storage/\(prefix)",
      "XDG_STATE_HOME": workshop.path(machine),
    ]
  }

  @Test("may have its state folder behind a link")
  func linkedState() async throws {
    _ = try await workshop.shell("mkdir par; ln -s par parl")
    for command in [["init"], ["put", "k"], ["stats"], ["gc"]] {
      let outcome = try await run("one", command + ["--state", "parl/state"], input: Data("x".utf8))
      #expect(outcome.status == 0, "\(command): \(outcome.errors)")
    }
    for command in [["get", "k"], ["report"]] {
      let outcome = try await run("one", command + ["-o", "par/state/store", "--state", "parl/state"])
      #expect(outcome.status == 1 && outcome.errors.contains("par/state/store belongs to the store itself"))
    }
    #expect(try await run("one", ["get", "k", "--state", "parl/state"]).text == "x")
  }

  @Test(
    "names the disk of its state folder when that is full",
    .enabled(if: Mounting.isAllowed, "nothing may be mounted here"))
  func fullState() async throws {
    try workshop.write(noise(4_000_000, seed: 1), to: "file")
    let script = """
      mkdir full; mount -t tmpfs -o size=3m none full; \(Workshop.tool) init --state full/state > /dev/null || echo wrong
      \(Workshop.tool) put k file --state full/state
      """
    let running = try await workshop.start(
      ["-m", "bash", "-c", script], environment: environment("one"), program: "/usr/bin/unshare")
    let outcome = try await running.outcome()
    #expect(outcome.status == 1 && outcome.text.isEmpty)
    #expect(outcome.errors.contains("free space on the disk of full/state"), "\(outcome.errors)")
    #expect(!outcome.errors.contains("blobtool delete"))
  }

  @Test("is created, written and read by machines that have nothing else in common")
  func machines() async throws {
    let missing = try await run("one", ["list"])
    #expect(missing.status == 1)
    #expect(missing.errors.contains("blobtool init s3://BUCKET/PREFIX"))
    #expect(try await run("one", ["init"]).status == 0)
    #expect(try await run("one", ["init"]).status == 1)
    let bytes = Data((0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 9) })
    #expect(try await run("one", ["put", "a/b"], input: bytes).status == 0)
    let got = try await run("two", ["get", "a/b"])
    #expect(got.status == 0, "\(got.errors)")
    #expect(got.bytes == bytes)
    #expect(try await run("two", ["put", "c"], input: Data("two".utf8)).status == 0)
    #expect(try await run("one", ["sync"]).status == 0)
    let listed = try await run("one", ["list", "--json"])
    #expect(listed.lines.count == 2)
    let verified = try await run("three", ["verify"])
    #expect(verified.status == 0, "\(verified.errors)")
  }

  @Test("is verified by each machine for itself, and only what is due if that is asked")
  func maximumAge() async throws {
    struct Line: Decodable { var packs: Int; var duePacks: Int }
    func due(_ machine: String) async throws -> [Int] {
      let outcome = try await run(machine, ["verify", "--max-age", "1d", "--json"])
      #expect(outcome.status == 0, "\(outcome.errors)")
      return try outcome.json(Line.self).flatMap { [$0.duePacks, $0.packs] }
    }
    #expect(try await run("one", ["init"]).status == 0)
    for key in ["a", "b"] {
      #expect(try await run("one", ["put", key], input: Data(key.utf8)).status == 0)
    }
    #expect(try await due("one") == [2, 2])
    #expect(try await due("one") == [0, 2])
    #expect(try await due("two") == [2, 2])
    #expect(try await run("two", ["put", "c"], input: Data("c".utf8)).status == 0)
    #expect(try await due("one") == [1, 3])
    #expect(try await due("two") == [1, 3])
    #expect(try await due("one") == [0, 3])
  }

  @Test("refuses conditions in a sentence, and changes nothing")
  func conditions() async throws {
    #expect(try await run("one", ["init"]).status == 0)
    #expect(try await run("one", ["put", "k"], input: Data("one".utf8)).status == 0)
    for command in [["put", "new", "--if-absent"], ["delete", "k", "--if-absent"]] {
      let refused = try await run("one", command, input: Data("two".utf8))
      #expect(refused.status == 1)
      #expect(refused.errors.contains("A store in a bucket does not support conditions"), "\(refused.errors)")
    }
    #expect(try await run("two", ["get", "k"]).bytes == Data("one".utf8))
    #expect(try await run("two", ["get", "new"]).status == 3)
  }

  @Test("that cannot be had is told in a sentence, without the secret")
  func refusals() async throws {
    let cases: [([String: String], Int32, String)] = [
      (["AWS_ENDPOINT_URL": "http://127.0.0.1:1"], 1, "cannot be reached"),
      (["AWS_ENDPOINT_URL": "http://u:very-secret@x"], 1, "AWS_ENDPOINT_URL"),
      (["BLOBTOOL_STORE": "s3://no-such-bucket-at-all/x"], 1, "There is no bucket 'no-such-bucket-at-all'"),
      (["AWS_ACCESS_KEY_ID": ""], 1, "set AWS_ACCESS_KEY_ID"),
      (["BLOBTOOL_STORE": "s3://x"], 64, "no bucket name"),
      (["AWS_CA_BUNDLE": "/nonexistent"], 1, "AWS_CA_BUNDLE"),
    ]
    for (environment, status, phrase) in cases {
      let outcome = try await run("one", ["list"], more: environment)
      #expect(outcome.status == status, "\(environment): \(outcome.errors)")
      #expect(outcome.errors.contains(phrase), "\(outcome.errors)")
      #expect(!outcome.errors.contains("very-secret"))
    }
    let folder = try await run("one", ["list", "--state", "x"], more: ["BLOBTOOL_STORE": workshop.storePath])
    #expect(folder.status == 64)
  }

  /// Another place in the same bucket.
  private func place(_ name: String) -> String { "s3://blob-storage/\(prefix)-\(name)" }

  @Test("does what a store in a folder does, or says in a sentence that it does not")
  func commands() async throws {
    try workshop.write(noise(300_000, seed: 1), to: "tree/a")
    try workshop.write(Data("b".utf8), to: "tree/b")
    func expect(_ status: Int32, _ arguments: [String], input: Data = Data()) async throws -> Outcome {
      let outcome = try await run("one", arguments, input: input)
      #expect(outcome.status == status, "\(arguments): \(outcome.errors)")
      #expect(outcome.errors.split(separator: "\n").count == (status == 0 ? 0 : 1), "\(outcome.errors)")
      return outcome
    }
    _ = try await expect(0, ["init"])
    _ = try await expect(0, ["import", "tree"])
    #expect(try await expect(0, ["import", "tree", "--dry-run"]).text.contains("unchanged"))
    _ = try await expect(0, ["put", "b", "--archive"], input: Data("c".utf8))
    #expect(try await expect(0, ["versions", "b"]).lines.count == 2)
    #expect(try await expect(0, ["get", "a"]).bytes == noise(300_000, seed: 1))
    #expect(
      try await expect(0, ["get", "a", "--offset", "5", "--length", "9"]).bytes
        == noise(300_000, seed: 1)[5..<14])
    #expect(try await expect(0, ["keep", "--up-to", "0", "--all", "--json"]).text.contains("1"))
    #expect(try await expect(0, ["info", "a", "--json"]).text.contains("300000"))
    _ = try await expect(0, ["why", "a"])
    _ = try await expect(0, ["report", "-o", workshop.path("page.html")])
    _ = try await expect(0, ["stats", "--prometheus"])
    #expect(try await expect(0, ["stats", "--json"]).text.contains("\"keys\":2"))
    #expect(try await expect(0, ["watch", "--once"]).text == "Nothing is running.\n")
    _ = try await expect(0, ["verify"])
    _ = try await expect(0, ["verify", "--quick"])
    _ = try await expect(0, ["repair"])
    _ = try await expect(0, ["sync"])
    #expect(
      try await expect(1, ["gc", "--fence", "0123456789abcdef"]).errors
        .contains("No writer 0123456789abcdef is registered"))
    _ = try await expect(0, ["export", "out"])
    #expect(workshop.contents("out/a") == noise(300_000, seed: 1))
    _ = try await expect(0, ["delete", "a"])
    _ = try await expect(3, ["get", "a"])
    for arguments in [["stats"], ["trim"], ["set-limit", "1G"]] {
      #expect(try await expect(1, ["cache"] + arguments).errors.contains("cannot be a cache"))
    }
    let page = try await run("two", ["list"])
    #expect(page.lines.count == 1, "\(page.errors)")
  }

  /// What the mock, which checks no signature, answers.
  private func send(_ method: String, _ path: String) async throws -> Data {
    let mock = ProcessInfo.processInfo.environment["BLOB_STORAGE_S3_MOCK"] ?? ""
    var request = URLRequest(url: try #require(URL(string: "\(mock)/blob-storage\(path)")))
    request.httpMethod = method
    request.setValue(
      "AWS4-HMAC-SHA256 Credential=mock/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0",
      forHTTPHeaderField: "Authorization")
    return try await URLSession.shared.data(for: request).0
  }

  @Test("that has lost a pack ends every reading command with 4 once that is known, until it is accepted")
  func loss() async throws {
    _ = try await run("one", ["init"])
    for key in ["a", "b"] {
      #expect(try await run("one", ["put", key], input: Data("text of \(key)".utf8)).status == 0)
    }
    let page = String(decoding: try await send("GET", "?list-type=2&prefix=\(prefix)/packs/"), as: UTF8.self)
    let names = page.components(separatedBy: "<Key>").dropFirst().compactMap {
      $0.components(separatedBy: "</Key>").first
    }
    var lost: String?
    // By bytes: what follows in the pack may be a mark that would join the last character.
    let text = Data("text of a".utf8)
    for name in names where try await send("GET", "/\(name)").range(of: text) != nil { lost = name }
    _ = try await send("DELETE", "/\(try #require(lost))")
    for machine in ["one", "two"] {
      // A machine that knew the pack notices it by looking at all packs.
      for command in [["verify"], ["get", "b"], ["list"], ["stats"], ["report"], ["gc"]] {
        let outcome = try await run(machine, command)
        #expect(outcome.status == 4, "\(machine) \(command): \(outcome.errors)")
        #expect(outcome.errors.contains("repair") || outcome.errors.contains("verify"), "\(outcome.errors)")
      }
    }
    #expect(try await run("two", ["repair", "--accept-loss"]).status == 0)
    for machine in ["one", "two"] {
      for command in [["get", "b"], ["list"], ["verify"], ["gc"]] {
        let outcome = try await run(machine, command)
        #expect(outcome.status == 0, "\(machine) \(command): \(outcome.errors)")
      }
    }
  }

  private struct Collected: Decodable {
    var packsDeleted: Int
    var packsCompacted: Int
    var freedByteCount: Int64
  }

  private struct Sizes: Decodable { var garbageByteCount: Int64 }

  @Test(
    "is collected from one machine beside what another has written, and a lost state folder loses nothing")
  func collecting() async throws {
    func expect(_ status: Int32, _ machine: String, _ arguments: [String], input: Data = Data()) async throws
      -> Outcome
    {
      let outcome = try await run(machine, arguments, input: input)
      #expect(outcome.status == status, "\(machine) \(arguments): \(outcome.errors)")
      return outcome
    }
    func garbage(_ machine: String) async throws -> Int64 {
      let outcome = try await expect(0, machine, ["stats", "--json"])
      return try #require(try outcome.json(Sizes.self).first).garbageByteCount
    }
    func collect(_ machine: String) async throws -> Collected {
      let outcome = try await expect(0, machine, ["gc", "--json"])
      return try #require(try outcome.json(Collected.self).first)
    }
    let long = noise(3_000_000, seed: 5)
    _ = try await expect(0, "one", ["init"])
    _ = try await expect(0, "one", ["put", "gone"], input: long)
    // It shares what it can with the other machine's.
    _ = try await expect(0, "two", ["put", "shared"], input: long.prefix(400_000))
    _ = try await expect(0, "two", ["put", "other"], input: noise(300_000, seed: 6))
    _ = try await expect(0, "one", ["delete", "gone"])
    #expect(try await garbage("one") > 2_000_000)
    let collected = try await collect("one")
    #expect(collected.packsCompacted == 1)
    #expect(collected.freedByteCount > 2_000_000)
    #expect(try await garbage("one") < 1_000)
    for machine in ["two", "three"] {
      #expect(try await expect(0, machine, ["get", "shared"]).bytes == long.prefix(400_000))
      #expect(try await expect(0, machine, ["get", "other"]).bytes == noise(300_000, seed: 6))
      _ = try await expect(3, machine, ["get", "gone"])
      _ = try await expect(0, machine, ["verify"])
    }
    #expect(try await garbage("two") < 1_000)
    // A machine that has lost what it knew goes on like one that is new.
    try FileManager.default.removeItem(atPath: workshop.path("one"))
    // The drop hides nothing any more.
    #expect(try await collect("one").packsDeleted == 1)
    #expect(try await collect("one").packsDeleted == 0)
    _ = try await expect(0, "one", ["delete", "shared"])
    #expect(try await collect("one").packsDeleted > 0)
    #expect(try await expect(0, "two", ["list"]).lines.count == 1)
    _ = try await expect(0, "two", ["verify"])
  }

  @Test("is copied from and into, by machines that know nothing of each other")
  func copies() async throws {
    let (store, first, second) = (workshop.storePath, place("first"), place("second"))
    for place in [first, second] {
      #expect(try await run("one", ["init", "--store", place]).status == 0)
    }
    try await workshop.expect(0, ["put", "a"], input: noise(300_000, seed: 1))
    try await workshop.expect(0, ["put", "a", "--archive"], input: noise(300_000, seed: 2))
    try await workshop.expect(0, ["put", "b"], input: Data("b".utf8))
    let back = workshop.path("back")
    try await workshop.expect(0, ["init", "--store", back])
    // A machine's folder may be named.
    let named = ["--target-state", workshop.path("state")]
    for (machine, arguments) in [
      ("one", [store, first] + named), ("two", [first, second]), ("three", [second, back]),
    ] {
      for round in 0..<2 {
        let outcome = try await run(machine, ["copy", "--json"] + arguments)
        #expect(outcome.status == 0, "\(outcome.errors)")
        let report = try #require(try outcome.json(CopyCommandTests.Report.self).first)
        #expect(report.newVersions == (round == 0 ? 3 : 0))
        #expect(round == 0 || report.chunks == 0)
      }
    }
    #expect(FileManager.default.fileExists(atPath: workshop.path("state")))
    let expected = try await CopyCommandTests.shown(workshop, store)
    #expect(try await CopyCommandTests.shown(workshop, back) == expected)
    try await workshop.expect(0, ["verify", "--store", back])
    let missing = try await run("one", ["copy", store, place("third")])
    #expect(missing.status == 1)
    #expect(missing.errors.contains("There is no store at \(place("third"))"))
    let profile = try await run("one", ["copy", store, first, "--target-profile", "nobody"])
    #expect(profile.status == 1)
    #expect(profile.errors.contains("There is no profile 'nobody'"))
  }

  @Test("that is named with a profile is where the profile says, whatever the environment says of another")
  func profile() async throws {
    let service = try #require(ProcessInfo.processInfo.environment["BLOB_STORAGE_S3_MOCK"])
    let target = place("target")
    #expect(try await run("one", ["init", "--store", target]).status == 0)
    try await workshop.expect(0, ["put", "a"], input: Data("text".utf8))
    let files = [
      "AWS_CONFIG_FILE": try workshop.write(
        Data("[profile other]\nregion = us-east-1\nendpoint_url = \(service)\n".utf8), to: "config"),
      "AWS_SHARED_CREDENTIALS_FILE": try workshop.write(
        Data("[other]\naws_access_key_id = mock\naws_secret_access_key = mock-secret\n".utf8),
        to: "credentials"),
    ]
    let elsewhere = ["AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "nobody"]
    let outcome = try await run(
      "one", ["copy", workshop.storePath, target, "--target-profile", "other"],
      more: files.merging(elsewhere) { $1 })
    #expect(outcome.status == 0, "\(outcome.errors)")
    #expect(try await run("two", ["get", "a", "--store", target]).text == "text")
  }

  @Test("has a folder of its own on a machine for each S3 service that it is reached at")
  func engines() async throws {
    let service = try #require(ProcessInfo.processInfo.environment["BLOB_STORAGE_S3_MOCK"])
    #expect(try await run("one", ["init"]).status == 0)
    let folder = workshop.path("one/blobtool")
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder).count == 1)
    let other = service.replacing("127.0.0.1", with: "localhost")
    let listed = try await run("one", ["list"], more: ["AWS_ENDPOINT_URL": other])
    #expect(listed.status == 0, "\(listed.errors)")
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder).count == (other == service ? 1 : 2))
  }
}
