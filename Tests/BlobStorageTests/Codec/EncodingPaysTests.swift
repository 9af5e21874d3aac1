import BlobStorage
import BlobStorageTestSupport
import Testing

struct EncodingPaysTests {
  @Test(arguments: [
    (0, 0, false),
    (32, 0, true), (32, 1, false),
    (1_000, 968, true), (1_000, 969, false),  // 32 bytes decide
    (4_096, 4_064, true), (4_096, 4_065, false),  // both at once
    (12_800, 12_700, true), (12_800, 12_701, false),  // a 128th decides
    (100, 200, false),
  ])
  func encodingPaysFromA128thAnd32Bytes(plain: Int, stored: Int, pays: Bool) {
    #expect(ChunkEncoder.pays(plainByteCount: plain, storedByteCount: stored) == pays)
  }

  @Test(arguments: [CodecChoice.zstd, .zlib])
  func aChunkIsKeptPlainUnlessEncodingPays(choice: CodecChoice) throws {
    var seed = SplitMix64(seed: 3)
    let encoder = ChunkEncoder()
    let noise = seed.bytes(65_536)
    // Noise with a tail of zeros: encoding saves about the length of the tail. zstd itself keeps a block plain that
    // shrinks by less than a 64th.
    for (tail, kind) in [(0, CodecKind.none), (400, .none), (1_500, choice.kind), (40_000, choice.kind)] {
      let plain = noise.dropLast(tail) + [UInt8](repeating: 0, count: tail)
      #expect(try encoder.encoded(Array(plain), by: choice).kind == kind, "tail of \(tail)")
    }
    for (count, kind) in [(100, CodecKind.none), (127, .none), (128, choice.kind), (200, choice.kind)] {
      let plain = [UInt8](repeating: 0, count: count)
      #expect(try encoder.encoded(plain, by: choice).kind == kind, "\(count) zeros")
    }
    for (tail, kind) in [(30, CodecKind.none), (80, choice.kind)] {
      let plain = noise.prefix(320) + [UInt8](repeating: 0, count: tail)
      #expect(try encoder.encoded(Array(plain), by: choice).kind == kind, "320 bytes of noise, \(tail) zeros")
    }
  }

  /// As in a photograph whose code does not fit it quite: one byte in 16 is a zero, which is worth 2.3 %.
  @Test(arguments: [10_240, 65_536, 262_144], [CompressibilityHint.unknown, .alreadyCompressed])
  func aSmallSavingIsNotThrownAway(count: Int, hint: CompressibilityHint) throws {
    var seed = SplitMix64(seed: UInt64(count))
    let plain = seed.bytes(count).map { seed.next() % 16 == 0 ? 0 : $0 }
    let stored = try ChunkEncoder().encoded(plain, by: .zstd, hint: hint)
    #expect(stored.kind == .zstd && stored.bytes.count * 64 < count * 63)
    #expect(try ChunkDecoder().decoded(stored.bytes, by: .zstd, count: count) == plain)
  }

  @Test(arguments: [1_000, 65_536])
  func repetitionsThatNoHistogramShowsAreFound(count: Int) throws {
    var seed = SplitMix64(seed: 4)
    let half = seed.bytes(count / 2)
    #expect(try ChunkEncoder().encoded(half + half, by: .zstd).kind == .zstd)
    #expect(try ChunkEncoder().encoded(half + half, by: .zstd, hint: .compressedMembers).kind == .zstd)
  }

  @Test func aChunkOfACompressedBlobIsEncodedIfItsHistogramSaysSo() throws {
    var seed = SplitMix64(seed: 5)
    let encoder = ChunkEncoder()
    let half = seed.bytes(32_768)
    let text = seed.text(65_536)
    #expect(try encoder.encoded(half + half, by: .zstd, hint: .alreadyCompressed).kind == .none)
    #expect(try encoder.encoded(text, by: .zstd, hint: .alreadyCompressed).kind == .zstd)
  }

  /// Few bytes of a chunk are sampled: it must not be taken for noise because of that.
  @Test(arguments: [1_023, 1_024, 1_025, 4_096, 10_240, 65_536, 262_144])
  func aPlainPartOfACompressedBlobIsFoundInAChunkOfAnyLength(count: Int) throws {
    var seed = SplitMix64(seed: UInt64(count))
    let encoder = ChunkEncoder()
    let part = [UInt8](repeating: 0, count: count / 10)
    for start in [0, count / 3, count - part.count] {
      var chunk = seed.bytes(count)
      chunk.replaceSubrange(start..<start + part.count, with: part)
      #expect(try encoder.encoded(chunk, by: .zstd, hint: .alreadyCompressed).kind == .zstd, "at \(start)")
    }
  }

  /// Noise that repeats itself would be encoded; that it is kept plain shows that only its histogram was
  /// looked at. The lengths are such that the two halves are not sampled at the same places.
  @Test(arguments: [5_000, 10_240, 65_536])
  func noiseOfACompressedBlobIsNotEncodedForNothing(count: Int) throws {
    var seed = SplitMix64(seed: UInt64(count))
    let half = seed.bytes(count / 2)
    let encoder = ChunkEncoder()
    #expect(try encoder.encoded(half + half, by: .zstd, hint: .alreadyCompressed).kind == .none)
    #expect(try encoder.encoded(half + half, by: .zstd).kind == .zstd)
  }
}
