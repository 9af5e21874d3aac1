import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

/// What becomes of a plan when the store changes between the planning and the commit.
@Suite("A plan")
struct ChunkPlanTests {
  private struct SourceTrouble: Error {}

  private static let options = PutOptions.relaxed
  private static let archiving = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
  private static let everything = GarbageCollectionOptions(minimumGarbageShare: 0)

  private static func item(
    _ engine: Engine, _ key: String, _ bytes: [UInt8], _ options: PutOptions = options
  ) throws -> MemoryPut.Item {
    try engine.memoryPut.prepare(Array(key.utf8), Data(bytes), options)
  }

  private static func remove(_ engine: Engine, _ key: String) throws {
    #expect(try engine.delete([key], .relaxed) == 1)
    #expect(try engine.collectGarbage(everything).deletedChunkCount > 0)
  }

  /// - Parameter byteCount: of one chunk that nothing needs to cut, of one that is looked through, and of many.
  @Test(
    "names the chunks in order, encodes those that the store lacks, and no others",
    arguments: [0, 1, 300, 16_384, 20_000, 900_000])
  func lookUp(byteCount: Int) throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: UInt64(byteCount))
    let bytes = seed.text(byteCount)
    let new = try Self.item(engine, "a", bytes)
    let algorithm = engine.header.digestAlgorithm
    #expect(new.plan.digest == BlobDigest.of(bytes, by: algorithm) && new.plan.byteCount == byteCount)
    #expect((new.plan.chunks.count == 1) == (byteCount <= 20_000))
    var end = 0
    for chunk in new.plan.chunks {
      #expect(chunk.range.lowerBound == end)
      #expect(chunk.digest == BlobDigest.of(Array(bytes[chunk.range]), by: algorithm))
      #expect(chunk.encoded?.record.digest == chunk.digest)
      #expect(chunk.encoded?.record.plainByteCount == chunk.range.count)
      end = chunk.range.upperBound
    }
    #expect(end == byteCount)
    let stored = try engine.memoryPut.commit([new]).0[0]
    #expect(stored.newByteCount == Int64(byteCount))
    let known = try Self.item(engine, "b", bytes)
    #expect(known.plan.chunks.allSatisfy { $0.encoded == nil })
    #expect(known.plan.chunks.map(\.digest) == new.plan.chunks.map(\.digest))
    #expect(try engine.data("a", nil) == Data(bytes))
    guard byteCount > 100_000 else { return try engine.close() }
    let changed = Array(bytes.dropLast(10)) + seed.text(500)
    let partly = try Self.item(engine, "c", changed).plan
    #expect(partly.chunks.first?.encoded == nil && partly.chunks.last?.encoded != nil)
    try engine.close()
  }

  @Test("stores what it found and what is gone by now", arguments: [9_000, 400_000])
  func gone(byteCount: Int) throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 1)
    let bytes = seed.text(byteCount)
    _ = try engine.put("old", bytes)
    let item = try Self.item(engine, "new", bytes)
    #expect(item.plan.chunks.allSatisfy { $0.encoded == nil })
    try Self.remove(engine, "old")
    #expect(try engine.memoryPut.commit([item]).0[0].newByteCount == Int64(byteCount))
    #expect(try engine.data("new", nil) == Data(bytes))
    #expect(try engine.verify().damaged.isEmpty)
    try engine.close()
  }

  @Test("does without a base that is gone by now", arguments: [9_000, 400_000])
  func baseGone(byteCount: Int) throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 2)
    var bytes = seed.text(byteCount)
    _ = try engine.put("k", bytes)
    for offset in stride(from: 100, to: byteCount, by: 4_000) { bytes[offset] ^= 1 }
    let item = try Self.item(engine, "k", bytes, Self.archiving)
    let basedCount = item.plan.chunks.count { $0.encoded?.record.base != nil }
    #expect(basedCount > 0)
    // A plan that nothing has come between stays as it is.
    let other = try Self.item(engine, "other", bytes)
    #expect(other.plan.chunks.contains { $0.encoded?.record.base != nil })
    try Self.remove(engine, "k")
    #expect(try engine.memoryPut.commit([item]).0[0].newByteCount == Int64(byteCount))
    #expect(try BlobInformation.find(engine, "k", nil)?.basedChunkCount == 0)
    #expect(try engine.data("k", nil) == Data(bytes))
    #expect(try engine.verify().damaged.isEmpty)
    try engine.close()
  }

  @Test("uses its base when it is still there")
  func baseThere() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 3)
    var bytes = seed.text(9_000)
    _ = try engine.put("k", bytes)
    bytes[100] ^= 1
    _ = try engine.memoryPut.commit([Self.item(engine, "k", bytes, Self.archiving)])
    #expect(try BlobInformation.find(engine, "k", nil)?.basedChunkCount == 1)
    #expect(try engine.data("k", nil) == Data(bytes))
    try engine.close()
  }

  @Test(
    "stores no chunk twice that another plan stores in the same commit or before",
    arguments: [9_000, 400_000])
  func twice(byteCount: Int) throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 4)
    let bytes = seed.text(byteCount)
    let items = try ["a", "b", "c"].map { try Self.item(engine, $0, bytes) }
    #expect(items.allSatisfy { item in item.plan.chunks.allSatisfy { $0.encoded != nil } })
    #expect(try engine.memoryPut.commit(Array(items[..<2])).0.map(\.newByteCount) == [Int64(byteCount), 0])
    #expect(try engine.memoryPut.commit([items[2]]).0.map(\.newByteCount) == [0])
    #expect(try engine.statistics().uniqueByteCount == Int64(byteCount))
    for key in ["a", "b", "c"] { #expect(try engine.data(key, nil) == Data(bytes)) }
    try engine.close()
  }

  @Test("never needs more room than it says", arguments: [0, 9_000, 400_000])
  func room(byteCount: Int) throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 5)
    for bytes in [seed.text(byteCount), seed.bytes(byteCount)] {
      let item = try Self.item(engine, "k", bytes)
      let stored = try engine.memoryPut.commit([item]).0[0].storedByteCount
      #expect(stored <= Int64(item.packByteCountMax))
    }
    try engine.close()
  }

  /// The put of a small image looks nothing up before its commit.
  @Test("of a small image shares what another process has stored and not synced")
  func unsynced() throws {
    let pair = try Pair(options: StoreOptions())
    var seed = SplitMix64(seed: 7)
    let image = Data([0xff, 0xd8, 0xff, 0xe0] + seed.bytes(9_000))
    let plan = try pair.two.memoryPut.prepare(Array("c".utf8), image, Self.options, looksUp: false).plan
    #expect(try pair.one.put("a", .data(image), Self.options).newByteCount == Int64(image.count))
    // It is there, and the plan does not know.
    #expect(plan.chunks.count == 1 && plan.chunks.first?.encoded != nil)
    #expect(try pair.two.put("b", .data(image), Self.options).newByteCount == 0)
    #expect(try pair.one.put("d", .data(image), Self.options).newByteCount == 0)
    #expect(try pair.one.statistics().uniqueByteCount == Int64(image.count))
    for key in ["a", "b", "d"] { #expect(try pair.two.data(key, nil) == image) }
    try pair.close()
  }

  @Test("of a put that streams in and fails keeps nothing from being collected")
  func failedStream() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 6)
    let bytes = seed.bytes(6 << 20)
    _ = try engine.put("old", .data(Data(bytes)), .relaxed)
    let rest = Mutex(Data(bytes))
    let failed = failure {
      _ = try engine.put(
        "new",
        .stream({
          let part = rest.withLock { rest in
            defer { rest = Data(rest.dropFirst(1 << 20)) }
            return Data(rest.prefix(1 << 20))
          }
          if part.isEmpty { throw SourceTrouble() }
          return part
        }), Self.options)
    }
    #expect(failed?.code == .sourceFailed)
    let chunkCount = try engine.statistics().chunkCount
    #expect(try engine.delete(["old"], .relaxed) == 1)
    #expect(try engine.collectGarbage(Self.everything).deletedChunkCount == chunkCount)
    try engine.close()
  }
}
