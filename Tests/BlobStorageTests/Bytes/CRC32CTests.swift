import BlobStorage
import BlobStorageTestSupport
import CBlobKernels
import Testing

@Suite("CRC-32C")
struct CRC32CTests {
  @Test(
    "has the known values",
    arguments: [
      (Array("123456789".utf8), 0xE306_9283),
      ([], 0),
      // RFC 3720, appendix B.4.
      ([UInt8](repeating: 0, count: 32), 0x8A91_36AA),
      ([UInt8](repeating: 0xFF, count: 32), 0x62A8_AB43),
      (Array(0..<32), 0x46DD_794E),
      (Array((0..<32).reversed()), 0x113F_DB5C),
    ] as [([UInt8], UInt32)])
  func knownValues(bytes: [UInt8], checksum: UInt32) {
    #expect(CRC32C.checksum(bytes.span.bytes) == checksum)
    #expect(bytes.withUnsafeBytes { bs_crc32c_table(0, $0.baseAddress, $0.count) } == checksum)
  }

  @Test("is the same by instruction and by table, at every length and alignment")
  func instructionEqualsTable() {
    var random = SplitMix64.announced()
    let bytes = random.bytes(100_000)
    // Three stretches of 256 to 4,096 bytes each run side by side.
    let rounds = [768, 1_536, 3_072, 6_144, 12_288].flatMap { [$0 - 1, $0, $0 + 1, 2 * $0 - 1] }
    let lengths = Array(0..<64) + rounds + [10_000, 24_576, 36_863, 50_000, 99_990]
    for length in lengths {
      for start in 0..<9 {
        let seed = UInt32.random(in: 0...UInt32.max, using: &random)
        bytes[start..<start + length].withUnsafeBytes {
          #expect(
            bs_crc32c(seed, $0.baseAddress, $0.count) == bs_crc32c_table(seed, $0.baseAddress, $0.count),
            "length \(length), start \(start)")
        }
      }
    }
  }

  @Test("goes on from the checksum of the bytes before")
  func continues() {
    var random = SplitMix64.announced()
    let bytes = random.bytes(60_000)
    let whole = CRC32C.checksum(bytes.span.bytes)
    var checksum: UInt32 = 0
    var start = 0
    for length in random.split(bytes.count, max: 20_000) {
      checksum = CRC32C.checksum(
        bytes.span.bytes.extracting(start..<start + length), continuing: checksum)
      start += length
    }
    #expect(checksum == whole)
  }

  @Test("of single bytes follows from the polynomial")
  func tableFollowsFromThePolynomial() {
    for byte in UInt8.min...UInt8.max {
      var remainder = ~UInt32(0) ^ UInt32(byte)
      for _ in 0..<8 { remainder = remainder >> 1 ^ (remainder & 1 == 0 ? 0 : 0x82F6_3B78) }
      #expect([byte].withUnsafeBytes { bs_crc32c_table(0, $0.baseAddress, 1) } == ~remainder)
    }
  }
}
