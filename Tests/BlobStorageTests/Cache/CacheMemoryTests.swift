import BlobStorage
import BlobStorageCache
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("A cache's lookups without waiting, and what it keeps with values")
struct CacheMemoryTests {
  private let temporary: TemporaryFolder
  private var path: String { temporary.path.appending("cache").string }
  private let limits = CacheLimits(byteLimit: 64 << 20)

  init() throws { temporary = try TemporaryFolder() }

  @Test("finds in memory what was put or read, until it is replaced, removed or expired")
  func inMemory() async throws {
    let cache = try await BlobCache.open(at: path, limits: limits)
    #expect(cache.cachedData(forKey: "k") == nil)
    try await cache.set(Data("1".utf8), forKey: "k")
    #expect(cache.cachedData(forKey: "k") == Data("1".utf8))
    try await cache.set("text", forKey: "t")
    #expect(cache.cachedValue(String.self, forKey: "t") == "text")
    #expect(cache.cachedValue(Int.self, forKey: "t") == nil)
    try await cache.set(Data("2".utf8), forKey: "k")
    #expect(cache.cachedData(forKey: "k") == Data("2".utf8))
    try await cache.put(Data("3".utf8), forKey: "k")
    #expect(cache.cachedData(forKey: "k") == Data("3".utf8))
    // A value that is refused leaves none behind.
    #expect(try await !cache.set(Data(count: limits.valueByteLimit + 1), forKey: "k"))
    #expect(cache.cachedData(forKey: "k") == nil)
    for index in 0..<4 { try await cache.set(Data([UInt8(index)]), forKey: "r\(index)") }
    #expect(try await cache.remove("r0"))
    #expect(try await !cache.remove("r0"))
    #expect(cache.cachedData(forKey: "r0") == nil)
    #expect(try await cache.remove(["r1", "no"]) == 1)
    #expect(cache.cachedData(forKey: "r1") == nil)
    #expect(try await cache.removeAll(prefix: .bytes("r")) == 2)
    #expect(cache.cachedData(forKey: "r2") == nil)
    try await cache.set(Data("short".utf8), forKey: "s", lifetime: .milliseconds(1))
    while cache.cachedData(forKey: "s") != nil { await Task.yield() }
    #expect(try await cache.data(forKey: "s") == nil)
    #expect(try await cache.removeAll() >= 1)
    #expect(cache.cachedData(forKey: "t") == nil)
    try await cache.set(Data("last".utf8), forKey: "k")
    try await cache.close()
    #expect(cache.cachedData(forKey: "k") == nil)

    let again = try await BlobCache.open(at: path, limits: limits)
    #expect(again.cachedData(forKey: "k") == nil, "it was not read yet")
    #expect(try await again.data(forKey: "k") == Data("last".utf8))
    #expect(again.cachedData(forKey: "k") == Data("last".utf8))
    #expect(try await again.statistics().counts.hitCount == 2)
    try await again.close()
  }

  @Test("counts a lookup in memory as a use, so that the value stays")
  func memoryCounts() async throws {
    let cache = try await BlobCache.open(at: path, limits: CacheLimits(byteLimit: 64 << 20, keyLimit: 3))
    for key in ["a", "b", "c"] { try await cache.set(Data(key.utf8), forKey: key) }
    try await cache.persistUsage()
    #expect(cache.cachedData(forKey: "a") == Data("a".utf8))
    try await cache.persistUsage()
    try await cache.set(Data("d".utf8), forKey: "d")
    #expect(try await cache.data(forKeys: ["a", "b"]) == [Data("a".utf8), nil])
    try await cache.close()
  }

  private func kept(_ number: Int, _ bytes: [UInt8]) throws -> MemoryTier.Kept {
    let id = try #require(BlobVersion.ID(String(format: "%032x", number)))
    let digest = BlobDigest.of(bytes.span.bytes, by: .blake3)
    return MemoryTier.Kept(
      version: BlobVersion(key: "k", id: id, digest: digest, byteCount: Int64(bytes.count), created: .now),
      data: Data(bytes))
  }

  @Test("never keeps in memory what was read before a change, or stored before another")
  func staleRead() throws {
    let tier = MemoryTier(byteCountMax: 1 << 20)
    let key = Array("k".utf8)
    let (first, second) = (try kept(1, [1]), try kept(2, [2]))
    var changeCount = tier.changeCount(key)
    tier.insert(key, first, ifNoChangeSince: changeCount)
    #expect(tier.value(key)?.data == Data([1]))
    // A reader has looked up the first version, another thread removes the key, and the reader ends.
    tier.forget([key])
    tier.insert(key, first, ifNoChangeSince: changeCount)
    #expect(tier.value(key) == nil)
    changeCount = tier.changeCount(key)
    tier.replace(key, second)
    tier.insert(key, first, ifNoChangeSince: changeCount)
    #expect(tier.value(key)?.data == Data([2]))
    // The later of two puts says last that it is done.
    tier.replace(key, first)
    #expect(tier.value(key)?.data == Data([2]))
    #expect(tier.data(key, first.version.id) == nil)
    tier.removeAll()
    tier.insert(key, second, ifNoChangeSince: changeCount)
    #expect(tier.value(key) == nil)
  }

  @Test("keeps media type and metadata with a value")
  func items() async throws {
    let cache = try await BlobCache.open(at: path, limits: limits)
    let metadata: [UInt8] = Array("bc1 \u{0}mt1".utf8)
    let item = CacheItem(
      key: "i", data: Data("x".utf8), priority: .high, lifetime: .seconds(90), mediaType: "image/jpeg",
      metadata: metadata)
    #expect(try await cache.set([item]) == [true])
    #expect(try await cache.item(forKey: "i") == item)
    try await cache.set(Data("y".utf8), forKey: "j", mediaType: "text/plain", metadata: [1, 2])
    #expect(
      try await cache.item(forKey: "j")
        == CacheItem(key: "j", data: Data("y".utf8), mediaType: "text/plain", metadata: [1, 2]))
    try await cache.set("z", forKey: "v", mediaType: "application/json")
    #expect(try await cache.item(forKey: "v")?.mediaType == "application/json")
    // A put's metadata is the caller's, whatever it begins with.
    let likeMark: [UInt8] = Array("bc1".utf8) + [UInt8](repeating: 2, count: 20)
    for metadata: [UInt8] in [[], [7], likeMark] {
      try await cache.put(
        Data("p".utf8), forKey: "p", options: PutOptions(metadata: metadata, mediaType: "text/css"))
      #expect(
        try await cache.item(forKey: "p")
          == CacheItem(key: "p", data: Data("p".utf8), mediaType: "text/css", metadata: metadata))
    }
    #expect(try await cache.item(forKey: "none") == nil)
    let refused = await #expect(throws: BlobStorageError.self) {
      try await cache.set(Data(), forKey: "k", mediaType: "nonsense")
    }
    #expect(refused?.code == .invalidArgument)
    try await cache.close()
  }

  @Test("does the same on the caller's thread")
  func blocking() throws {
    let cache = try BlockingBlobCache.open(at: path, limits: limits)
    #expect(try cache.set(Data("1".utf8), forKey: "a", mediaType: "text/plain"))
    #expect(try cache.set([CacheItem(key: "b", data: Data("2".utf8))]) == [true])
    #expect(try cache.put(Data("3".utf8), forKey: "c").version.byteCount == 1)
    #expect(try cache.set(7, forKey: "n"))
    #expect(try cache.value(Int.self, forKey: "n") == 7)
    #expect(try cache.data(forKey: "a") == Data("1".utf8))
    #expect(cache.cachedData(forKey: "a") == Data("1".utf8))
    #expect(try cache.item(forKey: "a")?.mediaType == "text/plain")
    #expect(try cache.contains(key: "b"))
    try cache.persistUsage()
    #expect(try cache.statistics().keyCount == 4)
    #expect(try cache.remove("a"))
    #expect(try cache.remove(["a", "b"]) == 1)
    #expect(try cache.removeAll(prefix: .bytes("c")) == 1)
    #expect(throws: BlobStorageError.self) { try cache.removeAll(prefix: "") }
    #expect(try cache.trim().evictedKeyCount == 0)
    #expect(try cache.removeAll() == 1)
    #expect(try cache.data(forKey: "n") == nil)
    try cache.close()
    #expect(throws: BlobStorageError.self) { try cache.data(forKey: "n") }
  }
}
