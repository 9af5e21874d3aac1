import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("A store of similar documents", .serialized)
struct SimilarityModelTests {
  @Test(
    "holds what was put into it, whatever is put, edited, dropped, collected and rebuilt",
    arguments: BlobDigest.Algorithm.allCases)
  func model(_ algorithm: BlobDigest.Algorithm) throws {
    var random = SplitMix64.announced()
    let place = try StorePlace(StoreOptions(digestAlgorithm: algorithm, averageChunkByteCount: 4_096))
    var engine = try place.engine()
    var source = SampleDocuments(seed: random.next())
    var model = ModelTests.Model()
    func put(_ items: [(key: String, bytes: [UInt8])], archives: Bool) throws {
      let options = PutOptions(
        durability: .relaxed, replacement: archives ? .archiveCurrent : .replaceCurrent)
      let results =
        items.count == 1
        ? [try engine.put(items[0].key, items[0].bytes, options)]
        : try engine.put(items.map { PutItem(key: $0.key, data: Data($0.bytes)) }, options)
      for (item, result) in zip(items, results) {
        model.put(item.key, item.bytes, result, archives: archives)
      }
    }
    func names() -> [String] { model.versions.filter { !$0.value.isEmpty }.keys.sorted() }
    try put((0..<150).map { ("d/\($0)", source.next()) }, archives: false)
    for step in 0..<60 {
      switch Int.random(in: 0..<12, using: &random) {
      case 0, 1:
        let items = (0..<Int.random(in: 1...40, using: &random)).map { _ in
          (key: "d/\(Int.random(in: 0..<250, using: &random))", bytes: source.next())
        }
        try put(items, archives: Bool.random(using: &random))
      case 2..<6:
        // The next versions of some keys, of whatever version they are like.
        let archives = Int.random(in: 0..<4, using: &random) > 0
        for key in names().shuffled(using: &random).prefix(Int.random(in: 1...20, using: &random)) {
          guard let version = model.versions[key]?.randomElement(using: &random) else { continue }
          try put([(key, source.edited(version.bytes))], archives: archives)
        }
      case 6:
        let count = Int.random(in: 0...3, using: &random)
        _ = try engine.keep(upTo: count, prefix: "", .relaxed)
        for key in names() { model.versions[key] = Array((model.versions[key] ?? []).prefix(count + 1)) }
      case 7:
        let gone = Array(names().shuffled(using: &random).prefix(Int.random(in: 1...60, using: &random)))
        _ = try engine.delete(gone, .relaxed)
        for key in gone { model.versions[key] = nil }
      case 8, 9, 10:
        // Sealed, so that the plan knows all that the collection meets.
        try engine.close()
        engine = try place.engine()
        let share = Double.random(in: 0.01...0.4, using: &random)
        let plan = try engine.collectGarbage(
          GarbageCollectionOptions(isDryRun: true, minimumGarbageShare: share))
        let before = try engine.statistics()
        let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: share))
        #expect(report.obstacles.isEmpty)
        #expect(report.isAsPlanned(plan, refCount: before.versionCount), "step \(step)")
        let after = try engine.statistics()
        #expect(after.uniqueByteCount == before.uniqueByteCount, "step \(step)")
        #expect(after.plainByteCount == before.plainByteCount, "step \(step)")
      default:
        let before = try engine.statistics()
        try engine.close()
        try place.removeCatalog()
        engine = try place.engine()
        var after = try engine.statistics()
        (after.packCount, after.diskByteCount) = (before.packCount, before.diskByteCount)
        #expect(after == before, "step \(step)")
      }
      if step % 15 == 0 { try ModelTests.check(engine, model) }
    }
    try ModelTests.check(engine, model)
    #expect(try engine.verify().damaged.isEmpty)
    _ = try engine.collectGarbage(GarbageCollectionOptions(archivedVersionLimit: 0))
    for key in names() { model.versions[key] = Array((model.versions[key] ?? []).prefix(1)) }
    try ModelTests.check(engine, model)
    #expect(try engine.verify().damaged.isEmpty)
    try engine.close()
  }
}
