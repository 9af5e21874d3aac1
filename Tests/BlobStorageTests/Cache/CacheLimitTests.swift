import BlobStorage
import BlobStorageCache
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("A cache's limit")
struct CacheLimitTests {
  @Test("holds after every put, and what is read is what was put", arguments: [1, 3])
  func holds(processCount: Int) throws {
    let place = try CachePlace()
    let caches = try (0..<processCount).map { _ in try place.cache() }
    var random = SplitMix64.announced()
    var put: [String: Data] = [:]
    var (foundCount, most) = (0, -100.0)
    for step in 0..<450 {
      let cache = try #require(caches.randomElement(using: &random))
      let key = "key-\(Int.random(in: 0..<160, using: &random))"
      if let data = try cache.data(key) {
        foundCount += 1
        #expect(data == put[key])
        continue
      }
      let bytes = random.noise(Int.random(in: 1...120_000, using: &random))
      #expect(try cache.put(key, bytes))
      put[key] = bytes
      if step % 4 == 0 { most = max(most, try cache.excess()) }
    }
    #expect(most < 5)
    #expect(foundCount > 50)
    // It is not held by keeping nothing.
    #expect(try caches[0].excess() > -25)
    #expect(try caches[0].engine.verify().damaged == [])
    for cache in caches { try cache.engine.close() }
  }

  @Test("leaves what was used last and takes what was used first")
  func order() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    var random = SplitMix64(seed: 5)
    let used = random.noise(10_000)
    #expect(try cache.put("used", used))
    #expect(try cache.put("unused", random.noise(10_000)))
    for index in 0..<250 {
      #expect(try cache.put("other-\(index)", random.noise(60_000)))
      #expect(try cache.data("used") == used)
    }
    // Of the coldest twenty-fifth, those stay for a while whose pack has something that is used.
    let kept = try (0..<250).filter { try cache.contains("other-\($0)") }
    #expect(kept.count > 90)
    #expect(kept.filter { $0 >= 150 }.count == 100)
    #expect(kept.filter { $0 < 100 }.count < 10)
  }

  @Test("takes a lower priority before a higher one")
  func priorities() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    var random = SplitMix64(seed: 6)
    for priority in CachePriority.allCases {
      for index in 0..<20 {
        #expect(try cache.put("\(priority)-\(index)", random.noise(20_000), priority: priority))
      }
    }
    for index in 0..<200 { #expect(try cache.put("n\(index)", random.noise(60_000))) }
    func count(_ priority: CachePriority) throws -> Int {
      try (0..<20).filter { try cache.contains("\(priority)-\($0)") }.count
    }
    #expect(try count(.low) == 0)
    // A few share a pack with what stays.
    #expect(try count(.normal) < 8)
    #expect(try count(.high) == 20)
  }

  @Test("takes younger keys of a lower priority before older ones of a higher, as long as they are enough")
  func olderPriorities() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    var random = SplitMix64(seed: 16)
    for priority in [CachePriority.high, .normal, .low] {
      for index in 0..<30 {
        #expect(try cache.put("\(priority)-\(index)", random.noise(60_000), priority: priority))
      }
    }
    // There is no room for these and for all of the 1.8 MB of low priority.
    for index in 0..<40 { #expect(try cache.put("h\(index)", random.noise(60_000), priority: .high)) }
    func count(_ priority: CachePriority) throws -> Int {
      try (0..<30).filter { try cache.contains("\(priority)-\($0)") }.count
    }
    #expect(try count(.high) == 30)
    #expect(try count(.normal) == 30)
    #expect(try count(.low) < 30)
    #expect(try (0..<40).allSatisfy { try cache.contains("h\($0)") })
  }

  @Test("as a number of keys takes the lowest priority first")
  func keysOfPriorities() throws {
    let place = try CachePlace(CacheLimits(byteLimit: CacheLimits.smallestByteLimit, keyLimit: 6))
    let cache = try place.cache()
    for (index, priority) in [CachePriority.high, .normal, .low, .high, .normal, .low].enumerated() {
      #expect(try cache.put("k\(index)", [UInt8(index)], priority: priority))
    }
    func kept() throws -> [Int] { try (0..<6).filter { try cache.contains("k\($0)") } }
    for (index, expected) in [[0, 1, 3, 4, 5], [0, 1, 3, 4], [0, 3, 4], [0, 3], [3], []].enumerated() {
      #expect(try cache.put("new\(index)", [9], priority: .high))
      #expect(try kept() == expected)
    }
  }

  @Test("can be a number of keys")
  func keys() throws {
    let limits = CacheLimits(byteLimit: CacheLimits.smallestByteLimit, keyLimit: 10)
    let place = try CachePlace(limits)
    let cache = try place.cache()
    for index in 0..<30 {
      #expect(try cache.put("k\(index)", [UInt8(index)]))
      _ = try cache.data("k0")
    }
    let kept = try (0..<30).filter { try cache.contains("k\($0)") }
    #expect(kept == [0] + Array(21..<30))
    #expect(try cache.statistics().keyCount == 10)
  }

  @Test("refuses a value that is too long, and the value before it is gone too")
  func tooLong() throws {
    let place = try CachePlace()
    let cache = try place.cache(memoryByteLimit: 1 << 20)
    #expect(try cache.put("k", [1, 2, 3]))
    #expect(try cache.data("k") == Data([1, 2, 3]))
    #expect(try !cache.put("k", [UInt8](repeating: 7, count: place.limits.valueByteLimit + 1)))
    #expect(try cache.data("k") == nil)
    var random = SplitMix64(seed: 1)
    for index in 0..<14 {
      #expect(try cache.put("long-\(index % 10)", random.noise(place.limits.valueByteLimit)))
      #expect(try cache.excess() < 5)
    }
    #expect(try cache.data("long-3")?.count == place.limits.valueByteLimit)
  }

  @Test("can be lowered, for every process, and raised again")
  func lowered() throws {
    let place = try CachePlace(CacheLimits(byteLimit: 16 << 20))
    let first = try place.cache()
    let second = try place.cache()
    var random = SplitMix64(seed: 2)
    for index in 0..<240 { #expect(try first.put("k\(index)", random.noise(60_000))) }
    try second.setLimits(CacheLimits(byteLimit: 8 << 20))
    #expect(try second.excess() <= 0)
    for index in 0..<60 { #expect(try first.put("n\(index)", random.noise(60_000))) }
    #expect(first.limits.byteLimit == 8 << 20)
    #expect(try first.excess() < 5)
    #expect(try first.data("n59") != nil)
    #expect(failure { try first.setLimits(CacheLimits(byteLimit: 1)) }?.code == .invalidArgument)
    #expect(first.limits.byteLimit == 8 << 20)
    // Opening with another limit sets it.
    let third = try place.cache(limits: CacheLimits(byteLimit: 16 << 20))
    try third.engine.close()
    #expect(try first.statistics().limits.byteLimit == 16 << 20)
  }

  @Test("is one for the folder: other keys take from it, and only the cache's keys go")
  func prefix() throws {
    let place = try CachePlace()
    let cache = try place.cache(prefix: "cache/")
    var random = SplitMix64(seed: 3)
    let kept = random.noise(3_000_000)
    _ = try cache.engine.put("kept", .data(kept), .relaxed)
    for index in 0..<140 { #expect(try cache.put("k\(index)", random.noise(60_000))) }
    #expect(try cache.excess() < 5)
    #expect(try cache.engine.data("kept", nil) == kept)
    #expect(try cache.engine.data("cache/k139", nil) != nil)
    // Too much of the others': nothing is stored, and nothing else happens.
    _ = try cache.engine.put("more", .data(random.noise(6_000_000)), .relaxed)
    #expect(try !cache.put("k", random.noise(20_000)))
    #expect(try cache.data("k") == nil)
    #expect(try cache.engine.data("kept", nil) == kept)
    #expect(failure { _ = try place.cache(prefix: "other/") }?.code == .invalidArgument)
  }

  @Test("holds for keys that were put past the cache, once it takes them in")
  func adopting() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    var random = SplitMix64(seed: 11)
    for index in 0..<60 { #expect(try cache.put("k\(index)", random.noise(60_000))) }
    for index in 0..<80 {
      _ = try cache.engine.put("past-\(index)", .data(random.noise(100_000)), .relaxed)
      try cache.adopt(["past-\(index)"])
      #expect(try cache.excess() <= 0)
      #expect(try cache.contains("past-\(index)"))
    }
    #expect(try !cache.contains("k0"))
    #expect(try !cache.contains("past-0"))
    #expect(try cache.statistics().keyCount > 40)
  }

  @Test("set on a store with a large pack leaves what was put last")
  func largePack() throws {
    let place = try CachePlace()
    let engine = try place.engine()
    var random = SplitMix64(seed: 13)
    for index in 0..<100 {
      place.clock.move(seconds: 1)
      _ = try engine.put("k\(index)", .data(random.noise(100_000)), .relaxed)
    }
    try engine.writer.rollOver()
    #expect(try engine.backend.packNames().live.count == 1)
    let cache = try place.cache(engine)
    _ = try cache.trim()
    #expect(try cache.excess() <= 0)
    let kept = try (0..<100).filter { try cache.contains("k\($0)") }
    #expect(kept.count > 50)
    #expect(kept == Array((100 - kept.count)..<100))
    // What is put past a cache is in packs as small as its own.
    #expect(try engine.backend.packNames().live.count > 20)
    #expect(try engine.verify().damaged == [])
  }

  @Test("set far below what one large pack takes evicts no more than has to go")
  func farBelow() throws {
    let place = try CachePlace()
    let engine = try place.engine()
    var random = SplitMix64(seed: 17)
    for index in 0..<240 {
      place.clock.move(seconds: 1)
      _ = try engine.put("k\(index)", .data(random.noise(100_000)), .relaxed)
    }
    let cache = try place.cache(engine)
    _ = try cache.trim()
    #expect(try cache.excess() <= 0)
    let kept = try (0..<240).filter { try cache.contains("k\($0)") }
    #expect(kept.count > 45)
    #expect(kept == Array((240 - kept.count)..<240))
  }

  @Test("holds while garbage is collected, which trims the cache first")
  func collecting() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    var random = SplitMix64(seed: 8)
    for index in 0..<110 { #expect(try cache.put("k\(index)", random.noise(60_000))) }
    for index in 0..<40 { _ = try cache.engine.put("past-\(index)", .data(random.noise(100_000)), .relaxed) }
    #expect(try cache.excess() > 5)
    let report = try cache.engine.trimAndCollectGarbage(GarbageCollectionOptions(), progress: nil)
    #expect(report.evictedKeyCount > 0)
    #expect(try cache.excess() <= 0)
    #expect(try cache.engine.verify().damaged == [])
  }
}
