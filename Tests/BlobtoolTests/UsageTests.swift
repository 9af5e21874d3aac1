import Foundation
import Testing

/// What is said at the door: wrong usage, help, where the store is.
@Suite struct UsageTests {
  @Test(
    "wrong usage ends with 64, and says how to go on",
    arguments: [
      [], ["frobnicate"], ["put"], ["put", ""], ["get"], ["get", ""], ["get", "a", "--digest", "blake3:00"],
      ["get", "--digest", "nonsense"], ["get", "a", "--offset", "-1"], ["get", "a", "--offset=-1"],
      ["get", "a", "--length=-1"], ["get", "a", "--offset", "99999999999999999999"], ["get", "a", "-o", ""],
      ["put", "a", "b", "c"], ["put", "a", "--codec", "lz4"], ["list", "a", "b"], ["versions"],
      ["versions", ""],
      ["delete"], ["delete", ""], ["delete", "--prefix", ""], ["keep", "--up-to", "0", "--prefix", ""],
      ["keep", "--all"], ["keep", "--up-to", "1"],
      ["keep", "--up-to=-1", "--all"], ["keep", "--up-to", "x", "--all"],
      ["keep", "--up-to", "1", "a", "--all"],
      ["keep", "--up-to", "1", "--prefix", "a", "--all"], ["import"], ["export"], ["export", "a", "b", "c"],
      ["gc", "--keep=-1"], ["gc", "x"], ["verify", "x"], ["repair", "x"], ["stats", "x"], ["info"],
      ["info", ""],
      ["init", "--chunk-size", "1000"], ["init", "--chunk-size", "0"],
      ["init", "--chunk-size", "1073741824"],
      ["init", "--digest", "md5"], ["init", "--codec", "lz4"], ["init", "--level", "99"],
      ["init", "--level", "quick"], ["init", "--level", ""], ["init", "--codec", "none", "--level", "1"],
      ["list", "--progress", "x"], ["why"], ["why", ""], ["why", "x", "--digest"],
      ["why", "x", "--limit=-1"],
      ["stats", "--prometheus", "--json"], ["watch", "--interval", "0"], ["watch", "x"],
      ["report", "--limit", "0"],
      ["report", "x"], ["report", "--limit", "10001"], ["watch", "--interval", "86401"],
      [
        "get", "--digest", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "--version",
        "00000000000000000000000000000001",
      ],
      ["verify", "--quick", "--blobs"], ["export", ""], ["import", ""], ["delete", "--all", "--if-absent"],
      ["delete", "a", "--dry-run", "--if-absent"], ["init", "--similarity", "maybe"],
      ["list", "--state", "folder"], ["list", "--pack-cache", "1"], ["list", "--limit=-1"],
      ["list", "--null", "--json"], ["list", "--glob", ""], ["delete", "--glob", ""],
      ["delete", "a", "--glob", "*"], ["delete", "--prefix", "a", "--glob", "*"],
      ["delete", "--all", "--glob", "*"],
      ["delete", "--glob", "*", "--if-absent"], ["delete", "a", "--verbose", "--if-absent"],
      ["import", ".", "--files-from", "-"], ["import", ".", "--null"], ["init", "a", "--store", "b"],
      ["init", ""],
      ["verify", "--share", "0/3"], ["verify", "--share", "4/3"], ["verify", "--share", "3"],
      ["verify", "--max-age", "0"], ["verify", "--max-age", "1d", "--quick"],
      ["verify", "--max-age", "1d", "--blobs"],
      ["help", "frobnicate"], ["import", ".", "--bandwidth", "0"], ["export", "x", "--bandwidth", "fast"],
      ["--store", "a"], ["cache", "frobnicate"], ["get", "a", "--offset", "1X"],
      ["cache", "set-limit", "1G", "--lifetime", "0"], ["cache", "set-limit", "1G", "--lifetime", "1x"],
    ])
  func refused(_ arguments: [String]) async throws {
    let workshop = try await Workshop(hasStore: false)
    let outcome = try await workshop.expect(64, arguments)
    #expect(outcome.bytes.isEmpty)
    #expect(outcome.errors.hasPrefix("blobtool: "))
    #expect(outcome.errors.split(separator: "\n").count == 1)
    #expect(!FileManager.default.fileExists(atPath: workshop.storePath))
  }

  @Test("wrong numbers are named")
  func numbers() async throws {
    let workshop = try await Workshop()
    for command in [["get", "k", "--offset", "-1"], ["list", "--limit", "-20"]] {
      #expect(
        try await workshop.expect(64, command).errors.contains(
          "\(command[command.count - 2]) takes no negative number"))
    }
    let store = ["--store", "s3://bucket/place", "--state", workshop.path("state")]
    #expect(
      try await workshop.expect(64, ["list", "--pack-cache", "1"] + store).errors.contains("64M or more"))
    #expect(
      try await workshop.expect(64, ["list", "--catalog-limit", "63M"] + store).errors.contains("64M or more")
    )
  }

  @Test(
    "help, version and completions are printed",
    arguments: [
      ["--help"], ["--version"], ["--generate-completion-script", "bash"],
      ["--generate-completion-script", "zsh"],
      ["--generate-completion-script", "fish"], ["init", "--help"], ["put", "--help"], ["get", "--help"],
      ["list", "--help"], ["versions", "--help"], ["delete", "--help"], ["keep", "--help"],
      ["import", "--help"],
      ["export", "--help"], ["gc", "--help"], ["verify", "--help"], ["repair", "--help"],
      ["stats", "--help"],
      ["info", "--help"], ["why", "--help"], ["watch", "--help"], ["report", "--help"], ["copy", "--help"],
      ["sync", "--help"], ["cache", "--help"], ["manual", "--help"], ["help", "put"],
    ])
  func printed(_ arguments: [String]) async throws {
    let outcome = try await Workshop(hasStore: false).expect(0, arguments)
    #expect(!outcome.bytes.isEmpty)
    #expect(outcome.errors.isEmpty)
  }

  /// What every command takes that works on one store.
  private static let shared = [
    "--catalog-limit", "--help", "--json", "--pack-cache", "--progress", "--quiet", "--state", "--store",
    "--version",
  ]

  @Test(
    "each command has the options that it is to have, and no others",
    arguments: [
      ("init", ["--chunk-size", "--codec", "--digest", "--level", "--similarity"]),
      ("put", ["--allow-empty", "--archive", "--codec", "--command", "--if-absent", "--if-version"]),
      ("get", ["--digest", "--length", "--offset", "--output"]),
      ("list", ["--at", "--glob", "--limit", "--null", "--prefix-bytes", "--utc"]),
      ("versions", ["--utc"]),
      (
        "delete",
        [
          "--all", "--dry-run", "--glob", "--if-absent", "--if-version", "--prefix", "--prefix-bytes",
          "--verbose",
        ]
      ),
      (
        "keep",
        [
          "--all", "--daily", "--dry-run", "--hourly", "--last", "--monthly", "--prefix", "--prefix-bytes",
          "--up-to", "--utc", "--weekly", "--within", "--yearly",
        ]
      ),
      (
        "import",
        [
          "--allow-empty", "--archive", "--bandwidth", "--codec", "--delete", "--dry-run", "--exclude",
          "--exclude-caches",
          "--exclude-from", "--files-from", "--force", "--from", "--name", "--no-attributes", "--no-state",
          "--null", "--one-file-system", "--owners", "--prefix", "--prefix-bytes", "--verbose",
        ]
      ),
      (
        "export",
        [
          "--at", "--bandwidth", "--dry-run", "--glob", "--no-attributes", "--overwrite", "--owners",
          "--prefix-bytes", "--strip", "--verbose",
        ]
      ), ("states", ["--drop", "--prefix-bytes", "--utc"]), ("diff", []), ("find", []), ("restore", ["--at"]),
      ("hold", ["--kind", "--prefix-bytes", "--release"]), ("holds", ["--utc"]),
      ("gc", ["--dry-run", "--fence", "--keep", "--recompress", "--time"]),
      ("verify", ["--blobs", "--max-age", "--quick", "--share"]), ("repair", ["--accept-loss"]),
      ("stats", ["--prometheus"]),
      ("info", ["--utc"]), ("why", ["--digest", "--limit", "--utc"]), ("report", ["--limit", "--output"]),
      ("watch", ["--interval", "--once"]), ("sync", []), ("cache stats", []), ("cache trim", []),
      ("cache set-limit", ["--count", "--evict", "--lifetime", "--prefix", "--prefix-bytes"]),
      ("cache remove-limit", []),
    ] as [(String, [String])])
  func options(_ command: String, _ own: [String]) async throws {
    let words = command.split(separator: " ").map(String.init)
    let help = try await Workshop(hasStore: false).expect(0, words + ["--help"]).text
    let names = help.matches(of: /\n  (?:-[a-z0], )?(--[a-z-]+)/).map { String($0.1) }
    #expect(Set(names) == Set(own + Self.shared))
  }

  @Test("the help of the tool has every command and exit code, of copy its options; defaults are said")
  func help() async throws {
    let workshop = try await Workshop(hasStore: false)
    func help(_ words: [String]) async throws -> String {
      let text = try await workshop.expect(0, words + ["--help"]).text
      return text.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    }
    let tool = try await help([])
    #expect(
      tool.contains(
        "Exit codes: 0 done, 1 failed, 3 not in the store, 4 damage found, 5 busy or a condition does not hold,"
          + " 64 wrong usage, 130 and 143 interrupted."))
    for command in [
      "init", "put", "get", "list", "versions", "delete", "keep", "import", "export", "gc", "verify",
      "repair",
      "stats", "info", "why", "report", "watch", "cache", "sync", "copy",
    ] { #expect(tool.contains(" \(command) ") || tool.contains(" \(command), "), "\(command)") }
    for alias in ["list, ls", "stats, status", "verify, check"] { #expect(tool.contains(alias)) }
    #expect(!tool.contains(" manual "))
    let copy = try await help(["copy"])
    for option in [
      "json", "progress", "prefix", "mirror", "dry-run", "force", "source-state", "target-state",
      "source-profile",
      "target-profile", "pack-cache", "bandwidth",
    ] { #expect(copy.contains(" --\(option) "), "\(option)") }
    #expect(!copy.contains(" --store "))
    let creation = try await help(["init"])
    for phrase in ["default: blake3", "default: 64K", "default: zstd", "default: default", "default: on"] {
      #expect(creation.contains(phrase), "\(phrase)")
    }
    #expect(try await help(["watch"]).contains("default: 1s"))
    #expect(try await workshop.expect(0, ["--version"]).text == "0.1.0\n")
  }

  @Test(
    "wrong usage names the help to read",
    arguments: [
      ([], "blobtool"), (["frobnicate"], "blobtool"), (["put"], "blobtool put"),
      (["get", "a", "--x"], "blobtool get"),
      (["list", "--state", "x"], "blobtool list"), (["keep", "--up-to=-1", "--all"], "blobtool keep"),
      (["ls", "--x"], "blobtool list"), (["--store", "x", "put"], "blobtool put"),
      (["cache"], "blobtool cache"), (["cache", "set-limit"], "blobtool cache"), (["copy"], "blobtool copy"),
    ] as [([String], String)])
  func hint(_ arguments: [String], _ command: String) async throws {
    let outcome = try await Workshop(hasStore: false).expect(64, arguments)
    #expect(outcome.errors.hasSuffix("; see `\(command) --help`.\n"), "\(outcome.errors)")
  }

  @Test("without a path the message names the option and the variable")
  func noPath() async throws {
    let workshop = try await Workshop(hasStore: false)
    let outcome = try await workshop.run(["list"], environment: ["BLOBTOOL_STORE": ""])
    #expect(outcome.status == 64)
    #expect(outcome.errors.contains("--store"))
    #expect(outcome.errors.contains("BLOBTOOL_STORE"))
  }

  @Test("the option wins over the variable")
  func optionWins() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.run(
      ["stats", "--store", workshop.storePath], environment: ["BLOBTOOL_STORE": workshop.path("elsewhere")])
    #expect(outcome.status == 0)
  }

  @Test(
    "only init makes a store",
    arguments: [
      ["put", "a"], ["get", "a"], ["list"], ["versions", "a"], ["delete", "a"],
      ["keep", "--up-to", "0", "--all"],
      ["import", "."], ["export", "out"], ["gc"], ["verify"], ["repair"], ["stats"], ["info", "a"],
    ])
  func noStore(_ arguments: [String]) async throws {
    let workshop = try await Workshop(hasStore: false)
    let outcome = try await workshop.expect(1, arguments)
    #expect(outcome.errors.contains("blobtool init"))
    #expect(!FileManager.default.fileExists(atPath: workshop.storePath))
  }

  @Test("an argument or a variable that is not UTF-8 is refused, not repaired")
  func notUTF8() async throws {
    let workshop = try await Workshop()
    #expect(try await workshop.shell(#"$TOOL put $'\xff' /dev/null"#).status == 64)
    #expect(try await workshop.shell(#"BLOBTOOL_STORE=$'other\xff' $TOOL init"#).status == 64)
    // The name of the hold is no command.
    #expect(try await workshop.shell(#"$TOOL hold import $'\xa0' --kind prefix"#).status == 64)
    #expect(try await workshop.expect(0, ["holds"]).bytes.isEmpty)
    #expect(try await workshop.expect(0, ["list"]).bytes.isEmpty)
  }
}

/// `init`.
@Suite struct InitTests {
  private struct Created: Decodable {
    var path: String
    var id: String
    var digest: String
    var chunkSize: Int
    var codec: String
    var level: Int
    var similarity: String
  }

  @Test(
    "options are taken",
    arguments: [
      ([], "blake3", 65_536, "zstd", 4), (["--digest", "sha256"], "sha256", 65_536, "zstd", 4),
      (["--chunk-size", "1024"], "blake3", 1_024, "zstd", 4),
      (["--codec", "zlib", "--level", "9"], "blake3", 65_536, "zlib", 9),
      (["--codec", "none"], "blake3", 65_536, "none", 0),
      (["--codec", "zlib"], "blake3", 65_536, "zlib", 6), (["--level", "19"], "blake3", 65_536, "zstd", 19),
      (["--level", "fast"], "blake3", 65_536, "zstd", 1), (["--level", "max"], "blake3", 65_536, "zstd", 19),
      (["--level", "default"], "blake3", 65_536, "zstd", 4),
      (["--codec", "zlib", "--level", "fast"], "blake3", 65_536, "zlib", 1),
      (["--codec", "none", "--level", "max"], "blake3", 65_536, "none", 0),
      (["--similarity", "off"], "blake3", 65_536, "zstd", 4),
    ] as [([String], String, Int, String, Int)])
  func created(_ options: [String], _ digest: String, _ chunkSize: Int, _ codec: String, _ level: Int)
    async throws
  {
    let workshop = try await Workshop(hasStore: false)
    let created = try #require(
      try await workshop.expect(0, ["init", "--json"] + options).json(Created.self).first)
    #expect(created.path == workshop.storePath)
    #expect(created.id.count == 32)
    #expect(created.digest == digest)
    #expect(created.chunkSize == chunkSize)
    #expect(created.codec == codec)
    #expect(created.level == level)
    #expect(created.similarity == (options.contains("off") ? "off" : "on"))
    try await workshop.expect(0, ["verify"])
  }

  @Test("a wrong level ends with 64, and the error lists the levels", arguments: ["quick", "99"])
  func wrongLevel(_ level: String) async throws {
    let workshop = try await Workshop(hasStore: false)
    let errors = try await workshop.expect(64, ["init", "--level", level]).errors
    for word in [level, "fast", "default", "max", "1 to 19"] { #expect(errors.contains(word), "\(word)") }
  }

  private struct Stored: Decodable {
    var chunks: Int
    var codecs: [String: Int]
    var basedChunks: Int
    var storedByteCount: Int
  }

  /// How a store made with those options keeps a text, and another that is like it.
  private func stored(_ options: [String], _ text: Data) async throws -> Stored {
    let workshop = try await Workshop(options: options)
    try await workshop.expect(0, ["put", "before", "-"], input: text)
    var changed = text
    changed[changed.startIndex + 150] = 0x2e
    try await workshop.expect(0, ["put", "k", "-"], input: changed)
    try await workshop.expect(0, ["put", "before", "-", "--archive"], input: changed.dropLast(7))
    let outcome = try await workshop.expect(0, ["info", "before", "--json"])
    return try #require(try outcome.json(Stored.self).first)
  }

  @Test("what is stored is cut, encoded and likened as the options say")
  func effects() async throws {
    // Words by chance: that they repeat is for a codec to find.
    let words = noise(40_000, seed: 5).map { ["one ", "two ", "seven ", "eleven "][Int($0 % 4)] }
    let text = Data(words.joined().utf8)
    let off = ["--similarity", "off"]
    let plain = try await stored(off, text)
    #expect(plain.codecs.keys.sorted() == ["zstd"] && plain.basedChunks == 0 && plain.chunks < 20)
    let short = try await stored(off + ["--chunk-size", "1024"], text)
    #expect(short.chunks > 60)
    #expect(try await stored(off + ["--codec", "none"], text).codecs.keys.sorted() == ["none"])
    let quick = try await stored(off + ["--codec", "zlib", "--level", "1"], text)
    let careful = try await stored(off + ["--codec", "zlib", "--level", "9"], text)
    #expect(quick.codecs.keys.sorted() == ["zlib"] && careful.codecs.keys.sorted() == ["zlib"])
    #expect(careful.storedByteCount < quick.storedByteCount)
    let small = Data(noise(300, seed: 9).map { 97 + $0 % 26 })
    #expect(try await stored([], small).basedChunks == 1)
    #expect(try await stored(off, small).basedChunks == 0)
  }

  @Test("repeated, it fails and changes nothing")
  func repeated() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "a"], input: Data("one".utf8))
    let before = try await workshop.expect(0, ["list", "--json"])
    try await workshop.expect(1, ["init", "--digest", "sha256"])
    #expect(try await workshop.expect(0, ["list", "--json"]).bytes == before.bytes)
  }

  @Test("a path that holds anything else is refused")
  func occupied() async throws {
    let workshop = try await Workshop(hasStore: false)
    try workshop.write(Data("mine".utf8), to: "store/notes.txt")
    try await workshop.expect(1, ["init"])
    #expect(try FileManager.default.contentsOfDirectory(atPath: workshop.storePath) == ["notes.txt"])
    let file = try workshop.write(Data("mine".utf8), to: "file")
    try await workshop.expect(1, ["init", "--store", file])
    let listed = try await workshop.expect(1, ["list"])
    #expect(listed.errors.contains("blobtool init"))
  }

  @Test("of two at once, one makes the store")
  func twoAtOnce() async throws {
    for _ in 0..<5 {
      let workshop = try await Workshop(hasStore: false)
      async let first = workshop.run(["init"])
      async let second = workshop.run(["init"])
      #expect(try await [first.status, second.status].sorted() == [0, 1])
      try await workshop.expect(0, ["verify"])
    }
  }
}
