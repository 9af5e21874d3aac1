import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// What statistics, reports and searches say, against numbers that are known beforehand.
@Suite("Numbers of a store")
struct ReportNumbersTests {
  private static let archiving = PutOptions(durability: .relaxed, replacement: .archiveCurrent)

  /// Writes a sealed pack of these records into a store, as some other program would.
  private static func plant(
    _ place: StorePlace, _ sequence: UInt32, created: UInt64, _ records: [SampleRecord]
  ) throws -> PackName {
    let folder = StoreFolder(FilePath(place.path), files: SystemFiles())
    let name = PackName(writer: 0xbad, sequence: sequence)
    let header = PackHeader(
      name: name, storeID: try folder.readHeader().storeID, digestAlgorithm: .blake3, created: created)
    let writer = try PackWriter(
      header: header,
      backend: FolderBackend(folder: folder.packs, asideFolder: folder.aside, files: SystemFiles()),
      codecs: CodecPool())
    for record in records {
      _ = try writer.append(record.content, payload: record.payload.span.bytes)
    }
    try writer.seal()
    writer.file.close()
    return name
  }

  /// A version that was put at that time.
  private static func ref(
    _ key: String, _ number: UInt64, _ digest: BlobDigest, byteCount: Int64, created: UInt64
  ) -> SampleRecord {
    SampleRecord(
      content: .ref(
        RefRecord(
          key: Array(key.utf8), version: Stamp(time: 1 << 41 + number, writer: 1), replaced: .none,
          digest: digest, byteCount: byteCount, created: created, metadata: [])))
  }

  // MARK: Statistics

  @Test("say what the store contains, and what each way of saving has saved")
  func statistics() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 1)
    let noise = seed.bytes(5_000)
    let text = seed.text(9_000)
    var edited = text
    edited.replaceSubrange(4_000..<4_010, with: Array("0123456789".utf8))
    for key in ["a", "b"] { _ = try engine.put(key, noise) }
    _ = try engine.put("t", text, Self.archiving)

    var numbers = try engine.statistics()
    #expect(numbers.keyCount == 3 && numbers.versionCount == 3)
    #expect(numbers.blobCount == 2 && numbers.chunkCount == 2)
    #expect(numbers.plainByteCount == 19_000 && numbers.uniqueByteCount == 14_000)
    #expect(numbers.deduplicationSavedByteCount == 5_000)
    #expect(5_100..<12_000 ~= numbers.storedByteCount)
    #expect(numbers.codecSavedByteCount == 14_000 - numbers.storedByteCount)
    #expect(numbers.similaritySavedByteCount == 0 && numbers.baseByteCount == 0)
    #expect(numbers.garbageByteCount == 0 && numbers.usesSimilarity)

    // A second version, encoded against the first.
    let before = numbers
    let put = try engine.put("t", edited, Self.archiving)
    #expect(try BlobInformation.find(engine, "t", nil)?.basedChunkCount == 1)
    numbers = try engine.statistics()
    #expect(numbers.keyCount == 3 && numbers.versionCount == 4 && numbers.chunkCount == 3)
    #expect(numbers.plainByteCount == 28_000 && numbers.uniqueByteCount == 23_000)
    #expect(numbers.similaritySavedByteCount > 1_000 && numbers.baseByteCount == 0)
    #expect(numbers.codecSavedByteCount > before.codecSavedByteCount)
    #expect(
      numbers.codecSavedByteCount + numbers.similaritySavedByteCount == 23_000 - numbers.storedByteCount)
    let information = try #require(try BlobInformation.find(engine, "t", put.version.id))
    #expect(information.chunkCount == 1 && information.codecs.values.reduce(0, +) == 1)
    #expect(information.storedByteCount == numbers.storedByteCount - before.storedByteCount)
    #expect(information.exclusiveByteCount == information.storedByteCount)

    // The first goes and stays as what the second is encoded against.
    _ = try engine.keep(upTo: 0, keys: ["t"], .relaxed)
    let kept = try engine.statistics()
    #expect(kept.versionCount == 3 && kept.blobCount == 2 && kept.chunkCount == 3)
    #expect(kept.plainByteCount == 19_000 && kept.uniqueByteCount == 14_000)
    #expect(kept.storedByteCount == numbers.storedByteCount)
    #expect(kept.baseByteCount == before.storedByteCount - 5_000)
    #expect(kept.deduplicationSavedByteCount == 5_000 && kept.garbageByteCount > 0)
    // Dropping the second would free its base, too.
    let last = try #require(try BlobInformation.find(engine, "t", nil))
    #expect(last.storedByteCount == information.storedByteCount)
    #expect(last.exclusiveByteCount == last.storedByteCount + kept.baseByteCount)

    let verified = try engine.verify()
    #expect(verified.blobCount == 2 && verified.chunkCount == 3 && verified.byteCount == 23_000)
    let quick = try engine.verify(.structure)
    #expect(quick.blobCount == 2 && quick.chunkCount == 3 && quick.byteCount == 0)
    try engine.close()
  }

  @Test("do not take what is put meanwhile for garbage")
  func putMeanwhile() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    try await store.set("k", to: Data("first".utf8))
    let other = try place.engine()
    var seed = SplitMix64(seed: 3)
    let bytes = seed.bytes(100_000)
    let isPut = Mutex(false)
    let statistics = try await store.statistics { progress in
      // All keys are marked, and this one comes before them.
      guard progress.doneCount > 0, !isPut.withLock({ $0 }) else { return }
      isPut.withLock { $0 = true }
      do { _ = try other.put("a", bytes) } catch { Issue.record(error) }
    }
    #expect(isPut.withLock { $0 })
    #expect(statistics.keyCount == 1 && statistics.garbageByteCount == 0)
    try other.close()
    try await store.close()
  }

  @Test("of a version count as its own what no other version needs, of its key or of others")
  func exclusive() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 2)
    let contents = [seed.bytes(5_000), seed.bytes(4_000)]
    // The third is the first again.
    for number in [0, 1, 0] { _ = try engine.put("k", contents[number], Self.archiving) }
    let versions = try engine.versions("k")
    #expect(versions.count == 3)
    let exclusive = try versions.map { version in
      try BlobInformation.find(engine, "k", version.id)?.exclusiveByteCount
    }
    #expect(exclusive == [0, 4_000, 0])
    _ = try engine.put("other", contents[1])
    let shared = try BlobInformation.find(engine, "k", versions[1].id)?.exclusiveByteCount
    #expect(shared == 0)
    try engine.close()
  }

  @Test("of a version that is replaced and collected meanwhile are those of the next")
  func replacedMeanwhile() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    _ = try engine.put("k", Array("first".utf8))
    var isReplaced = false
    let information = try BlobInformation.find(engine, "k", nil) { _ in
      if isReplaced { return }
      isReplaced = true
      do {
        _ = try engine.put("k", Array("second".utf8))
        _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        #expect(try !engine.contains(BlobDigest.of(Array("first".utf8))))
      } catch { Issue.record(error) }
    }
    #expect(information?.version.digest == BlobDigest.of(Array("second".utf8)))
    try engine.close()
  }

  @Test("of a version say what is shared, also if gc moves it meanwhile")
  func sharedAndMoved() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    let shared = Array("shared".utf8)
    for key in ["k", "other"] { _ = try engine.put(key, shared) }
    _ = try engine.put("gone", Array("gone".utf8))
    func chunkPlace() throws -> Place? {
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.place(ofBlob: BlobDigest.of(shared))
      }
    }
    var isMoved = false
    let information = try BlobInformation.find(engine, "k", nil) { _ in
      if isMoved { return }
      isMoved = true
      do {
        let before = try chunkPlace()
        _ = try engine.delete(["gone"], .relaxed)
        _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        #expect(try chunkPlace() != before)
      } catch { Issue.record(error) }
    }
    #expect(isMoved && information?.exclusiveByteCount == 0)
    try engine.close()
  }

  // MARK: Bases

  @Test("a base that only its dependants need goes when they save less than it takes", arguments: [1, 2])
  func base(dependantCount: Int) throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 1)
    var bytes = [seed.text(9_000)]
    for number in 1...dependantCount {
      var edited = bytes[0]
      edited.replaceSubrange(2_000 * number..<2_000 * number + 10, with: Array("0123456789".utf8))
      bytes.append(edited)
    }
    for content in bytes { _ = try engine.put("k", content, Self.archiving) }
    _ = try engine.keep(upTo: dependantCount - 1, keys: ["k"], .relaxed)
    func recordByteCount() throws -> Int64 {
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.packRows().reduce(0) { $0 + $1.row.appliedByteCount - Int64(PackHeader.byteCount) }
      }
    }
    let before = try recordByteCount()
    let statistics = try engine.statistics()
    #expect(statistics.baseByteCount > 0 && statistics.versionCount == dependantCount)
    let plan = try engine.collectGarbage(GarbageCollectionOptions(isDryRun: true))
    let report = try engine.collectGarbage()
    #expect(report.obstacles == [])
    #expect(report.reencodedChunkCount == (dependantCount == 1 ? 1 : 0))
    #expect(plan.reencodedChunkCount == report.reencodedChunkCount)
    #expect(try report.freedByteCount == before - recordByteCount())
    let after = try engine.statistics()
    #expect((after.baseByteCount == 0) == (dependantCount == 1))
    #expect(report.garbageByteCount == after.garbageByteCount)
    let information = try #require(try BlobInformation.find(engine, "k", nil))
    #expect(information.basedChunkCount == (dependantCount == 1 ? 0 : 1))
    let versions = try engine.versions("k")
    for (version, content) in zip(versions, bytes.reversed()) {
      #expect(try engine.data("k", version.id) == Data(content))
    }
    #expect(try engine.verify().damaged == [])
    try engine.close()
  }

  // MARK: Reports

  @Test("a report has versions in the spans in which they were put, and the most first")
  func report() async throws {
    let place = try StorePlace()
    var seed = SplitMix64(seed: 1)
    let text = seed.text(9_000)
    let noise = seed.bytes(300)
    let encoded = try ChunkEncoder().encoded(text, by: .zstd)
    let (long, short) = (BlobDigest.of(text), BlobDigest.of(noise))
    let chunk = SampleRecord(
      content: .chunk(ChunkRecord(digest: long, plainByteCount: 9_000, codecNumber: encoded.kind.rawValue)),
      payload: encoded.bytes)
    // Each span is a second long.
    let start: UInt64 = 1_600_000_000_000
    let now = UInt64(Date().timeIntervalSince1970 * 1_000)
    let younger = try Self.plant(
      place, 1, created: (now + 2_000) << 16,
      [
        chunk, Self.ref("multi", 1, long, byteCount: 9_000, created: start),
        Self.ref("multi", 2, long, byteCount: 9_000, created: start + 999),
        Self.ref("multi", 3, long, byteCount: 9_000, created: start + 1_500),
      ])
    let elder = try Self.plant(
      place, 2, created: (now + 1_000) << 16,
      [
        .chunk(noise), Self.ref("single", 4, short, byteCount: 300, created: start + 48_000),
        Self.ref("twice", 5, short, byteCount: 300, created: start + 47_900),
        Self.ref("twice", 6, short, byteCount: 300, created: start + 48_000),
      ])
    let store = try await place.opened()
    let report = try await store.report()
    #expect(report.history.count == 48)
    for (index, span) in report.history.enumerated() {
      let (count, byteCount): (Int, Int64) =
        switch index {
        case 0: (2, 18_000)
        case 1: (1, 9_000)
        case 47: (3, 900)
        default: (0, 0)
        }
      #expect(span.versionCount == count && span.byteCount == byteCount, "\(index)")
      let begin = Double(start) / 1_000 + Double(index)
      #expect(abs(span.start.timeIntervalSince1970 - begin) < 0.001, "\(index)")
      #expect(abs(span.end.timeIntervalSince1970 - begin - 1) < 0.001, "\(index)")
    }
    #expect(report.busiestKeys.map(\.key) == ["multi", "twice"])
    #expect(report.busiestKeys.map(\.versionCount) == [3, 2])
    #expect(report.largestKeys.map(\.key).first == "multi" && report.largestKeys.count == 3)
    #expect(report.largestKeys.map(\.exclusiveByteCount) == [Int64(encoded.bytes.count), 0, 0])
    #expect(report.largestKeys.first?.byteCount == 27_000)
    #expect(report.codecs.map(\.chunkCount) == [1, 1])
    #expect(report.codecs.map(\.plainByteCount) == [9_000, 300])
    #expect(report.codecs.map(\.storedByteCount) == [Int64(encoded.bytes.count), 300])
    #expect(report.packs.map(\.name) == [elder.description, younger.description])
    #expect(report.packs.allSatisfy { $0.isSealed && $0.liveByteCount == $0.byteCount })
    #expect(report.unreadable == [])
    try await store.close()
  }

  @Test("a report of one moment has one span")
  func moment() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let empty = try await store.report()
    #expect(empty.history == [] && empty.busiestKeys == [] && empty.codecs == [])
    try await store.set("a", to: Data([1, 2, 3]))
    let report = try await store.report()
    #expect(report.history.map(\.versionCount) == [1] && report.history.map(\.byteCount) == [3])
    #expect(report.history.first?.start == report.history.first?.end)
    try await store.close()
  }

  // MARK: Searches

  @Test("a search for the holders of a blob looks at all keys, however many")
  func manyKeys() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let (shared, own) = (Data("shared".utf8), Data("own".utf8))
    var items = (0..<4_200).map { PutItem(key: "k\($0)", data: shared) }
    items.append(PutItem(key: "z", data: own))
    try await store.put(items, options: .relaxed)
    let last = try #require(try await store.usage(of: .digest(.of(own))))
    #expect(last.kind == .blob && last.holders.map(\.version.key) == ["z"])
    let all = try #require(try await store.usage(of: .digest(.of(shared)), limit: 7))
    #expect(all.holderCount == 4_200 && all.holders.count == 7 && all.sharerCount == 0)
    #expect(all.chunkCount == 1 && all.exclusiveByteCount == all.storedByteCount)
    let one = try #require(try await store.usage(of: .key("k5"), limit: 7))
    #expect(one.sharerCount == 4_199 && one.sharers.count == 7 && one.exclusiveByteCount == 0)
    #expect(one.sharers.allSatisfy { $0.sharedByteCount == one.storedByteCount })
    try await store.close()
  }

  @Test("a search counts all chunks of a long blob, its lists included, and each once")
  func manyChunks() async throws {
    let place = try StorePlace()
    var records: [SampleRecord] = []
    var lists = ByteWriter()
    var storedByteCount = 0
    for part in 0..<3 {
      var list = ByteWriter()
      for number in part * 2_000..<(part + 1) * 2_000 {
        let record = SampleRecord.chunk(withUnsafeBytes(of: number) { Array($0) })
        ChunkEntry(digest: BlobDigest.of(record.payload), plainByteCount: 8).encode(into: &list)
        records.append(record)
        storedByteCount += 8
      }
      let entry = ListEntry(digest: BlobDigest.of(list.bytes), chunkCount: 2_000, spanByteCount: 16_000)
      // The last is named twice.
      for _ in 0..<(part == 2 ? 2 : 1) { entry.encode(into: &lists) }
      records.append(.chunk(list.bytes))
      storedByteCount += list.bytes.count
    }
    let blob = BlobDigest.of(Array("long".utf8))
    let manifest = ManifestRecord(
      digest: blob, byteCount: 64_000, chunkCount: 8_000, depth: 1, listedCount: 4)
    records.append(SampleRecord(content: .manifest(manifest), payload: lists.bytes))
    records.append(Self.ref("long", 1, blob, byteCount: 64_000, created: 1_600_000_000_000))
    _ = try Self.plant(place, 1, created: 1 << 40, records)
    let store = try await place.opened()
    for subject in [BlobUsage.Subject.key("long"), .digest(blob)] {
      let usage = try #require(try await store.usage(of: subject))
      #expect(usage.chunkCount == 6_003 && usage.storedByteCount == Int64(storedByteCount))
      #expect(usage.exclusiveByteCount == usage.storedByteCount && usage.byteCount == 64_000)
      #expect(usage.holders.map(\.version.key) == ["long"])
    }
    let report = try await store.report()
    #expect(report.largestKeys.map(\.exclusiveByteCount) == [Int64(storedByteCount)])
    #expect(report.codecs.map(\.chunkCount) == [6_003])
    try await store.close()
  }

  @Test("what an archived version cannot be followed to is reported beside all numbers")
  func notFollowed() async throws {
    let place = try StorePlace(StoreOptions(usesSimilarity: false))
    let (there, absent) = (Array("there".utf8), BlobDigest.of(Array("a list that is not there".utf8)))
    let gone = BlobDigest.of(Array("a blob that is not there".utf8))
    var lists = ByteWriter()
    ListEntry(digest: absent, chunkCount: 5, spanByteCount: 100).encode(into: &lists)
    let blob = BlobDigest.of(Array("long".utf8))
    let manifest = ManifestRecord(digest: blob, byteCount: 100, chunkCount: 5, depth: 1, listedCount: 1)
    let records = [
      SampleRecord.chunk(there), SampleRecord(content: .manifest(manifest), payload: lists.bytes),
      Self.ref("k", 1, blob, byteCount: 100, created: 1_600_000_000_000),
      Self.ref("k", 2, BlobDigest.of(there), byteCount: 5, created: 1_600_000_000_001),
      Self.ref("other", 3, BlobDigest.of(there), byteCount: 5, created: 1_600_000_000_002),
      Self.ref("gone", 4, gone, byteCount: 7, created: 1_600_000_000_003),
    ]
    _ = try Self.plant(place, 1, created: 1 << 40, records)
    let store = try await place.opened()
    let (statistics, report) = (try await store.statistics(), try await store.report())
    #expect(statistics.keyCount == 3 && statistics.versionCount == 4 && statistics.chunkCount == 1)
    var told = [statistics.unreadable, report.unreadable, report.statistics.unreadable]
    for subject in [BlobUsage.Subject.key("k"), .key("other"), .digest(BlobDigest.of(there)), .digest(blob)] {
      told.append(try #require(try await store.usage(of: subject)).unreadable)
    }
    for key in ["k", "other"] {
      told.append(try #require(try await store.blobInformation(forKey: key)).unreadable)
    }
    for (number, messages) in told.enumerated() {
      for digest in [absent, gone] {
        #expect(messages.contains { $0.contains("\(digest)") }, "\(number): \(messages)")
      }
    }
    // What it shares with what can be followed is counted all the same.
    #expect(report.largestKeys.map(\.versionCount).sorted() == [1, 1, 2])
    try await store.close()
  }

  @Test("what is dropped and collected while a search walks is not missing")
  func collectedMeanwhile() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    for number in 1_000..<2_100 { _ = try engine.put("k\(number)", Array("\(number)".utf8), Self.archiving) }
    var isCollected = false
    let search = UsageSearch(engine, .key("k1000"), listCountMax: 5) { _ in
      if isCollected { return }
      isCollected = true
      // The search has read this key and not followed it.
      do {
        _ = try engine.delete(["k2099"], .relaxed)
        _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        #expect(try !engine.contains(BlobDigest.of(Array("2099".utf8))))
      } catch { Issue.record(error) }
    }
    #expect(try search.run()?.unreadable == [])
    #expect(isCollected)
    try engine.close()
  }

  @Test("a search finds who shares chunks that gc moves meanwhile")
  func movedMeanwhile() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    let shared = Array("shared".utf8)
    for number in 1_000..<2_100 {
      let isSharer = number == 1_000 || number == 2_099
      _ = try engine.put("k\(number)", isSharer ? shared : Array("\(number)".utf8), Self.archiving)
    }
    func chunkPlace() throws -> Place? {
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.place(ofBlob: BlobDigest.of(shared))
      }
    }
    var isMoved = false
    let search = UsageSearch(engine, .key("k1000"), listCountMax: 5) { _ in
      if isMoved { return }
      isMoved = true
      do {
        let before = try chunkPlace()
        _ = try engine.delete(["k1001"], .relaxed)
        _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        #expect(try chunkPlace() != before)
      } catch { Issue.record(error) }
    }
    let usage = try #require(try search.run())
    #expect(usage.sharers.map(\.key) == ["k2099"] && usage.exclusiveByteCount == 0)
    #expect(isMoved)
    try engine.close()
  }

  // MARK: Progress

  @Test("of packs that are looked at go up to what there is, and never back")
  func progress() async throws {
    let place = try StorePlace(StoreOptions(usesSimilarity: false))
    for number in 0..<3 {
      let engine = try place.engine()
      _ = try engine.put("k\(number)", [UInt8](repeating: UInt8(number), count: 3_000))
      try engine.close()
    }
    let store = try await place.opened()
    let (verified, repaired, collected) = (ToldProgress(), ToldProgress(), ToldProgress())
    _ = try await store.verify(progress: { verified.append($0) })
    let steps = verified.all
    #expect(!steps.isEmpty && steps.allSatisfy { $0.phase == "verifying" && $0.totalCount == 3 })
    let total = try #require(steps.first).totalByteCount
    #expect(total > 0 && steps.allSatisfy { $0.totalByteCount == total })
    let done = steps.map(\.doneByteCount)
    #expect(done == done.sorted() && done.first == 0 && Set(steps.map(\.doneCount)) == [0, 1, 2])
    // All but the header of the last pack.
    #expect(done.last == total - Int64(PackHeader.byteCount), "\(done) of \(total)")
    _ = try await store.repair(progress: { repaired.append($0) })
    let mended = repaired.all.filter { $0.phase == "repairing" }
    #expect(mended.map(\.doneCount) == [0, 1, 2] && mended.allSatisfy { $0.totalCount == 3 })
    _ = try await store.collectGarbage(progress: { collected.append($0) })
    let marked = collected.all.filter { $0.phase == "marking" }
    #expect(marked.map(\.doneCount).max() == 3 && marked.allSatisfy { $0.totalCount >= $0.doneCount })
    try await store.close()
    withExtendedLifetime(place) {}
  }
}
