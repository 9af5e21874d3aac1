import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A container")
struct ContainerTests {
  private func stream(_ data: Data, _ random: inout SplitMix64) -> BlobContent {
    let parts = Mutex((data: data, sizes: random.split(data.count, max: 50_000)))
    return .stream {
      parts.withLock { parts in
        while parts.sizes.first == 0 { parts.sizes.removeFirst() }
        guard !parts.sizes.isEmpty else { return nil }
        let part = parts.data.prefix(parts.sizes.removeFirst())
        parts.data = parts.data.dropFirst(part.count)
        return Data(part)
      }
    }
  }

  @Test(
    "is the same chunks from memory, from a stream and from a file, and comes back whole",
    arguments: [300_000, 3_000_000])
  func allWays(byteCount: Int) async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let engine = try place.engine()
    var random = SplitMix64.announced()
    let (long, short) = (random.bytes(byteCount), random.bytes(5_000))
    let samples = [
      SampleContainer.jpeg(exif: short, picture: long), SampleContainer.png(text: short, picture: long),
      SampleContainer.zip([("a", short), ("b", long)]),
      SampleContainer.boxes([("moov", short), ("mdat", long)]),
    ]
    let file = place.temporary.path.appending("file")
    for bytes in samples.map({ Data($0) }) {
      // Each way must store what the other two then find; a store has seen the long part already, but for the first.
      _ = try engine.put("streamed", stream(bytes, &random), .relaxed)
      #expect(try engine.put("in memory", .data(bytes), .relaxed).newByteCount == 0)
      try bytes.write(to: URL(filePath: file.string))
      let report = try await store.importFiles([file.string])
      #expect(report.newByteCount == 0 && report.fileCount == 1)
      for key in ["streamed", "in memory", "file"] { #expect(try engine.data(key, nil) == bytes) }
    }
    try engine.close()
    try await store.close()
  }

  @Test("with a changed head adds its head alone", arguments: [300_000, 3_000_000])
  func changedHead(byteCount: Int) throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var random = SplitMix64.announced()
    let picture = random.bytes(byteCount)
    for (index, exifByteCount) in [5_000, 200, 9_000, 60_000].enumerated() {
      let bytes = SampleContainer.jpeg(exif: random.bytes(exifByteCount), picture: picture)
      let result = try engine.put("photograph", stream(Data(bytes), &random), .relaxed)
      let expected = index == 0 ? bytes.count : exifByteCount + 200
      #expect(result.newByteCount <= expected && result.newByteCount >= exifByteCount)
    }
    try engine.close()
  }
}
