import BlobStorage
import BlobStorageTestSupport
import Testing

struct EncodingPaysTests {
  @Test(arguments: [
    (0, 0, false),
    (128, 0, true), (128, 1, false),
    (1_000, 872, true), (1_000, 873, false),  // 128 bytes decide
    (1_024, 896, true), (1_024, 897, false),  // both at once
    (8_000, 7_000, true), (8_000, 7_001, false),  // an eighth decides
    (100, 200, false),
  ])
  func encodingPaysFromAnEighthAnd128Bytes(plain: Int, stored: Int, pays: Bool) {
    #expect(ChunkEncoder.pays(plainByteCount: plain, storedByteCount: stored) == pays)
  }

  @Test(arguments: [CodecChoice.zstd, .zlib])
  func aChunkIsKeptPlainUnlessEncodingPays(choice: CodecChoice) throws {
    var seed = SplitMix64(seed: 3)
    let encoder = ChunkEncoder()
    let noise = seed.bytes(65_536)
    // Noise with a tail of zeros: about as many bytes are saved as the tail is long.
    for (tail, kind) in [(0, CodecKind.none), (7_000, .none), (9_300, choice.kind), (40_000, choice.kind)] {
      let plain = noise.dropLast(tail) + [UInt8](repeating: 0, count: tail)
      #expect(try encoder.encoded(Array(plain), by: choice).kind == kind, "tail of \(tail)")
    }
    for (count, kind) in [(100, CodecKind.none), (128, .none), (129, .none), (200, choice.kind)] {
      let plain = [UInt8](repeating: 0, count: count)
      #expect(try encoder.encoded(plain, by: choice).kind == kind, "\(count) zeros")
    }
  }

  @Test func repetitionsThatNoHistogramShowsAreFound() throws {
    var seed = SplitMix64(seed: 4)
    let half = seed.bytes(32_768)
    #expect(try ChunkEncoder().encoded(half + half, by: .zstd).kind == .zstd)
  }

  @Test func aChunkOfACompressedBlobIsEncodedIfItsHistogramSaysSo() throws {
    var seed = SplitMix64(seed: 5)
    let encoder = ChunkEncoder()
    let half = seed.bytes(32_768)
    let text = seed.text(65_536)
    #expect(try encoder.encoded(half + half, by: .zstd, hint: .alreadyCompressed).kind == .none)
    #expect(try encoder.encoded(text, by: .zstd, hint: .alreadyCompressed).kind == .zstd)
  }
}
