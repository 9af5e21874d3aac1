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

  /// Of a chunk with a hint few bytes are sampled: it must not be taken for noise because of that.
  @Test(arguments: [1_023, 1_024, 1_025, 4_096, 10_240, 65_536, 262_144])
  func aPlainPartOfACompressedBlobIsFoundInAChunkOfAnyLength(count: Int) throws {
    var seed = SplitMix64(seed: UInt64(count))
    let encoder = ChunkEncoder()
    let part = [UInt8](repeating: 0, count: count / 5)
    for start in [0, count / 3, count - part.count] {
      var chunk = seed.bytes(count)
      chunk.replaceSubrange(start..<start + part.count, with: part)
      #expect(try encoder.encoded(chunk, by: .zstd, hint: .alreadyCompressed).kind == .zstd, "at \(start)")
    }
  }

  /// Noise that repeats itself would be encoded; that it is kept plain shows that only its histogram was looked at.
  @Test(arguments: [4_096, 10_240, 65_536])
  func noiseOfACompressedBlobIsNotEncodedForNothing(count: Int) throws {
    var seed = SplitMix64(seed: UInt64(count))
    let half = seed.bytes(count / 2)
    let encoder = ChunkEncoder()
    #expect(try encoder.encoded(half + half, by: .zstd, hint: .alreadyCompressed).kind == .none)
    #expect(try encoder.encoded(half + half, by: .zstd).kind == .zstd)
  }
}
