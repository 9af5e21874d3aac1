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
    // The default level has a window of 2 MiB; what is common lies 4 MiB apart.
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
}
