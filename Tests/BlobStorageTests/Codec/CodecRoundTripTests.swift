import BlobStorage
import BlobStorageTestSupport
import Testing

struct CodecRoundTripTests {
  static let choices = [CodecChoice.none, .zstd, .zlib]

  @Test(arguments: choices, [0, 1, 127, 128, 129, 4_095, 4_096, 262_144])
  func whatWasEncodedIsDecoded(choice: CodecChoice, count: Int) throws {
    var seed = SplitMix64(seed: UInt64(count))
    let encoder = ChunkEncoder()
    let decoder = ChunkDecoder()
    for plain in [seed.bytes(count), [UInt8](repeating: 0, count: count), seed.text(count)] {
      let stored = try encoder.encoded(plain, by: choice)
      #expect(stored.bytes.count <= count)
      #expect(try decoder.decoded(stored.bytes, by: stored.kind, count: count) == plain)
    }
  }

  @Test func everyLevelCanBeDecodedAndChangedBetweenChunks() throws {
    var seed = SplitMix64(seed: 1)
    let plain = seed.text(20_000)
    let encoder = ChunkEncoder()
    let decoder = ChunkDecoder()
    for kind in [CodecKind.zstd, .zlib] {
      for level in kind.levels {
        let stored = try encoder.encoded(plain, by: CodecChoice(kind, level: .number(level)))
        #expect(stored.kind == kind)
        #expect(try decoder.decoded(stored.bytes, by: kind, count: plain.count) == plain)
      }
    }
  }

  @Test func aSecondEncodingByTheSameEncoderGivesTheSameBytes() throws {
    var seed = SplitMix64(seed: 2)
    let (one, other) = (seed.text(30_000), seed.text(40_000))
    let encoder = ChunkEncoder()
    for choice in [CodecChoice.zstd, .zlib] {
      let first = try encoder.encoded(one, by: choice)
      _ = try encoder.encoded(other, by: choice, base: choice == .zstd ? one : nil)
      #expect(try encoder.encoded(one, by: choice).bytes == first.bytes)
    }
  }

  @Test func aFrameSpendsNoByteOnWhatTheRecordSays() throws {
    let stored = try ChunkEncoder().encoded([UInt8](repeating: 7, count: 1_000), by: .zstd)
    // RFC 8878, 3.1.1.1.1: no content size, no single segment, no checksum, no dictionary number.
    #expect(stored.bytes[4] == 0)
  }

  @Test func theErrorOfTheBodyComesThrough() throws {
    let error = #expect(throws: BlobStorageError.self) {
      let plain: [UInt8] = [1, 2, 3]
      try ChunkEncoder().withEncoded(plain.span.bytes, by: .zstd) { _, _ throws(BlobStorageError) in
        throw BlobStorageError(.noSpace, "full")
      }
    }
    #expect(error?.code == .noSpace)
  }

  @Test func aPoolLendsWhatCameBack() throws {
    let pool = CodecPool()
    let first = try pool.withEncoder { $0 }
    let (again, other) = try pool.withEncoder { outer throws(BlobStorageError) in
      (outer, try pool.withEncoder { $0 })
    }
    #expect(again === first)
    #expect(other !== first)
    let decoder = try pool.withDecoder { $0 }
    #expect(try pool.withDecoder { $0 } === decoder)
  }

  @Test func aPoolKeepsNoMoreThanItsCount() throws {
    let pool = CodecPool(idleCountMax: 0)
    let first = try pool.withEncoder { $0 }
    #expect(try pool.withEncoder { $0 } !== first)
  }
}
