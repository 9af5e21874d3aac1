import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("Chunks that machines and processes share")
struct RemoteSharingTests {
  @Test("are stored again when the process that has them has not published them (H1)")
  func unpublished() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let bytes = random.bytes(300_000)
    let relaxed = try place.engine("one")
    _ = try relaxed.put("relaxed", bytes, .relaxed)
    let durable = try place.engine("one")
    #expect(try durable.data("relaxed", nil) == Data(bytes))
    let result = try durable.put("durable", bytes, PutOptions())
    #expect(result.newByteCount == Int64(bytes.count))
    let long = random.bytes(3 << 20)
    _ = try relaxed.put("relaxed and long", long, .relaxed)
    _ = try durable.put("durable and long", long, PutOptions())
    let other = try place.engine("two")
    #expect(try other.data("relaxed", nil) == nil)
    #expect(try other.data("durable", nil) == Data(bytes))
    #expect(try other.data("durable and long", nil) == Data(long))
  }

  @Test(
    "would be missing elsewhere if a put counted on what is not published, or took a fence for its own pack")
  func mutations() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let bytes = random.bytes(300_000)
    let relaxed = try place.engine("one")
    _ = try relaxed.put("relaxed", bytes, .relaxed)
    let careless = try place.engine("one", weaknesses: [.skipsSharedSync, .takesExistsForStored])
    _ = try careless.put("durable", bytes, PutOptions())
    #expect(throws: BlobStorageError.self) { try place.engine("two").data("durable", nil) }
    let name = try #require(SharedNames.packName(place.packNames[0]))
    let next = PackName(writer: name.writer, sequence: name.sequence + 1)
    place.objects.objects[SharedNames.pack(next)] = Fence(next, by: 1).encoded(
      storeID: careless.header.storeID)
    _ = try careless.put("late", Array("said to be done".utf8), PutOptions())
    #expect(try place.engine("two").versions("late").isEmpty)
  }

  @Test("are stored once when they are published, by whichever machine")
  func published() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let bytes = random.bytes(300_000)
    _ = try place.engine("one").put("a", bytes, PutOptions())
    let two = try place.engine("two")
    #expect(try two.put("b", bytes, PutOptions()).newByteCount == 0)
    #expect(try two.data("b", nil) == Data(bytes))
    #expect(try place.engine("three").data("b", nil) == Data(bytes))
  }

  @Test(
    "are found by a second look when a listing has missed the pack that they are in, or their manifest",
    arguments: [300_000, 5_000])
  func missedPack(_ byteCount: Int) throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(byteCount)
    var missedCount = 0
    // Which of two writers comes first in a listing is a matter of chance.
    for _ in 0..<16 {
      let place = try RemotePlace(pageCount: 1)
      let one = try place.engine("one")
      let two = try place.engine("two")
      for key in ["first", "second"] { _ = try two.put(key, Array("of its pack".utf8), PutOptions()) }
      place.objects.afterNextPage(of: SharedNames.packs) { _ in
        #expect(throws: Never.self) {
          _ = try one.put("a", bytes, PutOptions())
          try two.extend()
          #expect(try two.put("b", bytes, PutOptions()).newByteCount == 0)
        }
      }
      // A machine that knows the store reads the changes in their order. A new one lists the packs.
      let reader = try place.engine("reader")
      if try reader.versions("b").isEmpty || !reader.versions("a").isEmpty { continue }
      missedCount += 1
      #expect(try reader.data("b", nil) == Data(bytes))
      let blob = try reader.openBlob("b", nil)
      #expect(try blob?.read(0..<10).count == 10)
    }
    #expect(missedCount > 0)
  }

  @Test(
    "stay where a version needs them while packs move behind the back of a listing", arguments: [false, true]
  )
  func movedPack(_ isNew: Bool) throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(100_000)
    for _ in 0..<4 {
      let place = try RemotePlace(pageCount: 1)
      let one = try place.engine("one")
      _ = try one.put("a", bytes, PutOptions())
      let old = place.packNames[0]
      _ = try one.put("b", Array("between".utf8), PutOptions())
      let known = try isNew ? nil : place.engine("reader")
      let collector = try place.engine("collector")
      if !isNew { _ = try one.put("c", Array("behind".utf8), PutOptions()) }
      place.objects.afterNextPage(of: isNew ? SharedNames.packs : "c") { _ in
        #expect(throws: Never.self) {
          _ = try RemoteCopy.records(of: old, in: place, to: collector)
          try RemoteCopy.remove(old, in: place)
        }
      }
      let reader = try known ?? place.engine("reader")
      try reader.extend()
      #expect(
        try reader.keys("", after: nil, limit: 10).map(\.key) == (isNew ? ["a", "b"] : ["a", "b", "c"]))
      #expect(try reader.data("a", nil) == Data(bytes))
      #expect(try contents(of: reader) == contents(of: place.engine("new")))
    }
  }

  @Test("are no longer counted on once their pack is condemned, also by a catalog that is made anew")
  func condemned() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let bytes = random.bytes(100_000)
    let one = try place.engine("one")
    _ = try one.put("a", bytes, PutOptions())
    let two = try place.engine("two")
    let name = try #require(SharedNames.packName(place.packNames[0]))
    let log = CollectionLog(place.objects, storeID: one.header.storeID)
    _ = try #require(try log.condemn([name], after: Collections(), by: 7))
    try two.extend()
    try one.catalog.rebuild(because: nil)
    #expect(try one.put("c", bytes, PutOptions()).newByteCount > 0)
    #expect(try two.put("b", bytes, PutOptions()).newByteCount > 0)
    #expect(try one.data("a", nil) == Data(bytes))
  }

  @Test("that were deleted as objects are reported as damaged, and their keys stay")
  func deleted() throws {
    let place = try RemotePlace()
    let one = try place.engine("one")
    _ = try one.put("a", Array("needed".utf8), PutOptions())
    _ = try one.put("b", Array("another".utf8), PutOptions())
    let two = try place.engine("two")
    try place.objects.delete(place.packNames[0])
    let error = #expect(throws: BlobStorageError.self) { try two.data("a", nil) }
    #expect(error?.code == .corrupted)
    #expect(try two.keys("", after: nil, limit: 10).map(\.key) == ["a", "b"])
  }

  /// Loses some of the payload of the one pack that waits to be published, and returns the name of its file.
  private static func makeHole(_ place: RemotePlace) throws -> String {
    let folder = URL(filePath: place.statePath("one")).appending(path: "packs")
    let name = try #require(FileManager.default.contentsOfDirectory(atPath: folder.path).first)
    let handle = try FileHandle(forWritingTo: folder.appending(path: name))
    try handle.seek(toOffset: 100_000)
    try handle.write(contentsOf: Data(count: 8_192))
    try handle.close()
    return name
  }

  /// A machine whose put could not be published, and waits in its spool.
  private static func waiting(_ place: RemotePlace, _ bytes: [UInt8]) throws -> Engine {
    let engine = try place.engine("one", inline: true)
    _ = try engine.put("kept", Array("published".utf8), PutOptions())
    place.objects.setDown(true)
    #expect(throws: BlobStorageError.self) { try engine.put("lost", bytes, PutOptions()) }
    place.objects.setDown(false)
    return engine
  }

  @Test("of a pack that is damaged while it waits are not published, and their put reports it")
  func damagedWhileWaiting() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let bytes = random.bytes(200_000)
    let one = try Self.waiting(place, bytes)
    _ = try Self.makeHole(place)
    for _ in 0..<2 {
      let error = #expect(throws: BlobStorageError.self) {
        try one.put("next", random.bytes(100), PutOptions())
      }
      #expect(error?.code == .poisoned)
    }
    #expect(place.packNames.count == 1)
    #expect(try place.engine("two").keys("", after: nil, limit: 10).map(\.key) == ["kept"])
    try? one.close()
    let next = try place.engine("one")
    _ = try next.put("again", bytes, PutOptions())
    let other = try place.engine("three")
    #expect(try other.keys("", after: nil, limit: 10).map(\.key) == ["again", "kept"])
    #expect(try other.data("again", nil) == Data(bytes))
  }

  @Test("of a pack whose name another of the same length has are not said to be published")
  func takenName() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let bytes = random.bytes(200_000)
    let one = try Self.waiting(place, bytes)
    // Another copy of the machine was quicker.
    let folder = place.statePath("one") + "/packs"
    let file = try #require(FileManager.default.contentsOfDirectory(atPath: folder).first)
    var theirs = [UInt8](try Data(contentsOf: URL(filePath: "\(folder)/\(file)")))
    theirs[theirs.count - 1] ^= 1
    place.objects.objects[SharedNames.pack(try #require(PackName(fileName: file)))] = theirs
    let error = #expect(throws: BlobStorageError.self) { try one.synchronize() }
    #expect(error?.code == .poisoned)
    #expect(throws: BlobStorageError.self) { try one.put("next", random.bytes(100), PutOptions()) }
  }

  @Test("of a pack that a power cut left full of holes are not published")
  func holes() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    var dying: Engine? = try place.engine("one", inline: true)
    _ = try dying?.put("kept", Array("published".utf8), PutOptions())
    place.objects.setDown(true)
    #expect(throws: BlobStorageError.self) { try dying?.put("lost", random.bytes(200_000), PutOptions()) }
    place.objects.setDown(false)
    dying = nil
    let name = try Self.makeHole(place)
    let next = try place.engine("one")
    #expect(place.packNames.count == 1)
    #expect(try next.keys("", after: nil, limit: 10).map(\.key) == ["kept"])
    let aside = URL(filePath: place.statePath("one")).appending(path: "set-aside")
    #expect(try FileManager.default.contentsOfDirectory(atPath: aside.path) == [name])
  }
}
