import BlobStorage
import BlobStorageCache
import BlobStorageMount
import Foundation
import Testing

@Suite("Readers of a cache's keys that are not the cache")
struct CacheReadsTests {
  @Test("find no expired value, in folders of a mount neither, and only count their reads as uses")
  func mounted() throws {
    let place = try CachePlace()
    let cache = try place.cache(prefix: "c/")
    let engine = cache.engine
    for index in 0..<40 {
      #expect(try cache.put("k\(index)", [UInt8(index)], lifetime: .seconds(index % 8 == 0 ? 600 : 5)))
    }
    _ = try engine.put("other", .data(Data([1])), PutOptions())
    let reads = try #require(try CacheReads(engine))
    let keys = CurrentKeys(engine, reads)
    #expect(try keys.entries(prefix: [], after: nil, limit: 100).count == 41)
    place.clock.move(seconds: 60)
    let left = ["c/k0", "c/k16", "c/k24", "c/k32", "c/k8", "other"]
    for limit in [1, 2, 100] {
      var found: [String] = []
      while true {
        let page = try keys.entries(prefix: [], after: found.last.map { Array($0.utf8) }, limit: limit)
        found += page.map { String(decoding: $0.key, as: UTF8.self) }
        if page.count < limit { break }
      }
      #expect(found == left, "\(limit)")
    }
    #expect(try keys.version(of: "c/k1") == nil)
    #expect(try keys.version(of: "c/k8") != nil)
    let versions = VersionsTree(engine, reads)
    #expect(try versions.page(of: Array("c/k1/".utf8), after: nil).children.isEmpty)
    #expect(try versions.page(of: Array("c/k8/".utf8), after: nil).children.count == 1)
    #expect(try versions.item(named: Array("k1".utf8), in: Array("c/".utf8)) == nil)
    #expect(cache.limits.lifetime == nil)
  }

  @Test("are none for a store without a cache, or with a damaged file of limits")
  func none() throws {
    let place = try CachePlace()
    let engine = try place.engine()
    #expect(try CacheReads(engine) == nil)
    let cache = try place.cache(engine)
    #expect(try cache.put("k", [1], lifetime: .seconds(1)))
    place.clock.move(seconds: 60)
    let version = try #require(try engine.version("k", nil))
    #expect(try CacheReads(engine)?.isExpired(version) == true)
    // The store's own keys have no lifetime, whatever the cache's prefix.
    let own = BlobVersion(
      key: "\u{0}s", id: version.id, digest: version.digest, byteCount: 1, created: version.created,
      metadata: version.metadata)
    #expect(try CacheReads(engine)?.isExpired(own) == false)
    try engine.folder.files.replace(engine.folder.cache, with: Array("nonsense".utf8)).close()
    #expect(try CacheReads(engine) == nil)
  }
}
