import BlobStorage
import BlobStorageCache
import Foundation
import Synchronization
import SystemPackage
import Testing

// As it stands on the page Caching.
func thumbnail(of name: String, at folder: String, make: @escaping @Sendable () throws -> Data) async throws
  -> Data
{
  let cache = try await BlobCache.open(at: folder, limits: CacheLimits(byteLimit: 500 << 20))
  let data = try await cache.value(Data.self, forKey: "thumbnail/\(name)", priority: .high) {
    try make()  // once, however many ask for it at the same time
  }
  // False if there is no room for it.
  try await cache.set(data, forKey: "page/\(name)", lifetime: .seconds(600), mediaType: "image/jpeg")
  try await cache.close()
  return data
}

/// How often something was made.
private final class Counter: Sendable {
  private let value = Mutex(0)
  var count: Int { value.withLock { $0 } }
  func add() { value.withLock { $0 += 1 } }
}

@Suite("A cache")
struct BlobCacheTests {
  private let temporary: TemporaryFolder
  private var path: String { temporary.path.appending("cache").string }
  private let limits = CacheLimits(byteLimit: 64 << 20)

  init() throws { temporary = try TemporaryFolder() }

  private struct Broken: Error {}

  private struct Point: Codable, Sendable, Equatable {
    var x: Int
    var y: Int
  }

  @Test("stores, reads and removes values, one and several")
  func values() async throws {
    let cache = try await BlobCache.open(at: path, limits: limits)
    #expect(try await cache.data(forKey: "a") == nil)
    #expect(try await cache.set(Data("1".utf8), forKey: "a"))
    #expect(
      try await cache.set([CacheItem(key: "b", data: Data("2".utf8)), CacheItem(key: "c", data: Data())]) == [
        true, true,
      ])
    #expect(
      try await cache.data(forKeys: ["a", "d", "b", "c", "a"]) == [
        Data("1".utf8), nil, Data("2".utf8), Data(), Data("1".utf8),
      ])
    #expect(try await cache.set(Point(x: 1, y: 2), forKey: "p"))
    #expect(try await cache.value(forKey: "p") == Point(x: 1, y: 2))
    #expect(try await cache.remove(["a", "d"]) == 1)
    #expect(try await !cache.contains(key: "a"))
    #expect(try await cache.removeAll() == 3)
    #expect(try await cache.statistics().keyCount == 0)
    try await cache.close()
    await #expect(throws: BlobStorageError.self) { try await cache.data(forKey: "a") }
  }

  @Test("makes a missing value once, however many ask")
  func single() async throws {
    let cache = try await BlobCache.open(at: path, limits: limits)
    let made = Counter()
    let tasks = (0..<200).map { _ in
      Task {
        try await cache.value(String.self, forKey: "k") {
          made.add()
          await Task.yield()
          return "made"
        }
      }
    }
    for task in tasks { #expect(try await task.value == "made") }
    #expect(made.count == 1)
    await #expect(throws: Broken.self) {
      try await cache.value(Data.self, forKey: "broken") { throw Broken() }
    }
    // A failure is not kept.
    #expect(try await cache.value(String.self, forKey: "broken") { "mended" } == "mended")
    // What cannot be converted is made anew.
    try await cache.set(Data("no JSON".utf8), forKey: "p")
    let point = try await cache.value(forKey: "p") { Point(x: 3, y: 4) }
    #expect(point == Point(x: 3, y: 4))
    #expect(try await cache.value(Point.self, forKey: "p")?.x == 3)
    // What is too long to be stored is returned.
    let long = Data(count: limits.valueByteLimit + 1)
    #expect(try await cache.value(Data.self, forKey: "long") { long } == long)
    #expect(try await cache.data(forKey: "long") == nil)
    try await cache.close()
  }

  @Test(
    "does not store a value that was being made when its key was set or removed", arguments: [true, false])
  func outdated(isSet: Bool) async throws {
    let cache = try await BlobCache.open(at: path, limits: limits)
    let (isBegun, begun) = AsyncStream<Void>.makeStream()
    let (isReleased, release) = AsyncStream<Void>.makeStream()
    let before = Task {
      try await cache.value(Data.self, forKey: "k") {
        begun.finish()
        for await _ in isReleased {}
        return Data("old".utf8)
      }
    }
    for await _ in isBegun {}
    if isSet {
      try await cache.set(Data("new".utf8), forKey: "k")
    } else {
      try await cache.remove(["k"])
    }
    let after = Task { try await cache.value(Data.self, forKey: "k") { Data("new".utf8) } }
    release.finish()
    #expect(try await before.value == Data("old".utf8))
    #expect(try await after.value == Data("new".utf8))
    #expect(try await cache.data(forKey: "k") == Data("new".utf8))
    try await cache.close()
  }

  /// One letter in two ways: equal as strings, different as keys.
  private let twins = ["\u{E9}", "e\u{301}"]

  @Test("keeps keys apart that differ in their bytes only")
  func keysAreBytes() async throws {
    let cache = try await BlobCache.open(at: path, limits: limits)
    for round in 0..<2 {
      for (index, key) in twins.enumerated() {
        try await cache.set(Data("\(round) \(index)".utf8), forKey: key)
      }
      let values = try await cache.data(forKeys: twins)
      #expect(values == [Data("\(round) 0".utf8), Data("\(round) 1".utf8)])
    }
    #expect(try await cache.remove([twins[0]]) == 1)
    #expect(try await cache.data(forKeys: twins) == [nil, Data("1 1".utf8)])
    try await cache.close()
  }

  @Test("makes the value of each of two keys that differ in their bytes only, at the same time")
  func makesTwins() async throws {
    let cache = try await BlobCache.open(at: path, limits: limits)
    let (first, second) = (twins[0], twins[1])
    let (isBegun, begun) = AsyncStream<Void>.makeStream()
    let made = Counter()
    let slow = Task {
      try await cache.value(String.self, forKey: first) {
        begun.finish()
        // Goes on for a while if the second waits for this one.
        for _ in 0..<10_000 where made.count == 0 { await Task.yield() }
        return "first"
      }
    }
    for await _ in isBegun {}
    let quick = try await cache.value(String.self, forKey: second) {
      made.add()
      return "second"
    }
    #expect(quick == "second")
    #expect(try await slow.value == "first")
    try await cache.close()
  }

  @Test("never returns from memory what another process has replaced")
  func coherent() async throws {
    let first = try await BlobCache.open(at: path, limits: limits)
    let second = try await BlobCache.open(at: path, limits: limits)
    for round in 0..<20 {
      try await first.set(Data("first \(round)".utf8), forKey: "k")
      #expect(try await second.data(forKey: "k") == Data("first \(round)".utf8))
      try await second.set(Data("second \(round)".utf8), forKey: "k")
      #expect(try await first.data(forKey: "k") == Data("second \(round)".utf8))
    }
    try await second.remove(["k"])
    #expect(try await first.data(forKey: "k") == nil)
    #expect(try await first.statistics().counts.hitCount == 20)
    try await first.close()
    try await second.close()
  }

  @Test("is found again with its limits, and a store without one has none")
  func settings() async throws {
    let store = try await BlobStore.create(at: path)
    #expect(try await store.cache() == nil)
    let cache = try await store.cache(
      prefix: .bytes("images/ä"), limits: CacheLimits(byteLimit: 10 << 20, keyLimit: 7, lifetime: .seconds(3))
    )
    try await cache.set(Data("v".utf8), forKey: "k")
    #expect(try await store.currentVersion(of: "images/äk") != nil)
    let found = try #require(try await store.cache())
    #expect(found.prefix == "images/ä")
    #expect(found.limits == cache.limits)
    await #expect(throws: BlobStorageError.self) { try await store.cache(limits: limits) }
    try Data("1 nonsense\n".utf8).write(to: URL(filePath: path).appending(path: "cache"))
    await #expect(throws: BlobStorageError.self) { try await store.cache() }
    _ = try await store.cache(prefix: .bytes("images/ä"), limits: limits)
    #expect(try await store.cache()?.limits == limits)
    // A key can go on inside what a reader takes for one character of the prefix.
    let other = try #require(try await store.cache())
    try await other.set(Data("v".utf8), forKey: "\u{308}k")
    #expect(try await other.data(forKey: "\u{308}k") == Data("v".utf8))
    #expect(try await other.removeAll() == 2)
    try await store.close()
  }

  @Test("does not take the keys that a store has, unless they may be evicted")
  func foreignKeys() async throws {
    let store = try await BlobStore.create(at: path)
    try await store.set("mine", to: Data("kept".utf8))
    let direct = await #expect(throws: BlobStorageError.self) { try await store.cache(limits: limits) }
    #expect(direct?.code == .invalidArgument)
    try await store.close()
    let opened = await #expect(throws: BlobStorageError.self) {
      try await BlobCache.open(at: path, limits: limits)
    }
    #expect(opened?.code == .invalidArgument)
    let again = try await BlobStore.open(at: path)
    #expect(try await again.cache() == nil)
    let cache = try await again.cache(limits: limits, evictsExistingKeys: true)
    #expect(try await cache.data(forKey: "mine") == Data("kept".utf8))
    try await again.close()
  }

  @Test("keeps priority and lifetime with a value, however it was stored")
  func marks() async throws {
    let cache = try await BlobCache.open(at: path, limits: limits)
    try await cache.set(Data("x".utf8), forKey: "a", priority: .high, lifetime: .seconds(600))
    try await cache.set("x", forKey: "b", priority: .high, lifetime: .seconds(600))
    _ = try await cache.value(String.self, forKey: "c", priority: .high, lifetime: .seconds(600)) { "x" }
    try await cache.set([
      CacheItem(key: "d", data: Data("x".utf8), priority: .high, lifetime: .seconds(600))
    ])
    await cache.waitForStoring()
    // As Format.md says: a name, the priority, and the milliseconds.
    let expected: [UInt8] = Array("bc1".utf8) + [2, 0xC0, 0x27, 0x09, 0, 0, 0, 0, 0]
    for key in ["a", "b", "c", "d"] {
      let version = try await cache.store.currentVersion(of: key)
      #expect(version?.metadata == expected, "\(key)")
    }
    try await cache.set(Data("x".utf8), forKey: "a")
    let plain = try await cache.store.currentVersion(of: "a")
    #expect(plain?.metadata == Array("bc1".utf8) + [1] + [UInt8](repeating: 0, count: 8))
    try await cache.close()
  }

  @Test("makes a value to its end for those who wait, also when the first of them gives up")
  func abandoned() async throws {
    let cache = try await BlobCache.open(at: path, limits: limits)
    let (isBegun, begun) = AsyncStream<Void>.makeStream()
    let (mayEnd, end) = AsyncStream<Void>.makeStream()
    let made = Counter()
    let first = Task {
      try await cache.value(String.self, forKey: "k") {
        made.add()
        begun.finish()
        for await _ in mayEnd {}
        try Task.checkCancellation()
        return "made"
      }
    }
    for await _ in isBegun {}
    let second = Task {
      try await cache.value(String.self, forKey: "k") {
        made.add()
        return "made anew"
      }
    }
    while cache.waiterCount < 2 { await Task.yield() }
    first.cancel()
    await #expect(throws: CancellationError.self) { try await first.value }
    end.finish()
    #expect(try await second.value == "made")
    #expect(made.count == 1)
    // Bytes that are no value are an error for those who do not make one.
    try await cache.set(Data([0xFF]), forKey: "t")
    let wrong = await #expect(throws: BlobStorageError.self) {
      try await cache.value(String.self, forKey: "t")
    }
    #expect(wrong?.code == .sourceFailed)
    #expect(wrong?.key == "t")
    try await cache.close()
  }

  @Test(
    "opened by several at once where there was nothing is one cache, and no other folder is taken for one")
  func opening() async throws {
    let (path, limits) = (path, limits)
    let tasks = (0..<6).map { index in
      Task {
        let cache = try await BlobCache.open(at: path, limits: limits)
        try await cache.set(Data([UInt8(index)]), forKey: "k\(index)")
        try await cache.close()
      }
    }
    for task in tasks { try await task.value }
    let cache = try await BlobCache.open(at: path, limits: limits)
    #expect(try await cache.statistics().keyCount == 6)
    #expect(try await cache.store.cache()?.limits == limits)
    try await cache.close()
    let folder = temporary.path.appending("folder")
    try SystemFiles().createDirectory(folder)
    try SystemFiles().write([1], to: folder.appending("mine"))
    let error = await #expect(throws: BlobStorageError.self) {
      try await BlobCache.open(at: folder.string, limits: limits)
    }
    #expect(error?.code == .notAStore)
    #expect(try SystemFiles().list(folder) == ["mine"])
  }

  @Test("reads while more puts than there are threads wait for room that another process makes")
  func readsBesidePuts() async throws {
    let cache = try await BlobCache.open(at: path, limits: limits)
    let lock = try SystemFiles().open(temporary.path.appending("cache/cache.lock"), .openOrCreate)
    #expect(try lock.lock(.exclusive, wait: false))
    let done = Counter()
    try await withThrowingTaskGroup(of: Void.self) { group in
      for index in 0..<40 {
        group.addTask {
          defer { done.add() }
          let isStored = try await cache.set(Data([1]), forKey: "k\(index)")
          #expect(isStored)
        }
      }
      // The puts come first.
      for _ in 0..<1_000 { await Task.yield() }
      #expect(try await cache.data(forKey: "n") == nil)
      // Other caches go on, too.
      let other = try await BlobCache.open(at: temporary.path.appending("other"), limits: limits)
      #expect(try await other.set(Data([1]), forKey: "k"))
      try await other.close()
      #expect(done.count == 0)
      lock.close()
      try await group.waitForAll()
    }
    #expect(try await cache.data(forKey: "k39") == Data([1]))
    try await cache.close()
  }

  @Test("returns what was made also when the cache was ended meanwhile and cannot store it")
  func endedWhileMaking() async throws {
    let limits = CacheLimits(byteLimit: limits.byteLimit, keyLimit: 5)
    let cache = try await BlobCache.open(at: path, limits: limits)
    let other = try await BlobStore.open(at: path)
    let made = try await cache.value(String.self, forKey: "k") {
      let isRemoved = try await other.removeCache()
      #expect(isRemoved)
      return "made"
    }
    #expect(made == "made")
    await cache.waitForStoring()
    #expect(try await cache.data(forKey: "k") == nil)
    let error = await #expect(throws: BlobStorageError.self) { try await cache.set(Data([1]), forKey: "k") }
    #expect(error?.code == .invalidArgument)
    #expect(try await other.currentVersion(of: "k") == nil)
    try await other.close()
    try await cache.close()
  }

  /// Whether the file system of the temporary folder can reserve space: overlay and network ones may not.
  private static let canReserve: Bool = {
    do {
      let temporary = try TemporaryFolder()
      let path = temporary.path.appending("probe")
      let file = try SystemFiles().open(path, .create)
      defer { file.close() }
      try file.reserve(byteCount: 1 << 20)
      return try SystemFiles().status(of: path)?.allocatedByteCount ?? 0 >= 1 << 20
    } catch { return false }
  }()

  @Test(
    "reserves its packs' space, and gives back what it did not use",
    .enabled(if: canReserve, "this file system cannot reserve space"))
  func reservation() async throws {
    let cache = try await BlobCache.open(at: path, limits: limits)
    try await cache.set(Data("v".utf8), forKey: "k")
    let folder = StoreFolder(FilePath(path), files: SystemFiles())
    let reserved = try folder.allocatedByteCount()
    try await cache.close()
    let closed = try folder.allocatedByteCount()
    #expect(closed < 1_500_000)
    #expect(reserved > closed + 100_000)
  }

  @Test("the page's example does what its comments say, and stands there")
  func example() async throws {
    let made = Counter()
    for _ in 0..<2 {
      let data = try await thumbnail(of: "x", at: path) {
        made.add()
        return Data("small".utf8)
      }
      #expect(data == Data("small".utf8))
    }
    #expect(made.count == 1)
    let here = URL(fileURLWithPath: #filePath)
    let text = try String(
      contentsOf: here.appending(path: "../../../../Sources/BlobStorage/BlobStorage.docc/Caching.md")
        .standardized, encoding: .utf8)
    let source = try String(contentsOf: here, encoding: .utf8)
    let start = try #require(source.range(of: "func thumbnail("))
    let end = try #require(source.range(of: "\n}\n"))
    #expect(text.contains(source[start.lowerBound..<end.upperBound]))
  }
}
