import BlobStorage
import BlobStorageObservation
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

/// One process watches a store that others change, and they are killed at any moment.
@Suite("Changes of processes that are killed", .serialized, .timeLimit(.minutes(10)))
struct ObservationKillTests {
  private static func current(_ store: BlobStore) async throws -> [String: BlobVersion.ID] {
    var current: [String: BlobVersion.ID] = [:]
    for try await entry in store.keys() { current[entry.key] = entry.current.id }
    return current
  }

  @Test("are all named in the end, with the state that each key has")
  func kills() async throws {
    let workshop = try await Workshop()
    let store = try await BlobStore.open(at: workshop.storePath)
    let shown = Mutex<[String: BlobVersion.ID]>([:])
    let changes = try await store.changes(interval: .milliseconds(5))
    let watching = Task {
      for try await change in changes {
        switch change {
        case .set(let version): shown.withLock { $0[version.key] = version.id }
        case .deleted(let key): shown.withLock { $0[key] = nil }
        case .reload:
          let current = try await Self.current(store)
          shown.withLock { $0 = current }
        }
      }
    }
    var random = SplitMix64(seed: TestSeed.announce())
    for index in 0..<5 { _ = try workshop.write(noise(3_000, seed: UInt64(index)), to: "tree/\(index)") }
    var killedCount = 0
    for step in 0..<40 {
      let key = "k\(Int.random(in: 0..<5, using: &random))"
      let command =
        switch Int.random(in: 0..<8, using: &random) {
        case 0: ["delete", key]
        case 1: ["import", "tree", "--prefix", "files \(step % 3)/", "--force"]
        case 2: ["gc"]
        case 3: ["delete", "--prefix", "files"]
        default: ["put", key, "--archive"]
        }
      let process = try await workshop.start(command, input: noise(2_000, seed: UInt64(step)))
      if Bool.random(using: &random) {
        process.signal(SIGKILL, inSeconds: Double.random(in: 0..<0.12, using: &random))
      }
      if try await process.outcome().status == -SIGKILL { killedCount += 1 }
    }
    // What a dead process has left open is recovered, and is a change like any other.
    try await workshop.expect(0, ["put", "last"], input: Data([1]))
    let expected = try await Self.current(store)
    while shown.withLock({ $0 }) != expected {
      try await Task.sleep(for: .milliseconds(10))
    }
    #expect(shown.withLock { $0 } == expected)
    #expect(killedCount > 0)
    watching.cancel()
    _ = await watching.result
    try await store.close()
  }
}
