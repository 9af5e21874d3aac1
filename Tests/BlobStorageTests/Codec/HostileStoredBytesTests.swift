import BlobStorage
import BlobStorageTestSupport
import Testing

struct HostileStoredBytesTests {
  static let choices = [CodecChoice.zstd, .zlib]

  private func expectCorrupted(
    _ stored: [UInt8], by kind: CodecKind, count: Int, _ what: Comment,
    sourceLocation: SourceLocation = #_sourceLocation
  ) {
    let error = #expect(throws: BlobStorageError.self, what, sourceLocation: sourceLocation) {
      try ChunkDecoder().decoded(stored, by: kind, count: count)
    }
    #expect(error?.code == .corrupted, what, sourceLocation: sourceLocation)
  }

  @Test(arguments: choices)
  func everyTruncationIsCorrupted(choice: CodecChoice) throws {
    var seed = SplitMix64(seed: 6)
    let stored = try ChunkEncoder().encoded(seed.text(3_000), by: choice)
    for count in stored.bytes.indices {
      expectCorrupted(Array(stored.bytes[..<count]), by: stored.kind, count: 3_000, "cut to \(count)")
    }
  }

  @Test(arguments: choices)
  func aFlippedBitNeverTrapsAndNeverOverruns(choice: CodecChoice) throws {
    var seed = SplitMix64(seed: 7)
    let plain = seed.text(2_000)
    let decoder = ChunkDecoder()
    let stored = try ChunkEncoder().encoded(plain, by: choice)
    for bit in 0..<stored.bytes.count * 8 {
      var damaged = stored.bytes
      damaged[bit / 8] ^= 1 << (bit % 8)
      // zstd frames carry no checksum: other bytes of the right count are possible, and the digest tells.
      do { _ = try decoder.decoded(damaged, by: stored.kind, count: plain.count) } catch {
        #expect(error.code == .corrupted, "bit \(bit)")
      }
    }
    #expect(try decoder.decoded(stored.bytes, by: stored.kind, count: plain.count) == plain)
  }

  @Test(arguments: choices)
  func noiseIsNeverDecoded(choice: CodecChoice) throws {
    var seed = SplitMix64(seed: 8)
    let beginning = try ChunkEncoder().encoded([UInt8](repeating: 0, count: 999), by: choice).bytes.prefix(6)
    for _ in 0..<500 {
      let noise = seed.bytes(300)
      expectCorrupted(noise, by: choice.kind, count: 1_000, "noise")
      expectCorrupted(Array(beginning + noise), by: choice.kind, count: 1_000, "noise behind a true header")
    }
  }

  @Test(arguments: choices)
  func aBombStopsAtTheRecordedCount(choice: CodecChoice) throws {
    let bomb = try ChunkEncoder().encoded([UInt8](repeating: 0, count: 8 << 20), by: choice)
    #expect(bomb.bytes.count < 10_000)
    expectCorrupted(bomb.bytes, by: bomb.kind, count: 65_536, "bomb")
    expectCorrupted(bomb.bytes, by: bomb.kind, count: (8 << 20) - 1, "one byte more than recorded")
    expectCorrupted(bomb.bytes, by: bomb.kind, count: 0, "into nothing")
  }

  @Test(arguments: choices)
  func fewerBytesThanRecordedAreCorrupted(choice: CodecChoice) throws {
    let stored = try ChunkEncoder().encoded([UInt8](repeating: 0, count: 5_000), by: choice)
    expectCorrupted(stored.bytes, by: stored.kind, count: 5_001, "one byte less than recorded")
  }

  @Test(arguments: choices)
  func bytesBehindTheEndAreCorrupted(choice: CodecChoice) throws {
    let stored = try ChunkEncoder().encoded([UInt8](repeating: 0, count: 5_000), by: choice)
    expectCorrupted(stored.bytes + [0], by: stored.kind, count: 5_000, "one byte")
    expectCorrupted(stored.bytes + stored.bytes, by: stored.kind, count: 5_000, "the same again")
    expectCorrupted(stored.bytes + stored.bytes, by: stored.kind, count: 10_000, "two encodings in a row")
  }

  @Test func aFrameToBeSkippedIsCorrupted() throws {
    let skippable: [UInt8] = [0x50, 0x2A, 0x4D, 0x18, 2, 0, 0, 0, 1, 2]
    let stored = try ChunkEncoder().encoded([UInt8](repeating: 0, count: 5_000), by: .zstd)
    expectCorrupted(skippable, by: .zstd, count: 1, "alone")
    expectCorrupted(skippable + stored.bytes, by: .zstd, count: 5_000, "before the frame")
    expectCorrupted(stored.bytes + skippable, by: .zstd, count: 5_000, "behind the frame")
  }

  @Test func theWrongCodecIsCorrupted() throws {
    let plain = [UInt8](repeating: 0, count: 5_000)
    for choice in Self.choices {
      let stored = try ChunkEncoder().encoded(plain, by: choice)
      for kind in CodecKind.allCases where kind != choice.kind {
        expectCorrupted(stored.bytes, by: kind, count: plain.count, "\(choice.kind) read as \(kind)")
      }
    }
  }

  @Test func theBeginningOfAFrameIsDecodedWithoutTheRest() throws {
    var seed = SplitMix64(seed: 9)
    let plain = seed.text(1 << 20)
    let stored = try ChunkEncoder().encoded(plain, by: .zstd).bytes
    let decoder = ChunkDecoder()
    for count in [1, 1_000, 128 << 10, 128 << 10 + 1, 700_000, plain.count] {
      #expect(try decoder.decodedBeginning(stored, count: count) == Array(plain[..<count]), "\(count)")
    }
    // What stands behind the last byte that is wanted does not count, but for the shape of the whole.
    var damaged = stored
    damaged[stored.count - 1_000] ^= 1
    #expect(try decoder.decodedBeginning(damaged, count: 100_000) == Array(plain[..<100_000]))
    for (bytes, count, what) in [
      (stored, plain.count + 1, "more than there is"), (Array(stored.dropLast()), 100_000, "cut at the end"),
      (Array(stored[..<20_000]), 500_000, "cut in the middle"),
      (stored + [0], 100_000, "a byte behind the end"),
      ([], 1, "nothing"), (seed.bytes(5_000), 1_000, "noise"),
    ] {
      let error = #expect(throws: BlobStorageError.self, "\(what)") {
        try decoder.decodedBeginning(bytes, count: count)
      }
      #expect(error?.code == .corrupted, "\(what)")
    }
    // A decoder that failed decodes the next frame.
    #expect(try decoder.decodedBeginning(stored, count: 5) == Array(plain[..<5]))
    #expect(try decoder.decoded(stored, by: .zstd, count: plain.count) == plain)
  }

  @Test func aWindowLongerThanAFrameIsRefusedWhenOnlyTheBeginningIsWanted() throws {
    var seed = SplitMix64(seed: 10)
    var stored = try ChunkEncoder().encoded(seed.text(1 << 20), by: .zstd).bytes
    // RFC 8878, 3.1.1.1.2: the exponent of the window, over 10, is in the upper five bits of the byte behind the descriptor.
    #expect(stored[4] & 0x20 == 0, "a window descriptor follows")
    stored[5] = 12 << 3
    let error = #expect(throws: BlobStorageError.self) {
      try ChunkDecoder().decodedBeginning(stored, count: 1_000)
    }
    #expect(error?.code == .corrupted)
  }

  @Test func aPlainChunkHasExactlyItsCount() {
    expectCorrupted([1, 2, 3], by: .none, count: 2, "longer")
    expectCorrupted([1, 2, 3], by: .none, count: 4, "shorter")
  }

  @Test(arguments: [CodecKind.none, .zlib])
  func aBaseForACodecThatTakesNoneIsCorrupted(kind: CodecKind) {
    let error = #expect(throws: BlobStorageError.self) {
      try ChunkDecoder().decoded([1, 2, 3], by: kind, base: [1, 2, 3], count: 3)
    }
    #expect(error?.code == .corrupted)
  }
}
