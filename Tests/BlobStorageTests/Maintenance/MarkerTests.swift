import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("Marking")
struct MarkerTests {
  /// Chunks are looked up in shares of about 8,192, so there are more. What is live and not marked would not be copied.
  @Test("finds all of more chunks than one thread looks up at once, and no other")
  func many() throws {
    let place = try StorePlace(StoreOptions(usesSimilarity: false))
    let engine = try place.engine()
    let count = 9_000
    for start in stride(from: 0, to: count, by: 3_000) {
      let items = (start..<start + 3_000).map { PutItem(key: "\($0)", data: Data("the blob of \($0)".utf8)) }
      _ = try engine.put(items, .relaxed)
    }
    // 899 and 8990 to 8999.
    #expect(try engine.delete(prefix: .bytes("899"), .relaxed) == 11)
    #expect(try engine.statistics().chunkCount == count - 11)
    let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(report.obstacles == [] && report.compactedPackCount > 0)
    #expect(try engine.statistics().chunkCount == count - 11)
    #expect(try engine.verify().damaged.isEmpty)
    #expect(try engine.data("1234", nil) == Data("the blob of 1234".utf8))
    try engine.close()
  }

  @Test("finds a damaged chunk that no version needs but what is encoded against it")
  func damagedBase() throws {
    let place = try StorePlace()
    var seed = SplitMix64(seed: 1)
    let first = seed.text(9_000)
    var value = first
    value.replaceSubrange(4_000..<4_010, with: Array("0123456789".utf8))
    let archiving = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    var engine = try place.engine()
    let base = try engine.put("a", first, archiving).version.digest
    try engine.close()
    engine = try place.engine()
    let digest = try engine.put("a", value, archiving).version.digest
    _ = try engine.put("garbage", seed.bytes(9_000), archiving)
    try engine.close()
    engine = try place.engine()
    _ = try engine.keep(upTo: 0, prefix: "", .durable)
    _ = try engine.delete(["garbage"], .durable)
    let isBase = try engine.catalog.write { (transaction) throws(BlobStorageError) -> Bool in
      guard let row = try transaction.chunkRow(base) else { return false }
      try transaction.setSuspect(base, row)
      return try transaction.chunkRow(digest)?.base == base
    }
    try #require(isBase)
    let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(report.obstacles.map(\.digest) == [base], "\(report.obstacles)")
    #expect(report.deletedPackCount == 0 && report.compactedPackCount == 0)
    #expect(try engine.data("a", nil) == Data(value))
    try engine.close()
  }
}
