import BlobStorage
import Foundation
import Testing

/// `why`, `watch`, `stats --prometheus`, and the manual.
@Suite struct MaintenanceTests {
  struct WhyLine: Decodable {
    struct Holder: Decodable { var key: String; var version: String; var digest: String; var current: Bool }
    struct Sharer: Decodable { var key: String; var sharedByteCount: Int64 }
    var asked: String
    var kind: String
    var byteCount: Int64
    var chunks: Int
    var storedByteCount: Int64
    var exclusiveByteCount: Int64
    var holderCount: Int
    var heldBy: [Holder]
    var sharerCount: Int
    var sharedWith: [Sharer]
  }

  private func why(_ workshop: Workshop, _ arguments: [String]) async throws -> WhyLine {
    try #require(try await workshop.expect(0, ["why", "--json"] + arguments).json(WhyLine.self).first)
  }

  @Test("why says what holds a key, a blob or a chunk, and what dropping it frees")
  func why() async throws {
    let workshop = try await Workshop()
    let (shared, own) = (noise(200_000, seed: 1), noise(100_000, seed: 2))
    try await workshop.expect(0, ["put", "a"], input: shared)
    try await workshop.expect(0, ["put", "b"], input: shared + own)
    try await workshop.expect(0, ["put", "a", "--archive"], input: noise(5_000, seed: 3))
    let key = try await why(workshop, ["a"])
    #expect(key.kind == "key")
    #expect(key.heldBy.map(\.current) == [true, false])
    #expect(key.sharedWith.map(\.key) == ["b"])
    #expect(key.byteCount == 205_000)
    #expect(key.exclusiveByteCount + (key.sharedWith.first?.sharedByteCount ?? 0) == key.storedByteCount)
    let digest = try #require(key.heldBy.last).digest
    for text in [digest, String(digest.dropFirst(7))] {
      let blob = try await why(workshop, [text])
      #expect(blob.kind == "blob")
      #expect(blob.heldBy.map(\.key) == ["a"])
      #expect(blob.sharedWith.map(\.key) == ["b"])
    }
    #expect(try await workshop.expect(0, ["why", "a"]).text.contains("freed by dropping it"))
    // A key may look like a digest.
    try await workshop.expect(0, ["put", digest], input: Data("x".utf8))
    #expect(try await why(workshop, [digest]).kind == "key")
    #expect(try await why(workshop, [digest, "--digest"]).kind == "blob")
    let few = try await why(workshop, ["a", "--limit", "1"])
    #expect(few.heldBy.count == 1)
    #expect(few.holderCount == 2)
    let none = try await workshop.expect(0, ["why", "a", "--limit", "0"]).lines
    #expect(
      Array(none.suffix(2)) == ["  and 2 more; --limit shows them", "  and 1 more; --limit shows them"])
    let zeros = "blake3:" + String(repeating: "0", count: 64)
    for text in ["c", zeros, "sha256:" + String(repeating: "0", count: 64)] {
      let outcome = try await workshop.expect(3, ["why", text])
      #expect(outcome.errors.contains(text))
    }
  }

  @Test("stats --prometheus is what a monitor reads")
  func prometheus() async throws {
    let workshop = try await Workshop(hasStore: false)
    let path = workshop.path(#"st"ore\1"#)
    try await workshop.expect(0, ["init", "--store", path])
    try await workshop.expect(0, ["put", "k", "--store", path], input: noise(100_000, seed: 1))
    let outcome = try await workshop.expect(0, ["stats", "--prometheus", "--store", path])
    var (helps, types, samples): (Set<String>, Set<String>, [String: String]) = ([], [], [:])
    for line in outcome.lines {
      let words = line.split(separator: " ", maxSplits: 3).map(String.init)
      if line.hasPrefix("# HELP ") {
        #expect(helps.insert(words[2]).inserted && words.count == 4)
      } else if line.hasPrefix("# TYPE ") {
        #expect(types.insert(words[2]).inserted && words[3] == "gauge")
      } else {
        let match = try #require(
          line.wholeMatch(of: /(blobstorage_[a-z_]+)\{store="((?:[^"\\]|\\.)*)"(?:,by="([a-z]+)")?\} (\d+)/))
        #expect(match.2.hasSuffix(#"st\"ore\\1"#))
        #expect(types.contains(String(match.1)), "the type comes first")
        samples["\(match.1)\(match.3.map { " \($0)" } ?? "")"] = String(match.4)
      }
    }
    #expect(helps == types)
    #expect(samples["blobstorage_keys"] == "1")
    #expect(samples["blobstorage_plain_bytes"] == "100000")
    #expect(samples["blobstorage_saved_bytes deduplication"] == "0")
    #expect(samples.count == helps.count + 2)
  }

  struct WatchLine: Decodable {
    var operation: String
    var subject: String
    var processID: Int32
    var phase: String
    var doneByteCount: Int64
    var totalByteCount: Int64
  }

  @Test("watch shows what another process does, and not what a dead one did", arguments: [SIGKILL, SIGINT])
  func watching(_ signal: Int32) async throws {
    let workshop = try await Workshop()
    #expect(try await workshop.expect(0, ["watch", "--once"]).text == "Nothing is running.\n")
    #expect(try await workshop.expect(0, ["watch", "--once", "--json"]).bytes.isEmpty)
    // A put whose input stays open, because it holds the other end itself, goes on until it is told to end.
    let script = "mkfifo f; head -c 20000000 /dev/zero > f & exec $TOOL put $'k\\e' 0<>f"
    let running = try await workshop.start(
      ["-c", script], environment: ["TOOL": Workshop.tool], program: "/bin/bash")
    var lines: [WatchLine] = []
    while lines.isEmpty, running.isRunning {
      lines = try await workshop.expect(0, ["watch", "--once", "--json"]).json(WatchLine.self)
      try await Task.sleep(for: .milliseconds(20))
    }
    let line = try #require(lines.first)
    #expect(line.operation == "put")
    #expect(line.subject == "k\u{1b}")
    #expect(line.phase == "storing")
    #expect(line.doneByteCount >= 16 << 20)
    #expect(line.totalByteCount == 0)
    let looked = try await workshop.expect(0, ["watch", "--once", "--json"])
    #expect(
      try looked.fields().isSuperset(of: [
        "operation", "subject", "processID", "started", "updated", "phase", "doneByteCount", "totalByteCount",
        "doneCount", "totalCount",
      ]))
    // How often it looks is as it is told.
    let often = try await workshop.start(["watch", "--json", "--interval", "0.1"])
    let seldom = try await workshop.start(["watch", "--json", "--interval", "3600"])
    try await often.wait(for: .output) { $0.split(separator: "\n").count > 40 }
    for watch in [often, seldom] { watch.signal(SIGTERM) }
    #expect(try await often.outcome().lines.count > 40)
    #expect(try await seldom.outcome().lines.count <= 1)
    let shown = try await workshop.expect(0, ["watch", "--once"])
    #expect(shown.text.contains("put k\\u{1b}, process \(line.processID)"))
    #expect(shown.text.contains("storing: "))
    running.signal(signal)
    #expect(try await running.outcome().status == (signal == SIGKILL ? -SIGKILL : 130))
    #expect(try await workshop.expect(0, ["watch", "--once"]).text == "Nothing is running.\n")
    #expect(try FileManager.default.contentsOfDirectory(atPath: workshop.path("store/activities")).isEmpty)
    try await workshop.expect(0, ["verify"])
  }

  @Test("gc says that it waits for another, and goes on after it")
  func waiting() async throws {
    let workshop = try await Workshop()
    let store = try await BlobStore.open(at: workshop.storePath)
    var lock: CollectionLock? = try CollectionLock(store.engine, waitSeconds: 0)
    let quiet = try await workshop.start(["gc", "-q"])
    let running = try await workshop.start(["gc", "--progress", "json"])
    try await running.wait(for: .errors) {
      $0.contains("waiting for another gc") && $0.contains("\"phase\":\"waiting\"")
    }
    withExtendedLifetime(lock) {}
    lock = nil
    let outcome = try await running.outcome()
    #expect(outcome.status == 0)
    #expect(outcome.errors.components(separatedBy: "waiting for another gc").count == 2, "\(outcome.errors)")
    let silent = try await quiet.outcome()
    #expect(silent.status == 0 && silent.errors.isEmpty)
    try await store.close()
  }

  @Test("gc says why garbage stays")
  func garbageLeft() async throws {
    let workshop = try await Workshop()
    for index in 0..<10 { try workshop.write(noise(100_000, seed: UInt64(index)), to: "tree/f\(index)") }
    try await workshop.expect(0, ["import", "tree"])
    #expect(!(try await workshop.expect(0, ["gc"]).text.contains("stay")))
    try await workshop.expect(0, ["delete", "f3"])
    #expect(try await workshop.expect(0, ["gc"]).text.contains("(packs with less than 25 % garbage stay"))
    #expect(!(try await workshop.expect(0, ["gc", "-n"]).text.contains("stay")))
  }

  private struct SharedLine: Decodable {
    struct Share: Decodable {
      var number: Int
      var count: Int
    }
    var share: Share?
    var chunks: Int
    var byteCount: Int
  }

  private func verify(_ workshop: Workshop, _ options: [String] = []) async throws -> SharedLine {
    let outcome = try await workshop.expect(0, ["verify", "--json"] + options)
    return try #require(try outcome.json(SharedLine.self).first)
  }

  @Test("shares of a verification are the whole store, and each finds its damage")
  func shares() async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    // So many that no share has all of them: their names are random.
    for index in 0..<16 {
      try await workshop.expect(0, ["put", "k\(index)"], input: noise(200_000, seed: UInt64(index)))
    }
    let whole = try await verify(workshop)
    #expect(whole.share == nil)
    for depth in [[], ["--blobs"]] {
      var (chunkCount, byteCount) = (0, 0)
      for number in 1...3 {
        let line = try await verify(workshop, depth + ["--share", "\(number)/3"])
        #expect(line.share?.number == number && line.share?.count == 3)
        #expect(line.chunks < whole.chunks)
        chunkCount += line.chunks
        byteCount += line.byteCount
      }
      #expect(chunkCount == whole.chunks && byteCount == whole.byteCount)
    }
    #expect(try await verify(workshop, ["--share", "1/1"]).chunks == whole.chunks)
    let hurt = try await workshop.shell(
      "printf '\\377\\000\\377\\000' | dd of=$(ls -S store/packs/*.pack | head -1) bs=1 seek=100000 conv=notrunc status=none"
    )
    #expect(hurt.status == 0)
    var statuses: [Int32] = []
    for number in 1...3 {
      statuses.append(try await workshop.run(["verify", "--share", "\(number)/3"]).status)
    }
    #expect(statuses.sorted() == [0, 0, 4])
  }

  @Test("verify --max-age reads what is due, and says how much that is")
  func maximumAge() async throws {
    let workshop = try await Workshop(options: ["--similarity", "off"])
    for index in 0..<4 {
      try await workshop.expect(0, ["put", "k\(index)"], input: noise(200_000, seed: UInt64(index)))
    }
    struct Line: Decodable { var packs: Int; var duePacks: Int?; var byteCount: Int64 }
    func due(_ options: [String] = [], _ status: Int32 = 0) async throws -> Int {
      let outcome = try await workshop.expect(status, ["verify", "--max-age", "1d", "--json"] + options)
      return try #require(try outcome.json(Line.self).first?.duePacks)
    }
    #expect(
      try await workshop.expect(0, ["verify", "--quick", "--json"]).json(Line.self).first?.duePacks == nil)
    // The structure is no verification.
    #expect(try await due(["--share", "1/2"]) + due(["--share", "2/2"]) == 4)
    let none = try await workshop.expect(0, ["verify", "--max-age", "1d"])
    #expect(none.text.contains(/due +0 of 4 packs\n/) && none.text.contains(/checked +0 B\n/))
    #expect(
      try await workshop.expect(0, ["verify", "--max-age", "0.001"]).text.contains(/due +4 of 4 packs\n/))
    try await workshop.expect(0, ["put", "k4"], input: noise(200_000, seed: 4))
    #expect(try await due() == 1)
    // Rewritten behind its back, and found by the time of the file.
    let hurt = try await workshop.shell(
      "printf '\\377\\000\\377\\000' | dd of=$(ls -S store/packs/*.pack | head -1) bs=1 seek=100000 conv=notrunc status=none"
    )
    #expect(hurt.status == 0)
    for _ in 0..<2 { #expect(try await due([], 4) == 1) }
    try await workshop.expect(0, ["repair", "--accept-loss"])
    _ = try await due()
    #expect(try await due() == 0)
    // A file of its own that cannot be read means that everything is due, and so does none.
    _ = try await workshop.shell("sed -i s/0/1/ store/verified")
    #expect(try await due() > 3)
    #expect(try await due() == 0)
    _ = try await workshop.shell("rm store/verified")
    try await workshop.expect(0, ["verify", "--quick"])
    #expect(try await due() > 3)
    try await workshop.expect(0, ["delete", "--prefix-bytes", "k"])
    try await workshop.expect(0, ["gc"])
    #expect(try await due() <= 1)
    #expect(try await workshop.expect(0, ["verify"]).status == 0)
  }

  @Test("reports say how far they are", arguments: [["stats"], ["info", "k"], ["why", "k"]])
  func progress(_ command: [String]) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: Data("x".utf8))
    let outcome = try await workshop.expect(0, command + ["--progress", "json"])
    let first = try #require(outcome.errors.split(separator: "\n").first)
    #expect(
      first.contains("\"phase\":\"marking\"") && first.contains("\"totalCount\":1"), "\(outcome.errors)")
    #expect(try await workshop.expect(0, command).errors.isEmpty)
  }

  @Test("watch goes on until it is interrupted, and says where there is no store")
  func watchEnds() async throws {
    let workshop = try await Workshop()
    let running = try await workshop.start(["watch", "--interval", "0.1"])
    // What comes before its handlers are there may be lost.
    while running.isRunning {
      running.signal(SIGINT)
      try await Task.sleep(for: .milliseconds(20))
    }
    let status = try await running.outcome().status
    #expect(status == 130 || status == -SIGINT)
    let outcome = try await workshop.expect(1, ["watch", "--once", "--store", workshop.path("none")])
    #expect(outcome.errors.contains("blobtool init"))
  }

  @Test("the manual has a page for the tool and for every command")
  func manual() async throws {
    let workshop = try await Workshop(hasStore: false)
    _ = try await workshop.shell("mkdir man")
    try await workshop.expect(0, ["manual", "man"])
    let help = try await workshop.expect(0, ["--help"]).text
    let commands = help.matches(of: /\n  ([a-z]+)(?:, [a-z]+)? +[A-Z]/).map { String($0.1) }
    #expect(commands.count > 12)
    let pages = try FileManager.default.contentsOfDirectory(atPath: workshop.path("man"))
    let nested = ["stats", "trim", "set-limit", "remove-limit"].map { "blobtool-cache-\($0).1" }
    #expect(Set(pages) == Set(["blobtool.1"] + commands.map { "blobtool-\($0).1" } + nested))
    let page = String(decoding: try #require(workshop.contents("man/blobtool-import.1")), as: UTF8.self)
    #expect(page.contains(".TH \"BLOBTOOL\\-IMPORT\" \"1\""))
    #expect(page.contains("\\fB\\-\\-dry\\-run\\fR"))
    #expect(page.contains(".SH \"EXIT STATUS\""))
    for status in ["0", "1", "3", "4", "5", "64", "130, 143"] {
      #expect(page.contains(".TP\n\\fB\(status)\\fR\n"), "\(status)")
    }
    #expect(page.contains("the store's. One of: none, zstd, zlib.\n"))
    let tool = String(decoding: try #require(workshop.contents("man/blobtool.1")), as: UTF8.self)
    #expect(tool.contains("\n\\fBlist, ls\\fR\n"))
    // What has no control line does not begin like one.
    #expect(!page.split(separator: "\n").contains { $0.hasPrefix("'") })
    let checked = try await workshop.shell(
      "command -v man > /dev/null || exit 0; for p in man/*; do MANROFFSEQ= man --warnings=all -l -Tutf8 $p 2>&1 > /dev/null; done"
    )
    #expect(checked.text.isEmpty, "\(checked.text)")
    try await workshop.expect(1, ["manual", "nowhere"])
  }

  @Test("completions load in bash and know the commands")
  func completions() async throws {
    let workshop = try await Workshop(hasStore: false)
    let outcome = try await workshop.shell(
      """
      $TOOL --generate-completion-script bash > completions && source ./completions && complete -p blobtool &&
      COMP_WORDS=(blobtool im) COMP_CWORD=1 && $(complete -p blobtool | sed 's/.*-F \\([^ ]*\\).*/\\1/') blobtool im blobtool
      echo "${COMPREPLY[@]}"
      """)
    #expect(outcome.lines.last == "import", "\(outcome.text) \(outcome.errors)")
  }

  @Test(
    "the examples are what systemd and the shell accept",
    .enabled(
      if: FileManager.default.isExecutableFile(atPath: "/usr/bin/systemd-analyze"), "there is no systemd"))
  func examples() async throws {
    let workshop = try await Workshop(hasStore: false)
    let folder = URL(filePath: #filePath).deletingLastPathComponent()
      .appending(path: "../../tools/examples").standardizedFileURL
    let names = try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0.contains("@") }
    #expect(names.count == 4)
    for name in names {
      let text = try String(contentsOf: folder.appending(path: name), encoding: .utf8)
        .replacing("/usr/local/bin/blobtool", with: Workshop.tool)
      // The template, and an instance of it.
      for file in [name, name.replacing("@", with: "@srv-pictures.store")] {
        try workshop.write(Data(text.utf8), to: file)
      }
    }
    let outcome = try await workshop.shell("systemd-analyze verify --man=no ./*@srv* 2>&1")
    // Where systemd itself lacks what it needs, it says so and not this.
    let complaints = outcome.lines.filter { $0.contains("blobtool") }
    #expect(complaints == [])
    let script = folder.appending(path: "blobtool-metrics").path
    #expect(try await workshop.shell("sh -n \(script)").status == 0)
  }
}
