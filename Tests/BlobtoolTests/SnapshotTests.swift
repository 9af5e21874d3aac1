import Foundation
import Testing

/// Snapshots as their users name, keep and drop them.
@Suite("Snapshots")
struct SnapshotTests {
  private struct Line: Decodable {
    var id: String
    var name: String?
    var failed: Int
    var failedPaths: [String]
  }

  /// Shifts the time of day of the programs that load it, as a wrong clock does.
  private static let clock = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdlib.h>
    #include <time.h>
    int clock_gettime(clockid_t clock, struct timespec *time) {
      int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
      int result = real(clock, time);
      if (clock == CLOCK_REALTIME) time->tv_sec += atol(getenv("SECONDS_AHEAD"));
      return result;
    }
    """

  private static let compiles = ["/usr/bin/cc", "/usr/bin/gcc", "/usr/bin/clang"].contains {
    FileManager.default.isExecutableFile(atPath: $0)
  }

  @Test("a clock that is a year ahead, or goes back to 1971, hides no other one", .enabled(if: compiles))
  func wrongClock() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data(Self.clock.utf8), to: "clock.c")
    let outcome = try await workshop.shell(
      """
      set -e; $(command -v cc || command -v gcc || command -v clang) -shared -fPIC -o clock.so clock.c -ldl
      at() { LD_PRELOAD=$PWD/clock.so SECONDS_AHEAD=$1 "${@:2}"; }
      import() { echo $2 > tree/a; at $1 $TOOL import tree --name $2 -q > /dev/null; }
      mkdir tree; import -172800 one; import -86400 two; import 31536000 future; import 0 three
      $TOOL export latest --at latest -q > /dev/null; cat latest/a
      $TOOL keep --within 30d --all 2> errors; grep -c 'future.*ahead of now' errors; $TOOL states | grep -o '[a-z]*$'
      $TOOL keep --last 1 --all -q > /dev/null 2>&1; $TOOL states | grep -o '[a-z]*$'
      $TOOL snapshots --drop future; import -1700000000 back
      $TOOL list --at latest -0 > /dev/null; $TOOL export back --at latest -q > /dev/null; cat back/a
      $TOOL keep --last 1 --all -q > /dev/null; $TOOL states | grep -o '[a-z]*$'; $TOOL verify -q > /dev/null
      """)
    #expect(outcome.status == 0, "\(outcome.errors)")
    #expect(
      outcome.lines == [
        "three", "Dropped 0 states and 0 versions; 4 states stay.", "1", "one", "two", "future", "three",
        "future", "three", "Dropped 1 snapshot and 1 version.", "back", "back",
      ])
  }

  @Test("each source is thinned out by itself, and `latest` asks which is meant")
  func series() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(
      """
      mkdir notes photos; echo 1 > notes/gone
      for i in 1 2 3; do echo $i > notes/n; echo $i > photos/p; rm -f notes/gone2
        $TOOL import notes --name notes$i -q > /dev/null; $TOOL import photos --name photos$i -q > /dev/null
      done
      $TOOL list --at latest > /dev/null 2> errors; echo $?; grep -c "$PWD/notes.*$PWD/photos" errors
      $TOOL list n --at latest -0 | tr '\\0' '\\n'; $TOOL restore n --at latest -q > /dev/null; echo $?
      $TOOL diff notes1 latest | tail -1
      $TOOL keep --daily 7 --weekly 4 --all > /dev/null; $TOOL states | grep -o '[a-z0-9]*$'
      """)
    #expect(
      outcome.lines == ["64", "1", "n", "0", "M n", "notes3", "photos3"], "\(outcome.text) \(outcome.errors)")
  }

  @Test("a duration that decides what is dropped has a unit")
  func durations() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell("mkdir tree; echo 1 > tree/a; $TOOL import tree; $TOOL import tree")
    for wrong in ["30", "0.5", "1x", "d", "-1d", "1 d", ""] {
      try await workshop.expect(64, ["keep", "--within=\(wrong)", "--all"])
    }
    #expect(
      try await workshop.expect(64, ["keep", "--within", "30", "--all"]).errors.contains("needs a unit"))
    for right in ["30s", "5m", "12h", "30d", "1w", "1y", "1.5d"] {
      #expect(
        try await workshop.expect(0, ["keep", "--within", right, "--all"]).lines
          == ["Dropped 0 states and 0 versions; 2 states stay."])
    }
  }

  @Test("one that lacks files says which, and displaces no complete one")
  func incomplete() async throws {
    let workshop = try await Workshop()
    _ = try await workshop.shell("mkdir a b; echo 1 > a/x; echo 1 > b/y")
    try await workshop.expect(0, ["import", "a", "b", "--prefix", "t", "--name", "whole"])
    _ = try await workshop.shell("mv b c")
    try await workshop.expect(1, ["import", "a", "b", "--prefix", "t", "--name", "part"])
    let lines = try await workshop.expect(0, ["snapshots", "--json"]).json(Line.self)
    #expect(lines.map(\.failed) == [0, 1] && lines.map(\.failedPaths) == [[], ["b"]])
    let complete = try await workshop.expect(0, ["export", "t", "whole", "--at", "whole"])
    #expect(!complete.errors.contains("incomplete"))
    let export = try await workshop.expect(0, ["export", "t", "part", "--at", "latest", "--json"])
    #expect(export.errors.contains("incomplete") && export.errors.contains("“b”"))
    #expect(export.text.contains(#""failedPaths":["b"]"#))
    #expect(try await workshop.expect(0, ["list", "t", "--at", "part"]).errors.contains("“b”"))
    #expect(try await workshop.expect(0, ["diff", "whole", "part"]).errors.contains("“b”"))
    for rule in [["--last", "1"], ["--daily", "1"], ["--within", "1d"]] {
      try await workshop.expect(0, ["keep", "--all"] + rule)
      #expect(try await workshop.expect(0, ["states"]).lines.count == 2)
    }
  }

  @Test("chosen ones are dropped, and a version of the others is read by its ID")
  func dropped() async throws {
    let workshop = try await Workshop()
    for name in ["one", "two", "three"] {
      try workshop.write(Data(name.utf8), to: "tree/a")
      try await workshop.expect(0, ["import", "tree", "--name", name])
    }
    struct Found: Decodable { var version: String }
    let found = try await workshop.expect(0, ["find", "a", "--json"]).json(Found.self).map(\.version)
    #expect(found.count == 3)
    for (version, name) in zip(found, ["one", "two", "three"]) {
      #expect(try await workshop.expect(0, ["get", "a", "--version", version]).text == name)
    }
    let ids = try await workshop.expect(0, ["states", "--json"]).json(Line.self).map(\.id)
    for wrong in [["none"], ["two", "latest"], ["2999-01-01"]] {
      try await workshop.expect(3, ["snapshots", "--drop"] + wrong)
    }
    try await workshop.expect(64, ["snapshots", "tree", "--drop", "two"])
    try await workshop.expect(0, ["hold", "mine", "three"])
    #expect(try await workshop.expect(1, ["snapshots", "--drop", "two", "three"]).errors.contains("mine"))
    // It also protects the versions that were there when it was recorded.
    try await workshop.expect(0, ["hold", "--release", "mine"])
    #expect(
      try await workshop.expect(0, ["snapshots", "--drop", "two", String(ids[0].prefix(8))]).lines
        == ["Dropped 2 snapshots and 2 versions."])
    #expect(try await workshop.expect(0, ["states", "--json"]).json(Line.self).map(\.name) == ["three"])
    try await workshop.expect(3, ["get", "a", "--version", found[0]])
  }

  /// Two hosts and two folders, three days each.
  private static let restic = """
    #!/bin/bash
    [ "$4" = restore ] && { echo "$5" > "$7/a"; exit; }
    echo '['; for day in 1 2 3; do for host in one two; do for path in home etc; do
      echo "$first{\\"id\\":\\"$day$host$path-0000\\",\\"time\\":\\"2026-01-0${day}T10:00:00Z\\",\\"hostname\\":\\"$host\\",\\"paths\\":[\\"/$path\\"]}"
      first=,; done; done; done; echo ']'
    """

  /// Archives of two names, three days each. It says hosts and users to those who ask.
  private static let borg = """
    #!/bin/bash
    [ "$1" = extract ] && { echo "$3" > a; exit; }
    [ "$4" = '{hostname}{username}' ] || exit 1
    echo '{"archives":['; for day in 1 2 3; do for name in docs web1; do
      echo "$first{\\"id\\":\\"$day$name-0000\\",\\"name\\":\\"$name-2026-01-0$day\\",\\"time\\":\\"2026-01-0${day}T10:00:00\\",\\"hostname\\":\\"h\\",\\"username\\":\\"u\\"}"
      first=,; done; done; echo ']}'
    """

  @Test("archives that were taken over are one series for each name without its date")
  func takenOverArchives() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data(Self.borg.utf8), to: "bin/borg")
    let outcome = try await workshop.shell(
      """
      chmod 755 bin/borg; PATH=$PWD/bin:$PATH; $TOOL import --from borg:/repo -q > /dev/null || echo failed
      $TOOL keep --daily 3 --all; $TOOL keep --daily 1 --all; $TOOL states | grep -o 'borg-[^ ]*'
      """)
    #expect(
      outcome.lines == [
        "Dropped 0 states and 0 versions; 6 states stay.", "Dropped 4 states and 4 versions; 2 states stay.",
        "borg-3docs-00", "borg-3web1-00",
      ], "\(outcome.text) \(outcome.errors)")
  }

  @Test("a repository that was taken over keeps three days of each host and path")
  func takenOver() async throws {
    let workshop = try await Workshop()
    try workshop.write(Data(Self.restic.utf8), to: "bin/restic")
    let outcome = try await workshop.shell(
      """
      chmod 755 bin/restic; PATH=$PWD/bin:$PATH
      $TOOL import --from restic:/repo --prefix r -q > /dev/null || echo failed
      $TOOL keep --daily 3 --all; $TOOL keep --daily 1 --all; $TOOL states --json | grep -o '"host":"[a-z]*"' | sort
      $TOOL states --json | grep -o '"sources":..[^]]*' | sort | uniq -c | tr -s ' '
      """)
    #expect(
      outcome.lines == [
        "Dropped 0 states and 0 versions; 12 states stay.", "Dropped 8 states and 8 versions; 4 states stay.",
        #""host":"one""#, #""host":"one""#, #""host":"two""#, #""host":"two""#,
        #" 2 "sources":["/etc""#, #" 2 "sources":["/home""#,
      ], "\(outcome.text) \(outcome.errors)")
  }
}
