import BlobStorage
import BlobStorageTestSupport
import Testing

@Suite("A cache of packs' ranges")
struct RangeCacheTests {
  @Test("makes room by removing what was used longest ago")
  func order() throws {
    let temporary = try TemporaryFolder()
    let cache = RangeCache(folder: temporary.path, files: SystemFiles(), byteCountMax: 1 << 20)
    let block = [UInt8](repeating: 7, count: RangeCache.blockByteCount)
    let packs = (1...24).map { PackName(writer: 1, sequence: $0) }
    for pack in packs {
      block.withUnsafeBytes { cache.store(pack, 0..<1, $0) }
      // The first is the one that is used.
      #expect(cache.missing(packs[0], 0..<1) == nil)
    }
    let kept = packs.indices.filter { cache.missing(packs[$0], 0..<1) == nil }
    #expect(kept.count > 6 && kept.count < 16)
    #expect(kept == [0] + Array((packs.count - kept.count + 1)..<packs.count))
  }
}
