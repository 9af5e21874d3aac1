import BlobStorage
import BlobStorageCache
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A cache's rules")
struct CacheRuleTests {
  /// A cache of so many keys at most.
  private func place(keys countMax: Int) throws -> CachePlace {
    try CachePlace(CacheLimits(byteLimit: CacheLimits.smallestByteLimit, keyLimit: countMax))
  }

  @Test("a value that is refused takes the one before along, and the others are put")
  func refused() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    let long = Data(count: place.limits.valueByteLimit + 1)
    for key in ["a", "b", "c"] { #expect(try cache.put(key, [1])) }
    let stored = try cache.put([
      CacheItem(key: "a", data: Data([2])), CacheItem(key: "b", data: long),
      CacheItem(key: "c", data: Data([3])),
    ])
    #expect(stored == [true, false, true])
    #expect(try cache.data("a") == Data([2]))
    #expect(try cache.data("b") == nil)
    #expect(try !cache.contains("b"))
    #expect(try cache.data("c") == Data([3]))
    let statistics = try cache.statistics()
    #expect(statistics.keyCount == 2)
    #expect(statistics.counts.refusedCount == 1)
    #expect(statistics.counts.hitCount == 2)
    #expect(statistics.counts.missCount == 1)
    // A put with options says so instead, and changes nothing.
    #expect(failure { _ = try cache.put("c", long, PutOptions()) }?.code == .limitExceeded)
    #expect(try cache.data("c") == Data([3]))
    #expect(try cache.put("c", Data([4]), PutOptions()).version.byteCount == 1)
    #expect(try cache.data("c") == Data([4]))
  }

  @Test("a value that is not wanted any more replaces nothing, and goes unless another has taken its place")
  func unwanted() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    let made = [CacheItem(key: "k", data: Data([1]))]
    let long = [CacheItem(key: "k", data: Data(count: place.limits.valueByteLimit + 1))]
    #expect(try cache.put("k", [0]))
    for items in [made, long] {
      let error = failure { _ = try cache.put(items, if: { false }) }
      #expect(error?.code == .conditionFailed)
      #expect(try cache.data("k") == Data([0]))
    }
    for later in [nil, Data([2])] as [Data?] {
      var answerCount = 0
      let error = failure {
        _ = try cache.put(made) {
          answerCount += 1
          if answerCount == 2, let later { #expect(throws: Never.self) { try cache.put("k", later) } }
          return answerCount == 1
        }
      }
      #expect(error?.code == .conditionFailed)
      #expect(try cache.data("k") == later)
    }
  }

  @Test("a key that another process uses or puts while room is made stays", arguments: [true, false])
  func usedMeanwhile(isPut: Bool) throws {
    let place = try CachePlace()
    var random = SplitMix64(seed: 23)
    // Of several chunks: what they are is read from the packs after the keys were chosen.
    let values = (0..<40).map { _ in random.noise(300_000) }
    let other = try place.cache()
    #expect(try other.put("other", [0]))
    do {
      let cache = try place.cache()
      for index in 0..<22 { #expect(try cache.put("k\(index)", values[index])) }
      try cache.engine.close()
    }
    let files = WatchedFiles()
    let cache = try place.cache(place.engine(files: files))
    files.beforeNextPack {
      do {
        if isPut {
          #expect(try other.put("k0", [1, 2, 3]))
        } else {
          #expect(try other.data("k0") == values[0])
          try other.writeNotes()
        }
      } catch { Issue.record(error) }
    }
    var index = 22
    while files.isWaiting, index < values.count {
      #expect(try cache.put("k\(index)", values[index]))
      index += 1
    }
    #expect(!files.isWaiting, "no room had to be made")
    // What was replaced meanwhile may have been room enough. For these it is not.
    for value in values[index...].prefix(2) {
      #expect(try cache.put("k\(index)", value))
      index += 1
    }
    #expect(try other.data("k0") == (isPut ? Data([1, 2, 3]) : values[0]))
    #expect(try !other.contains("k1"))
    #expect(try cache.excess() < 5)
  }

  @Test(
    "a value that seems to be put in the future is too old, but for a small step of the clock",
    arguments: [(10, 10), (60, 60), (600, 60)] as [(Int, Int64)])
  func future(lifetime: Int, step: Int64) throws {
    let place = try CachePlace()
    let cache = try place.cache()
    #expect(try cache.put("k", [1], lifetime: .seconds(lifetime)))
    #expect(try cache.put("forever", [2]))
    place.clock.move(seconds: -step)
    #expect(try cache.data("k") == Data([1]))
    place.clock.move(seconds: -1)
    #expect(try cache.data("k") == nil)
    #expect(try !cache.contains("k"))
    #expect(try cache.data("forever") == Data([2]))
    #expect(try cache.trim().expiredKeyCount == 1)
    #expect(try cache.engine.version("k", nil) == nil)
  }

  @Test("a lifetime may be longer than 32 bits of milliseconds hold")
  func longLifetime() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    #expect(try cache.put("k", [1], lifetime: .seconds(60 * 86_400)))
    place.clock.move(seconds: 59 * 86_400)
    #expect(try cache.data("k") == Data([1]))
    place.clock.move(seconds: 2 * 86_400)
    #expect(try cache.data("k") == nil)
    // One that was over long ago is as short as it can be.
    #expect(try cache.put("k", [2], lifetime: .seconds(Int64.min)))
    place.clock.move(seconds: 1)
    #expect(try cache.data("k") == nil)
  }

  @Test("what is put after the catalog was lost is younger than all that was there")
  func lostCatalog() throws {
    let place = try place(keys: 4)
    do {
      let cache = try place.cache()
      for index in 0..<4 {
        place.clock.move(seconds: 1)
        #expect(try cache.put("k\(index)", [UInt8(index)]))
      }
      try cache.engine.close()
    }
    try place.removeCatalog()
    let cache = try place.cache()
    for index in 0..<4 {
      #expect(try cache.put("n\(index)", [UInt8(index)]))
      #expect(try (0..<4).filter { try cache.contains("k\($0)") } == Array(index + 1..<4))
    }
    #expect(try (0..<4).allSatisfy { try cache.contains("n\($0)") })
  }

  @Test("memory never gives a value that was replaced, by whomever", arguments: [true, false])
  func memory(byAnother: Bool) throws {
    let place = try CachePlace()
    let cache = try place.cache(memoryByteLimit: 400)
    let writer = byAnother ? try place.cache() : cache
    #expect(try cache.put("k", [UInt8](repeating: 1, count: 20)))
    #expect(try cache.data("k") == Data(repeating: 1, count: 20))
    // Each half has room for one value: the first is in the old one from here on.
    #expect(try cache.put("next", [UInt8](repeating: 9, count: 40)))
    #expect(try cache.data("next") == Data(repeating: 9, count: 40))
    #expect(try writer.put("k", [UInt8](repeating: 2, count: 20)))
    for _ in 0..<2 { #expect(try cache.data("k") == Data(repeating: 2, count: 20)) }
    // And the same in the young one.
    #expect(try writer.put("k", [UInt8](repeating: 3, count: 20)))
    for _ in 0..<2 { #expect(try cache.data("k") == Data(repeating: 3, count: 20)) }
    #expect(try writer.remove(["k"]) == 1)
    #expect(try cache.data("k") == nil)
  }

  @Test("what is put stays, and another goes for it, however low its priority is")
  func lowPriority() throws {
    let place = try place(keys: 2)
    let cache = try place.cache()
    for key in ["a", "b"] { #expect(try cache.put(key, [1], priority: .high)) }
    for key in ["c", "d"] {
      #expect(try cache.put(key, [2], priority: .low))
      #expect(try cache.data(key) == Data([2]))
      #expect(try cache.statistics().keyCount == 2)
      #expect(try cache.engine.keys("", after: nil, limit: 10).map(\.key) == ["b", key])
    }
  }

  @Test("reading is a use, asking is none, and both are known to the next process")
  func uses() throws {
    let place = try place(keys: 3)
    do {
      let cache = try place.cache()
      for index in 0..<3 { #expect(try cache.put("k\(index)", [UInt8(index)])) }
      #expect(try cache.data("k0") == Data([0]))
      #expect(try cache.contains("k1"))
      cache.close()
      try cache.engine.close()
    }
    let cache = try place.cache()
    for expected in [[0, 2], [0], []] {
      #expect(try cache.put("n\(expected.count)", [9]))
      #expect(try (0..<3).filter { try cache.contains("k\($0)") } == expected)
    }
  }

  @Test("fewer keys hold at once, and priorities and keys put past the cache are kept to")
  func fewerKeys() throws {
    let place = try CachePlace()
    let cache = try place.cache(prefix: "c/")
    #expect(try cache.put("high", [1], priority: .high))
    for index in 0..<4 { #expect(try cache.put("k\(index)", [UInt8(index)])) }
    _ = try cache.engine.put("c/past", .data(Data([5])), .relaxed)
    _ = try cache.engine.put("other", .data(Data([6])), .relaxed)
    #expect(try cache.data("k0") == Data([0]))
    try cache.adopt(["past"])
    try cache.setLimits(CacheLimits(byteLimit: place.limits.byteLimit, keyLimit: 3))
    #expect(
      try cache.engine.keys("", after: nil, limit: 10).map(\.key) == ["c/high", "c/k0", "c/past", "other"])
    #expect(try cache.statistics().keyCount == 3)
    #expect(try cache.statistics().counts.evictedCount == 3)
    // What was dropped past the cache is forgotten.
    _ = try cache.engine.delete(["c/k0"], .relaxed)
    _ = try cache.trim()
    #expect(try cache.statistics().keyCount == 2)
    #expect(try cache.removeAll() == 2)
    #expect(try cache.engine.keys("", after: nil, limit: 10).map(\.key) == ["other"])
  }

  @Test("a put of more keys than the limit ends, also while others read all the time")
  func putBesideReads() throws {
    let place = try place(keys: 2)
    let reader = Mutex<CacheCore?>(nil)
    // A key is read whenever the put looks at the limits.
    let files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "open", path.lastComponent?.string == "cache" else { return }
      _ = try reader.withLock { $0 }?.data("k0")
    }
    let cache = try place.cache(place.engine(files: files))
    reader.withLock { $0 = cache }
    let items = (0..<5).map { CacheItem(key: "k\($0)", data: Data([UInt8($0)])) }
    #expect(try ending { try cache.put(items) } == [true, true, true, true, true])
    reader.withLock { $0 = nil }
    #expect(try cache.contains("k0"))
  }

  @Test("one that another process has ended can be read, and nothing can be put")
  func ended() throws {
    let place = try place(keys: 3)
    let cache = try place.cache()
    let other = try place.engine()
    #expect(try cache.put("k", [1]))
    #expect(try other.removeCache())
    #expect(try !other.removeCache())
    #expect(try other.cacheSettings() == nil)
    #expect(try cache.data("k") == Data([1]))
    #expect(failure { _ = try cache.put("n", [2]) }?.code == .invalidArgument)
    #expect(failure { _ = try cache.trim() }?.code == .invalidArgument)
    #expect(failure { try cache.adopt(["k"]) }?.code == .invalidArgument)
    #expect(failure { try cache.setLimits(place.limits) }?.code == .invalidArgument)
    // Not even what its program asks for: the keys are those of an ordinary store now.
    #expect(failure { _ = try cache.remove(["k"]) }?.code == .invalidArgument)
    #expect(failure { _ = try cache.removeAll() }?.code == .invalidArgument)
    #expect(failure { _ = try cache.removeAll(prefix: .bytes("k")) }?.code == .invalidArgument)
    let long = Data(count: place.limits.valueByteLimit + 1)
    #expect(failure { _ = try cache.put("k", long) }?.code == .invalidArgument)
    #expect(try other.cacheSettings() == nil)
    #expect(try other.version("k", nil) != nil)
    #expect(try other.version("n", nil) == nil)
    // What a repair of the store may still mend is not dropped.
    try cache.engine.writer.rollOver()
    try cache.damagePacks()
    #expect(try cache.data("k") == nil)
    #expect(try other.version("k", nil) != nil)
  }

  @Test(
    "one that was ended, or whose file is damaged, evicts nothing of what it knew for one with another prefix",
    arguments: [false, true])
  func otherPrefix(isDamaged: Bool) throws {
    let place = try CachePlace()
    var random = SplitMix64(seed: 31)
    let documents = (1...6).map { "doc/\($0)" }
    do {
      let engine = try place.engine()
      for key in documents { _ = try engine.put(key, .data(random.noise(700_000)), .relaxed) }
      #expect(try place.cache(engine).statistics().keyCount == documents.count)
      if isDamaged {
        try Data("damaged".utf8).write(to: URL(filePath: engine.folder.path.appending("cache").string))
      } else {
        #expect(try engine.removeCache())
      }
      try engine.close()
    }
    let cache = try place.cache(prefix: "cache/")
    for index in 0..<60 { #expect(try cache.put("k\(index)", random.noise(100_000))) }
    let keys = try cache.engine.keys("", after: nil, limit: 100).map(\.key)
    #expect(keys.filter { $0.hasPrefix("doc/") } == documents)
    let statistics = try cache.statistics()
    #expect(statistics.keyCount == keys.count - documents.count)
    #expect(statistics.keyCount > 10 && statistics.counts.evictedCount > 10)
    #expect(try cache.excess() < 5)
  }

  @Test("one forgets keys that a process has noted late for an earlier cache with another prefix")
  func notedLate() throws {
    let place = try place(keys: 3)
    let cache = try place.cache(prefix: "c/")
    let key = Array("doc/1".utf8)
    _ = try cache.engine.put("doc/1", .data(Data([7])), .relaxed)
    try cache.engine.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.setCachedKey(
        CachedKeyRow.id(of: key),
        CachedKeyRow(priority: 0, tick: 0, byteCount: 1, digest: BlobDigest.of(key), key: key))
    }
    for index in 0..<5 { #expect(try cache.put("k\(index)", [UInt8(index)])) }
    #expect(try (0..<5).filter { try cache.contains("k\($0)") } == [2, 3, 4])
    #expect(try cache.statistics().keyCount == 3)
    #expect(try cache.engine.version("doc/1", nil) != nil)
  }

  @Test("one makes room also if a row of its catalog claims a length that no sum holds")
  func claimedLength() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    let key = Array("claimed".utf8)
    try cache.engine.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.setCachedKey(
        CachedKeyRow.id(of: key),
        CachedKeyRow(priority: 0, tick: 0, byteCount: .max, digest: BlobDigest.of(key), key: key))
    }
    var random = SplitMix64(seed: 33)
    for index in 0..<120 { #expect(try cache.put("k\(index)", random.noise(100_000))) }
    #expect(try cache.statistics().counts.evictedCount > 10)
    #expect(try cache.excess() < 5)
  }

  @Test("its file counts as a whole, and the limits that are known hold beside a damaged one")
  func damagedFile() throws {
    let place = try place(keys: 3)
    let cache = try place.cache(prefix: "c/")
    let url = URL(filePath: cache.engine.folder.path.appending("cache").string)
    let whole = try Data(contentsOf: url)
    for index in whole.indices {
      var damaged = whole
      damaged[index] ^= 1
      try damaged.write(to: url)
      #expect(failure { _ = try cache.engine.cacheSettings() }?.code == .corrupted, "byte \(index)")
    }
    for index in 0..<5 { #expect(try cache.put("k\(index)", [UInt8(index)])) }
    #expect(try (0..<5).filter { try cache.contains("k\($0)") } == [2, 3, 4])
    try whole.write(to: url)
    #expect(try cache.engine.cacheSettings()?.limits == place.limits)
    #expect(try cache.engine.cacheSettings()?.prefix == "c/")
  }

  @Test("a forecast says what limits would evict, and evicts nothing")
  func forecast() throws {
    let place = try CachePlace()
    let engine = try place.engine()
    for index in 0..<10 {
      place.clock.move(seconds: 1)
      _ = try engine.put("c/\(index)", .data(Data(count: 100)), .relaxed)
    }
    _ = try engine.put("other", .data(Data(count: 100)), .relaxed)
    var limits = place.limits
    var forecast = try engine.cacheForecast(prefix: "c/", limits: limits)
    #expect(forecast.keyCount == 10)
    #expect(forecast.byteCount == 1_000)
    #expect(forecast.evictedKeyCount == 0)
    #expect(forecast.evictedByteCount == 0)
    #expect(forecast.diskByteCount == (try engine.folder.allocatedByteCount()))
    limits.keyLimit = 4
    forecast = try engine.cacheForecast(prefix: "c/", limits: limits)
    #expect(forecast.evictedKeyCount == 6)
    #expect(forecast.evictedByteCount == 600)
    limits = place.limits
    limits.lifetime = .milliseconds(4_500)
    forecast = try engine.cacheForecast(prefix: "c/", limits: limits)
    #expect(forecast.evictedKeyCount == 5)
    #expect(forecast.evictedByteCount == 500)
    limits.byteLimit = 1
    #expect(failure { _ = try engine.cacheForecast(prefix: "c/", limits: limits) }?.code == .invalidArgument)
    #expect(try engine.keys("", after: nil, limit: 20).count == 11)
    #expect(try engine.cacheSettings() == nil)
  }

  @Test(
    "a forecast is right beside a clock that goes on meanwhile, for a lifetime longer than all time so far")
  func forecastOfLongLifetime() throws {
    let temporary = try TemporaryFolder()
    let path = temporary.path.appending("store").string
    let time = Atomic<UInt64>(1_700_000_000_000)
    var environment = Engine.Environment()
    environment.clock = WallClock(now: { time.wrappingAdd(1, ordering: .relaxed).newValue })
    try Engine.create(at: path, options: StoreOptions(), environment: environment)
    let engine = try Engine(path: path, configuration: StoreConfiguration(), environment: environment)
    _ = try engine.put("k", .data(Data([1])), .relaxed)
    let limits = CacheLimits(byteLimit: CacheLimits.smallestByteLimit, lifetime: .seconds(1e12))
    #expect(try engine.cacheForecast(prefix: "", limits: limits).evictedKeyCount == 0)
    try engine.close()
    withExtendedLifetime(temporary) {}
  }

  @Test("a key takes along what imports have replaced before there was a cache")
  func replacedByImports() throws {
    let place = try CachePlace()
    let engine = try place.engine()
    var options = PutOptions.relaxed
    options.keepsReplaced = true
    for number in 1...3 { _ = try engine.put("k", .data(Data([UInt8(number)])), options) }
    func replacedCount() throws -> Int {
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.nameRow(InternalKey.Purpose.replaced.key(Array("k".utf8)))?.versionCount ?? 0
      }
    }
    #expect(try replacedCount() == 2)
    let cache = try place.cache(engine)
    #expect(try cache.remove(["k"]) == 1)
    #expect(try replacedCount() == 0)
  }

  @Test("a store with keys becomes a cache only if they may go")
  func takesKeys() throws {
    let place = try CachePlace()
    let engine = try place.engine()
    _ = try engine.put("c/k", .data(Data([1])), .relaxed)
    func cache(_ prefix: String, takesKeys: Bool) throws {
      _ = try CacheCore(
        engine: engine, prefix: prefix, limits: place.limits, memoryByteLimit: 0, durability: .relaxed,
        takesKeys: takesKeys)
    }
    for prefix in ["", "c/"] {
      #expect(failure { try cache(prefix, takesKeys: false) }?.code == .invalidArgument)
      #expect(try engine.cacheSettings() == nil)
    }
    // Others' keys do not count, and those of one that is a cache do not either.
    try cache("d/", takesKeys: false)
    #expect(try engine.removeCache())
    try cache("c/", takesKeys: true)
    try cache("c/", takesKeys: false)
    #expect(try engine.cacheSettings()?.prefix == "c/")
  }
}

/// The system's files, which tell once when a pack is opened to be read.
private final class WatchedFiles: ForwardingFiles {
  let system = SystemFiles()
  private let body = Mutex<(@Sendable () -> Void)?>(nil)

  func beforeNextPack(_ body: @escaping @Sendable () -> Void) { self.body.withLock { $0 = body } }

  /// Whether no pack has been opened since it was to tell.
  var isWaiting: Bool { body.withLock { $0 != nil } }

  func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    if intent == .read, path.extension == "pack" {
      let body = body.withLock { body in
        defer { body = nil }
        return body
      }
      body?()
    }
    return try system.open(path, intent)
  }
}
