import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import SystemPackage
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

  @Test("of a repair are not registered any more once it has ended")
  func repair() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    for key in ["kept", "lost"] { _ = try one.put(key, random.bytes(20_000), PutOptions()) }
    let packs = machines.names("packs/")
    try one.close()
    let two = try machines.engine("two")
    #expect(try two.data("lost", nil) != nil)
    machines.store.set(packs[1], nil)
    #expect(try two.repair(acceptsLosses: true).dropped.map(\.key) == ["lost"])
    try two.close()
    #expect(machines.names("writers/") == [])
  }

  @Test("count on packs that they have looked for, though their periodic work forgets that meanwhile")
  func forgottenMeanwhile() throws {
    let one = try machines.engine("one")
    for text in ["first", "second"] {
      _ = try one.put("k", Array(text.utf8), PutOptions(replacement: .archiveCurrent))
    }
    try one.close()
    try machines.engine("two").close()
    let engine = try machines.engine("two")
    let count = CallCount()
    machines.store.setHook { (call) throws(BlobStorageError) in
      guard call.kind == .tail, call.name.hasPrefix(SharedNames.packs), count.next() == 2 else { return }
      engine.runPeriodicWork()
    }
    #expect(try VersionChanges(engine).rename(Array("k".utf8), to: Array("l".utf8), .durable))
    machines.store.setHook(nil)
    #expect(count.value > 1)
    #expect(try engine.versions("l").count == 2)
    try engine.close()
  }

  @Test("look for each pack that a version needs before they make it current again")
  func restored() throws {
    var random = SplitMix64.announced()
    // Of several chunks each.
    let (shared, more) = (random.bytes(500_000), random.bytes(500_000))
    let one = try machines.engine("one")
    _ = try one.put("shared", shared, PutOptions())
    let pack = machines.names("packs/")[0]
    _ = try one.put("a", shared + more, PutOptions(replacement: .archiveCurrent))
    let version = try #require(try one.versions("a").first)
    _ = try one.put("a", Array("new".utf8), PutOptions(replacement: .archiveCurrent))
    try one.close()
    // The pack of its manifest is there, and this machine has kept the other.
    machines.store.set(pack, nil)
    let again = try machines.engine("one")
    let result = try #require(try VersionChanges(again).put(version.id, of: "a", as: "a", PutOptions()))
    #expect(result.newByteCount > 0)
    try again.close()
    #expect(try machines.engine("two").data("a", nil) == Data(shared + more))
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

  @Test("that live stay registered, though another process finds a published pack of theirs in the spool")
  func publishedInSpool() throws {
    let living = try machines.engine("one")
    _ = try living.put("a", Array("first".utf8), PutOptions())
    let pack = try #require(machines.names("packs/").first)
    // As it stands between the answer of the put and the move to the cache.
    let path = machines.temporary.path.appending("one").appending(pack).string
    #expect(!FileManager.default.fileExists(atPath: path))
    try Data(try #require(machines.store.peek(pack))).write(to: URL(filePath: path))
    let beside = try machines.engine("one")
    #expect(machines.names("writers/").count == 1)
    #expect(machines.endNames == [])
    _ = try living.put("b", Array("second".utf8), PutOptions())
    try beside.close()
    try living.close()
    try machines.check(["a": Array("first".utf8), "b": Array("second".utf8)], "after both")
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
    // The collector ends the registration: something of it is never published.
    #expect(place.objects.names.filter { $0.hasPrefix("writers/") }.count == 1)
    #expect(try next.keys("", after: nil, limit: 10).map(\.key) == ["published"])
  }

  @Test(
    "that were fenced with nothing left to publish go on under another number",
    arguments: ["put", "periodic work"])
  func idle(_ way: String) throws {
    var random = SplitMix64.announced()
    let gone = random.bytes(30_000)
    // The one looks before it writes, the other is told by a listing.
    let one = try machines.engine("one", silence: way == "put" ? 0 : .infinity)
    let two = try machines.engine("two")
    _ = try one.put("a", Array("first".utf8), PutOptions())
    _ = try two.put("gone", gone, PutOptions())
    try one.extend()
    _ = try two.delete(["gone"], .durable)
    let before = one.writer.writerID
    _ = try two.collectGarbage(SharedMachines.everything)
    if way == "periodic work" { one.runPeriodicWork() }
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
    engine.runPeriodicWork()
    engine.renewRegistrations()
    #expect(objects.objects[registered] != before)
    #expect(objects.names.filter { $0.hasPrefix("acks/") } == [])
    objects.beforeRequests(nil)
    objects.trouble([])
    engine.runPeriodicWork()
    #expect(objects.names.filter { $0.hasPrefix("acks/") }.count == 1)
  }

  @Test("publish what they have put without waiting before they pass what is condemned")
  func publishesFirst() throws {
    let place = try RemotePlace()
    let engine = try place.engine("one", inline: true)
    _ = try engine.put("a", Array("first".utf8), PutOptions())
    _ = try engine.put("b", Array("first".utf8), .relaxed)
    let name = try #require(place.packNames.first.flatMap { SharedNames.packName($0) })
    let log = CollectionLog(place.objects, storeID: try place.storeID)
    _ = try log.condemn([name], after: Collections(), by: 7)
    try engine.extend()
    #expect(place.packNames.count == 1)
    try engine.acknowledgeCondemnation()
    #expect(place.packNames.count == 2)
    #expect(place.objects.names.filter { $0.hasPrefix("acks/") }.count == 1)
    try engine.close()
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
    try two.extend()
    let report = try one.collectGarbage(GarbageCollectionOptions(timeout: .seconds(0))) { progress in
      if progress.phase == "waiting" { two.runPeriodicWork() }
    }
    #expect(report.deletedPackCount > 0)
    try old.extend()
    let new = try machines.engine("new")
    #expect(try new.put("c", shared, PutOptions()).newByteCount == 0)
    try old.extend()
    #expect(try old.data("c", nil) == Data(shared))
    #expect(try old.verify().damaged == [])
    _ = try new.delete(["long"], .durable)
    // The collector's catalog is an old one, too.
    #expect(try one.collectGarbage(SharedMachines.everything).obstacles == [])
    try machines.check(["c": shared], "after another collection")
  }

  @Test("publish what was put without waiting, and take in what others have, whenever it is their time")
  func periodicWork() throws {
    let one = try machines.engine("one")
    let two = try machines.engine("two")
    _ = try one.put("a", Array("first".utf8), .relaxed)
    #expect(machines.names("packs/") == [])
    one.runPeriodicWork()
    #expect(machines.names("packs/").count == 1)
    #expect(try two.versions("a").isEmpty)
    two.runPeriodicWork()
    #expect(try two.data("a", nil) == Data("first".utf8))
  }

  /// Fails if a published pack stays in the spool until the next opening because it could not be moved at once.
  @Test("record that a pack is published later, by themselves, if they could not at once")
  func recordedLater() throws {
    let place = try RemotePlace()
    let engine = try place.engine("one", inline: true)
    _ = try engine.put("a", Array("first".utf8), PutOptions())
    let (spool, ranges) = (place.statePath("one") + "/packs", place.statePath("one") + "/ranges")
    try FileManager.default.removeItem(atPath: ranges)
    _ = try engine.put("b", Array("second".utf8), PutOptions())
    #expect(try FileManager.default.contentsOfDirectory(atPath: spool).count == 1)
    try FileManager.default.createDirectory(atPath: ranges, withIntermediateDirectories: false)
    engine.runPeriodicWork()
    #expect(try FileManager.default.contentsOfDirectory(atPath: spool) == [])
    #expect(try engine.data("b", nil) == Data("second".utf8))
    try engine.close()
  }

  /// Fails if a rebuild shows what was deleted, because nothing hides it any more.
  @Test("read nothing of a removed pack that still lies in the spool")
  func removedInSpool() throws {
    let one = try machines.engine("one")
    _ = try one.put("gone", Array("first".utf8), PutOptions())
    let pack = try #require(machines.names("packs/").first)
    let bytes = try #require(machines.store.peek(pack))
    _ = try one.delete(["gone"], .durable)
    for _ in 0..<2 { #expect(try one.collectGarbage(SharedMachines.everything).obstacles == []) }
    #expect(machines.names("packs/") == [])
    let path = machines.temporary.path.appending("one").appending(pack).string
    try Data(bytes).write(to: URL(filePath: path))
    try one.catalog.rebuild(because: nil)
    #expect(try one.keys("", after: nil, limit: 10).isEmpty)
  }

  @Test("do so by themselves at the interval that was asked for")
  func interval() throws {
    let place = try RemotePlace()
    let published = DispatchSemaphore(value: 0)
    place.objects.beforeRequests { request, name in
      guard request == "put", name.hasPrefix(SharedNames.packs) else { return }
      published.signal()
    }
    let engine = try Engine(
      path: place.statePath("one"), configuration: StoreConfiguration(threadCount: 1),
      remote: Engine.Remote(
        objects: place.objects, configuration: RemoteConfiguration(interval: .milliseconds(10))))
    _ = try engine.put("a", Array("value".utf8), .relaxed)
    // The limit keeps a failing test from waiting for ever.
    #expect(published.wait(timeout: .now() + 60) == .success)
    try engine.close()
    #expect(try place.engine("two").data("a", nil) == Data("value".utf8))
  }

  @Test("that were fenced read on, show no life, and are not registered any more once they are closed")
  func fencedReader() throws {
    let place = try RemotePlace()
    let engine = try place.engine("one", inline: true)
    _ = try engine.put("kept", Array("published".utf8), PutOptions())
    let name = try #require(place.packNames.first.flatMap { SharedNames.packName($0) })
    let next = PackName(writer: name.writer, sequence: name.sequence + 1)
    let storeID = try place.storeID
    place.objects.objects[SharedNames.pack(next)] = Fence(next, by: 1).encoded(storeID: storeID)
    _ = try engine.put("late", Array("not published".utf8), .relaxed)
    _ = try place.engine("two").put("theirs", Array("text".utf8), PutOptions())
    let registered = SharedNames.writer(name.writer)
    let before = place.objects.objects[registered]
    #expect(before != nil)
    engine.runPeriodicWork()
    engine.renewRegistrations()
    #expect(place.objects.objects[registered] == before)
    #expect(try engine.data("theirs", nil) == Data("text".utf8))
    #expect(failure { try engine.close() }?.code == .fenced)
    #expect(place.objects.objects[registered] == nil)
    let members = place.statePath("one") + "/members"
    #expect(try FileManager.default.contentsOfDirectory(atPath: members) == [])
  }

  @Test(
    "that were fenced while a stream is open get no other number: it counts on what is gone",
    arguments: ["put", "periodic work"])
  func fencedStream(_ way: String) throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(3 << 20)
    let one = try machines.engine("one")
    // The one looks before it writes, the other is told by a listing.
    let two = try machines.engine("two", silence: way == "put" ? 0 : .infinity)
    _ = try one.put("old", bytes, PutOptions())
    _ = try two.put("kept", Array("text".utf8), PutOptions())
    try two.extend()
    let reads = CallCount()
    let content = BlobContent.stream {
      switch reads.next() {
      case 1: return Data(bytes.prefix(2 << 20))
      case 2:
        _ = try one.delete(["old"], .durable)
        _ = try one.collectGarbage(SharedMachines.everything)
        if way == "periodic work" { two.runPeriodicWork() }
        return Data(bytes.suffix(1 << 20))
      default: return nil
      }
    }
    #expect(throws: BlobStorageError.self) { try two.put("new", content, PutOptions()) }
    #expect(reads.value > 1)
    #expect(machines.names("collections/").isEmpty == false)
    try machines.check(["kept": Array("text".utf8)], "after the put")
  }

  @Test("look whether they were fenced after 30 seconds without a word, not before, and not again at once")
  func silence() throws {
    let place = try RemotePlace()
    let seconds = Mutex(0.0)
    var environment = Engine.Environment()
    environment.worksInline = true
    environment.time = PassingTime(now: { seconds.withLock { $0 } }, wait: { _ in })
    let engine = try Engine(
      path: place.statePath("one"), configuration: StoreConfiguration(threadCount: 1),
      environment: environment,
      remote: Engine.Remote(
        objects: place.objects, configuration: RemoteConfiguration(interval: .zero)))
    let looks: [(Double, Int)] = [(0, 0), (29.9, 0), (30, 1), (30, 0), (59.9, 0), (60, 1), (100, 1)]
    for (index, (time, count)) in looks.enumerated() {
      seconds.withLock { $0 = time }
      place.objects.forgetCounts()
      _ = try engine.put("\(index)", Array("value \(index)".utf8), PutOptions())
      #expect(place.objects.count(of: "tail") == count, "put \(index)")
    }
    try engine.close()
  }

  /// A put on a thread of its own, which stays open until it is let go.
  private final class OpenPut: Sendable {
    private let begun = DispatchSemaphore(value: 0)
    private let released = DispatchSemaphore(value: 0)
    private let done = DispatchSemaphore(value: 0)

    init(_ engine: Engine, _ key: String, _ bytes: [UInt8]) {
      let reads = CallCount()
      let (begun, released, done) = (self.begun, self.released, self.done)
      let content = BlobContent.stream {
        switch reads.next() {
        case 1: return Data(bytes.prefix(2 << 20))
        case 2:
          begun.signal()
          _ = released.wait(timeout: .now() + 60)
          return Data(bytes.dropFirst(2 << 20))
        default: return nil
        }
      }
      let thread = Thread {
        #expect(throws: Never.self) { try engine.put(key, content, PutOptions()) }
        done.signal()
      }
      thread.stackSize = 8 << 20
      thread.start()
      #expect(begun.wait(timeout: .now() + 60) == .success)
    }

    func end() {
      released.signal()
      #expect(done.wait(timeout: .now() + 60) == .success)
    }
  }

  @Test("pass what is condemned when the puts have ended that began before they saw it, whatever began since")
  func laterPuts() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let engine = try place.engine("one", inline: true)
    _ = try engine.put("old", Array("first".utf8), PutOptions())
    let contents = (0..<2).map { _ in random.bytes(3 << 20) }
    func ackCount() -> Int { place.objects.names.filter { $0.hasPrefix(SharedNames.acks) }.count }

    let first = OpenPut(engine, "a", contents[0])
    let name = try #require(place.packNames.first.flatMap { SharedNames.packName($0) })
    let log = CollectionLog(place.objects, storeID: try place.storeID)
    _ = try #require(try log.condemn([name], after: Collections(), by: 7))
    engine.runPeriodicWork()
    #expect(ackCount() == 0)
    let second = OpenPut(engine, "b", contents[1])
    engine.runPeriodicWork()
    #expect(ackCount() == 0)
    first.end()
    engine.runPeriodicWork()
    #expect(ackCount() == 1)
    second.end()
    try engine.close()
    let other = try place.engine("two")
    for (key, bytes) in zip(["a", "b"], contents) { #expect(try other.data(key, nil) == Data(bytes)) }
  }
}
