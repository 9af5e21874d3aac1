import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("A store whose engine does not keep puts of one name apart")
struct RemoteMaintainerTests {
  private let machines: SharedMachines

  init() throws {
    var faults = ObjectFaults()
    faults.ignoresIfAbsent = true
    let store = SimulatedObjectStore(faults: faults)
    machines = try SharedMachines(store)
    try Engine.create(
      in: store, maintainedFrom: machines.temporary.path.appending("one").string, options: StoreOptions())
  }

  @Test("is collected by the machine that created it, and by no other")
  func others() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    #expect(one.information.collectingMachine == ProcessInfo.processInfo.hostName)
    let bytes = random.bytes(10_000)
    _ = try one.put("kept", bytes, PutOptions())
    _ = try one.put("gone", random.bytes(10_000), PutOptions())
    _ = try one.delete(["gone"], .durable)
    let error = #expect(throws: BlobStorageError.self) {
      try machines.engine("two").collectGarbage(SharedMachines.everything)
    }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains("Only the machine") == true)
    #expect(machines.names("collections/") == [])
    #expect(try one.collectGarbage(SharedMachines.everything).deletedChunkCount == 1)
    try machines.check(["kept": bytes], "after the collection")
  }

  @Test("fences no writer: it waits for all registered ones")
  func waits() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    let two = try machines.engine("two")
    _ = try one.put("gone", random.bytes(10_000), PutOptions())
    _ = try two.put("kept", Array("text".utf8), PutOptions())
    _ = try one.delete(["gone"], .durable)
    let error = #expect(throws: BlobStorageError.self) {
      try one.collectGarbage(SharedMachines.everything)
    }
    #expect(error?.code == .busy)
    #expect(error?.message.contains("delete writers/") == true)
    _ = try two.put("more", Array("text".utf8), PutOptions())
    let report = try one.collectGarbage(SharedMachines.everything) { progress in
      if progress.phase == "waiting" { two.runPeriodicWork() }
    }
    #expect(report.deletedChunkCount == 1)
    try machines.check(
      ["kept": Array("text".utf8), "more": Array("text".utf8)], "after two had passed")
  }

  @Test("that is lost is followed by a folder that has what the store names it by")
  func successor() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    _ = try one.put("gone", random.bytes(10_000), PutOptions())
    _ = try one.delete(["gone"], .durable)
    try one.close()
    let two = try machines.engine("two")
    #expect(throws: BlobStorageError.self) { try two.collectGarbage(SharedMachines.everything) }
    let store = try #require(machines.store.objects["store"])
    let folder = URL(filePath: machines.temporary.path.appending("two").string)
    try Data(store.dropFirst(72).prefix(16)).write(to: folder.appending(path: "maintainer"))
    #expect(try two.collectGarbage(SharedMachines.everything).deletedChunkCount == 1)
  }

  @Test("puts the same entry again that was cut short, so that a late put changes nothing")
  func sameEntry() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    _ = try one.put("gone", random.bytes(10_000), PutOptions())
    _ = try one.delete(["gone"], .durable)
    try one.close()
    let client = machines.store.client { (call) throws(BlobStorageError) in
      if call.kind == .put, call.name.hasPrefix("collections/") { throw BlobStorageError.simulatedStop }
    }
    #expect(throws: BlobStorageError.self) {
      try machines.engine("one", client).collectGarbage(SharedMachines.everything)
    }
    #expect(machines.names("collections/") == [])
    let next = try machines.engine("one")
    let another = random.bytes(10_000)
    _ = try next.put("another", another, PutOptions())
    _ = try next.collectGarbage(SharedMachines.everything)
    let first = try #require(machines.store.peek("collections/00000001"))
    let header = next.header
    // The first entry is that of the collector that was cut short.
    let entry = try Collections(
      first, .collection, number: 1, storeID: header.storeID, name: "the first entry")
    #expect(!entry.condemned.isEmpty)
    let last = try CollectionLog(machines.store, storeID: header.storeID).read(after: Collections())
    #expect(last.number >= 3)
    #expect(last.collector != entry.collector)
    try machines.check(["another": another], "afterwards")
  }

  @Test("puts that entry again before it accepts a loss, too")
  func sameEntryBeforeLoss() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    for key in ["gone", "lost"] { _ = try one.put(key, random.bytes(10_000), PutOptions()) }
    let packs = machines.names("packs/")
    _ = try one.delete(["gone"], .durable)
    try one.close()
    let client = machines.store.client { (call) throws(BlobStorageError) in
      if call.kind == .put, call.name.hasPrefix("collections/") { throw BlobStorageError.simulatedStop }
    }
    #expect(throws: BlobStorageError.self) {
      try machines.engine("one", client).collectGarbage(SharedMachines.everything)
    }
    machines.store.set(packs[1], nil)
    let next = try machines.engine("one")
    _ = try next.repair(acceptsLosses: true)
    let first = try #require(machines.store.peek("collections/00000001"))
    let storeID = next.header.storeID
    let entry = try Collections(first, .collection, number: 1, storeID: storeID, name: "the first entry")
    #expect(!entry.condemned.isEmpty)
    let last = try CollectionLog(machines.store, storeID: storeID).read(after: Collections())
    #expect(last.removed.contains(try #require(SharedNames.packName(packs[1]))))
    try next.close()
  }

  @Test("is known by its folder also after a power cut")
  func powerCut() throws {
    let disk = SimulatedDisk()
    let objects = MemoryObjectStore()
    var environment = Engine.Environment()
    environment.files = disk
    try Engine.create(
      in: objects, maintainedFrom: "/state", options: StoreOptions(), environment: environment)
    let store = try #require(objects.objects["store"])
    #expect(try disk.powerCut().bytes(of: "/state/maintainer") == Array(store.dropFirst(72).prefix(16)))
  }

  @Test("is not there if its state folder cannot be made: no folder could ever collect it")
  func noFolder() throws {
    let objects = MemoryObjectStore()
    var environment = Engine.Environment()
    environment.files = SimulatedDisk()
    try Engine.create(
      in: objects, maintainedFrom: "/state", options: StoreOptions(), environment: environment)
    try objects.delete("store")
    let error = failure {
      try Engine.create(
        in: objects, maintainedFrom: "/state", options: StoreOptions(), environment: environment)
    }
    #expect(error?.code == .notAStore)
    #expect(objects.objects["store"] == nil)
    try Engine.create(
      in: objects, maintainedFrom: "/other", options: StoreOptions(), environment: environment)
    #expect(objects.objects["store"] != nil)
  }

  @Test("names it in bytes that are read as they were written, and else are not understood")
  func bytes() throws {
    let identity = (0..<16).map { UInt8($0 + 100) }
    let written = Maintainer(identity: identity, machine: "Rechner ü")
    let bytes = written.encoded()
    #expect(try Maintainer(bytes) == written)
    let long = Maintainer(identity: identity, machine: String(repeating: "ü", count: 200)).encoded()
    #expect(try Maintainer(long).machine == String(repeating: "ü", count: 127))
    var others = (0..<bytes.count).map { Array(bytes.prefix($0)) } + [bytes + [0]]
    for index in bytes.indices {
      for bit in 0..<8 {
        var changed = bytes
        changed[index] ^= 1 << UInt8(bit)
        others.append(changed)
      }
    }
    for other in others { #expect(failure { _ = try Maintainer(other) }?.code == .unsupportedFormat) }
  }

  @Test(
    "is read and written, and not collected, where it says what this build does not understand",
    arguments: [true, false])
  func unknown(_ isDamaged: Bool) throws {
    var extra = Array("Something that a later build says in this place.".utf8)
    if isDamaged {
      extra = Maintainer(identity: [UInt8](repeating: 5, count: 16), machine: "machine").encoded()
      extra[10] ^= 1
    }
    let store = SimulatedObjectStore()
    try Engine.create(in: store, options: StoreOptions(), extra: extra)
    let machines = try SharedMachines(store)
    let one = try machines.engine("one")
    for key in ["gone", "kept"] { _ = try one.put(key, Array(key.utf8), PutOptions()) }
    _ = try one.delete(["gone"], .durable)
    #expect(failure { _ = try one.collectGarbage(SharedMachines.everything) }?.code == .unsupportedFormat)
    #expect(one.information.collectingMachine == nil)
    #expect(machines.names("collections/") == [])
    try machines.check(["kept": Array("kept".utf8)], "afterwards")
  }
}
