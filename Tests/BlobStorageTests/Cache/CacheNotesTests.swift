import BlobStorage
import BlobStorageCache
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("What a cache notes")
struct CacheNotesTests {
  /// A ref or a drop of one version under a short key takes less. Refs of what is gone are garbage as well.
  private static let recordByteCountMax: Int64 = 200

  /// One chunk, and several of them with a manifest.
  @Test(
    "frees a shared value with the last of its keys, and counts nothing before", arguments: [15_000, 400_000])
  func shared(byteCount: Int) throws {
    let place = try CachePlace()
    let cache = try place.cache()
    var random = SplitMix64(seed: 1)
    let bytes = random.noise(byteCount)
    for key in ["a", "b", "c"] { #expect(try cache.put(key, bytes)) }
    func noted() throws -> Int64 { try cache.statistics().garbageByteCount }
    #expect(try cache.remove(["a"]) == 1)
    // The refs of the three, and what dropped them.
    let few = 5 * Self.recordByteCountMax
    #expect(try noted() < few)
    #expect(try cache.put("b", [1]))
    #expect(try noted() < few)
    #expect(try cache.remove(["c"]) == 1)
    #expect(try noted() > Int64(byteCount))
    // Put again before it was collected: garbage no more.
    #expect(try cache.put("d", bytes))
    #expect(try noted() < few)
  }

  @Test("agrees with what following every version finds")
  func garbage() throws {
    let place = try CachePlace()
    let cache = try place.cache()
    var random = SplitMix64.announced()
    var removalCount: Int64 = 0
    for _ in 0..<120 {
      let key = "k\(Int.random(in: 0..<30, using: &random))"
      if Bool.random(using: &random) {
        #expect(try cache.put(key, random.noise(Int.random(in: 1...40_000, using: &random))))
      } else {
        _ = try cache.remove([key])
        removalCount += 1
      }
    }
    try cache.engine.writer.rollOver()
    let noted = try cache.statistics().garbageByteCount
    let counted = try cache.engine.statistics().garbageByteCount
    // Records that drop keys are garbage to the count.
    #expect(noted <= counted && counted - noted <= removalCount * Self.recordByteCountMax)
  }

  @Test("a put and a drop write to the pack only, and the catalog follows later")
  func later() throws {
    let place = try CachePlace(CacheLimits(byteLimit: 100 << 20))
    let cache = try place.cache()
    let tails = cache.engine.catalog.tails
    #expect(try cache.put("first", [1]))
    let before = tails.size.recordCount
    for index in 0..<40 { #expect(try cache.put("k\(index)", [UInt8(index), 9])) }
    #expect(try cache.remove((0..<10).map { "k\($0)" }) == 10)
    // A chunk and a ref each, and a drop for each that went.
    #expect(tails.size.recordCount == before + 2 * 40 + 10)
    #expect(try cache.statistics().keyCount == 31)
    #expect(tails.size.recordCount == 0)
  }

  @Test("keys that their process has not noted are evicted all the same")
  func unnoted() throws {
    let place = try CachePlace()
    var random = SplitMix64.announced()
    let (one, other) = (try place.cache(), try place.cache())
    let byteCount = 150_000
    for index in 0..<39 { #expect(try one.put("one\(index)", random.noise(byteCount))) }
    #expect(try other.engine.catalog.read { view throws(BlobStorageError) in try view.cachedKeyCount() } < 39)
    for index in 0..<60 { #expect(try other.put("other\(index)", random.noise(byteCount))) }
    #expect(try other.engine.folder.allocatedByteCount() <= place.limits.byteLimit)
    #expect(try other.contains("other59"))
  }

  @Test("a number of keys is held by two processes that take turns")
  func count() throws {
    let place = try CachePlace(CacheLimits(byteLimit: CacheLimits.smallestByteLimit, keyLimit: 16))
    let (one, other) = (try place.cache(), try place.cache())
    for index in 0..<60 {
      let cache = index % 5 < 3 ? one : other
      #expect(try cache.put("k\(index)", [UInt8(index)]))
      let count = try one.engine.keys("", after: nil, limit: .max).count
      #expect(count == min(index + 1, 16))
    }
  }

  @Test("counts the versions of each blob, the same after a rebuild")
  func counts() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var random = SplitMix64.announced()
    let values = (0..<8).map { _ in random.bytes(300) }
    for value in values.prefix(4) { _ = try engine.put("k\(value[0] % 12)", value) }
    // What was there before is counted when counting begins.
    try engine.catalog.write { transaction throws(BlobStorageError) in
      try transaction.beginCountingVersions()
    }
    for step in 0..<400 {
      let key = "k\(Int.random(in: 0..<12, using: &random))"
      let value = try #require(values.randomElement(using: &random))
      switch Int.random(in: 0..<10, using: &random) {
      case 0: _ = try engine.delete([key], .relaxed)
      case 1: _ = try engine.keep(upTo: 1, keys: [key], .relaxed)
      case 2...5:
        _ = try engine.put(key, value, PutOptions(durability: .relaxed, replacement: .archiveCurrent))
      default: _ = try engine.put(key, value)
      }
      if step % 100 == 50 { _ = try engine.collectGarbage() }
    }
    func counts(_ engine: Engine) throws -> [Int] {
      try engine.catalog.write { transaction throws(BlobStorageError) in
        try transaction.beginCountingVersions()
      }
      let digests = values.map { BlobDigest.of($0, by: .blake3) }
      let counted = try engine.catalog.read { transaction throws(BlobStorageError) in
        var counted: [Int] = []
        for digest in digests { counted.append(try transaction.versionCount(of: digest)) }
        return counted
      }
      var seen = [Int](repeating: 0, count: digests.count)
      for entry in try engine.keys("", after: nil, limit: .max) {
        for version in try engine.versions(entry.key) {
          if let index = digests.firstIndex(of: version.digest) { seen[index] += 1 }
        }
      }
      #expect(counted == seen)
      return counted
    }
    let before = try counts(engine)
    try engine.close()
    try place.removeCatalog()
    let reopened = try place.engine()
    #expect(try counts(reopened) == before)
    try reopened.close()
  }

  @Test("collecting named packs takes nothing that is needed", arguments: [true, false])
  func scope(usesSimilarity: Bool) throws {
    let place = try StorePlace(
      StoreOptions(averageChunkByteCount: 4_096, usesSimilarity: usesSimilarity))
    var environment = Engine.Environment()
    environment.packByteCountTarget = 24 << 10
    let engine = try place.engine(environment)
    try engine.catalog.write { transaction throws(BlobStorageError) in
      try transaction.beginCountingVersions()
    }
    var random = SplitMix64.announced()
    let parts = (0..<24).map { _ in random.bytes(Int.random(in: 200...9_000, using: &random)) }
    var model: [String: [UInt8]] = [:]
    var readers: [(blob: OpenBlob, bytes: [UInt8])] = []
    var (freedCount, onlyBaseByteCount): (Int64, Int64) = (0, 0)
    for step in 0..<240 {
      let key = "k\(Int.random(in: 0..<30, using: &random))"
      if Int.random(in: 0..<3, using: &random) == 0 {
        if let bytes = model[key], readers.count < 5, let blob = try engine.openBlob(key, nil) {
          readers.append((blob, bytes))
        }
        _ = try engine.delete([key], .relaxed)
        model[key] = nil
      } else {
        var bytes: [UInt8] = []
        for _ in 0..<max(1, Int.random(in: -3...4, using: &random)) {
          bytes += parts.randomElement(using: &random) ?? []
        }
        // Like one that was there before: encoded against it.
        if Bool.random(using: &random) { bytes[bytes.count / 2] ^= 1 }
        // A part alone is a blob of its own and a chunk of others.
        _ = try engine.put(key, bytes)
        model[key] = bytes
      }
      guard step % 12 == 11 else { continue }
      let packs = try engine.catalog.read { transaction throws(BlobStorageError) in
        try transaction.packRows().filter { $0.row.isSealed }.map(\.number)
      }
      let chosen = Set(packs.filter { _ in Bool.random(using: &random) })
      onlyBaseByteCount += try engine.statistics().baseByteCount
      let report = try engine.collectGarbage(in: chosen)
      #expect(report.obstacles == [])
      freedCount += report.freedByteCount
      for (key, bytes) in model { #expect(try engine.data(key, nil) == Data(bytes)) }
      for (blob, bytes) in readers {
        #expect(Array(try blob.read(0..<Int64(bytes.count))) == bytes)
      }
      if readers.count == 5 {
        for (blob, _) in readers { blob.close() }
        readers = []
      }
    }
    #expect(freedCount > 100_000)
    #expect((onlyBaseByteCount > 0) == usesSimilarity)
    #expect(try engine.verify().damaged == [])
    for (blob, _) in readers { blob.close() }
    let before = try contents(of: engine)
    try engine.close()
    try place.removeCatalog()
    let reopened = try place.engine(environment)
    #expect(try contents(of: reopened) == before)
    try reopened.close()
  }

}
