import BlobStorage
import BlobStorageReports
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("Extending a catalog")
struct ExtendingTests {
  private static func keys(_ engine: Engine) throws -> [String] {
    try engine.keys("", after: nil, limit: 1_000).map(\.key)
  }

  @Test("goes on with a pack of which only a part was taken in", arguments: [false, true])
  func partOfPack(_ isOpenedAnew: Bool) throws {
    let place = try RemotePlace()
    let reader = try place.engine("reader", recordCountOfBatch: 3)
    let writer = try place.engine("writer")
    for index in 0..<20 { _ = try writer.put("key \(index)", Array("value \(index)".utf8)) }
    try writer.close()
    let flag = CancellationFlag()
    flag.cancel()
    let error = #expect(throws: BlobStorageError.self) {
      try CancellationFlag.$current.withValue(flag) { _ = try reader.extend() }
    }
    #expect(error?.code == .cancelled)
    #expect(1..<20 ~= (try Self.keys(reader).count))
    let generation = reader.catalog.generation
    var next = reader
    if isOpenedAnew { next = try place.engine("reader", recordCountOfBatch: 3) } else { try reader.extend() }
    #expect(try Self.keys(next).count == 20)
    // What is there already is not thrown away for it.
    #expect(next.catalog.generation == generation)
    #expect(try contents(of: next) == contents(of: place.engine("another")))
  }

  /// What the catalog says of every chunk, whatever numbers packs have there.
  private static func chunks(_ engine: Engine) throws -> [BlobDigest: [AnyHashable]] {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var chunks: [BlobDigest: [AnyHashable]] = [:]
      try transaction.forEachChunk { (digest, row) throws(BlobStorageError) in
        var row = row
        let name = try transaction.packRow(row.place.pack)?.name
        row.place.pack = 0
        chunks[digest] = [name, row]
        return true
      }
      return chunks
    }
  }

  @Test("gives the same rows for chunks applied together as for chunks applied pack by pack")
  func together() throws {
    let place = try RemotePlace(StoreOptions(averageChunkByteCount: 4_096))
    let writer = try place.engine("writer", packByteCount: 8_000)
    var seed = SplitMix64(seed: 5)
    var bytes = seed.text(40_000) + seed.bytes(40_000)
    for index in 0..<4 {
      _ = try writer.put("key \(index)", bytes, PutOptions())
      for offset in stride(from: index, to: bytes.count, by: 9_000) { bytes[offset] ^= 1 }
      bytes += seed.text(10_000)
    }
    try writer.close()
    #expect(place.packNames.count >= 4)

    let reader = try place.engine("reader", recordCountOfBatch: 8)
    let together = try Self.chunks(reader)
    try reader.catalog.rebuild(because: nil)
    #expect(try Self.chunks(reader) == together)
    #expect(try Self.chunks(place.engine("writer")) == together)

    let another = try place.engine("another", recordCountOfBatch: 8)
    let result = try another.put("another", bytes.map { $0 == 0x2e ? 0x2c : $0 }, PutOptions())
    let information = try #require(try BlobInformation.find(another, "another", nil))
    #expect(result.newByteCount > 0)
    #expect(information.basedChunkCount > 0)
  }

  @Test("lists anew when a pack that was listed has gone before its footer was read")
  func packThatGoes() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let reader = try place.engine("reader")
    let one = try place.engine("one")
    _ = try one.put("a", random.bytes(100_000), PutOptions())
    let old = place.packNames[0]
    let collector = try place.engine("collector")
    let isDone = Atomic<Bool>(false)
    let objects = place.objects
    objects.beforeRequests { request, name in
      guard request == "tail", name == old, !isDone.exchange(true, ordering: .relaxed) else { return }
      objects.beforeRequests(nil)
      #expect(throws: Never.self) {
        _ = try RemoteCopy.records(of: old, in: place, to: collector)
        try RemoteCopy.remove(old, in: place)
      }
    }
    try reader.extend()
    let wasDone = isDone.load(ordering: .relaxed)
    #expect(wasDone)
    #expect(try Self.keys(reader) == ["a"])
    #expect(try reader.data("a", nil)?.count == 100_000)
  }

  @Test("takes out a pack that another process adds after this one has read that it was removed")
  func olderView() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let slow = try place.engine("reader", inline: true)
    let quick = try place.engine("reader", inline: true)
    let one = try place.engine("one")
    _ = try one.put("a", random.bytes(1_000), PutOptions())
    let old = place.packNames[0]
    _ = try one.put("b", random.bytes(1_000), PutOptions())
    let next = try #require(place.packNames.first { $0 != old })
    let collector = try place.engine("collector")
    let objects = place.objects
    let isDone = Atomic<Bool>(false)
    objects.beforeRequests { request, name in
      // The slow one has the footer of the first pack.
      guard request == "tail", name == next, !isDone.exchange(true, ordering: .relaxed) else { return }
      objects.beforeRequests(nil)
      #expect(throws: Never.self) {
        _ = try RemoteCopy.records(of: old, in: place, to: collector)
        try RemoteCopy.remove(old, in: place)
        try quick.extend()
      }
    }
    try slow.extend()
    let wasDone = isDone.load(ordering: .relaxed)
    #expect(wasDone)
    let removed = try #require(SharedNames.packName(old))
    #expect(try quick.catalog.packRow(removed) != nil)
    try quick.extend()
    #expect(try quick.catalog.packRow(removed) == nil)
    #expect(try Self.keys(quick) == ["a", "b"])
  }

  @Test("finds a lost pack that is back, although no change names it")
  func packThatIsBack() throws {
    let place = try RemotePlace()
    _ = try place.engine("one").put("a", Array("value".utf8), PutOptions())
    let name = try #require(SharedNames.packName(place.packNames[0]))
    let reader = try place.engine("reader")
    for _ in 0..<2 { try reader.extend() }
    let object = place.packNames[0]
    let bytes = try #require(try place.objects.get(object, 0..<1 << 20))
    try place.objects.delete(object)
    #expect(try reader.verify().damaged.count == 1)
    #expect(try reader.catalog.packRow(name)?.isLost == true)
    _ = try place.objects.put(object, .bytes(bytes), ifAbsent: true)
    try reader.extend()
    #expect(try reader.catalog.packRow(name)?.isLost == false)
  }

  @Test("keeps a pack marked that another process finds lost meanwhile, also where the log has changed")
  func lostMeanwhile() throws {
    let place = try RemotePlace()
    let one = try place.engine("one")
    _ = try one.put("a", Array("value".utf8), PutOptions())
    let object = place.packNames[0]
    let lost = try #require(SharedNames.packName(object))
    let slow = try place.engine("reader", inline: true)
    let quick = try place.engine("reader", inline: true)
    try slow.extend()
    let objects = place.objects
    let log = CollectionLog(objects, storeID: one.header.storeID)
    let generation = slow.catalog.generation
    objects.beforeRequests { request, _ in
      guard request == "list" else { return }
      objects.beforeRequests(nil)
      #expect(throws: Never.self) {
        _ = try log.condemn([], after: log.read(after: Collections()), by: 1)
        try objects.delete(object)
        _ = try quick.verify(.structure)
      }
    }
    #expect(try slow.extend().missing == [lost])
    #expect(slow.catalog.generation == generation)
    #expect(try slow.catalog.packRow(lost)?.isLost == true)
  }

  @Test("says that it has not, when a listing names again and again what is not there")
  func packThatIsNever() throws {
    let place = try RemotePlace()
    let reader = try place.engine("reader")
    _ = try place.engine("one").put("a", Array("value".utf8), PutOptions())
    place.objects.hide([place.packNames[0]])
    let error = #expect(throws: BlobStorageError.self) { try reader.extend() }
    #expect(error?.code == .busy)
    place.objects.hide([])
    try reader.extend()
    #expect(try Self.keys(reader) == ["a"])
  }

  @Test(
    "reports deleted packs: once in the log, each time in its report, and to verify"
  )
  func missingPacks() throws {
    let place = try RemotePlace()
    let one = try place.engine("one")
    for index in 0..<3 { _ = try one.put("key \(index)", Array("value".utf8), PutOptions()) }
    let lost = place.packNames[1]
    let name = try #require(SharedNames.packName(lost))
    try place.objects.delete(lost)
    let log = LogRecorder()
    let reader = try place.engine("reader", log: log)
    for _ in 0..<3 { #expect(try reader.extend().missing == [name]) }
    #expect(log.count(of: "error: Pack \(name)") == 1)
    #expect(try reader.verify().damaged.map(\.pack) == ["\(name)"])
  }

  @Test("is asked for no more than once by all that is missing at the same time")
  func manyMissing() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let one = try place.engine("one")
    _ = try one.put("a", random.bytes(100_000), PutOptions())
    let unknown = (0..<20).map { _ in BlobDigest.of(random.bytes(10), by: one.header.digestAlgorithm) }
    place.objects.forgetCounts()
    for digest in unknown {
      #expect(try one.data(digest) == nil)
      #expect(throws: BlobStorageError.self) { try one.chunks.bytes(digest) }
    }
    #expect(place.objects.count <= 6)
  }

  @Test("is done again for what is missing, once some time has passed")
  func laterLook() throws {
    let place = try RemotePlace()
    let tensOfSeconds = CallCount()
    var environment = Engine.Environment()
    environment.worksInline = true
    environment.time = PassingTime(now: { Double(tensOfSeconds.value) * 10 }, wait: { _ in })
    let reader = try Engine(
      path: place.statePath("reader"), configuration: StoreConfiguration(threadCount: 1),
      environment: environment,
      remote: Engine.Remote(
        objects: place.objects, configuration: RemoteConfiguration(interval: .zero)))
    let bytes = Array("value".utf8)
    let digest = BlobDigest.of(bytes, by: reader.header.digestAlgorithm)
    #expect(throws: BlobStorageError.self) { try reader.chunks.bytes(digest) }
    _ = try place.engine("writer").put("a", bytes, PutOptions())
    _ = tensOfSeconds.next()
    #expect(try reader.chunks.bytes(digest) == bytes)
  }

  @Test("leaves out what lies behind a fence, also where it was taken in before")
  func behindFence() throws {
    let place = try RemotePlace()
    let one = try place.engine("one", inline: true)
    for index in 0..<3 { _ = try one.put("key \(index)", Array("value \(index)".utf8), PutOptions()) }
    let old = try place.engine("old")
    #expect(try Self.keys(old).count == 3)
    let second = place.packNames[1]
    let name = try #require(SharedNames.packName(second))
    let storeID = try place.storeID
    place.objects.objects[second] = Fence(name, by: 1).encoded(storeID: storeID)
    // No writer and no collector does that, so only a machine that lists all packs sees it.
    _ = try #require(old.publishedPacks).run(isFull: true)
    #expect(try Self.keys(old) == ["key 0"])
    let new = try place.engine("new")
    #expect(try Self.keys(new) == ["key 0"])
    #expect(try new.extend().missing == [])
  }

  @Test("keeps nothing on this machine of packs that were removed")
  func nothingKept() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let one = try place.engine("one")
    for key in ["gone", "kept"] { _ = try one.put(key, random.bytes(20_000), PutOptions()) }
    let reader = try place.engine("reader")
    for key in ["gone", "kept"] { #expect(try reader.data(key, nil)?.count == 20_000) }
    let first = place.packNames[0]
    let name = try #require(SharedNames.packName(first))
    func kept() throws -> [String] {
      var names: [String] = []
      for folder in ["footers", "ranges"] {
        names += try FileManager.default.contentsOfDirectory(
          atPath: place.statePath("reader") + "/" + folder)
      }
      return names.filter { $0.hasPrefix("\(name)") }
    }
    #expect(try kept().count == 2)
    try RemoteCopy.remove(first, in: place)
    try reader.extend()
    #expect(try kept() == [])
    #expect(try Self.keys(reader) == ["kept"])
  }

  @Test("and making a catalog keep no other process from writing while they wait for the engine")
  func locks() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let writer = try place.engine("writer")
    for index in 0..<4 { _ = try writer.put("key \(index)", random.bytes(20_000), PutOptions()) }
    let catalog = FilePath(place.statePath("one")).appending("catalog")
    let count = Atomic<Int>(0)
    let lockedCount = Atomic<Int>(0)
    place.objects.beforeRequests { _, _ in
      #expect(throws: Never.self) {
        guard let lock = try CopiedCatalog.lock(in: catalog) else { return }
        let file = try SystemFiles().open(lock, .readWrite)
        defer { file.close() }
        count.add(1, ordering: .relaxed)
        if try !file.lock(.shared, wait: false) { lockedCount.add(1, ordering: .relaxed) }
      }
    }
    let one = try place.engine("one")
    #expect(try Self.keys(one).count == 4)
    try place.removeFooters("one")
    try one.catalog.rebuild(because: nil)
    #expect(try Self.keys(one).count == 4)
    let counts = (all: count.load(ordering: .relaxed), locked: lockedCount.load(ordering: .relaxed))
    #expect(counts.all > 8)
    #expect(counts.locked == 0)
    place.objects.beforeRequests(nil)
  }

  @Test("fails for all who wait for the one that fails, with one try")
  func failure() throws {
    let place = try RemotePlace()
    let engine = try place.engine("one")
    let catalogExtension = try #require(engine.publishedPacks)
    let objects = place.objects
    let requestCount = Atomic<Int>(0)
    objects.setDown(true)
    objects.beforeRequests { _, _ in
      // The first waits until all are there.
      guard requestCount.add(1, ordering: .relaxed).oldValue == 0 else { return }
      while catalogExtension.waitingCount < 8 { Thread.sleep(forTimeInterval: 0.001) }
    }
    let threads = (0..<8).map { _ in
      let done = DispatchSemaphore(value: 0)
      Thread {
        #expect(throws: BlobStorageError.self) { try engine.extend() }
        done.signal()
      }.start()
      return done
    }
    for done in threads { done.wait() }
    // One that had begun before all had asked, and one for the rest.
    let triedCount = requestCount.load(ordering: .relaxed)
    #expect(triedCount <= 2)
    objects.beforeRequests(nil)
    objects.setDown(false)
    try engine.extend()
  }

  @Test("releases a thread that is cancelled while it waits for another's run")
  func waiting() throws {
    let place = try RemotePlace()
    let engine = try place.engine("one")
    let catalogExtension = try #require(engine.publishedPacks)
    let (begun, released, done) = (
      DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0)
    )
    let isFirst = Atomic(true)
    place.objects.beforeRequests { _, _ in
      guard isFirst.exchange(false, ordering: .relaxed) else { return }
      begun.signal()
      released.wait()
    }
    Thread {
      #expect(throws: Never.self) { try engine.extend() }
      done.signal()
    }.start()
    begun.wait()
    let flag = CancellationFlag()
    Thread {
      while catalogExtension.waitingCount < 2 { Thread.sleep(forTimeInterval: 0.001) }
      flag.cancel()
    }.start()
    let error = #expect(throws: BlobStorageError.self) {
      try CancellationFlag.$current.withValue(flag) { try engine.extend() }
    }
    #expect(error?.code == .cancelled)
    released.signal()
    done.wait()
  }
}
