import BlobStorageTestSupport
import Foundation
import Testing

/// A reader waits for no writer, running or stopped.
@Suite("Beside ten imports", .serialized)
struct WaitingTests {
  static let tryCount = KillTests.seconds.map { Int($0) } ?? 8
  static let seed = TestSeed.choose()

  @Test("of which one is stopped anywhere, a get ends")
  func stopped() async throws {
    let workshop = try await Workshop(options: ["--chunk-size", "4096"])
    print("stopped imports with BLOB_STORAGE_SEED=\(Self.seed)")
    for index in 0..<200 { try workshop.write(noise(300, seed: UInt64(index)), to: "tree/\(index)") }
    try await workshop.expect(0, ["put", "k"], input: Data("value".utf8))
    var generator = SplitMix64(seed: Self.seed)
    var importers: [Running] = []
    var begun = 0
    func begin() async throws {
      begun += 1
      // Many small transactions.
      importers.append(try await workshop.start(["import", "tree", "--force", "--prefix", "\(begun)/"]))
    }
    for _ in 0..<10 { try await begin() }
    for _ in 0..<Self.tryCount {
      let ended = importers.filter { !$0.isRunning }
      importers.removeAll { !$0.isRunning }
      for importer in ended {
        let outcome = try await importer.outcome()
        #expect(outcome.status == 0, "\(outcome.errors)")
        try await begin()
      }
      let importer = importers[generator.below(importers.count)]
      await importer.stop(inSeconds: generator.share() * 0.05)
      defer { importer.signal(SIGCONT) }
      let getter = try await workshop.start(["get", "k"])
      let hasHung = Flag()
      let waking = Task {
        // As long as it is stopped, nothing else ends the waiting.
        try await Task.sleep(for: .seconds(60))
        hasHung.raise()
        importer.signal(SIGCONT)
      }
      let outcome = try await getter.outcome()
      waking.cancel()
      let isStuck = hasHung.isRaised
      #expect(!isStuck, "a get waited for a stopped import")
      #expect(outcome.status == 0 && outcome.text == "value", "\(outcome.errors)")
      if isStuck { break }
    }
    for importer in importers {
      importer.signal(SIGCONT)
      let outcome = try await importer.outcome()
      #expect(outcome.status == 0, "\(outcome.errors)")
    }
    try await workshop.expect(0, ["verify"])
  }
}

private final class Flag: @unchecked Sendable {
  private let lock = NSLock()
  private var value = false

  var isRaised: Bool { lock.withLock { value } }
  func raise() { lock.withLock { value = true } }
}
