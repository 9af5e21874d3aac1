import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

/// A copy of a chunk stays in a pack after its base has been collected, because another copy counts.
@Suite("A copy whose base is gone", .serialized)
struct GoneBaseTests {
  /// A store with two copies of the value of "a": the first is encoded against a chunk that has been collected.
  private static func store() throws -> (place: StorePlace, value: [UInt8], base: BlobDigest) {
    let place = try StorePlace()
    var seed = SplitMix64(seed: 1)
    let first = seed.text(9_000)
    var value = first
    value.replaceSubrange(4_000..<4_010, with: Array("0123456789".utf8))
    let archiving = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    var engine = try place.engine()
    let base = try engine.put("a", first, archiving).version.digest
    try engine.close()
    engine = try place.engine()
    let digest = try engine.put("a", value, archiving).version.digest
    // So that the pack stays.
    _ = try engine.put("b", seed.bytes(200_000), archiving)
    try #require(try Self.row(digest, engine)?.base == base)
    try engine.close()
    engine = try place.engine()
    let session = engine.newSession()
    let alone = try engine.planner.encodeAlone(digest, value.span.bytes)
    let stored = alone.stored ?? value
    _ = try session.append(.chunk(alone.record), payload: stored.span.bytes)
    try session.rollOver()
    try #require(try Self.row(digest, engine)?.base == nil)
    _ = try engine.keep(upTo: 0, prefix: "", .durable)
    #expect(try engine.collectGarbage(GarbageCollectionOptions()).obstacles == [])
    try #require(try Self.row(base, engine) == nil && Self.basedCopyCount(engine) == 1)
    try engine.close()
    return (place, value, base)
  }

  private static func row(_ digest: BlobDigest, _ engine: Engine) throws -> ChunkRow? {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in try transaction.chunkRow(digest) }
  }

  /// Records of all packs that have a base.
  private static func basedCopyCount(_ engine: Engine) throws -> Int {
    var count = 0
    for (_, row) in try engine.catalog.packRows() {
      try engine.packs.scan(row.name) {
        if case .chunk(let chunk) = $0.content, chunk.base != nil { count += 1 }
      }
    }
    return count
  }

  /// Fails if a put counts on a pending chunk whose base it has not looked up. The put that has found the base has
  /// failed, and its lease is gone.
  @Test("is not shared while it is pending")
  func pending() throws {
    let place = try StorePlace()
    var seed = SplitMix64(seed: 2)
    let (first, value, stored) = (seed.text(3_000), seed.bytes(400), seed.bytes(100))
    let before = try place.engine()
    let base = try before.put("base", first).version.digest
    try before.close()
    let (engine, other) = (try place.engine(), try place.engine())
    let record = ChunkRecord(
      digest: BlobDigest.of(value), plainByteCount: value.count, codecNumber: CodecKind.zstd.rawValue,
      base: base)
    // It stays in the buffer, where a collection does not see it.
    _ = try engine.writer.append(.chunk(record), payload: stored.span.bytes)
    #expect(try other.delete(["base"], .relaxed) == 1)
    for _ in 0..<2 {
      let report = try other.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      #expect(report.obstacles == [])
    }
    try #require(try Self.row(base, other) == nil)
    #expect(try engine.put("k", value).newByteCount == 400)
    for engine in [engine, other] {
      #expect(try engine.data("k", nil) == Data(value))
      try engine.close()
    }
    try place.removeCatalog()
    let last = try place.engine()
    #expect(try last.data("k", nil) == Data(value))
    try last.close()
  }

  @Test("is garbage that recompression does not read")
  func recompression() throws {
    let (place, value, _) = try Self.store()
    let engine = try place.engine()
    #expect(try engine.collectGarbage(GarbageCollectionOptions(recompresses: true)).obstacles == [])
    #expect(try engine.data("a", nil) == Data(value))
    try engine.close()
  }

  @Test("gives way to the other copy when garbage is collected, should the catalog point at it")
  func collection() throws {
    let (place, value, base) = try Self.store()
    let engine = try place.engine()
    let digest = BlobDigest.of(Data(value), by: engine.header.digestAlgorithm)
    let row = try #require(try Self.row(digest, engine))
    var copy: ChunkRow?
    for (number, pack) in try engine.catalog.packRows() {
      var ordinal = 0
      try engine.packs.scan(pack.name) { record in
        if case .chunk(let chunk) = record.content, chunk.base != nil {
          copy = ChunkRow(
            place: Place(pack: number, offset: record.offset, ordinal: ordinal), record: chunk,
            storedByteCount: record.storedByteCount)
        }
        ordinal += 1
      }
    }
    try engine.catalog.write { [copy] (transaction) throws(BlobStorageError) in
      try transaction.setChunkRow(digest, copy, insteadOf: row)
    }
    try #require(try Self.row(digest, engine)?.base == base)
    #expect(try engine.collectGarbage(GarbageCollectionOptions()).obstacles == [])
    #expect(try Self.row(digest, engine)?.place == row.place)
    #expect(try engine.data("a", nil) == Data(value))
    try engine.close()
  }

  @Test("keeps gc from removing anything, should the catalog point at it and there be no other copy")
  func onlyCopy() throws {
    let place = try StorePlace()
    var engine = try place.engine()
    var seed = SplitMix64(seed: 1)
    let first = seed.text(9_000)
    let archiving = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    let base = try engine.put("a", first, archiving).version.digest
    _ = try engine.put("a", first.dropLast(10) + Array("0123456789".utf8), archiving)
    _ = try engine.put("c", seed.bytes(9_000), archiving)
    try engine.close()
    engine = try place.engine()
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.setChunkRow(base, nil, insteadOf: try transaction.chunkRow(base))
    }
    _ = try engine.delete(["c"], .relaxed)
    let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(report.obstacles.contains { $0.message.contains("\(base)") } && report.deletedPackCount == 0)
    try engine.close()
  }
}
