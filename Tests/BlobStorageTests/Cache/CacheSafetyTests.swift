import BlobStorage
import BlobStorageCache
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A cache's promises")
struct CacheSafetyTests {
  /// The store that a power cut leaves of one on a simulated disk, opened without a catalog.
  private func afterPowerCut(_ disk: SimulatedDisk, _ body: (Engine) throws -> Void) throws {
    let folder = try TemporaryFolder()
    var environment = Engine.Environment()
    environment.files = disk.powerCut()
    environment.catalogFolder = folder.path.appending("catalog")
    let engine = try Engine(
      path: "/store", configuration: StoreConfiguration(threadCount: 1), environment: environment)
    try body(engine)
    try engine.close()
    withExtendedLifetime(folder) {}
  }

  /// How a value is put that is to be durable.
  enum Way: CaseIterable { case one, several, byOptions }

  @Test("a value that is to be durable is on the medium when its put returns", arguments: Way.allCases)
  func durable(_ way: Way) throws {
    let disk = SimulatedDisk()
    let place = try CachePlace(disk: disk)
    let cache = try CacheCore(
      engine: place.engine(), prefix: "", limits: place.limits, memoryByteLimit: 0,
      durability: way == .byOptions ? .relaxed : .durable)
    var random = SplitMix64(seed: 41)
    var values = ["a": random.noise(90_000)]
    // Two packs.
    if way == .several { values["b"] = random.noise(90_000) }
    if way == .byOptions {
      for (key, data) in values { _ = try cache.put(key, data, PutOptions()) }
    } else {
      #expect(try cache.put(values.map { CacheItem(key: $0, data: $1) }) == values.map { _ in true })
    }
    try afterPowerCut(disk) { engine in
      for (key, data) in values {
        let found = try engine.data(key, nil)
        #expect(found == data, "\(key)")
      }
    }
  }

  @Test("limits, and their end, outlive a power cut, and what a dead process left of others is no harm")
  func limitsStay() throws {
    let disk = SimulatedDisk()
    let place = try CachePlace(disk: disk)
    let cache = try place.cache(prefix: "c/")
    var limits = place.limits
    limits.keyLimit = 7
    limits.lifetime = .seconds(90)
    // Longer than what comes in its place.
    try disk.write([UInt8](repeating: 0x20, count: 3_000), to: "/store/cache.new")
    try cache.setLimits(limits)
    #expect(try cache.engine.cacheSettings()?.limits == limits)
    try afterPowerCut(disk) { engine in
      let settings = try #require(try engine.cacheSettings())
      #expect(settings.prefix == "c/")
      #expect(settings.limits == limits)
    }
    #expect(try cache.engine.removeCache())
    try afterPowerCut(disk) { engine in
      let settings = try engine.cacheSettings()
      #expect(settings == nil)
    }
  }

  @Test("a part of a store accepts no loss of other keys to make room")
  func othersDamage() throws {
    let place = try CachePlace()
    let cache = try place.cache(prefix: "c/")
    let engine = cache.engine
    var random = SplitMix64(seed: 42)
    // In one pack that would lose nearly everything.
    #expect(try cache.put("cold", random.noise(100_000)))
    let digest = try engine.put("other", .data(random.noise(3_000)), .relaxed).version.digest
    try engine.writer.rollOver()
    let (pack, offset) = try #require(
      try engine.catalog.read { (transaction) throws(BlobStorageError) -> (PackName, Int64)? in
        guard let row = try transaction.chunkRow(digest), let pack = try transaction.packRow(row.place.pack)
        else { return nil }
        return (pack.name, row.payloadOffset)
      })
    let file = try SystemFiles().open(engine.folder.packs.appending(pack.fileName), .readWrite)
    try file.write([UInt8](repeating: 0xAA, count: 100), at: offset + 100)
    file.close()
    // Until the pack was to be taken away.
    var putCount = 0
    while place.log.count(of: "cannot free space") == 0, putCount < 300 {
      _ = try cache.put("k\(putCount)", random.noise(60_000))
      putCount += 1
    }
    #expect(putCount < 300, "nothing was in the way")
    for index in 0..<5 { _ = try cache.put("n\(index)", random.noise(60_000)) }
    #expect(try engine.version("other", nil)?.digest == digest)
    #expect(failure { _ = try engine.data("other", nil) }?.code == .corrupted)
  }

  @Test("a part of a pack is used where there is no room for a whole one")
  func partOfPack() throws {
    let place = try CachePlace()
    let cache = try place.cache(prefix: "c/")
    let engine = cache.engine
    var random = SplitMix64(seed: 43)
    func room() throws -> Int { try Int(place.limits.byteLimit - engine.folder.allocatedByteCount()) }
    // Other keys take all but half a pack.
    var index = 0
    while try room() > 90_000 {
      let byteCount = min(try room() - 60_000, 400_000)
      _ = try engine.put("\(index)", .data(random.noise(byteCount)), .relaxed)
      try engine.writer.rollOver()
      index += 1
    }
    try #require(try room() > 8_000)
    #expect(try cache.put("k", [1]))
    #expect(try cache.data("k") == Data([1]))
    // A whole pack would take 128 KiB, which is 1.6.
    #expect(try cache.excess() < 0.5)
  }

  @Test("room is made by one process at a time, and reading does not wait")
  func oneAtATime() throws {
    let place = try CachePlace()
    let isHeld = Atomic<Bool>(false)
    let arrived = DispatchSemaphore(value: 0)
    let files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "lock", path.lastComponent?.string == "cache.lock" else { return }
      if isHeld.load(ordering: .acquiring) { arrived.signal() }
    }
    let cache = try place.cache(place.engine(files: files))
    #expect(try cache.put("k", [1]))
    // The next put begins a pack.
    try cache.engine.writer.rollOver()
    let lock = try SystemFiles().open(cache.engine.folder.cacheLock, .openOrCreate)
    defer { lock.close() }
    #expect(try lock.lock(.exclusive, wait: true))
    isHeld.store(true, ordering: .releasing)
    let isStored = Mutex(false)
    let putting = DispatchGroup()
    DispatchQueue.global().async(group: putting) {
      do {
        let stored = try cache.put("n", [2])
        isStored.withLock { $0 = stored }
      } catch { Issue.record(error) }
    }
    // Twice: it did not get the lock the first time.
    for _ in 0..<2 { arrived.wait() }
    #expect(try cache.data("k") == Data([1]))
    #expect(try !cache.contains("n"))
    #expect(!isStored.withLock { $0 })
    try lock.unlock()
    putting.wait()
    #expect(isStored.withLock { $0 })
    #expect(try cache.data("n") == Data([2]))
  }

  @Test("after a refusal nothing is tried for a second, and then it is")
  func refusal() throws {
    let place = try CachePlace()
    let tenths = Atomic<Int>(0)
    let time = PassingTime(now: { Double(tenths.load(ordering: .relaxed)) / 10 }, wait: { _ in })
    let cache = try place.cache(place.engine(time: time), prefix: "c/")
    let engine = cache.engine
    var random = SplitMix64(seed: 47)
    _ = try engine.put("other", .data(random.noise(9_000_000)), .relaxed)
    #expect(try !cache.put("k", random.noise(20_000)))
    // There would be room from here on.
    _ = try engine.delete(["other"], .relaxed)
    _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    tenths.store(9, ordering: .relaxed)
    #expect(try !cache.put("k", random.noise(20_000)))
    tenths.store(11, ordering: .relaxed)
    #expect(try cache.put("k", [1]))
    #expect(try cache.data("k") == Data([1]))
    #expect(try cache.excess() < 0)
  }

  @Test("one that is opened with a lower limit than it had holds that at once")
  func lowerLimit() throws {
    let place = try CachePlace(CacheLimits(byteLimit: 16 << 20))
    var random = SplitMix64(seed: 44)
    do {
      let cache = try place.cache()
      for index in 0..<120 { #expect(try cache.put("k\(index)", random.noise(100_000))) }
      try cache.engine.close()
    }
    let cache = try place.cache(limits: CacheLimits(byteLimit: 8 << 20))
    #expect(try cache.excess() <= 0)
    #expect(try cache.contains("k119"))
    #expect(try !cache.contains("k0"))
  }

  @Test("a forecast says how many bytes have to go")
  func forecast() throws {
    let place = try CachePlace()
    let engine = try place.engine()
    var random = SplitMix64(seed: 45)
    for index in 0..<110 {
      place.clock.move(seconds: 1)
      _ = try engine.put("k\(index)", .data(random.noise(100_000)), .relaxed)
    }
    let forecast = try engine.cacheForecast(prefix: "", limits: place.limits)
    let excess = forecast.diskByteCount - place.limits.byteLimit
    #expect(excess > 2_000_000)
    #expect(abs(forecast.evictedByteCount - excess) < 100_000)
    #expect(abs(Int64(forecast.evictedKeyCount) * 100_000 - excess) < 200_000)
  }

  #if os(Linux)
    @Test("packs that another process has removed are let go of when room is needed")
    func removedPacks() throws {
      let place = try CachePlace()
      let (cache, other) = (try place.cache(), try place.cache())
      var random = SplitMix64(seed: 46)
      for index in 0..<6 { #expect(try other.put("k\(index)", random.noise(60_000))) }
      try other.engine.writer.rollOver()
      for index in 0..<6 { #expect(try cache.data("k\(index)") != nil) }
      #expect(try other.removeAll() == 6)
      #expect(try other.engine.collectGarbage().freedByteCount > 300_000)
      try other.engine.close()
      let packs = cache.engine.folder.packs.string + "/"
      func heldCount() throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
          try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + $0)
        }.count { $0.hasPrefix(packs) && $0.hasSuffix(" (deleted)") }
      }
      #expect(try heldCount() > 0)
      #expect(try cache.put("n", [1]))
      #expect(try heldCount() == 0)
    }
  #endif

  @Test("limits out of range are refused, and a value has an eighth of the limit at most")
  func limits() throws {
    let place = try CachePlace()
    let least = CacheLimits.smallestByteLimit
    #expect(least == 8 << 20)
    for wrong in [
      CacheLimits(byteLimit: least - 1), CacheLimits(byteLimit: least, keyLimit: 0),
      CacheLimits(byteLimit: least, keyLimit: -1), CacheLimits(byteLimit: least, lifetime: .zero),
      CacheLimits(byteLimit: least, lifetime: .seconds(-1)),
    ] {
      #expect(failure { _ = try place.cache(limits: wrong) }?.code == .invalidArgument, "\(wrong)")
    }
    #expect(try place.engine().cacheSettings() == nil)
    let right = CacheLimits(byteLimit: least, keyLimit: 1, lifetime: .milliseconds(1))
    #expect(try place.cache(limits: right).limits == right)
    #expect(CacheLimits(byteLimit: least).valueByteLimit == 1 << 20)
    #expect(CacheLimits(byteLimit: 512 << 20).valueByteLimit == 64 << 20)
    #expect(CacheLimits(byteLimit: 1 << 40).valueByteLimit == 64 << 20)
  }

  @Test("a prefix leaves room for a key behind it", arguments: [(4_095, true), (4_096, false)])
  func longPrefix(_ count: Int, _ isRight: Bool) throws {
    let place = try CachePlace()
    let prefix = String(repeating: "p", count: count)
    let error = failure {
      let cache = try place.cache(prefix: prefix)
      #expect(try cache.put("k", [1]))
      #expect(try cache.data("k") == Data([1]))
    }
    let expected: BlobStorageError.Code? = isRight ? nil : .invalidArgument
    #expect(error?.code == expected)
    #expect(try place.engine().cacheSettings()?.prefix == (isRight ? prefix : nil))
  }
}
