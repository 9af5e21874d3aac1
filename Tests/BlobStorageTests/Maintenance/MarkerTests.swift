import BlobStorage
import Foundation
import Testing

@Suite("Marking")
struct MarkerTests {
  @Test("finds all of more chunks than one thread looks up at once, and no other")
  func many() async throws {
    let place = try StorePlace(StoreOptions())
    let store = try await place.opened()
    func items(_ numbers: Range<Int>) -> [PutItem] {
      numbers.map { PutItem(key: "\($0)", data: Data("the blob of \($0)".utf8)) }
    }
    for start in stride(from: 0, to: 10_000, by: 2_000) {
      try await store.put(items(start..<start + 2_000), options: .relaxed)
    }
    _ = try await store.delete(prefix: "999", durability: .relaxed)
    let statistics = try await store.statistics()
    // 999 and 9990 to 9999.
    #expect(statistics.chunkCount == 10_000 - 11)
    #expect(statistics.blobCount == 10_000 - 11)
    _ = try await store.collectGarbage()
    #expect(try await store.verify().damaged.isEmpty)
    #expect(try await store.data(forKey: "1234") == Data("the blob of 1234".utf8))
    try await store.close()
  }
}
