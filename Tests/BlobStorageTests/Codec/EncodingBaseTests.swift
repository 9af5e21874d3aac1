import BlobStorage
import BlobStorageTestSupport
import Testing

struct EncodingBaseTests {
  /// `count` bytes in a few places replaced.
  private func edited(_ plain: [UInt8], by seed: inout SplitMix64) -> [UInt8] {
    var plain = plain
    for _ in 0..<5 {
      let at = Int.random(in: 0..<plain.count - 100, using: &seed)
      plain.replaceSubrange(at..<at + 20, with: seed.text(Int.random(in: 10...40, using: &seed)))
    }
    return plain
  }

  @Test(arguments: [1, 3, 9, 19])
  func aNearCopyCostsLessThanATwentiethOfItself(level: Int) throws {
    var seed = SplitMix64(seed: 9)
    let base = seed.text(65_536)
    let plain = edited(base, by: &seed)
    let encoder = ChunkEncoder()
    let choice = try CodecChoice(.zstd, level: .number(level))
    let alone = try encoder.encoded(plain, by: choice)
    let based = try encoder.encoded(plain, by: choice, base: base)
    #expect(based.bytes.count * 20 < alone.bytes.count)
    #expect(try ChunkDecoder().decoded(based.bytes, by: .zstd, base: base, count: plain.count) == plain)
  }

  @Test func aNearCopyOfNoiseShrinksToo() throws {
    var seed = SplitMix64(seed: 10)
    let base = seed.bytes(262_144)
    let plain = edited(base, by: &seed)
    let based = try ChunkEncoder().encoded(plain, by: .zstd, base: base)
    #expect(based.bytes.count < 2_000)
    #expect(try ChunkDecoder().decoded(based.bytes, by: .zstd, base: base, count: plain.count) == plain)
  }

  @Test func aChunkReachesItsBaseBeyondTheWindowOfItsLevel() throws {
    var seed = SplitMix64(seed: 11)
    let base = seed.bytes(1 << 20)
    // Level 3 has a window of 2 MiB; what is common lies 4 MiB apart.
    let plain = seed.bytes(3 << 20) + base
    let based = try ChunkEncoder().encoded(plain, by: .zstd, base: base)
    #expect(based.kind == .zstd)
    #expect(based.bytes.count < (3 << 20) + 100_000)
    let decoded = try ChunkDecoder().decoded(based.bytes, by: .zstd, base: base, count: plain.count)
    #expect(decoded.elementsEqual(plain))
  }

  @Test func theWrongBaseNeverGivesTheRightBytes() throws {
    var seed = SplitMix64(seed: 12)
    let base = seed.text(65_536)
    let plain = edited(base, by: &seed)
    let based = try ChunkEncoder().encoded(plain, by: .zstd, base: base)
    // Without a checksum in the frame the caller's digest has to tell; there is only no trap and no overrun.
    for wrong in [seed.text(65_536), [], Array(base.dropLast()), seed.bytes(10)] {
      do {
        let bytes = try ChunkDecoder().decoded(based.bytes, by: .zstd, base: wrong, count: plain.count)
        #expect(bytes.elementsEqual(plain) == false)
      } catch { #expect(error.code == .corrupted) }
    }
  }

  @Test func aDictionaryHelpsSmallChunksAndIsNeededToDecodeThem() throws {
    var seed = SplitMix64(seed: 13)
    let samples = (0..<500).map { number in
      Array(#"{"identifier": \#(number), "name": "\#(seed.next())", "kind": "picture", "tags": []}"#.utf8)
        + Array(#", {"width": \#(seed.next() % 4_000), "height": \#(seed.next() % 4_000), "depth": 24}"#.utf8)
    }
    let dictionary = try #require(DictionaryTrainer.train(samples: samples, byteCountMax: 4_096))
    #expect(dictionary.count <= 4_096)
    // Two dictionaries at a time, so that the cache is asked for the right one.
    let other = try #require(DictionaryTrainer.train(samples: samples, byteCountMax: 1_024))
    #expect(dictionary != other)
    let plain = samples[7] + samples[8]
    let encoder = ChunkEncoder()
    let decoder = ChunkDecoder()
    for (identity, dictionary) in [(1, dictionary), (2, other), (1, dictionary), (2, other)]
      as [(UInt64, [UInt8])]
    {
      let (kind, stored) = try encoder.withEncoded(
        plain.span.bytes, by: .zstd, base: .dictionary(dictionary.span.bytes, identity: identity)
      ) { ($0, Array($1)) }
      #expect(kind == .zstd)
      #expect(stored.count < (try encoder.encoded(plain, by: .zstd).bytes.count))
      var decoded = [UInt8](repeating: 0, count: plain.count)
      try decoded.withUnsafeMutableBytes { decoded in
        try decoder.decode(
          stored.span.bytes, by: kind, base: .dictionary(dictionary.span.bytes, identity: identity),
          into: decoded)
      }
      #expect(decoded == plain)
      let alone = try? decoder.decoded(stored, by: .zstd, count: plain.count)
      #expect(alone != plain)
    }
  }

  @Test func moreDictionariesThanAreKeptReadyAreTakenInTurns() throws {
    var seed = SplitMix64(seed: 14)
    let dictionaries = (0..<7).map { _ in seed.bytes(2_000) }
    let encoder = ChunkEncoder()
    let decoder = ChunkDecoder()
    for index in [0, 1, 2, 3, 4, 5, 6, 0, 6, 5, 1, 0] {
      let dictionary = dictionaries[index]
      let plain = Array(dictionary[500..<1_700])
      let (kind, stored) = try encoder.withEncoded(
        plain.span.bytes, by: .zstd, base: .dictionary(dictionary.span.bytes, identity: UInt64(index))
      ) { ($0, Array($1)) }
      // Noise shrinks by what is in the dictionary alone.
      #expect(kind == .zstd && stored.count < 100, "dictionary \(index)")
      var decoded = [UInt8](repeating: 0, count: plain.count)
      try decoded.withUnsafeMutableBytes { decoded in
        try decoder.decode(
          stored.span.bytes, by: kind, base: .dictionary(dictionary.span.bytes, identity: UInt64(index)),
          into: decoded)
      }
      #expect(decoded == plain, "dictionary \(index)")
    }
  }

  @Test func tooFewSamplesTrainNothing() {
    #expect(DictionaryTrainer.train(samples: [], byteCountMax: 4_096) == nil)
    #expect(DictionaryTrainer.train(samples: [[1, 2, 3]], byteCountMax: 4_096) == nil)
    #expect(DictionaryTrainer.train(samples: [[1, 2, 3]], byteCountMax: 0) == nil)
  }
}
