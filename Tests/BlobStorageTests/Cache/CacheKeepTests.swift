import BlobStorage
import BlobStorageCache
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("What a cache keeps and counts")
struct CacheKeepTests {
  /// A cache of so many keys at most.
  private func place(keys countMax: Int) throws -> CachePlace {
    try CachePlace(CacheLimits(byteLimit: CacheLimits.smallestByteLimit, keyLimit: countMax))
  }

  /// Which of the keys k0, k1, and so on there are.
  private func left(_ cache: CacheCore, of count: Int) throws -> [Int] {
    try (0..<count).filter { try cache.contains("k\($0)") }
  }

  // MARK: Several values

  @Test("of many values that are put together each is stored, and of one key the last")
  func together() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    var random = SplitMix64(seed: 31)
    // Some ten packs, and one value that fills more than a pack.
    var items = (0..<24).map { CacheItem(key: "k\($0)", data: random.noise(40_000)) }
    items.insert(CacheItem(key: "wide", data: random.noise(500_000)), at: 5)
    items.insert(CacheItem(key: "long", data: Data(count: place.limits.valueByteLimit + 1)), at: 9)
    items.append(CacheItem(key: "k3", data: Data([3])))
    #expect(try cache.put(items) == items.map { $0.key != "long" })
    for item in items.dropLast() where item.key != "k3" && item.key != "long" {
      #expect(try cache.data(item.key) == item.data, "\(item.key)")
    }
    #expect(try cache.data("k3") == Data([3]))
    #expect(try cache.data("long") == nil)
    let statistics = try cache.statistics()
    #expect(statistics.keyCount == 25)
    #expect(statistics.counts.refusedCount == 1)
    #expect(statistics.counts.evictedCount == 0)
  }

  @Test("a value that is refused takes along what was put before it, and not what is put behind it")
  func refusedInBetween() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    let long = Data(count: place.limits.valueByteLimit + 1)
    for key in ["first", "last"] { #expect(try cache.put(key, [0])) }
    let stored = try cache.put([
      CacheItem(key: "first", data: long), CacheItem(key: "first", data: Data([1])),
      CacheItem(key: "last", data: Data([2])), CacheItem(key: "last", data: long),
    ])
    #expect(stored == [false, true, true, false])
    #expect(try cache.data("first") == Data([1]))
    #expect(try cache.data("last") == nil)
  }

  @Test("a put with options keeps its condition, its history and its metadata")
  func options() throws {
    let place = try CachePlace()
    let cache = try place.cache(prefix: "c/")
    func put(_ byte: UInt8, _ options: PutOptions) throws -> BlobVersion.ID {
      try cache.put("k", Data([byte]), options).version.id
    }
    let first = try put(1, PutOptions(condition: .absent, metadata: [7, 8]))
    #expect(try cache.engine.version("c/k", nil)?.metadata == [7, 8])
    let refused = failure { _ = try put(2, PutOptions(condition: .absent)) }
    #expect(refused?.code == .conditionFailed)
    #expect(refused?.currentVersion == first)
    #expect(try cache.data("k") == Data([1]))
    let second = try put(3, PutOptions(replacement: .archiveCurrent, condition: .current(first)))
    #expect(failure { _ = try put(4, PutOptions(condition: .current(first))) }?.code == .conditionFailed)
    #expect(try cache.data("k") == Data([3]))
    #expect(try cache.engine.versions("c/k").map(\.id) == [second, first])
  }

  @Test("what goes goes with its whole history", arguments: [true, false])
  func history(isEvicted: Bool) throws {
    let place = try place(keys: 1)
    let cache = try place.cache()
    for value: UInt8 in 1...3 {
      let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
      _ = try cache.put("k", Data([value]), options)
    }
    #expect(try cache.engine.versions("k").count == 3)
    if isEvicted {
      #expect(try cache.put("n", [9]))
    } else {
      #expect(try cache.remove(["k"]) == 1)
    }
    #expect(try cache.data("k") == nil)
    #expect(try cache.engine.versions("k") == [])
  }

  // MARK: Uses

  @Test("a use counts also when the next put has to make room first")
  func usedBeforeRoom() throws {
    let place = try place(keys: 3)
    do {
      let cache = try place.cache()
      for index in 0..<3 { #expect(try cache.put("k\(index)", [UInt8(index)])) }
      try cache.engine.close()
    }
    let cache = try place.cache()
    #expect(try cache.data("k0") == Data([0]))
    // There is no pack under way: the first attempt finds no room.
    #expect(try cache.put("n", [9]))
    #expect(try left(cache, of: 3) == [0, 2])
  }

  @Test("a value that comes from memory is used like any other")
  func usedFromMemory() throws {
    let place = try place(keys: 3)
    let cache = try place.cache(memoryByteLimit: 1 << 20)
    for index in 0..<3 { #expect(try cache.put("k\(index)", [UInt8(index)])) }
    for index in [0, 1, 0] {
      #expect(try cache.data("k\(index)") == Data([UInt8(index)]))
      try cache.writeNotes()
    }
    for expected in [[0, 1], [0], []] {
      #expect(try cache.put("n\(expected.count)", [9]))
      #expect(try left(cache, of: 3) == expected)
    }
  }

  @Test("a hit writes nothing: other processes know of it with the next put")
  func unwrittenUse() throws {
    let place = try place(keys: 3)
    let (cache, other) = (try place.cache(), try place.cache())
    for index in 0..<3 { #expect(try cache.put("k\(index)", [UInt8(index)])) }
    #expect(try cache.data("k0") == Data([0]))
    #expect(try other.put("a", [9]))
    #expect(try left(cache, of: 3) == [1, 2])
    #expect(try cache.data("k1") == Data([1]))
    #expect(try cache.put("b", [9]))
    #expect(try left(cache, of: 3) == [1])
  }

  @Test("trimming leaves the order of uses as it is")
  func usedBeforeTrim() throws {
    let place = try place(keys: 3)
    let cache = try place.cache()
    for index in 0..<3 {
      place.clock.move(seconds: 1)
      #expect(try cache.put("k\(index)", [UInt8(index)]))
    }
    #expect(try cache.data("k0") == Data([0]))
    try cache.writeNotes()
    #expect(try cache.trim().evictedKeyCount == 0)
    #expect(try cache.put("n", [9]))
    #expect(try left(cache, of: 3) == [0, 2])
    #expect(try cache.statistics().counts.evictedCount == 1)
  }

  @Test("uses are written down without a put when there are many")
  func manyUses() throws {
    let place = try CachePlace()
    let engine = try place.engine()
    _ = try engine.put((0..<1_100).map { PutItem(key: "k\($0)", data: Data([1])) }, .relaxed)
    let cache = try place.cache(engine)
    for index in 0..<1_023 { #expect(try cache.data("k\(index)") == Data([1])) }
    #expect(!cache.areNotesToWrite())
    #expect(try cache.data("k1023") == Data([1]))
    #expect(cache.areNotesToWrite())
    // One task is enough.
    #expect(!cache.areNotesToWrite())
    cache.writeNotesOfReads()
    // Another process sees them.
    let other = try place.cache()
    var limits = place.limits
    limits.keyLimit = 1_024
    try other.setLimits(limits)
    #expect(try left(other, of: 1_100) == Array(0..<1_024))
  }

  @Test("a process that only reads gives back the space of removed packs when it writes down its uses")
  func removedPacks() throws {
    let place = try CachePlace()
    let (cache, other) = (try place.cache(), try place.cache())
    #expect(try cache.put("k", [1]))
    try cache.engine.writer.rollOver()
    #expect(try other.data("k") == Data([1]))
    let pack = try #require(try other.engine.catalog.packRows().first).row.name
    try SystemFiles().remove(other.engine.folder.packs.appending(pack.fileName))
    let isOpen = try other.engine.packs.file(pack) != nil
    #expect(isOpen)
    other.writeNotesOfReads()
    let isStillOpen = try other.engine.packs.file(pack) != nil
    #expect(!isStillOpen)
  }

  /// Each half has room for one value. Short values take room, too.
  @Test(
    "memory has the values that were read last, and no more than it may",
    arguments: [(40, 700), (1, 600)])
  func memory(byteCount: Int, memoryByteLimit: Int) throws {
    let place = try CachePlace()
    let cache = try place.cache(memoryByteLimit: memoryByteLimit)
    for index in 0..<6 {
      #expect(try cache.put("k\(index)", [UInt8](repeating: UInt8(index), count: byteCount)))
    }
    try cache.engine.writer.rollOver()
    for index in 0..<6 { #expect(try cache.data("k\(index)")?.count == byteCount) }
    // From here on only memory has them.
    try cache.damagePacks()
    let found = try (0..<6).filter { try cache.data("k\($0)") != nil }
    #expect(found == [4, 5])
    // What is damaged is dropped, and the key says so.
    #expect(try left(cache, of: 6) == [4, 5])
    #expect(try cache.engine.version("k0", nil) == nil)
    let counts = try cache.statistics().counts
    #expect(counts.hitCount == 8)
    #expect(counts.missCount == 4)
  }

  // MARK: Lifetimes

  @Test("a lifetime that another process sets holds for one that only reads, once that writes down its uses")
  func lifetimeOfAnother() throws {
    let place = try CachePlace()
    let (cache, other) = (try place.cache(), try place.cache())
    #expect(try cache.put("k", [1]))
    var limits = place.limits
    limits.lifetime = .seconds(60)
    try other.setLimits(limits)
    place.clock.move(seconds: 60)
    #expect(try other.data("k") == nil)
    cache.writeNotesOfReads()
    #expect(try cache.data("k") == nil)
  }

  @Test(
    "a value's own lifetime holds, be it shorter or longer than that of the limits",
    arguments: [(nil, 200), (50, 50), (600, 600)] as [(Int?, Int64)])
  func lifetime(_ own: Int?, _ expected: Int64) throws {
    let place = try CachePlace(
      CacheLimits(byteLimit: CacheLimits.smallestByteLimit, lifetime: .seconds(200)))
    let cache = try place.cache(memoryByteLimit: 1 << 20)
    #expect(try cache.put("k", [1], lifetime: own.map { Duration.seconds($0) }))
    place.clock.move(seconds: expected - 1)
    #expect(try cache.data("k") == Data([1]))
    #expect(try cache.contains("k"))
    place.clock.move(seconds: 1)
    #expect(try cache.data("k") == nil)
    #expect(try !cache.contains("k"))
  }

  @Test("a dry run of a collection drops nothing that is too old, and a real one says what went")
  func collecting() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    let engine = cache.engine
    var random = SplitMix64(seed: 32)
    let kept = random.noise(50_000)
    for index in 0..<3 {
      let item = CacheItem(key: "k\(index)", data: random.noise(200_000), lifetime: .seconds(10))
      #expect(try cache.put([item]) == [true])
    }
    #expect(try cache.put("kept", kept))
    place.clock.move(seconds: 10)
    let planned = try engine.trimAndCollectGarbage(GarbageCollectionOptions(isDryRun: true), progress: nil)
    #expect(planned.evictedKeyCount == 0)
    for index in 0..<3 { #expect(try engine.version("k\(index)", nil) != nil) }
    let before = try engine.folder.allocatedByteCount()
    let done = try engine.trimAndCollectGarbage(GarbageCollectionOptions(), progress: nil)
    #expect(done.evictedKeyCount == 3)
    #expect(done.freedByteCount > 500_000)
    #expect(try before - engine.folder.allocatedByteCount() > 500_000)
    #expect(try engine.keys("", after: nil, limit: 9).map(\.key) == ["kept"])
    #expect(try cache.data("kept") == kept)
    // What it used for trimming is gone.
    #expect(engine.closingHooks.withLock { $0.count } == 1)
  }

  // MARK: Numbers

  @Test("trimming says what went and what it freed, and so do the statistics")
  func trimmed() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    let engine = cache.engine
    var random = SplitMix64(seed: 33)
    #expect(try cache.put("old", [1], lifetime: .seconds(1)))
    for index in 0..<100 {
      place.clock.move(seconds: 1)
      _ = try engine.put("k\(index)", .data(random.noise(100_000)), .relaxed)
    }
    let before = try engine.folder.allocatedByteCount()
    let report = try cache.trim()
    let after = try engine.folder.allocatedByteCount()
    let leftCount = try left(cache, of: 100).count
    #expect(leftCount > 50 && leftCount < 90)
    #expect(report.expiredKeyCount == 1)
    #expect(report.evictedKeyCount == 100 - leftCount)
    #expect(report.diskByteCount == after && after <= place.limits.byteLimit)
    #expect(report.freedByteCount == before - after)
    #expect(report.byteLimit == place.limits.byteLimit)
    let statistics = try cache.statistics()
    #expect(statistics.keyCount == leftCount)
    #expect(statistics.diskByteCount == after)
    #expect(statistics.counts.evictedCount == 100 - leftCount)
    #expect(statistics.counts.freedByteCount > 1_000_000)
  }

  /// They are looked at a thousand at a time.
  @Test("any number of keys is found, counted, evicted and dropped", arguments: [true, false])
  func manyKeys(isTooOld: Bool) throws {
    let place = try CachePlace()
    let engine = try place.engine()
    _ = try engine.put((0..<2_100).map { PutItem(key: "k\($0)", data: Data([UInt8($0 % 5)])) }, .relaxed)
    let cache = try place.cache(engine)
    #expect(try cache.statistics().keyCount == 2_100)
    var limits = place.limits
    limits.keyLimit = 1_050
    try cache.setLimits(limits)
    #expect(try cache.statistics().keyCount == 1_050)
    #expect(try cache.statistics().counts.evictedCount == 1_050)
    #expect(try engine.keys("", after: nil, limit: .max).count == 1_050)
    if isTooOld {
      limits.lifetime = .seconds(10)
      try cache.setLimits(limits)
      place.clock.move(seconds: 10)
      #expect(try cache.trim().expiredKeyCount == 1_050)
    } else {
      #expect(try cache.removeAll() == 1_050)
    }
    #expect(try cache.statistics().keyCount == 0)
    #expect(try engine.keys("", after: nil, limit: 1).isEmpty)
  }

  @Test("a store that was an ordinary one for a while is a cache of all its keys again")
  func again() throws {
    let place = try place(keys: 5)
    let cache = try place.cache()
    let engine = cache.engine
    #expect(try cache.put("before", [1]))
    #expect(try engine.removeCache())
    for index in 0..<3 {
      place.clock.move(seconds: 1)
      _ = try engine.put("k\(index)", .data(Data([UInt8(index)])), .relaxed)
    }
    let again = try place.cache(engine)
    #expect(try again.statistics().keyCount == 4)
    for index in 0..<3 { #expect(try again.put("n\(index)", [9])) }
    #expect(try !again.contains("before"))
    #expect(try left(again, of: 3) == [1, 2])
  }
}
