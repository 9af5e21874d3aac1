import BlobStorage
import BlobStorageReports
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
    #expect(try engine.delete(prefix: "899", .relaxed) == 11)
    #expect(try engine.statistics().chunkCount == count - 11)
    let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(report.obstacles == [] && report.compactedPackCount > 0)
    #expect(try engine.statistics().chunkCount == count - 11)
    #expect(try engine.verify().damaged.isEmpty)
    #expect(try engine.data("1234", nil) == Data("the blob of 1234".utf8))
    try engine.close()
  }
}
