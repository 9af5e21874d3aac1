import BlobStorage
import BlobStorageTestSupport
import Foundation
import Testing

@Suite("A trained dictionary", .serialized)
struct DictionaryTests {
  /// A store of small documents that differ, in a pack that is sealed.
  static func documents(
    _ count: Int = 400, seed: UInt64 = 1, _ options: StoreOptions = StoreOptions()
  ) throws -> (place: StorePlace, documents: [[UInt8]]) {
    let place = try StorePlace(options)
    let engine = try place.engine()
    var source = SampleDocuments(seed: seed)
    let documents = (0..<count).map { _ in source.next() }
    for start in stride(from: 0, to: count, by: 50) {
      let items = documents[start..<min(start + 50, count)].enumerated().map { index, bytes in
        PutItem(key: "d/\(start + index)", data: Data(bytes))
      }
      _ = try engine.put(items, .relaxed)
    }
    try engine.close()
    return (place, documents)
  }

  static func check(_ engine: Engine, _ documents: [[UInt8]]) throws {
    for (index, bytes) in documents.enumerated() {
      let data = try engine.data("d/\(index)", nil)
      #expect(data.map { [UInt8]($0) } == bytes, "d/\(index)")
    }
  }

  @Test("is worth it only if it saves a tenth, the bytes that name it included")
  func pays() {
    let named = 900 - DictionaryPolicy.refByteCount
    #expect(DictionaryPolicy.pays(storedByteCount: named, aloneByteCount: 1_000))
    #expect(!DictionaryPolicy.pays(storedByteCount: named + 1, aloneByteCount: 1_000))
    #expect(DictionaryPolicy.refByteCount == 32)
  }

  @Test("is made by a collection, makes small documents smaller, and says what it does beforehand")
  func training() throws {
    let (place, documents) = try Self.documents()
    let engine = try place.engine()
    let before = try engine.statistics()
    let plan = try engine.collectGarbage(CollectionOptions(isDryRun: true))
    #expect(plan.addedDictionaryCount == 1)
    let untouched = try engine.statistics()
    #expect(untouched == before, "a dry run writes nothing")
    let report = try engine.collectGarbage()
    #expect(report.isAsPlanned(plan, refCount: before.versionCount))
    let after = try engine.statistics()
    #expect(after.dictionaryCount == 1 && before.dictionaryCount == 0)
    #expect(after.dictionaryByteCount > 0 && after.dictionaryByteCount <= after.baseByteCount)
    #expect(after.dictionaryChunkCount > 350)
    #expect(Double(after.storedByteCount) < Double(before.storedByteCount) * 0.75)
    #expect(after.uniqueByteCount == before.uniqueByteCount)
    #expect(after.garbageByteCount == 0)
    #expect(after.similaritySavedByteCount > before.storedByteCount - after.storedByteCount)
    let information = try #require(try BlobInformation.find(engine, "d/7", nil))
    #expect(information.dictionaryChunkCount == 1 && information.basedChunkCount == 1)
    try Self.check(engine, documents)
    #expect(try engine.verify().damaged.isEmpty)
    // Once is enough.
    let again = try engine.collectGarbage()
    #expect(again.addedDictionaryCount == 0 && again.dictionaryChunkCount == 0 && again.freedByteCount == 0)
    try engine.close()
    try place.removeCatalog()
    let rebuilt = try place.engine()
    var numbers = try rebuilt.statistics()
    numbers.diskByteCount = after.diskByteCount
    var expected = after
    expected.packCount = numbers.packCount
    #expect(numbers == expected)
    try Self.check(rebuilt, documents)
    try rebuilt.close()
  }

  @Test("is used by puts, also after the catalog has been rebuilt", arguments: [false, true])
  func puts(rebuilds: Bool) throws {
    let (place, documents) = try Self.documents()
    var engine = try place.engine()
    _ = try engine.collectGarbage()
    try engine.close()
    if rebuilds { try place.removeCatalog() }
    engine = try place.engine()
    var source = SampleDocuments(seed: 1)
    for _ in documents { _ = source.next() }
    let others = (0..<100).map { _ in source.next() }
    for (index, bytes) in others.enumerated() {
      try Way.allCases[index % 3].put(engine, "d/\(documents.count + index)", bytes, place)
    }
    #expect(try engine.statistics().dictionaryChunkCount > documents.count + 80)
    try Self.check(engine, documents + others)
    // What has no use for it is stored without.
    var seed = SplitMix64(seed: 3)
    _ = try engine.put("noise", seed.bytes(2_000))
    _ = try engine.put("long", seed.text(40_000))
    for key in ["noise", "long"] {
      #expect(try BlobInformation.find(engine, key, nil)?.dictionaryChunkCount == 0, "\(key)")
    }
    try engine.close()
  }

  @Test("gives way to bases when a key gets more versions, which take no more than without one")
  func versions() throws {
    let (place, documents) = try Self.documents()
    let other = try Self.documents().place
    let engine = try place.engine()
    let without = try other.engine()
    _ = try engine.collectGarbage()
    #expect(try BlobInformation.find(engine, "d/0", nil)?.dictionaryChunkCount == 1)
    var random = SampleDocuments(seed: 9)
    for index in 0..<60 {
      var bytes = documents[index]
      for _ in 0..<3 {
        bytes = random.edited(bytes)
        for engine in [engine, without] {
          _ = try engine.put(
            "d/\(index)", bytes, PutOptions(durability: .relaxed, replacement: .archiveCurrent))
        }
      }
    }
    // A replaced document goes: the next one has nothing to be a base of.
    _ = try engine.put("d/70", random.edited(documents[70]))
    #expect(try BlobInformation.find(engine, "d/70", nil)?.basedChunkCount == 1)
    _ = try without.put("d/70", random.edited(documents[70]))
    func storedByteCount(_ engine: Engine, _ index: Int) throws -> Int64 {
      try engine.versions("d/\(index)").reduce(0) { sum, version in
        sum + (try BlobInformation.find(engine, "d/\(index)", version.id)?.storedByteCount ?? 0)
      }
    }
    for index in [0, 17, 59] {
      #expect(
        try storedByteCount(engine, index) <= storedByteCount(without, index) + 40, "d/\(index)")
    }
    #expect(try engine.statistics().storedByteCount < without.statistics().storedByteCount)
    #expect(try engine.verify().damaged.isEmpty)
    _ = try engine.collectGarbage()
    #expect(try engine.verify().damaged.isEmpty)
    try engine.close()
    try without.close()
  }

  @Test("goes when few documents are left that need it")
  func tail() throws {
    let (place, documents) = try Self.documents()
    let engine = try place.engine()
    _ = try engine.collectGarbage()
    #expect(try engine.statistics().dictionaryCount == 1)
    _ = try engine.delete((0..<396).map { "d/\($0)" }, .relaxed)
    let plan = try engine.collectGarbage(CollectionOptions(isDryRun: true))
    let report = try engine.collectGarbage()
    #expect(report.reencodedChunkCount == 4)
    #expect(report.isAsPlanned(plan, refCount: 400))
    var statistics = try engine.statistics()
    #expect(statistics.dictionaryCount == 0 && statistics.baseByteCount == 0)
    // What said that the others are gone goes only after them.
    _ = try engine.collectGarbage()
    statistics = try engine.statistics()
    #expect(statistics.dictionaryCount == 0 && statistics.garbageByteCount == 0)
    #expect(try engine.data("d/399", nil).map { [UInt8]($0) } == documents[399])
    #expect(try engine.verify().damaged.isEmpty)
    try engine.close()
  }

  @Test("is not made where it does not pay", arguments: ["few", "noise", "strange", "off"])
  func notWorthIt(_ kind: String) throws {
    let options = StoreOptions(usesSimilarity: kind != "off")
    let place = try Self.documents(kind == "off" ? 400 : 40, options).place
    let engine = try place.engine()
    var seed = SplitMix64(seed: 5)
    if kind == "noise" || kind == "strange" {
      for index in 0..<300 {
        // Each compresses by itself, and has nothing in common with the others.
        let part = seed.bytes(400)
        _ = try engine.put("n/\(index)", kind == "noise" ? seed.bytes(900) : part + part)
      }
    }
    try engine.close()
    let again = try place.engine()
    let before = try again.statistics()
    let report = try again.collectGarbage()
    #expect(report.addedDictionaryCount == 0 && report.dictionaryChunkCount == 0)
    #expect(try again.statistics().storedByteCount == before.storedByteCount)
    try again.close()
  }

  @Test("never makes chunks that others are encoded against unreadable")
  func bases() throws {
    let (place, documents) = try Self.documents()
    var engine = try place.engine()
    var random = SampleDocuments(seed: 4)
    var versions: [[UInt8]] = []
    for index in 0..<200 {
      versions.append(random.edited(documents[index]))
      _ = try engine.put(
        "d/\(index)", versions[index], PutOptions(durability: .relaxed, replacement: .archiveCurrent))
    }
    try engine.close()
    engine = try place.engine()
    let report = try engine.collectGarbage(CollectionOptions(garbageShareMin: 0.01))
    #expect(report.dictionaryChunkCount > 150 && report.dictionaryChunkCount <= 200)
    try Self.check(engine, versions + documents[200...])
    #expect(try engine.verify().damaged.isEmpty)
    try engine.close()
  }
}
