import Foundation
import Testing

/// Limits of the system, from nothing at all to enough.
@Suite("A limit of")
struct ResourceLimitTests {
  /// A store with a key, and a tree to import.
  private func workshop() async throws -> Workshop {
    let workshop = try await Workshop()
    for number in 0..<20 { try workshop.write(noise(20_000, seed: UInt64(number)), to: "tree/a/\(number)") }
    try await workshop.expect(0, ["put", "k", "tree/a/1"])
    return workshop
  }

  /// Runs every command under a limit. Each does its work, or says in one sentence why not; none crashes or waits.
  private func tryAll(_ workshop: Workshop, _ limit: String) async throws {
    let commands = [
      "put p tree/a/2", "get k -o got", "list", "import tree", "export k out", "gc", "verify", "versions k",
      "stats",
      "copy store other", "info k", "delete p", "init --store new", "states", "report", "hold k", "repair",
    ]
    for command in commands {
      let outcome = try await workshop.shell(
        """
        rm -rf out other new got; $TOOL init --store other > /dev/null
        # Through pipes: a limit of lengths concerns the files that a program writes to.
        {
          (
            exec 2>&3 3>&-
            ulimit \(limit) || exit 99
            exec env --default-signal=XFSZ timeout 60 $TOOL \(command)
          ) | cat > answer
          exit ${PIPESTATUS[0]}
        } 3>&1 | cat >&2
        exit ${PIPESTATUS[0]}
        """)
      // 127: not even the system could load the tool.
      if outcome.status == 127 || outcome.status == 99 { continue }
      #expect(outcome.status < 124, "\(limit) \(command): \(outcome.status) \(outcome.errors)")
      if outcome.status != 0 {
        #expect(outcome.errors.hasPrefix("blobtool: "), "\(limit) \(command): \(outcome.errors)")
        #expect(outcome.errors.split(separator: "\n").count < 30)
        continue
      }
      let check =
        switch command.prefix(while: { $0 != " " }) {
        case "put": "$TOOL get p | cmp - tree/a/2"
        case "get": "cmp got tree/a/1"
        case "import": "for i in $(seq 0 19); do $TOOL get a/$i | cmp - tree/a/$i || exit 1; done"
        case "export": "cmp out/k tree/a/1"
        case "copy": "$TOOL get --store other k | cmp - tree/a/1"
        case "init": "$TOOL list --store new"
        case "list": "grep k answer"
        default: "true"
        }
      let done = try await workshop.shell(check)
      #expect(done.status == 0, "\(limit) \(command) has not done its work: \(done)")
    }
    try await workshop.expect(0, ["verify"])
  }

  @Test(
    "open files ends no command without a sentence", arguments: [4, 5, 8, 14, 24, 33, 36, 37, 38, 40, 44])
  func files(_ count: Int) async throws { try await tryAll(try await workshop(), "-n \(count)") }

  @Test(
    "address space ends no command without a sentence", arguments: [100_000, 400_000, 1_100_000, 1_400_000])
  func addresses(_ kibibytes: Int) async throws { try await tryAll(try await workshop(), "-v \(kibibytes)") }

  @Test("stacks ends no command without a sentence", arguments: [64, 256])
  func stacks(_ kibibytes: Int) async throws { try await tryAll(try await workshop(), "-s \(kibibytes)") }

  @Test("lengths of files ends no command without a sentence", arguments: [0, 8, 64])
  func lengths(_ kibibytes: Int) async throws { try await tryAll(try await workshop(), "-f \(kibibytes)") }
}
