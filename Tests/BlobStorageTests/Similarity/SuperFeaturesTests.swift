import BlobStorage
import BlobStorageTestSupport
import Testing

struct SuperFeaturesTests {
  private func keys(of bytes: [UInt8]) -> SIMD3<UInt32>? {
    SuperFeatures.of(bytes.span.bytes)
  }

  private func sharedCount(_ one: SIMD3<UInt32>, _ other: SIMD3<UInt32>) -> Int {
    (0..<3).filter { one[$0] == other[$0] }.count
  }

  @Test(
    arguments: [
      (512, [3_223_475_055, 3_243_036_937, 2_508_661_731]),
      (65_536, [255_145_696, 990_320_439, 2_385_133_589]),
      (262_144, [1_644_088_439, 2_132_050_302, 3_148_620_063]),
    ] as [(Int, [UInt32])])
  func theKeysOfGivenBytesNeverChange(count: Int, frozen: [UInt32]) throws {
    var seed = SplitMix64(seed: 1)
    let features = try #require(keys(of: seed.bytes(count)))
    #expect((0..<3).map { features[$0] } == frozen)
  }

  @Test(arguments: [512, 513, 1_001, 65_536, 100_003])
  func theKernelDoesWhatItsCommentSays(count: Int) throws {
    var seed = SplitMix64(seed: 2)
    let noise = seed.bytes(count)
    let run = [UInt8](repeating: 9, count: count - count / 2)
    for bytes in [noise, noise.prefix(count / 2) + run] {
      let features = try #require(keys(of: bytes))
      #expect((0..<3).map { features[$0] } == ReferenceKernel().keys(of: bytes))
    }
  }

  @Test func identicalChunksHaveTheSameKeys() throws {
    var seed = SplitMix64(seed: 3)
    let bytes = seed.bytes(65_536)
    #expect(keys(of: bytes) != nil)
    #expect(keys(of: bytes) == keys(of: Array(bytes)))
  }

  @Test(arguments: [4_096, 65_536])
  func aChunkWithAFewEditsSharesAKey(count: Int) throws {
    var found = 0
    for trial in 0..<100 {
      var seed = SplitMix64(seed: UInt64(1_000 + trial))
      let base = seed.bytes(count)
      var edited = base
      for _ in 0..<4 {
        let at = Int(seed.next() % UInt64(edited.count - 32))
        edited.replaceSubrange(at..<at + 16, with: seed.bytes(Int(seed.next() % 32)))
      }
      if try sharedCount(#require(keys(of: base)), #require(keys(of: edited))) > 0 { found += 1 }
    }
    #expect(found >= 90, "of 100 seeds from 1000 on")
  }

  @Test func chunksThatHaveNothingInCommonShareNoKey() throws {
    var seed = SplitMix64(seed: 4)
    let all = try (0..<200).map { _ in try #require(keys(of: seed.bytes(8_192))) }
    for index in 0..<3 {
      #expect(Set(all.map { $0[index] }).count == all.count)
    }
  }

  @Test func theKeysOfAChunkDifferFromEachOther() throws {
    var seed = SplitMix64(seed: 5)
    let features = try #require(keys(of: seed.bytes(8_192)))
    #expect(Set((0..<3).map { features[$0] }).count == 3)
  }

  @Test func chunksTooSmallOrTooUniformHaveNoKeys() {
    var seed = SplitMix64(seed: 6)
    #expect(keys(of: []) == nil)
    #expect(keys(of: seed.bytes(511)) == nil)
    #expect(keys(of: seed.bytes(512)) != nil)
    for byte in UInt8.min...UInt8.max {
      #expect(keys(of: [UInt8](repeating: byte, count: 65_536)) == nil, "all of byte \(byte)")
    }
  }
}
