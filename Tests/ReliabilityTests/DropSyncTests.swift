import BlobStorage
import BlobStorageTestSupport
import BlobStorageTrees
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Versions that another process has put and not synced, while this one drops versions of the same key.
@Suite("A drop beside another process")
struct DropSyncTests {
  private let lab: Lab
  private let one: Engine
  private let other: Engine

  init() throws {
    lab = try Lab()
    (one, other) = (try lab.open(), try lab.open())
    _ = try one.put("k", .data(noise(1, 300)), PutOptions())
  }

  private func putBeside(_ replacement: Replacement) throws {
    _ = try other.put("k", .data(noise(2, 300)), PutOptions(durability: .relaxed, replacement: replacement))
  }

  /// Fails if only the drop is synced, and not the record that hides the version before.
  @Test(
    "is durable also where the other process has replaced a version and not synced that", arguments: 0..<3)
  func replaced(way: Int) throws {
    try putBeside(.replaceCurrent)
    switch way {
    case 0: _ = try one.delete(["k"], .durable)
    case 1: _ = try one.change([.delete("k")], .durable)
    default:
      let version = try #require(try one.version("k", nil))
      _ = try VersionChanges(one).delete(version: version.id, of: "k", .durable)
    }
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let count = try engine.versions("k").count
      #expect(count == 0)
    }
  }

  /// Fails if a pack that was open already at an earlier drop is passed over.
  @Test("is durable also where the other process has begun its pack long ago")
  func longOpen() throws {
    try putBeside(.archiveCurrent)
    for key in ["a", "b", "c"] {
      _ = try one.put(key, .data(noise(3, 300)), PutOptions())
      try one.writer.rollOver()
      #expect(try one.delete([key], .durable) == 1)
    }
    try putBeside(.replaceCurrent)
    #expect(try one.delete(["k"], .durable) == 1)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let count = try engine.versions("k").count
      #expect(count == 0)
    }
  }

  /// Fails if the version that stays is not synced before.
  @Test("of archived versions leaves the key a version after a power cut")
  func archived() throws {
    try putBeside(.archiveCurrent)
    let result = try one.keep(upTo: 0, keys: ["k"], .durable)
    #expect(result.droppedVersionCount == 1)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let data = try engine.data("k", nil)
      #expect(data == noise(2, 300))
    }
  }

  /// Fails if what goes has to be on the medium, too.
  @Test("of archived versions drops also what the other process has not synced")
  func unsynced() throws {
    try putBeside(.archiveCurrent)
    _ = try one.put("k", .data(noise(3, 300)), PutOptions(replacement: .archiveCurrent))
    let result = try one.keep(upTo: 0, keys: ["k"], .durable)
    #expect(result.droppedVersionCount == 2)
  }

  /// Fails if a version that is not synced yet does not count.
  @Test("of archived versions counts a version that the other process puts meanwhile")
  func archivedMeanwhile() throws {
    try putBeside(.archiveCurrent)
    let isFirst = Mutex(true)
    lab.disk.beforeMutations { [other] (call) throws(BlobStorageError) in
      guard call.kind == .synchronize, call.detail.contains("/packs/"),
        isFirst.withLock({ $0.exchange(false) })
      else { return }
      _ = try other.put(
        "k", .data(noise(3, 300)), PutOptions(durability: .relaxed, replacement: .archiveCurrent))
    }
    let result = try one.keep(upTo: 0, keys: ["k"], .durable)
    lab.disk.beforeMutations(nil)
    #expect(result.droppedVersionCount == 2)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let data = try engine.data("k", nil)
      #expect(data == noise(3, 300))
    }
  }

  @Test("of archived versions is refused if the sync of a version that stays has failed")
  func failedSync() throws {
    try putBeside(.archiveCurrent)
    lab.disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(throws: BlobStorageError.self) { try other.synchronize() }
    lab.disk.heal()
    let error = #expect(throws: BlobStorageError.self) { try one.keep(upTo: 0, keys: ["k"], .durable) }
    #expect(error?.code == .poisoned)
    let count = try one.versions("k").count
    #expect(count == 2)
  }

  /// Fails if the pack counts as recovered although the medium has lost the record that the drop relies on.
  @Test("is refused if the medium has lost what the other process had dropped and could not sync")
  func lostDrop() throws {
    #expect(try other.delete(["k"], .relaxed) == 1)
    lab.disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(throws: BlobStorageError.self) { try other.synchronize() }
    lab.disk.heal()
    #expect(throws: BlobStorageError.self) { try other.close() }
    let failed = try #require(try one.failedPacks().first)
    try DamageTests.change(lab, FilePath("\(Lab.storePath)/packs/\(failed.fileName)")) { bytes in
      for index in PackHeader.byteCount..<bytes.count { bytes[index] = 0 }
    }
    let error = #expect(throws: BlobStorageError.self) { try one.delete(["k"], .durable) }
    #expect(error?.code == .poisoned)
    // Recovery has brought the version back.
    #expect(try one.delete(["k"], .durable) == 1)
  }

  /// Fails if the commit runs once more when its drop cannot be made durable at first.
  @Test(
    "counts what it has dropped also if the recovery of the other's pack finds no room at first",
    arguments: 0..<3)
  func noRoom(way: Int) throws {
    let version = try one.put("l", .data(noise(3, 300)), PutOptions()).version
    try putBeside(.replaceCurrent)
    lab.disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(throws: BlobStorageError.self) { try other.synchronize() }
    lab.disk.heal()
    #expect(throws: BlobStorageError.self) { try other.close() }
    lab.disk.plan(Fault(.list, errno: .noSpace))
    switch way {
    case 0: #expect(try one.delete(["l"], .durable) == 1)
    case 1: #expect(try VersionChanges(one).delete(version: version.id, of: "l", .durable))
    default: #expect(try one.change([.delete("l")], .durable).count == 1)
    }
    lab.disk.heal()
  }

  /// Fails if states are dropped for one that a power cut may take.
  @Test("of states is refused if the sync of the state that stays has failed")
  func failedState() async throws {
    for (engine, number) in [(one, 0), (other, 1)] {
      let recorder = try StateRecorder(
        engine, prefix: "", name: nil, origin: TreeOrigin([]),
        created: Date(timeIntervalSince1970: Double(number)))
      recorder.addFolder(Array("folder \(number)/".utf8), [])
      _ = try recorder.finish(number == 0 ? .durable : .relaxed)
    }
    lab.disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(throws: BlobStorageError.self) { try other.synchronize() }
    lab.disk.heal()
    let store = try BlobStore.open(
      at: Lab.storePath, StoreConfiguration(threadCount: 1), in: lab.environment(lab.disk.process()))
    var policy = RetentionPolicy()
    policy.last = 1
    let last = policy
    let error = await #expect(throws: BlobStorageError.self) { _ = try await store.keep(last, of: .all) }
    #expect(error?.code == .poisoned)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let count = try StateFile(engine).states().count
      #expect(count == 1)
    }
    try await store.close()
  }

  /// Fails if a version or state goes for one that a power cut may take until gc has stored it again.
  @Test("by time leaves to the next run what is older than a sealed pack whose sync has failed")
  func sealedWithoutSync() async throws {
    try putBeside(.archiveCurrent)
    for (engine, number) in [(one, 0), (other, 1)] {
      let recorder = try StateRecorder(
        engine, prefix: "", name: nil, origin: TreeOrigin([]),
        created: Date(timeIntervalSince1970: Double(number)))
      recorder.addFolder(Array("folder \(number)/".utf8), [])
      _ = try recorder.finish(.durable)
    }
    let packs = try one.catalog.packRows().map(\.row.name)
    let pack = try #require(packs.first { $0.writer == other.writer.writerID })
    try other.close()
    try one.catalog.write { (transaction) throws(BlobStorageError) in
      _ = try transaction.updatePack(pack) { row in
        (row.isSealed, row.isPoisoned, row.durableByteCount) = (true, true, 0)
      }
    }
    let store = try BlobStore.open(
      at: Lab.storePath, StoreConfiguration(threadCount: 1), in: lab.environment(lab.disk.process()))
    var policy = RetentionPolicy()
    policy.last = 1
    for isStoredAgain in [false, true] {
      if isStoredAgain { #expect(try one.collectGarbage().obstacles == []) }
      let report = try await store.keep(policy, of: .all)
      #expect(report.droppedStateCount == (isStoredAgain ? 1 : 0))
      #expect(report.droppedVersionCount == (isStoredAgain ? 1 : 0))
    }
    let count = try one.versions("k").count
    #expect(count == 1)
    try await store.close()
  }
}
