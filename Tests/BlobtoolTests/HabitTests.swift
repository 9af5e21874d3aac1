import Foundation
import Testing

/// What users of other tools type first: it works, or the message says what does.
@Suite struct HabitTests {
  @Test(
    "options of the store may precede the command",
    arguments: [
      ["--store", "other", "list", "--json"], ["--store=other", "--json", "ls"],
      ["--json", "--progress", "none", "--store", "other", "list", "a1"],
      ["-q", "--store", "other", "--json", "ls"],
    ])
  func optionsFirst(_ arguments: [String]) async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["init", "other"])
    try await workshop.expect(0, ["--store", "other", "put", "a1"], input: Data("x".utf8))
    #expect(try await workshop.expect(0, arguments).json(ListLine.self).map(\.key) == ["a1"])
    #expect(try await workshop.expect(0, ["list"]).bytes.isEmpty)
    // A key that looks like an option is no option.
    try await workshop.expect(0, ["--store", "other", "put", "--", "--json"], input: Data("x".utf8))
    #expect(try await workshop.expect(0, ["get", "--store", "other", "--", "--json"]).text == "x")
    #expect(
      try await workshop.expect(1, ["--store", "other", "cache", "stats"]).errors.contains("not a cache"))
    #expect(!(try await workshop.expect(0, ["--store", "other", "--help"]).bytes.isEmpty))
  }

  @Test("init takes the place as its argument")
  func place() async throws {
    let workshop = try await Workshop(hasStore: false)
    #expect(
      try await workshop.expect(0, ["init", "here"]).text == "Created a store in \(workshop.path("here")).\n")
    #expect(!FileManager.default.fileExists(atPath: workshop.storePath))
    try await workshop.expect(0, ["list", "--store", "here"])
    #expect(try await workshop.expect(64, ["init", "s3:x"]).errors.contains("./s3:x"))
  }

  @Test("aliases are the commands themselves")
  func aliases() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "a"], input: Data("x".utf8))
    for (alias, command) in [("ls", "list"), ("status", "stats")] {
      #expect(
        try await workshop.expect(0, [alias, "--json"]).text == workshop.expect(0, [command, "--json"]).text)
    }
    #expect(try await workshop.expect(0, ["check"]).text.contains("damaged  0\n"))
    #expect(
      try await workshop.expect(0, ["help", "ls"]).text == workshop.expect(0, ["list", "--help"]).text)
  }

  @Test(
    "an unknown command is answered with the one that was meant",
    arguments: [
      (["lst"], "did you mean `list`?"), (["verfy", "--quick"], "did you mean `verify`?"),
      (["--store", "x", "improt", "y"], "did you mean `import`?"), (["backup", "x"], "use `import`"),
      (["help", "backup"], "use `import`"), (["rm", "k"], "use `delete`"), (["cat", "k"], "use `get`"),
      (["cache", "trimm"], "did you mean `trim`?"), (["frobnicate"], "no command “frobnicate”; see"),
      (["zz"], "no command “zz”; see"), (["manua"], "no command “manua”; see"),
    ] as [([String], String)])
  func unknown(_ arguments: [String], _ answer: String) async throws {
    let outcome = try await Workshop().expect(64, arguments)
    #expect(outcome.errors.contains(answer), "\(outcome.errors)")
    #expect(outcome.bytes.isEmpty && outcome.errors.split(separator: "\n").count == 1)
  }

  @Test("-q leaves errors alone on standard error")
  func quiet() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data("f".utf8), to: "tree/f")
    _ = try await workshop.shell("mkfifo tree/pipe")
    let loud = try await workshop.expect(0, ["import", "tree", "--progress", "plain"])
    #expect(loud.errors.contains("tree/pipe") && loud.errors.contains("importing"))
    let quiet = try await workshop.expect(
      0, ["import", "tree", "-q", "--progress", "plain", "--prefix", "p"])
    #expect(quiet.errors.isEmpty && quiet.text.contains("skipped"))
    let failed = try await workshop.expect(1, ["--quiet", "import", "tree", "nowhere"])
    #expect(failed.errors.contains("skipped nowhere: ") && failed.errors.contains("1 file could not be"))
    #expect(!failed.errors.contains("tree/pipe"))
  }

  @Test(
    "an interruption says that finished work stays only where there is some", arguments: ["import", "watch"])
  func interruption(_ command: String) async throws {
    let workshop = try await Workshop()
    let endless = try FileHandle(forWritingTo: URL(filePath: workshop.write(Data(), to: "tree/z")))
    try endless.truncate(atOffset: 1 << 42)
    try endless.close()
    let arguments =
      command == "import"
      ? ["import", "tree", "--progress", "json"] : ["watch", "--json", "--interval", "0.1"]
    let running = try await workshop.start(arguments)
    let busy = try await workshop.start(["import", "tree", "--progress", "json"])
    try await busy.wait(for: .errors) { $0.contains("importing") }
    try await running.wait(for: command == "import" ? .errors : .output) { $0.contains("importing") }
    for process in [running, busy] { process.signal(SIGINT) }
    let outcome = try await running.outcome()
    _ = try await busy.outcome()
    #expect(outcome.status == 130)
    let message =
      command == "import"
      ? "blobtool: interrupted; what was finished before stays, and the same command goes on from there.\n"
      : "blobtool: interrupted.\n"
    #expect(outcome.errors.hasSuffix(message), "\(outcome.errors)")
  }

  @Test("help says what values mean, and not how they are kept", arguments: ["export", "get", "init"])
  func help(_ command: String) async throws {
    let help = try await Workshop(hasStore: false).expect(0, ["help", command]).text
    for inside in ["prefix] [", "default: -)", "zstd, zlib or none. (values"] {
      #expect(!help.contains(inside), "\(command): \(inside)")
    }
  }
}
