import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// Versions that another process has put and not synced, while this one drops those before them.
@Suite("A drop of archived versions")
struct KeepSyncTests {
  private let lab: Lab
  private let one: Engine
  private let other: Engine

  init() throws {
    lab = try Lab()
    (one, other) = (try lab.open(), try lab.open())
    _ = try one.put("k", .data(noise(1, 300)), PutOptions())
    _ = try other.put(
      "k", .data(noise(2, 300)), PutOptions(durability: .relaxed, replacement: .archiveCurrent))
  }

  /// Fails if the version that stays is not synced before.
  @Test("leaves the key a version after a power cut")
  func powerCut() throws {
    let result = try one.keep(upTo: 0, keys: ["k"], .durable)
    #expect(result.droppedVersionCount == 1)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let data = try engine.data("k", nil)
      #expect(data == noise(2, 300))
    }
  }

  @Test("is refused if the sync of a version that stays has failed")
  func failedSync() throws {
    lab.disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(throws: BlobStorageError.self) { try other.synchronize() }
    lab.disk.heal()
    let error = #expect(throws: BlobStorageError.self) { try one.keep(upTo: 0, keys: ["k"], .durable) }
    #expect(error?.code == .busy)
    let count = try one.versions("k").count
    #expect(count == 2)
  }
}
