import Foundation
import Testing

/// `--bandwidth` of import, export and copy. That it holds the rate is tested where time can be set.
@Suite struct BandwidthTests {
  @Test("a generous one changes nothing, and one that is too narrow can be interrupted")
  func bandwidth() async throws {
    let workshop = try await Workshop()
    for (index, byteCount) in [10, 300_000, 9_000_000].enumerated() {
      try workshop.write(noise(byteCount, seed: UInt64(index)), to: "tree/\(index)")
    }
    let other = workshop.path("other")
    try await workshop.expect(0, ["init", other])
    let narrow = ["--bandwidth", "1", "--progress", "json"]
    func expectInterruption(_ arguments: [String], _ phase: String) async throws {
      let running = try await workshop.start(arguments + narrow)
      try await running.wait(for: .errors) { $0.contains(phase) }
      running.signal(SIGINT)
      let outcome = try await running.outcome()
      #expect(outcome.status == 130, "\(outcome.errors)")
      #expect(outcome.errors.contains("interrupted; what was finished before stays"), "\(outcome.errors)")
    }
    try await expectInterruption(["import", "tree"], "importing")
    try await workshop.expect(0, ["import", "tree", "--bandwidth", "10G"])
    try await expectInterruption(["copy", workshop.storePath, other], "copying")
    try await workshop.expect(0, ["copy", workshop.storePath, other, "--bandwidth", "10GiB"])
    try await expectInterruption(["export", "out"], "exporting")
    try await workshop.expect(0, ["export", "out", "--bandwidth", "10G"])
    #expect(try await workshop.shell("diff -r tree out").status == 0)
    try await workshop.expect(0, ["verify", "--store", other])
  }
}
