#if os(Linux)
  import Foundation
  import Testing

  /// What a process takes for itself, without the mapped catalog and the program.
  @Suite(.serialized) struct MemoryTests {
    private static let script = #"""
      # The most private memory of a command, in kB.
      peak() {
        most=0
        "$@" > /dev/null & process=$!
        while kill -0 $process 2> /dev/null; do
          now=$(awk '/RssAnon/ { print $2 }' /proc/$process/status 2> /dev/null)
          [ "${now:-0}" -gt $most ] && most=$now
          sleep 0.01
        done
        wait $process || { echo "$* ended with $?"; exit 1; }
        echo "$most"
      }
      head -c $((MEBIBYTES << 20)) /dev/urandom > input
      peak $TOOL put k - < input
      peak $TOOL get k
      """#

    /// The peaks of a put and a get of a stream, in bytes.
    private func peaks(mebibytes: Int) async throws -> [Int] {
      let workshop = try await Workshop()
      try workshop.write(Data(Self.script.utf8), to: "script")
      let outcome = try await workshop.shell("MEBIBYTES=\(mebibytes); source ./script")
      #expect(outcome.status == 0, "\(outcome.text) \(outcome.errors)")
      return try outcome.lines.map { try #require(Int($0)) << 10 }
    }

    @Test("A long stream takes less than 32 MB")
    func streams() async throws {
      let peaks = try await peaks(mebibytes: 1_024)
      #expect(peaks.count == 2)
      for peak in peaks { #expect(peak < 32_000_000, "\(peaks)") }
    }
  }
#endif
