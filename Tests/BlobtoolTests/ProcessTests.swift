import Foundation
import Testing

/// Several processes at once, and processes that are stopped.
@Suite struct ProcessTests {
  @Test("two imports and a gc at once end in a store that holds every file")
  func together() async throws {
    let workshop = try await Workshop()
    for index in 0..<40 {
      try workshop.write(noise(20_000 + index * 997, seed: UInt64(index)), to: "one/f\(index)")
      try workshop.write(noise(20_000 + index * 997, seed: UInt64(index + 20)), to: "two/f\(index)")
    }
    try workshop.write(noise(3_000_000, seed: 99), to: "one/large")
    try workshop.write(noise(3_000_000, seed: 99), to: "two/large")
    try await workshop.expect(0, ["put", "old"], input: noise(500_000, seed: 100))
    try await workshop.expect(0, ["delete", "old"])
    async let first = workshop.run(["import", "one", "--prefix", "1/"])
    async let second = workshop.run(["import", "two", "--prefix", "2/"])
    async let third = workshop.run(["gc"])
    for outcome in try await [first, second, third] { #expect(outcome.status == 0, "\(outcome.errors)") }
    try await workshop.expect(0, ["gc"])
    try await workshop.expect(0, ["verify"])
    try await workshop.expect(0, ["export", "1/", "out1", "--strip", "1/"])
    try await workshop.expect(0, ["export", "2/", "out2", "--strip", "2/"])
    #expect(try await workshop.shell("diff -r one out1 && diff -r two out2").status == 0)
  }

  @Test(
    "an import that is interrupted leaves a valid store, and done again it is complete",
    arguments: [
      (SIGINT, 130), (SIGTERM, 143), (SIGKILL, 137),
    ] as [(Int32, Int32)])
  func interrupted(_ signal: Int32, _ status: Int32) async throws {
    let workshop = try await Workshop()
    let bytes = noise(4_000_000, seed: UInt64(signal))
    for index in 0..<60 {
      try workshop.write(bytes[(index * 50_000)...] + noise(1_000, seed: UInt64(index)), to: "tree/f\(index)")
    }
    // The shell watches, because this process is busy with other tests.
    let outcome = try await workshop.shell(
      """
      $TOOL import tree --progress json 2> err & tool=$!
      until grep -q importing err; do kill -0 $tool || exit 99; done
      kill -\(signal) $tool; wait $tool
      """)
    #expect(outcome.status == status, "\(outcome.errors)")
    try await workshop.expect(0, ["verify"])
    try await workshop.expect(0, ["import", "tree"])
    try await workshop.expect(0, ["verify"])
    #expect(try await workshop.expect(0, ["list"]).lines.count == 60)
  }

  @Test("a put that waits for input is ended by a signal, and the key is as it was")
  func waitingPut() async throws {
    let workshop = try await Workshop()
    let outcome = try await workshop.shell(
      """
      mkfifo pipe; { echo x; exec sleep 60; } > pipe & sleeper=$!
      $TOOL put k - < pipe --progress json 2> err & tool=$!
      until grep -q storing err; do kill -0 $tool || exit 99; done
      kill -TERM $tool; wait $tool; status=$?
      kill -KILL $sleeper; exit $status
      """)
    #expect(outcome.status == 143, "\(outcome.errors)")
    try await workshop.expect(3, ["get", "k"])
    try await workshop.expect(0, ["verify"])
  }

  @Test(
    "work that cannot be called off ends with the second signal at once, and else ten seconds after the first"
  )
  func insistent() async throws {
    let workshop = try await Workshop()
    try await workshop.expect(0, ["put", "k"], input: noise(1_000_000, seed: 3))
    // Each writes to a pipe. One byte is read, to know that it writes; the rest stays in the pipe.
    let outcome = try await workshop.shell(
      """
      mkfifo once twice; exec 3<>once 4<>twice
      $TOOL get k > once & once=$!; $TOOL get k > twice & twice=$!
      head -c 1 <&3 > /dev/null; head -c 1 <&4 > /dev/null; sleep 0.5
      kill -TERM $once; kill -INT $twice; began=$SECONDS; sleep 1
      kill -0 $twice && echo waits; kill -INT $twice; wait $twice; echo $? $((SECONDS - began < 7))
      kill -0 $once && echo waits; wait $once; echo $? $((SECONDS - began > 7))
      """)
    #expect(outcome.lines == ["waits", "130 1", "waits", "143 1"], "\(outcome.errors)")
    try await workshop.expect(0, ["verify"])
  }

  /// Starts a program without root's right to pass over permissions; of util-linux, on every Debian.
  private static let setpriv = "/usr/bin/setpriv"

  @Test(
    "a store that may not be written says so",
    .enabled(
      if: getuid() != 0 || FileManager.default.isExecutableFile(atPath: setpriv), "root may write anywhere"))
  func readOnly() async throws {
    let workshop = try await Workshop()
    let dropping = getuid() == 0 ? "\(Self.setpriv) --bounding-set=-dac_override,-dac_read_search" : ""
    let outcome = try await workshop.shell("chmod -R a-w store; echo 1 | \(dropping) $TOOL put k")
    #expect(outcome.status == 1)
    #expect(outcome.errors.contains("store") && outcome.errors.contains("Permission denied"))
    _ = try await workshop.shell("chmod -R u+w store")
    try await workshop.expect(3, ["get", "k"])
  }
}
