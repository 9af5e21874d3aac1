import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("A store of objects")
struct RemoteStoreTests {
  @Test("shows every machine what another has stored durably, once it has caught up")
  func twoMachines() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let one = try place.engine("one")
    let two = try place.engine("two")
    let bytes = (0..<5).map { _ in random.bytes(300_000) }
    for (index, bytes) in bytes.enumerated() {
      _ = try (index % 2 == 0 ? one : two).put("key \(index)", bytes, PutOptions())
    }
    for engine in [one, two] {
      try engine.extend()
      for (index, bytes) in bytes.enumerated() {
        #expect(try engine.data("key \(index)", nil) == Data(bytes))
      }
    }
    #expect(try one.delete(["key 1"], .durable) == 1)
    #expect(try two.data("key 1", nil) != nil)
    try two.extend()
    #expect(try two.data("key 1", nil) == nil)
    try one.close()
    try two.close()
    try place.removeState("one")
    let again = try place.engine("one")
    #expect(try contents(of: again) == contents(of: place.engine("two")))
  }

  @Test("refuses conditions in one sentence, and changes nothing")
  func conditions() throws {
    let place = try RemotePlace()
    let engine = try place.engine("one")
    let version = try engine.put("there", [1], PutOptions()).version.id
    let before = try contents(of: engine)
    let changes: [BlobChange] = [
      .put(PutItem(key: "new", data: Data([2])), if: .absent), .delete("there", if: .current(version)),
    ]
    let attempts: [() throws -> Void] = [
      { _ = try engine.put("new", [2], PutOptions(condition: .absent)) },
      { _ = try engine.put("there", [2], PutOptions(condition: .current(version))) },
      { _ = try engine.delete(["there"], .durable, if: .current(version)) },
      { _ = try engine.change(changes, .durable) },
    ]
    for (index, attempt) in attempts.enumerated() {
      let error = try #require(throws: BlobStorageError.self) { try attempt() }
      #expect(error.code == .invalidArgument, "\(index)")
      #expect(
        error.message
          == "A store in a bucket does not support conditions: another machine may change the key at the same time."
      )
    }
    #expect(try contents(of: engine) == before)
    try engine.close()
  }

  @Test("loses what a process that died had not published only until its state folder is opened again")
  func adoption() throws {
    let place = try RemotePlace()
    var dying: Engine? = try place.engine("one", inline: true)
    for index in 0..<3 { _ = try dying?.put("key \(index)", Array("value \(index)".utf8)) }
    dying = nil
    #expect(place.packNames == [])
    let other = try place.engine("two")
    #expect(try other.keys("", after: nil, limit: 10).isEmpty)
    let next = try place.engine("one")
    #expect(place.packNames.count == 1)
    #expect(try next.data("key 2", nil) == Data("value 2".utf8))
    try other.extend()
    #expect(try other.data("key 1", nil) == Data("value 1".utf8))
    #expect(try FileManager.default.contentsOfDirectory(atPath: place.statePath("one") + "/packs") == [])
  }

  @Test("makes nothing of the loss of an answer, or of a put that is done twice", arguments: [false, true])
  func lostAnswers(_ isDoubled: Bool) throws {
    let place = try RemotePlace()
    let engine = try place.engine("one")
    try engine.writer.join()
    place.objects.trouble(isDoubled ? [.doubled] : [.answerLost])
    _ = try engine.put("a", Array("first".utf8), PutOptions())
    _ = try engine.put("b", Array("second".utf8), PutOptions())
    #expect(place.packNames.count == 2)
    let other = try place.engine("two")
    #expect(try other.data("a", nil) == Data("first".utf8))
    #expect(try other.data("b", nil) == Data("second".utf8))
  }

  @Test("keeps what could not be published, and publishes it with the next put, in order")
  func failedUploads() throws {
    let place = try RemotePlace()
    let engine = try place.engine("one", inline: true)
    _ = try engine.put("first", Array("of its writer".utf8), PutOptions())
    place.objects.trouble([.refused, .refused, .refused, .refused])
    for index in 0..<2 {
      let error = #expect(throws: BlobStorageError.self) {
        try engine.put("key \(index)", Array("value \(index)".utf8), PutOptions())
      }
      #expect(error?.message == "The object store does not answer.")
    }
    #expect(place.packNames.count == 1)
    place.objects.trouble([])
    _ = try engine.put("key 2", Array("value 2".utf8), PutOptions())
    #expect(place.packNames.count == 4)
    #expect(try place.engine("two").keys("", after: nil, limit: 10).count == 4)
  }

  @Test("waits, or fails, before more than some packs wait in the spool")
  func backPressure() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let engine = try place.engine("one", packByteCount: 1 << 20, inline: true)
    _ = try engine.put("key 0", Array("first".utf8))
    place.objects.setDown(true)
    var storedCount = 1
    let error = #expect(throws: BlobStorageError.self) {
      for _ in 0..<100 {
        _ = try engine.put("key \(storedCount)", random.bytes(500_000))
        storedCount += 1
      }
    }
    #expect(error?.message == "The object store does not answer.")
    #expect(2..<12 ~= storedCount)
    place.objects.setDown(false)
    try engine.close()
    #expect(try place.engine("two").keys("", after: nil, limit: 100).count == storedCount)
  }

  @Test("ends a writer that was fenced, and forgets what it had not published")
  func fence() throws {
    let place = try RemotePlace()
    let engine = try place.engine("one")
    _ = try engine.put("kept", Array("published".utf8), PutOptions())
    let name = try #require(PackName(fileName: String(place.packNames[0].dropFirst(6))))
    let fenced = PackName(writer: name.writer, sequence: name.sequence + 1)
    place.objects.objects["packs/\(fenced.fileName)"] = Fence(fenced, by: 1).encoded(
      storeID: engine.header.storeID)
    for _ in 0..<2 {
      let error = #expect(throws: BlobStorageError.self) {
        try engine.put("late", Array("not published".utf8), PutOptions())
      }
      #expect(error?.code == .fenced)
    }
    #expect(try engine.data("late", nil) == nil)
    #expect(try engine.data("kept", nil) == Data("published".utf8))
    #expect(throws: BlobStorageError.self) { try engine.close() }
    let again = try place.engine("one")
    #expect(try again.keys("", after: nil, limit: 10).map(\.key) == ["kept"])
    _ = try again.put("late", Array("not published".utf8), PutOptions())
    #expect(try place.engine("two").keys("", after: nil, limit: 10).count == 2)
  }

  @Test(
    "takes packs that were removed out of the catalog, and reads from where their chunks lie now",
    arguments: [false, true])
  func removedPacks(_ losesFooters: Bool) throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let bytes = random.bytes(200_000)
    let one = try place.engine("one")
    _ = try one.put("a", bytes, PutOptions())
    let first = place.packNames
    let two = try place.engine("two")
    try place.removeRanges("two")
    if losesFooters { try place.removeFooters("two") }
    // What a collector does: the same records in another pack, and then the first one goes.
    _ = try one.put("b", Array("something else".utf8), PutOptions())
    let copy = try RemoteCopy.records(of: first[0], in: place, to: one)
    #expect(copy > 0)
    try RemoteCopy.remove(first[0], in: place)
    #expect(try two.data("a", nil) == Data(bytes))
    #expect(try two.keys("", after: nil, limit: 10).map(\.key) == ["a", "b"])
    #expect(try contents(of: two) == contents(of: place.engine("three")))
    try two.catalog.rebuild(because: nil)
    #expect(try contents(of: two) == contents(of: place.engine("three")))
  }

  @Test("is made although the answer to the put that makes it was lost")
  func lostCreation() throws {
    let objects = MemoryObjectStore()
    objects.trouble([.doubled])
    try Engine.create(in: objects, options: StoreOptions())
    #expect(objects.names == ["store"])
  }

  @Test("is made where a console has made a folder, and not where an object has the name of the place")
  func folderMark() throws {
    let objects = MemoryObjectStore(pageCount: 1)
    objects.objects[""] = []
    try Engine.create(in: objects, options: StoreOptions())
    #expect(objects.names == ["", "store"])
    let other = MemoryObjectStore(pageCount: 1)
    other.objects[""] = [1]
    #expect(failure { try Engine.create(in: other, options: StoreOptions()) }?.code == .notAStore)
  }

  @Test("takes what a killed attempt to create one has left of its trials for nothing, and nothing else")
  func leftTrials() throws {
    let trials = MemoryObjectStore(pageCount: 2)
    for index in 0..<5 { trials.objects["probe/0123456789abcdef-\(index)"] = [1] }
    try Engine.create(in: trials, options: StoreOptions())
    #expect(trials.names == ["store"])
    for name in ["probe/0123456789abcdef-x", "probe/0123456789ABCDEF-1", "probe/readme", "a", "zoo"] {
      let foreign = MemoryObjectStore(pageCount: 2)
      for index in 0..<5 { foreign.objects["probe/0123456789abcdef-\(index)"] = [1] }
      foreign.objects[name] = [1]
      let error = #expect(throws: BlobStorageError.self) {
        try Engine.create(in: foreign, options: StoreOptions())
      }
      #expect(error?.code == .notAStore)
      #expect(foreign.names.count == 6)
    }
  }

  @Test("says in one sentence what is wrong with its place or its folder")
  func places() throws {
    let place = try RemotePlace()
    #expect(throws: BlobStorageError.self) { try Engine.create(in: place.objects, options: StoreOptions()) }
    let engine = try place.engine("one")
    #expect(engine.information.path == "memory://objects")
    try engine.close()
    let other = try RemotePlace()
    func code(_ objects: MemoryObjectStore, _ path: String) -> BlobStorageError.Code? {
      #expect(throws: BlobStorageError.self) {
        try Engine(
          path: path, configuration: StoreConfiguration(), remote: Engine.Remote(objects: objects))
      }?.code
    }
    #expect(code(other.objects, place.statePath("one")) == .notAStore)
    #expect(code(MemoryObjectStore(), place.statePath("two")) == .noStore)
    let foreign = MemoryObjectStore()
    foreign.objects["holiday.jpg"] = [1, 2, 3]
    #expect(code(foreign, place.statePath("two")) == .notAStore)
    #expect(throws: BlobStorageError.self) { try Engine.create(in: foreign, options: StoreOptions()) }
    let local = try StorePlace()
    #expect(code(place.objects, local.path) == .notAStore)
    #expect(throws: BlobStorageError.self) {
      try Engine(path: place.statePath("one"), configuration: StoreConfiguration())
    }
  }
}
