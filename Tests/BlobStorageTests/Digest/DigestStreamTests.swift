import BlobStorage
import BlobStorageTestSupport
import Testing

@Suite("A digest stream")
struct DigestStreamTests {
  @Test("gives the digest of all bytes, however they are divided", arguments: BlobDigest.Algorithm.allCases)
  func equalsOneShot(algorithm: BlobDigest.Algorithm) {
    var random = SplitMix64.announced()
    let bytes = random.bytes(1_200_000)
    let lengths = [0, 1, 1_024, 16_384, 16_385, 32_768, 262_144, 262_145, 524_288, bytes.count]
    for length in lengths {
      for max in [700, 20_000, 400_000] where length < 50_000 || max > 700 {
        var stream = DigestStream(algorithm)
        let span = bytes.span.bytes
        var start = 0
        for part in random.split(length, max: max) {
          stream.update(span.extracting(start..<start + part))
          start += part
        }
        let whole = BlobDigest.of(span.extracting(0..<length), by: algorithm)
        #expect(stream.finalize() == whole, "\(length)")
      }
    }
  }

  @Test(
    "is a value: a copy goes on by itself, and asking changes nothing",
    arguments: BlobDigest.Algorithm.allCases)
  func isAValue(algorithm: BlobDigest.Algorithm) {
    var stream = DigestStream(algorithm)
    stream.update(Array("one".utf8).span.bytes)
    var copy = stream
    copy.update(Array(" and two".utf8).span.bytes)
    #expect(stream.finalize() == BlobDigest.of(Array("one".utf8), by: algorithm))
    #expect(stream.finalize() == BlobDigest.of(Array("one".utf8), by: algorithm))
    #expect(copy.finalize() == BlobDigest.of(Array("one and two".utf8), by: algorithm))
  }
}
