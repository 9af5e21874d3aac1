import Foundation
import Testing

/// Repositories of restic and borg, whose snapshots become states.
@Suite("Migrations")
struct MigrationTests {
  private struct StateLine: Decodable {
    var name: String
    var created: String
    var files: Int
  }

  private static func isInstalled(_ program: String) -> Bool {
    ["/usr/bin", "/usr/local/bin"].contains {
      FileManager.default.isExecutableFile(atPath: "\($0)/\(program)")
    }
  }

  /// A program that says and does what restic does.
  private static let restic = """
    #!/bin/bash
    [ "$RESTIC_PASSWORD" = secret ] || { echo 'wrong password' >&2; exit 1; }
    case " $* " in
      *" snapshots "*) cat <<'END'
    [{"id":"bbbbbbbb22222222","time":"2026-02-01T10:00:00.5+01:00","hostname":"h","tags":["weekly","x"]},
     {"id":"aaaaaaaa11111111","time":"2026-01-01T10:00:00Z","hostname":"h"}]
    END
      ;;
      *" restore aaaaaaaa11111111 "*) target="${@: -1}"; mkdir -p "$target/home"; echo 1 > "$target/home/same"
        echo 1 > "$target/home/changes"; echo 1 > "$target/home/goes"; head -c 9000000 /dev/zero > "$target/home/long"
        touch -d 2020-01-01 "$target"/home/* ;;
      *" restore bbbbbbbb22222222 "*) [ -z "$BREAKS" ] || exit 7
        target="${@: -1}"; mkdir -p "$target/home"; echo 1 > "$target/home/same"
        echo 22 > "$target/home/changes"; head -c 9000000 /dev/zero > "$target/home/long"; mkfifo "$target/home/pipe"
        touch -d 2020-01-01 "$target"/home/* ;;
      *) exit 9 ;;
    esac
    """

  @Test(
    "take snapshots over in order, keep versions that are the same, and go on where they were interrupted")
  func fake() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data(Self.restic.utf8), to: "bin/restic")
    _ = try await workshop.shell("chmod 755 bin/restic; mkdir tmp")
    func run(_ environment: [String: String] = [:], prefix: String = "r") async throws -> Outcome {
      let path = workshop.path("bin") + ":/usr/bin:/bin"
      return try await workshop.run(
        ["import", "--from", "restic:/repo", "--prefix", prefix],
        environment: ["PATH": path, "RESTIC_PASSWORD": "secret", "TMPDIR": workshop.path("tmp")]
          .merging(environment) { $1 })
    }
    let refused = try await run(["RESTIC_PASSWORD": "other"])
    #expect(refused.status == 1 && refused.errors.contains("wrong password"))
    let broken = try await run(["BREAKS": "1"])
    #expect(broken.status == 1)
    #expect(try await workshop.expect(0, ["states"]).lines.count == 1)
    let done = try await run()
    #expect(done.status == 0, "\(done.errors)")
    #expect(done.text.contains("imported before     1") && done.errors.contains("tags weekly, x"))
    #expect(done.errors.contains("home/pipe"))
    let states = try await workshop.expect(0, ["states", "--json"]).json(StateLine.self)
    #expect(states.map(\.name) == ["restic-aaaaaaaa", "restic-bbbbbbbb"])
    #expect(states.map(\.created) == ["2026-01-01T10:00:00.000Z", "2026-02-01T09:00:00.500Z"])
    #expect(states.map(\.files) == [4, 3])
    let diff = try await workshop.expect(0, ["diff", "restic-aaaaaaaa", "restic-bbbbbbbb"]).lines
    #expect(diff.filter { !$0.hasSuffix("/") } == ["M r/home/changes", "- r/home/goes"])
    #expect(try await workshop.expect(0, ["versions", "r/home/long"]).lines.count == 1)
    #expect(try await workshop.shell("ls tmp").lines.isEmpty, "what was extracted is removed")
    let missing = try await run(
      ["PATH": workshop.path("tmp") + ":/usr/bin:/bin"].filter { _ in !Self.isInstalled("restic") })
    #expect(Self.isInstalled("restic") || missing.errors.contains("not installed"))
    for wrong in [
      ["--from", "x:/repo"], ["--from", "restic:"], ["--from", "restic:/r", "--dry-run"],
      ["--from", "borg:/r", "tree"],
    ] {
      try await workshop.expect(64, ["import"] + wrong)
    }
  }

  /// A program that fails behind the first of three files of the snapshot `$BREAKS`.
  private static let breakingRestic = """
    #!/bin/bash
    [ "$4" = restore ] || { echo '[{"id":"aaaaaaaa11111111","time":"2026-01-01T10:00:00Z"},
      {"id":"bbbbbbbb22222222","time":"2026-02-01T10:00:00Z"}]'; exit; }
    echo "$5" > "$7/a"
    [ "$5" != "$BREAKS" ] || { touch -d 2020-01-01 "$7"/*; echo 'cannot read b' >&2; exit 1; }
    echo "$5" > "$7/b"; echo "$5" > "$7/c"; touch -d 2020-01-01 "$7"/*
    """

  @Test("make a partial state of a part of a snapshot, import it again, and leave what is younger current")
  func partial() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data(Self.breakingRestic.utf8), to: "bin/restic")
    _ = try await workshop.shell("chmod 755 bin/restic; mkdir tmp")
    func run(_ prefix: String, breaks snapshot: String = "") async throws -> Outcome {
      try await workshop.run(
        ["import", "--from", "restic:/repo", "--prefix", prefix],
        environment: [
          "PATH": workshop.path("bin") + ":/usr/bin:/bin", "TMPDIR": workshop.path("tmp"), "BREAKS": snapshot,
        ])
    }
    func states(_ prefix: String) async throws -> [StateLine] {
      try await workshop.expect(0, ["states", "--json", prefix]).json(StateLine.self)
    }
    let broken = try await run("r", breaks: "bbbbbbbb22222222")
    #expect(broken.status == 1)
    #expect(
      broken.errors.contains("cannot read b") && broken.errors.contains("import again"), "\(broken.errors)")
    #expect(try await states("r").map(\.name) == ["restic-aaaaaaaa", "restic-bbbbbbbb-partial"])
    #expect(try await workshop.expect(0, ["get", "r/a"]).text == "bbbbbbbb22222222\n")
    // What the part has replaced is kept for the state before it.
    #expect(
      try await workshop.expect(0, ["list", "--at", "restic-aaaaaaaa", "--null"]).text.contains("r/a\0"))
    try await workshop.expect(0, ["export", "r/", "out", "--strip", "r/", "--at", "restic-aaaaaaaa"])
    #expect(workshop.contents("out/a") == Data("aaaaaaaa11111111\n".utf8))
    let again = try await run("r")
    #expect(again.status == 0 && again.text.contains("imported before     1"), "\(again.errors)")
    #expect(try await states("r").map(\.files).sorted() == [1, 3, 3])
    // An older one that is imported late does not replace the youngest.
    #expect(try await run("s", breaks: "aaaaaaaa11111111").status == 1)
    #expect(
      try await states("s").map(\.name) == ["restic-aaaaaaaa-partial", "restic-bbbbbbbb-2"])
    #expect(try await run("s").status == 0)
    #expect(try await states("s").map(\.files).sorted() == [1, 3, 3])
    try await workshop.expect(0, ["keep", "--last", "9", "--all"])
    for name in ["a", "b", "c"] {
      #expect(try await workshop.expect(0, ["get", "s/\(name)"]).text == "bbbbbbbb22222222\n")
      #expect(try await workshop.expect(0, ["versions", "s/\(name)"]).lines.count == 1)
    }
    try await workshop.expect(0, ["export", "s/", "old", "--strip", "s/", "--at", "restic-aaaaaaaa-2"])
    for name in ["a", "b", "c"] {
      #expect(workshop.contents("old/\(name)") == Data("aaaaaaaa11111111\n".utf8))
    }
    #expect(try await run("s").text.contains("imported before     2"))
    // The same part is no second state, also if the key has a younger version.
    for _ in 0..<2 {
      #expect(try await run("t", breaks: "aaaaaaaa11111111").status == 1)
      #expect(try await states("t").map(\.files) == [1, 3])
    }
    for _ in 0..<2 {
      #expect(try await run("u", breaks: "bbbbbbbb22222222").status == 1)
      #expect(try await states("u").map(\.files) == [3, 1])
    }
    #expect(try await run("t").status == 0)
    #expect(try await states("t").map(\.files).sorted() == [1, 3, 3])
  }

  /// A program that never ends, and tells the mode of the folder above its target.
  private static let endlessRestic = """
    #!/bin/bash
    [ "$4" = restore ] || { echo '[{"id":"aaaaaaaa11111111","time":"2026-01-01T10:00:00Z"}]'; exit; }
    echo "$5" > "$7/a"; stat -c %a "$7/.." > mode; sleep 600
    """

  @Test(
    "end the program if they are interrupted, and leave nothing of a snapshot that only its owner may look into"
  )
  func interrupted() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data(Self.endlessRestic.utf8), to: "bin/restic")
    _ = try await workshop.shell("chmod 755 bin/restic; mkdir tmp")
    let running = try await workshop.start(
      ["import", "--from", "restic:/repo", "--prefix", "r"],
      environment: ["PATH": workshop.path("bin") + ":/usr/bin:/bin", "TMPDIR": workshop.path("tmp")])
    _ = try await workshop.shell("for i in {1..3000000}; do [ ! -s mode ] || break; done")
    running.signal(SIGTERM)
    let outcome = try await running.outcome()
    #expect(outcome.status == 143 && outcome.errors.contains("interrupted"), "\(outcome.errors)")
    #expect(workshop.contents("mode") == Data("700\n".utf8))
    #expect(try await workshop.shell("ls tmp").lines.isEmpty)
    #expect(try await workshop.expect(0, ["states"]).lines.isEmpty)
  }

  /// A program that writes its only archive, warns of `$WARNING` and ends with the status `$STATUS`.
  private static let warningBorg = """
    #!/bin/bash
    [ "$1" = extract ] || { echo '{"archives":[{"id":"aaaaaaaa11111111","name":"one","start":"2026-01-01T10:00:00",
      "time":"2026-01-01T10:00:00"}]}'; exit; }
    echo 1 > a; echo "a: $WARNING" >&2; exit $STATUS
    """

  @Test("name the warnings of borg, which has written all files nevertheless")
  func warnings() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data(Self.warningBorg.utf8), to: "bin/borg")
    _ = try await workshop.shell("chmod 755 bin/borg")
    let harmless = "when setting extended attribute user.x: [Errno 1] Operation not permitted"
    func run(_ status: Int, _ warning: String) async throws -> Outcome {
      let environment = [
        "PATH": workshop.path("bin") + ":/usr/bin:/bin", "STATUS": "\(status)", "WARNING": warning,
      ]
      return try await workshop.run(
        ["import", "--from", "borg:/repo", "--prefix", "r"], environment: environment)
    }
    #expect(try await run(2, harmless).status == 1)
    // borg warns, too, when it could not write a file to its end.
    #expect(try await run(1, "write: [Errno 28] No space left on device").status == 1)
    let warned = try await run(1, harmless)
    #expect(warned.status == 1 && warned.errors.contains(harmless), "\(warned.errors)")
    #expect(
      try await workshop.expect(0, ["states", "--json"]).json(StateLine.self).map(\.name).sorted()
        == ["borg-aaaaaaaa", "borg-aaaaaaaa-partial", "borg-aaaaaaaa-partial-2"])
    // Of the same snapshot the whole state is the last.
    #expect(try await workshop.expect(0, ["keep", "--last", "1", "--prefix", "r"]).status == 0)
    #expect(
      try await workshop.expect(0, ["states", "--json"]).json(StateLine.self).map(\.name) == ["borg-aaaaaaaa"]
    )
    let again = try await run(1, harmless)
    #expect(again.status == 0 && again.text.contains("imported before     1"), "\(again.errors)")
  }

  @Test(
    "bring back what the programs have stored", .enabled(if: ["restic", "borg"].allSatisfy(isInstalled)),
    arguments: ["restic", "borg"])
  func real(_ program: String) async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(
      """
      set -e; export RESTIC_PASSWORD=x BORG_PASSPHRASE= BORG_BASE_DIR=$PWD/borg-home
      backup() { if [ \(program) = restic ]; then restic -q -r repo backup tree; else borg create repo::$1 tree; fi; }
      if [ \(program) = restic ]; then restic -q -r repo init; else borg init -e none repo; fi
      mkdir -p tree/d; echo 1 > tree/a; echo 1 > tree/d/b; ln -s a tree/l; chmod 640 tree/a; touch -d 2001-02-03 tree/a tree/d
      backup one; cp -a tree before; sleep 1.1; rm tree/a; echo 22 > tree/d/b; backup two
      $TOOL import --from \(program):repo --prefix r
      """)
    #expect(outcome.status == 0, "\(outcome.errors)")
    let states = try await workshop.expect(0, ["states", "--json"]).json(StateLine.self)
    #expect(states.count == 2)
    let folder = "r/tree/"
    for (state, tree) in zip(states, ["before", "tree"]) {
      try await workshop.expect(0, ["export", folder, "out-\(tree)", "--strip", folder, "--at", state.name])
      let same = try await workshop.shell(
        "rsync -rlpt --delete --dry-run --itemize-changes \(tree)/ out-\(tree)/")
      #expect(same.lines == [])
    }
  }
}
