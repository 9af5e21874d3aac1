import BlobStorage
import Foundation
import Testing

@Suite struct StoreInformationTests {
  @Test("is the same after a round trip through JSON, and refuses what this build does not have")
  func codable() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    var information = store.information
    let json = try JSONEncoder().encode(information)
    #expect(try JSONDecoder().decode(StoreInformation.self, from: json) == information)
    information = StoreInformation(
      path: "s3://b/p", id: "00", digestAlgorithm: .sha256, chunkSizes: try ChunkSizes(average: 4_096),
      codec: .zlib, level: 9, usesSimilarity: false, created: Date(timeIntervalSince1970: 1),
      collectingMachine: "here")
    let text = String(decoding: try JSONEncoder().encode(information), as: UTF8.self)
    #expect(try JSONDecoder().decode(StoreInformation.self, from: Data(text.utf8)) == information)
    for (known, unknown) in [("sha256", "md5"), ("zlib", "lz4"), ("4096", "4095"), ("off", "maybe")] {
      #expect(throws: DecodingError.self) {
        let changed = text.replacing(known, with: unknown)
        return try JSONDecoder().decode(StoreInformation.self, from: Data(changed.utf8))
      }
    }
  }
}
