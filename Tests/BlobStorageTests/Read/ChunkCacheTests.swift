import BlobStorage
import Testing

@Suite("The cache of decoded chunks")
struct ChunkCacheTests {
  private func chunk(_ number: Int) -> (digest: BlobDigest, bytes: [UInt8]) {
    let bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 1_000 + number)
    return (BlobDigest.of(bytes, by: .blake3), bytes)
  }

  @Test("gives back what was put in, and never holds more than it may")
  func bounded() {
    let cache = ChunkCache(byteCountMax: 50_000)
    let chunks = (0..<200).map(chunk)
    for (count, added) in chunks.enumerated() {
      cache.insert(added.digest, added.bytes)
      #expect(cache.bytes(added.digest) == added.bytes)
      let held = chunks[...count].compactMap { cache.bytes($0.digest) }
      #expect(held.reduce(0) { $0 + $1.count } <= 50_000)
      #expect(held.allSatisfy { bytes in chunks.contains { $0.bytes == bytes } })
    }
    let held = chunks.compactMap { cache.bytes($0.digest) }.reduce(0) { $0 + $1.count }
    #expect(held > 40_000, "it uses what it may")
  }

  @Test("does not keep a chunk that would take more than half of it")
  func large() {
    let cache = ChunkCache(byteCountMax: 3_000)
    let (small, large) = (chunk(1), chunk(700))
    cache.insert(small.digest, small.bytes)
    cache.insert(large.digest, large.bytes)
    #expect(cache.bytes(large.digest) == nil)
    #expect(cache.bytes(small.digest) == small.bytes)
  }

  @Test("knows what is wanted for the second time")
  func wantedAgain() {
    let cache = ChunkCache(byteCountMax: 50_000)
    let (one, other) = (chunk(1).digest, chunk(2).digest)
    #expect(!cache.isWantedAgain(one))
    #expect(!cache.isWantedAgain(other))
    #expect(cache.isWantedAgain(one))
    #expect(cache.isWantedAgain(one))
  }

  @Test("has a good part of what is read in a circle that is a little longer than it")
  func circle() {
    let chunks = (0..<120).map(chunk)
    let byteCount = chunks.reduce(0) { $0 + $1.bytes.count }
    let cache = ChunkCache(byteCountMax: byteCount * 4 / 5)
    var hitCount = 0
    for round in 0..<10 {
      for chunk in chunks {
        if cache.bytes(chunk.digest) != nil {
          if round > 0 { hitCount += 1 }
        } else {
          cache.insert(chunk.digest, chunk.bytes)
        }
      }
    }
    // Dropping what was not used for longest would have none of them.
    #expect(hitCount > 9 * chunks.count / 2)
  }
}
