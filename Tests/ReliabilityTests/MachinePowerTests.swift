import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

/// A machine that shares a store and loses power.
@Suite("A machine that lost power")
struct MachinePowerTests {
  @Test("shows what it had published, though what is left of it here is torn")
  func tornCopy() throws {
    let store = SimulatedObjectStore()
    try Engine.create(in: store, options: StoreOptions(chunkByteCountAverage: 1 << 10))
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
}
