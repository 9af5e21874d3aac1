import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("Writers of a store that machines share")
struct RemoteMemberTests {
  private let machines: SharedMachines

  init() throws { machines = try SharedMachines() }

  @Test("are registered from before their first look until they are closed")
  func registration() throws {
    let one = try machines.engine("one")
    #expect(machines.names("writers/") == [])
    let names = CallCount()
    machines.store.setHook { call in
      // Nothing is published before.
      if call.kind == .put, names.next() == 1 { #expect(call.name.hasPrefix("writers/")) }
    }
    _ = try one.put("a", Array("first".utf8), PutOptions())
    machines.store.setHook(nil)
    #expect(machines.names("writers/").count == 1)
    let session = one.newSession()
    try session.join()
    #expect(machines.names("writers/").count == 2)
    try session.close()
    try one.close()
    #expect(machines.names("writers/") == [])
    #expect(throws: BlobStorageError.self) { try one.put("b", Array("late".utf8), PutOptions()) }
    #expect(throws: BlobStorageError.self) { try session.commit { _ in } }
  }

  @Test("that are dead are not waited for once their state folder is opened again")
  func dead() throws {
    var dying: Engine? = try machines.engine("one")
    _ = try dying?.put("published", Array("text".utf8), PutOptions())
    _ = try dying?.put("spooled", Array("more".utf8), .relaxed)
    dying = nil
    var idle: Engine? = try machines.engine("two")
    _ = try idle?.put("idle", Array("text".utf8), PutOptions())
    idle = nil
    let living = try machines.engine("one")
    #expect(machines.names("writers/").count == 1)
    #expect(machines.names("packs/").count == 3)
    _ = try living.put("living", Array("text".utf8), PutOptions())
    let beside = try machines.engine("one")
    #expect(machines.names("writers/").count == 2)
    _ = try machines.engine("two")
    #expect(machines.names("writers/").count == 1)
    try living.close()
    try beside.close()
    #expect(machines.names("writers/") == [])
  }

  @Test("that are dead and not registered any more publish nothing")
  func deadAndFenced() throws {
    var dying: Engine? = try machines.engine("one")
    _ = try dying?.put("published", Array("text".utf8), PutOptions())
    _ = try dying?.put("spooled", Array("more".utf8), .relaxed)
    dying = nil
    let registered = try #require(machines.names("writers/").first)
    machines.store.set(registered, nil)
    let next = try machines.engine("one")
    #expect(machines.names("packs/").count == 1)
    #expect(try next.keys("", after: nil, limit: 10).map(\.key) == ["published"])
  }

  @Test(
    "that are dead publish nothing behind a pack that is lost, or behind a fence", arguments: [false, true])
  func deadWithGap(_ isFenced: Bool) throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    var dying: Engine? = try place.engine("one", packByteCount: 10_000, inline: true)
    _ = try dying?.put("published", Array("text".utf8), PutOptions())
    place.objects.setDown(true)
    for key in ["lost", "behind"] { _ = try dying?.put(key, random.bytes(20_000), .relaxed) }
    dying = nil
    place.objects.setDown(false)
    let folder = place.statePath("one") + "/packs"
    let names = try FileManager.default.contentsOfDirectory(atPath: folder).sorted()
    #expect(names.count == 2)
    let lost = try #require(names.first)
    try FileManager.default.removeItem(atPath: "\(folder)/\(lost)")
    if isFenced {
      let name = try #require(PackName(fileName: lost))
      let storeID = try place.storeID
      place.objects.objects[SharedNames.pack(name)] = Fence(name, by: 1).encoded(storeID: storeID)
    }
    let next = try place.engine("one")
    #expect(place.packNames.count == (isFenced ? 2 : 1))
    #expect(try next.keys("", after: nil, limit: 10).map(\.key) == ["published"])
  }

  @Test(
    "that were fenced with nothing left to publish go on under another number", arguments: ["put", "beat"])
  func idle(_ way: String) throws {
    var random = SplitMix64.announced()
    let gone = random.bytes(30_000)
    // The one looks before it writes, the other is told by a listing.
    let one = try machines.engine("one", silence: way == "put" ? 0 : .infinity)
    let two = try machines.engine("two")
    _ = try one.put("a", Array("first".utf8), PutOptions())
    _ = try two.put("gone", gone, PutOptions())
    try one.catchUp()
    _ = try two.delete(["gone"], .durable)
    let before = one.writer.writerID
    _ = try two.collectGarbage(SharedMachines.everything)
    if way == "beat" { one.beat() }
    _ = try one.put("b", gone, PutOptions())
    #expect(one.writer.writerID != before)
    try one.close()
    try two.close()
    try machines.check(["a": Array("first".utf8), "b": gone], "after going on")
    #expect(machines.names("writers/") == [])
  }

  @Test("that were fenced without knowing it say so, once something was written")
  func notIdle() throws {
    let one = try machines.engine("one", silence: .infinity)
    let two = try machines.engine("two")
    _ = try one.put("a", Array("first".utf8), PutOptions())
    _ = try two.put("b", Array("second".utf8), PutOptions())
    _ = try two.delete(["b"], .durable)
    _ = try two.collectGarbage(SharedMachines.everything)
    let error = #expect(throws: BlobStorageError.self) {
      try one.put("c", Array("third".utf8), PutOptions())
    }
    #expect(error?.code == .fenced)
    try machines.check(["a": Array("first".utf8)], "afterwards")
  }

  @Test("show that they live though they cannot publish, and pass nothing then")
  func lifeInTrouble() throws {
    let place = try RemotePlace()
    let engine = try place.engine("one", inline: true)
    _ = try engine.put("a", Array("first".utf8), PutOptions())
    _ = try engine.put("b", Array("second".utf8), .relaxed)
    let objects = place.objects
    let registered = try #require(objects.names.first { $0.hasPrefix("writers/") })
    let name = try #require(place.packNames.first.flatMap { SharedNames.packName($0) })
    _ = try CollectionLog(objects, storeID: try place.storeID).condemn([name], after: Collections(), by: 7)
    let before = objects.objects[registered]
    objects.trouble([.refused, .refused])
    objects.beforeRequests { request, name in
      // What is refused is packs.
      if request == "put", name.hasPrefix("writers/") { objects.trouble([]) }
      if request == "put", name.hasPrefix("packs/") { objects.trouble([.refused]) }
    }
    engine.beat()
    #expect(objects.objects[registered] != before)
    #expect(objects.names.filter { $0.hasPrefix("acks/") } == [])
    objects.beforeRequests(nil)
    objects.trouble([])
    engine.beat()
    #expect(objects.names.filter { $0.hasPrefix("acks/") }.count == 1)
  }

  @Test("find a chunk in a second pack when the one that they knew was removed")
  func secondPack() throws {
    var random = SplitMix64.announced()
    let shared = random.bytes(10_000)
    let long = random.bytes(100_000)
    let one = try machines.engine("one")
    let two = try machines.engine("two")
    // Neither knows of the other's.
    _ = try one.put(
      [PutItem(key: "a", data: Data(shared)), PutItem(key: "long", data: Data(long))], PutOptions())
    _ = try two.put("b", shared, PutOptions())
    let old = try machines.engine("old")
    for (engine, key) in [(one, "a"), (two, "b")] { _ = try engine.delete([key], .durable) }
    try two.catchUp()
    let report = try one.collectGarbage(CollectionOptions(waitSeconds: 0)) { progress in
      if progress.phase == "waiting" { two.beat() }
    }
    #expect(report.deletedPackCount > 0)
    try old.catchUp()
    let new = try machines.engine("new")
    #expect(try new.put("c", shared, PutOptions()).newByteCount == 0)
    try old.catchUp()
    #expect(try old.data("c", nil) == Data(shared))
    #expect(try old.verify().damaged == [])
    _ = try new.delete(["long"], .durable)
    // The collector's catalog is an old one, too.
    #expect(try one.collectGarbage(SharedMachines.everything).obstacles == [])
    try machines.check(["c": shared], "after another collection")
  }
}
