import Foundation
import Testing

/// Which files an import takes, and what a put does with pipes and programs.
@Suite struct ImportSourceTests {
  private func keys(_ workshop: Workshop) async throws -> [String] {
    try await workshop.expect(0, ["list", "--json"]).json(ListLine.self).map(\.key)
  }

  @Test("folders of a list are imported with all that is in them, each file once")
  func listedFolders() async throws {
    let workshop = try await Workshop()
    for name in ["t/a", "t/u/b", "t/u/v/c", "t/x.log", "w/d", "e"] {
      try workshop.write(Data(name.utf8), to: name)
    }
    struct Line: Decodable { var files: Int; var folders: Int }
    for list in ["t\nw\ne\n", "t/u/b\nt/u\nt\nt/a\n./t/\nw\nw/d\ne\n"] {
      try workshop.write(Data(list.utf8), to: "list")
      let outcome = try await workshop.expect(
        0, ["import", "--files-from", "list", "--prefix", "p", "--json", "--exclude", "*.log"])
      let line = try #require(try outcome.json(Line.self).first)
      #expect(line.files == 5 && line.folders == 4)
      #expect(try await keys(workshop) == ["p/e", "p/t/a", "p/t/u/b", "p/t/u/v/c", "p/w/d"])
    }
    // Patterns match from the beginning of the listed path.
    let outcome = try await workshop.expect(
      0, ["import", "--files-from", "list", "--prefix", "q", "--exclude", "/t/u/", "--exclude", "d"])
    #expect(outcome.errors.isEmpty || !outcome.errors.contains("skipped"))
    #expect(try await keys(workshop).filter { $0.hasPrefix("q") } == ["q/e", "q/t/a", "q/t/x.log"])
  }

  @Test("lists and patterns may come from Windows")
  func windows() async throws {
    let workshop = try await Workshop()
    for name in ["t/a", "t/b.log", "t/c d "] { try workshop.write(Data(name.utf8), to: name) }
    try workshop.write(Data("\u{FEFF}t/a\r\nt/b.log\r\n\r\n".utf8), to: "list")
    try workshop.write(Data("\u{FEFF}*.log   \r\n   \r\n# b\r\n".utf8), to: "patterns")
    let outcome = try await workshop.expect(
      0, ["import", "--files-from", "list", "--exclude-from", "patterns"])
    #expect(outcome.errors.isEmpty)
    #expect(try await keys(workshop) == ["t/a"])
    try workshop.write(Data("t/c d \n".utf8), to: "list")
    try await workshop.expect(0, ["import", "--files-from", "list"])
    #expect(try await keys(workshop) == ["t/a", "t/c d "])
  }

  @Test("a pattern that has no effect is named")
  func uselessPatterns() async throws {
    let workshop = try await Workshop()
    for name in ["d/cache/x", "d/a", "d/e/cache/y"] { try workshop.write(Data(name.utf8), to: name) }
    let outcome = try await workshop.expect(0, ["import", "d", "--exclude", "a/../cache"])
    #expect(outcome.errors.contains("the pattern “a/../cache” has no effect: no path has . or .. in it"))
    for (index, pattern) in ["/cache", "./cache", "d/cache", workshop.path("d/cache"), "/cache/"].enumerated()
    {
      let outcome = try await workshop.expect(
        0, ["import", "d", "--prefix", "\(index)", "--exclude", pattern, "-q"])
      #expect(!outcome.errors.contains("no effect"))
      #expect(
        try await keys(workshop).filter { $0.hasPrefix("\(index)/") } == [
          "\(index)/a", "\(index)/e/cache/y",
        ],
        "\(pattern)")
    }
  }

  @Test("a path that is named and cannot be imported is 1", arguments: ["pipe", "/dev/null", "nowhere"])
  func notImported(_ path: String) async throws {
    let workshop = try await Workshop()
    try workshop.write(Data("f".utf8), to: "f")
    _ = try await workshop.shell("mkfifo pipe")
    for list in [false, true] {
      try workshop.write(Data("f\n\(path)\n".utf8), to: "list")
      let outcome = try await workshop.expect(
        1, ["import"] + (list ? ["--files-from", "list"] : ["f", path]))
      #expect(outcome.errors.contains("skipped \(path)"))
    }
    #expect(try await keys(workshop) == ["f"])
  }

  @Test("an empty source is refused if it had files before, and so is an empty list")
  func emptySource() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data("f".utf8), to: "tree/f")
    try await workshop.expect(0, ["import", "tree"])
    try FileManager.default.removeItem(atPath: workshop.path("tree/f"))
    for more in [[], ["--delete"], ["--dry-run"]] {
      let refused = try await workshop.expect(1, ["import", "tree"] + more)
      #expect(refused.errors.contains("--allow-empty"), "\(refused.errors)")
    }
    #expect(try await workshop.expect(0, ["states"]).lines.count == 1)
    #expect(try await keys(workshop) == ["f"])
    let dropped = try await workshop.expect(0, ["import", "tree", "--delete", "--allow-empty", "--json"])
    struct Line: Decodable { var droppedKeys: Int }
    #expect(try dropped.json(Line.self).first?.droppedKeys == 1)
    #expect(try await keys(workshop) == [])
    #expect(
      try await workshop.expect(1, ["import", "--files-from", "/dev/null"]).errors.contains("--allow-empty"))
    try await workshop.expect(0, ["import", "--files-from", "/dev/null", "--allow-empty"])
  }

  @Test("an empty pipe does not replace a value", arguments: ["", " -"])
  func emptyPipe(_ argument: String) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "db"], input: Data("value".utf8))
    let refused = try await workshop.shell("false | $TOOL put db\(argument)")
    #expect(refused.status == 64 && refused.errors.contains("--allow-empty"))
    #expect(try await workshop.expect(0, ["get", "db"]).text == "value")
    #expect(try await workshop.shell("false | $TOOL put db\(argument) --allow-empty").status == 0)
    #expect(try await workshop.expect(0, ["get", "db"]).bytes.isEmpty)
    #expect(try await workshop.shell("echo more | $TOOL put db\(argument)").status == 0)
    #expect(try await workshop.expect(0, ["get", "db"]).text == "more\n")
  }

  @Test(
    "the output of a program is stored if it succeeds, and otherwise nothing changes",
    arguments: [false, true])
  func command(isCache: Bool) async throws {
    let workshop = try await Workshop()
    if isCache { try await workshop.expect(0, ["cache", "set-limit", "64M"]) }
    try await workshop.expect(0, ["put", "db"], input: Data("value".utf8))
    func put(_ status: Int32, _ program: String..., more: [String] = []) async throws -> Outcome {
      try await workshop.expect(status, ["put", "db"] + more + ["--command", "--"] + program)
    }
    for script in [
      "echo part; exit 3", "head -c 3000000 /dev/zero; exit 1", "echo part; kill -9 $$", "exit 1",
    ] {
      let failed = try await put(1, "sh", "-c", script)
      #expect(failed.errors.contains("nothing was stored"), "\(failed.errors)")
      #expect(try await workshop.expect(0, ["get", "db"]).text == "value", "\(script)")
    }
    #expect(try await put(1, "blob-no-such-program").errors.contains("Cannot run blob-no-such-program"))
    #expect(try await put(1, "true").errors.contains("--allow-empty"))
    #expect(try await workshop.expect(0, ["get", "db"]).text == "value")
    _ = try await put(0, "sh", "-c", "head -c 3000000 /dev/zero; echo end", "--json", "-q")
    #expect(try await workshop.expect(0, ["get", "db"]).bytes == Data(count: 3_000_000) + Data("end\n".utf8))
    _ = try await put(0, "true", more: ["--allow-empty"])
    #expect(try await workshop.expect(0, ["get", "db"]).bytes.isEmpty)
    #expect(
      try await workshop.expect(64, ["put", "db", "file", "--command", "echo"]).errors.contains("exclude"))
    try await workshop.expect(0, ["put", "db", "--command", "echo", "without"])
    #expect(try await workshop.expect(0, ["get", "db"]).text == "without\n")
  }

  @Test("a log that grows all the time is imported and put, and named")
  func growingLog() async throws {
    let workshop = try await Workshop()
    try workshop.write(noise(6_000_000, seed: 1), to: "tree/log")
    let outcome = try await workshop.shell(
      """
      while :; do echo line >> tree/log; done & writer=$!
      $TOOL import tree --json --bandwidth 6M; echo "status $?"
      $TOOL put k tree/log; echo "status $?"
      kill -9 $writer
      """)
    #expect(outcome.lines.filter { $0.hasPrefix("status") } == ["status 0", "status 0"], "\(outcome.errors)")
    #expect(outcome.lines.first?.contains(#""change":"grown""#) == true)
    #expect(outcome.errors.contains("uncertain tree/log: it grew while it was read"))
    let kept = try await workshop.expect(0, ["get", "log"]).bytes
    #expect(kept.starts(with: noise(6_000_000, seed: 1)))
  }
}
