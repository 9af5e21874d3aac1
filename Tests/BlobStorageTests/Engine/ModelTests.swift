import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("A store", .serialized)
struct ModelTests {
  /// What a store should hold: for each key its versions, newest first.
  struct Model {
    var versions: [String: [(id: BlobVersion.ID, bytes: [UInt8])]] = [:]

    mutating func put(_ key: String, _ bytes: [UInt8], _ result: PutResult, archives: Bool) {
      var list = versions[key] ?? []
      if !archives, !list.isEmpty { list.removeFirst() }
      versions[key] = [(result.version.id, bytes)] + list
    }
  }

  static func check(_ engine: Engine, _ model: Model) throws {
    let keys = model.versions.filter { !$0.value.isEmpty }.keys.sorted {
      Array($0.utf8).lexicographicallyPrecedes(Array($1.utf8))
    }
    #expect(try engine.keys("", after: nil, limit: .max).map(\.key) == keys)
    for key in keys {
      let expected = model.versions[key] ?? []
      #expect(try engine.versions(key).map(\.id) == expected.map(\.id), "\(key)")
      for version in expected {
        #expect(try engine.data(key, version.id).map { [UInt8]($0) } == version.bytes, "\(key) \(version.id)")
      }
    }
  }

  /// What does not depend on how the files lie on the disk.
  private static func numbers(_ store: BlobStore) async throws -> StoreStatistics {
    var statistics = try await store.statistics()
    statistics.diskByteCount = 0
    return statistics
  }

  @Test(
    "holds what was put into it, whatever is put, dropped, kept, collected, reopened and rebuilt",
    arguments: 0..<3)
  func model(_ round: Int) async throws {
    var random = SplitMix64.announced()
    let place = try StorePlace(
      StoreOptions(digestAlgorithm: round == 1 ? .sha256 : .blake3, averageChunkByteCount: 1_024))
    var store = try await place.opened()
    var model = Model()
    let names = (0..<12).map { "key/\($0)" } + [String(repeating: "long", count: 300)]
    // Bytes that come again, whole and in part.
    let pool = (0..<6).map { _ in random.bytes(Int.random(in: 0...9_000, using: &random)) }
    func bytes() -> [UInt8] {
      var bytes = pool.randomElement(using: &random) ?? []
      if Bool.random(using: &random) { bytes += pool.randomElement(using: &random) ?? [] }
      if Bool.random(using: &random) {
        bytes += [UInt8](repeating: UInt8.random(in: 0...3, using: &random), count: 2_000)
      }
      return bytes
    }
    for step in 0..<160 {
      let engine = store.engine
      let key = names.randomElement(using: &random) ?? ""
      switch Int.random(in: 0..<20, using: &random) {
      case 0..<8:
        let archives = Bool.random(using: &random)
        let bytes = bytes()
        let result = try engine.put(
          key, bytes,
          PutOptions(
            durability: step % 16 == 0 ? .durable : .relaxed,
            replacement: archives ? .archiveCurrent : .replaceCurrent,
            codec: CodecKind.allCases.randomElement(using: &random)))
        model.put(key, bytes, result, archives: archives)
      case 8..<12:
        let items = (0..<Int.random(in: 1...8, using: &random)).map { _ in
          (key: names.randomElement(using: &random) ?? "", bytes: bytes())
        }
        let results = try engine.put(items.map { PutItem(key: $0.key, data: Data($0.bytes)) }, .relaxed)
        for (item, result) in zip(items, results) { model.put(item.key, item.bytes, result, archives: false) }
      case 12, 13:
        #expect(try engine.delete([key], .relaxed) == (model.versions[key]?.isEmpty == false ? 1 : 0))
        model.versions[key] = nil
      case 14:
        let count = Int.random(in: 0...2, using: &random)
        _ = try engine.keep(upTo: count, prefix: "", .relaxed)
        for name in names { model.versions[name] = model.versions[name].map { Array($0.prefix(count + 1)) } }
      case 15, 16:
        let plan = try await store.collectGarbage(
          GarbageCollectionOptions(isDryRun: true, minimumGarbageShare: 0.1))
        let before = try await Self.numbers(store)
        let report = try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.1))
        #expect(report.obstacles.isEmpty && plan.obstacles.isEmpty)
        let after = try await Self.numbers(store)
        // Bases may go; what versions need stays.
        #expect(
          after.uniqueByteCount == before.uniqueByteCount && after.plainByteCount == before.plainByteCount)
        #expect(after.chunkCount <= before.chunkCount)
        // What is stored anew without its base leaves garbage where it was, for later if that is little.
        #expect(after.garbageByteCount <= before.garbageByteCount || report.reencodedChunkCount > 0)
      case 17:
        try await store.close()
        store = try await place.opened()
      case 18:
        // A store that is not closed: its lock goes with the object.
        let other = try place.engine()
        let bytes = bytes()
        model.put(key, bytes, try other.put(key, bytes), archives: false)
        try other.close()
      default:
        let before = try await Self.numbers(store)
        let was = try contents(of: engine)
        try await store.close()
        try place.removeCatalog()
        store = try await place.opened()
        var after = try await Self.numbers(store)
        // Closing seals a pack, it adds none; the numbers are otherwise the same.
        after.packCount = before.packCount
        #expect(after == before, "step \(step)")
        #expect(try contents(of: store.engine) == was)
      }
      if step % 20 == 0 { try Self.check(store.engine, model) }
    }
    try Self.check(store.engine, model)
    let verification = try await store.verify()
    #expect(verification.damaged.isEmpty)
    try await store.close()
  }

  @Test("frees what was dropped, and is not rebuilt by that")
  func collection() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    var random = SplitMix64(seed: 1)
    for round in 0..<3 {
      // One pack with a version, another that replaces it, and a drop.
      _ = try store.engine.put("a", random.bytes(50_000))
      _ = try store.engine.put("a", random.bytes(50_000))
      _ = try store.engine.delete(["a"], .relaxed)
      _ = try store.engine.put("b", random.bytes(50_000))
      let generation = store.engine.catalog.generation
      let report = try await store.collectGarbage()
      #expect(report.freedByteCount > 100_000, "round \(round)")
      #expect(store.engine.catalog.generation == generation, "a damaged catalog is rebuilt")
      #expect(try await store.statistics().garbageByteCount < 1_000)
    }
    #expect(try store.engine.keys("", after: nil, limit: 9).map(\.key) == ["b"])
    try await store.close()
  }
}
