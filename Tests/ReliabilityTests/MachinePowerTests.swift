import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// A machine that shares a store and loses power.
@Suite("A machine that lost power")
struct MachinePowerTests {
  @Test("shows what it had published, though what is left of it here is torn")
  func tornCopy() throws {
    let store = SimulatedObjectStore()
    try Engine.create(in: store, options: StoreOptions(averageChunkByteCount: 1 << 10))
    let machine = try Machine(number: 0, clock: 1_700_000_000_000)
    machine.environment.worksInline = true
    let process = machine.disk.process()
    let engine = try machine.open(process, store)
    // It dies between publishing its pack and giving up its own copy of it.
    machine.disk.beforeMutations { (call) throws(BlobStorageError) in
      if call.detail.contains("/ranges/") { throw .simulatedStop }
    }
    let data = noise(1, 3_000)
    _ = try? engine.put("key", .data(data), PutOptions(durability: .durable))
    process.kill()
    #expect(store.objects.keys.contains { $0.hasPrefix("packs/") })
    try machine.cutPower { disk in
      disk.powerCut(
        keeping: disk.pendingChanges.map { ($0.number, $0.byteCount > 0 ? .sectors(mask: 0) : .whole) })
    }
    let again = try machine.open(machine.disk.process(), store)
    #expect(try again.data("key", nil) == data)
    try again.close()
  }

  @Test("has what it was about to say of a collection, where puts of one name are not kept apart")
  func keptEntry() throws {
    var faults = ObjectFaults()
    faults.ignoresIfAbsent = true
    let store = SimulatedObjectStore(faults: faults)
    let machine = try Machine(number: 0, clock: 1_700_000_000_000)
    machine.environment.worksInline = true
    let process = machine.disk.process()
    try Engine.create(
      in: store, maintainedFrom: Machine.statePath, options: StoreOptions(averageChunkByteCount: 1 << 10),
      environment: machine.environment(process))
    let engine = try machine.open(process, store)
    for (key, seed) in [("kept", 1), ("gone", 2)] {
      _ = try engine.put(key, .data(noise(UInt64(seed), 3_000)), PutOptions())
    }
    _ = try engine.delete(["gone"], .durable)
    let entries = Mutex<[(asked: String, kept: String)]>([])
    let disk = machine.disk
    store.setHook { call in
      guard call.kind == .put, call.name.hasPrefix(SharedNames.collections) else { return }
      let kept = Self.keptEntry(disk.powerCut())
      entries.withLock { $0.append((call.name, kept)) }
    }
    let report = try engine.collectGarbage(
      GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(0)))
    store.setHook(nil)
    #expect(report.obstacles == [] && report.deletedPackCount + report.compactedPackCount > 0)
    let found = entries.withLock { $0 }
    #expect(found.count >= 2, "one that condemns, and one that removes")
    #expect(found.allSatisfy { $0.asked == $0.kept }, "\(found)")
    try engine.close()
  }

  /// The name of the entry that the collector's folder keeps.
  private static func keptEntry(_ disk: SimulatedDisk) -> String {
    let path = FilePath(Machine.statePath).appending("collector").appending("entry")
    guard let file = try? disk.open(path, .read) else { return "none" }
    defer { file.close() }
    // An entry's number.
    var bytes = [UInt8](repeating: 0, count: 4)
    let count = bytes.withUnsafeMutableBytes { (try? file.read(into: $0, at: 12)) ?? 0 }
    guard count == 4 else { return "cut short" }
    return SharedNames.collection(bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt32.self).littleEndian })
  }
}
