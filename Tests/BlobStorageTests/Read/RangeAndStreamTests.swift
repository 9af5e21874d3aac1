import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

@Suite("A blob")
struct RangeAndStreamTests {
  @Test("of any length that streams in comes back whole", arguments: [CodecKind.zstd, .none])
  func streams(_ codec: CodecKind) throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var random = SplitMix64.announced()
    let borders = [1, 16 << 10, 64 << 10, 256 << 10, 1 << 20, (1 << 20) + (256 << 10), 2 << 20]
    let noise = random.bytes((2 << 20) + 2)
    for border in borders {
      for count in [border - 1, border, border + 1] {
        let bytes = Data(noise.prefix(count))
        let parts = Mutex((data: bytes, sizes: random.split(count, max: max(count / 3, 1))))
        let result = try engine.put(
          "streamed",
          .stream {
            parts.withLock { parts in
              while parts.sizes.first == 0 { parts.sizes.removeFirst() }
              guard !parts.sizes.isEmpty else { return nil }
              let part = parts.data.prefix(parts.sizes.removeFirst())
              parts.data = parts.data.dropFirst(part.count)
              return Data(part)
            }
          }, PutOptions(durability: .relaxed, codec: codec))
        #expect(result.version.byteCount == Int64(count))
        #expect(result.version.digest == BlobDigest.of(bytes))
        #expect(try engine.data("streamed", nil) == bytes, "\(count) bytes")
        // Cut the same way from memory: nothing is new.
        let again = try engine.put("in memory", .data(bytes), PutOptions(durability: .relaxed, codec: codec))
        #expect(again.newByteCount == 0, "\(count) bytes")
      }
    }
    try engine.close()
  }

  @Test("gives any range as the same slice of its bytes")
  func ranges() throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 1_024))
    let engine = try place.engine()
    var random = SplitMix64.announced()
    let bytes = random.bytes(200_000)
    _ = try engine.put("a", bytes)
    let blob = try #require(try engine.openBlob("a", nil))
    func slice(_ range: Range<Int64>) -> Data {
      Data(bytes[min(Int(range.lowerBound), bytes.count)..<min(Int(range.upperBound), bytes.count)])
    }
    for _ in 0..<300 {
      let start = Int64.random(in: 0...200_000, using: &random)
      let range =
        start..<start + Int64.random(in: 0...(start % 2 == 0 ? 300_000 : 3_000), using: &random)
      #expect(Data(try blob.read(range)) == slice(range), "\(range)")
    }
    // Ranges that begin and end at, just before and just behind a chunk's border.
    let layout = try #require(try engine.blobs.layout(blob.layout.digest))
    var borders: [Int64] = []
    try layout.forEachChunk(in: 0..<200_000, from: engine.chunks) { placed in
      borders.append(placed.start)
      return true
    }
    #expect(borders.count > 50)
    for (border, next) in zip(borders, borders.dropFirst()) {
      for start in max(border - 1, 0)...border + 1 {
        for end in next - 1...next + 1 {
          #expect(Data(try blob.read(start..<end)) == slice(start..<end), "\(start..<end)")
        }
      }
    }
    var streamed = Data()
    try blob.stream(777..<199_999) { streamed.append(contentsOf: $0) }
    #expect(streamed == slice(777..<199_999))
    for refused in [-1..<5, 200_001..<200_002] as [Range<Int64>] {
      #expect(failure { _ = try blob.read(refused) }?.code == .invalidArgument)
    }
    #expect(try blob.read(200_000..<200_010).isEmpty)
    #expect(failure { try blob.stream(200_001..<200_002) { _ in } }?.code == .invalidArgument)
    _ = try engine.put("empty", [])
    let empty = try #require(try engine.openBlob("empty", nil))
    #expect(try empty.read(0..<9).isEmpty)
    var callCount = 0
    try empty.stream(0..<0) { if !$0.isEmpty { callCount += 1 } }
    #expect(callCount == 0)
    #expect(failure { _ = try empty.read(1..<2) }?.code == .invalidArgument)
    empty.close()
    blob.close()
    #expect(failure { _ = try blob.read(0..<1) }?.code == .closed)
    try engine.close()
  }

  @Test("of more than 4,096 chunks has its chunks in lists")
  func lists() throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 1_024, codec: .none))
    let engine = try place.engine()
    var random = SplitMix64(seed: 7)
    let bytes = random.bytes(12 << 20)
    let result = try engine.put("a", bytes)
    let layout = try #require(try engine.blobs.layout(result.version.digest))
    #expect(layout.chunkCount > 2 * 4_096)
    #expect(layout.listDigests.count == Int((layout.chunkCount + 4_095) / 4_096))
    #expect(try engine.data("a", nil) == Data(bytes))
    // One byte in the middle is other: nearly everything is shared.
    var changed = bytes
    changed[6 << 20] ^= 1
    let second = try engine.put("b", changed)
    #expect(second.newByteCount < 20_000)
    let blob = try #require(try engine.openBlob("b", nil))
    for _ in 0..<100 {
      let start = Int.random(in: 0..<bytes.count - 5_000, using: &random)
      #expect(
        Data(try blob.read(Int64(start)..<Int64(start) + 5_000)) == Data(changed[start..<start + 5_000]))
    }
    blob.close()
    try engine.close()
    try place.removeCatalog()
    let reopened = try place.engine()
    #expect(try reopened.data("b", nil) == Data(changed))
    try reopened.close()
  }
}
