import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Puts and drops one rule at a time: what they refuse, what they say, and what they leave behind.
@Suite("A change")
struct PutTests {
  private struct SourceTrouble: Error {}

  /// Content that comes in parts, and may fail at its end.
  private static func stream(_ bytes: [UInt8], fails: Bool = false) -> BlobContent {
    let rest = Mutex(Data(bytes))
    return .stream({
      let part = rest.withLock { rest in
        defer { rest = rest.dropFirst(3_000) }
        return Data(rest.prefix(3_000))
      }
      if part.isEmpty, fails { throw SourceTrouble() }
      return part.isEmpty ? nil : part
    })
  }

  /// An engine that puts everything that streams in through the pipeline.
  private static func engine(_ place: StorePlace) throws -> Engine {
    var environment = Engine.Environment()
    environment.streamHeadByteCount = 1
    return try place.engine(environment)
  }

  private static let options = StoreOptions(averageChunkByteCount: 1_024, usesSimilarity: false)

  @Test("of so many chunks that one is left for a last list, or none, is read back whole", arguments: 0...1)
  func lastList(_ moreCount: Int) throws {
    let place = try StorePlace(Self.options)
    let engine = try Self.engine(place)
    // Zeros have no place to be cut at.
    let byteCount = 4_096 * engine.sizes.maximum + moreCount
    let rest = Mutex(byteCount)
    let content = BlobContent.stream {
      let count = rest.withLock { rest in
        defer { rest -= min(rest, 1 << 20) }
        return min(rest, 1 << 20)
      }
      return count == 0 ? nil : Data(count: count)
    }
    _ = try engine.put("a", content, .relaxed)
    #expect(try BlobInformation.find(engine, "a", nil)?.chunkCount == 4_096 + moreCount)
    #expect(try engine.data("a", nil) == Data(count: byteCount))
    #expect(try engine.verify().damaged == [])
    try engine.close()
  }

  @Test("that is small and follows others is written over zeros, which no reader and no sealed pack has")
  func zerosAhead() throws {
    let place = try StorePlace(Self.options)
    let engine = try place.engine()
    func byteCount() throws -> Int64 {
      let rows = try engine.catalog.packRows().map(\.row)
      #expect(rows.count == 1)
      let name = try #require(rows.first).name
      let file = try #require(try engine.backend.openPack(name))
      defer { file.close() }
      return try file.status().byteCount
    }
    for number in 0..<7 {
      _ = try engine.put("\(number)", .data(Data(repeating: 1, count: number)), .relaxed)
    }
    let before = try byteCount()
    #expect(before < 8_000)
    for number in 7..<20 {
      _ = try engine.put("\(number)", .data(Data(repeating: 1, count: number)), .relaxed)
    }
    #expect(try byteCount() > before + 200_000)
    let other = try place.engine()
    for number in 0..<20 { #expect(try other.data("\(number)", nil) == Data(repeating: 1, count: number)) }
    #expect(try other.verify().damaged == [])
    try other.close()
    try engine.close()
    let again = try place.engine()
    for (_, row) in try again.catalog.packRows() { #expect(row.isSealed && row.appliedByteCount < 16_000) }
    let name = try #require(try again.catalog.packRows().first).row.name
    let file = try #require(try again.backend.openPack(name))
    #expect(try file.status().byteCount < 20_000)
    file.close()
    try again.close()
  }

  // MARK: What is refused

  @Test("with metadata or an item that is too long is refused, and one that is just short enough is kept")
  func limits() throws {
    let place = try StorePlace(Self.options)
    let engine = try place.engine()
    let longest = [UInt8](repeating: 7, count: BlobLimits.maximumMetadataByteCount)
    for content in [BlobContent.data(Data([1])), Self.stream([1])] {
      let tooLong = PutOptions(durability: .relaxed, metadata: longest + [7])
      #expect(failure { _ = try engine.put("a", content, tooLong) }?.code == .limitExceeded)
    }
    let items = [
      PutItem(key: "a", data: Data([1]), metadata: longest + [7]),
      PutItem(key: "a", data: Data(count: (16 << 20) + 1)),
    ]
    for item in items {
      let good = PutItem(key: "b", data: Data([2]))
      #expect(failure { _ = try engine.put([good, item], .relaxed) }?.code == .limitExceeded)
      #expect(failure { _ = try engine.change([.put(good), .put(item)], .relaxed) }?.code == .limitExceeded)
    }
    #expect(try engine.keys("", after: nil, limit: 9).isEmpty)
    _ = try engine.put("a", [1], PutOptions(durability: .relaxed, metadata: longest))
    #expect(try engine.version("a", nil)?.metadata == longest)
    #expect(try engine.keys("", after: nil, limit: 0).isEmpty)
    let other = BlobDigest.of([1] as [UInt8], by: .sha256)
    #expect(failure { _ = try engine.data(other) }?.code == .invalidArgument)
    #expect(failure { _ = try engine.openBlob(other) }?.code == .invalidArgument)
    try engine.close()
  }

  @Test("of how many versions are kept takes any number that is not below zero")
  func retention() throws {
    let place = try StorePlace(Self.options)
    let engine = try place.engine()
    let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    var versions: [BlobVersion.ID] = []
    for byte in 0..<3 as Range<UInt8> {
      let version = try engine.put("a", [byte], options).version
      versions.insert(version.id, at: 0)
    }
    #expect(failure { _ = try engine.keep(upTo: -1, keys: ["a"], .relaxed) }?.code == .invalidArgument)
    #expect(failure { _ = try engine.keep(upTo: -1, prefix: "", .relaxed) }?.code == .invalidArgument)
    #expect(try engine.keep(upTo: .max, keys: ["a"], .relaxed).droppedVersionCount == 0)
    #expect(try engine.keep(upTo: 2, prefix: "", .relaxed).droppedVersionCount == 0)
    #expect(try engine.versions("a").map(\.id) == versions)
    #expect(try engine.keep(upTo: 1, keys: ["a", "nothing"], .relaxed).droppedVersionCount == 1)
    #expect(try engine.versions("a").map(\.id) == Array(versions.prefix(2)))
    try engine.close()
  }

  @Test("takes keys of 1 to 4,096 bytes of UTF-8 without NUL, byte by byte, and no others")
  func keys() throws {
    let place = try StorePlace(Self.options)
    let engine = try place.engine()
    let keys = ["a", "A", "\u{e9}", "e\u{301}", "/", "..", String(repeating: "ä", count: 2_048)]
    for (index, key) in keys.enumerated() { _ = try engine.put(key, [UInt8(index)]) }
    for (index, key) in keys.enumerated() { #expect(try engine.data(key, nil) == Data([UInt8(index)])) }
    let before = try contents(of: engine)
    #expect(before.count == keys.count)
    for key in ["", "\0", "a\0", String(repeating: "ä", count: 2_048) + "a"] {
      let item = PutItem(key: key, data: Data([1]))
      let good = PutItem(key: "good", data: Data([1]))
      let calls: [() throws -> Void] = [
        { _ = try engine.put(key, [1]) }, { _ = try engine.put(key, Self.stream([1]), .relaxed) },
        { _ = try engine.put([good, item], .relaxed) },
        { _ = try engine.change([.put(good), .put(item)], .relaxed) },
        { _ = try engine.change([.put(good), .delete(key)], .relaxed) },
        { _ = try engine.delete(["a", key], .relaxed) },
        { _ = try engine.keep(upTo: 0, keys: [key], .relaxed) }, { _ = try engine.data(key, nil) },
        { _ = try engine.version(key, nil) }, { _ = try engine.versions(key) },
        { _ = try engine.openBlob(key, nil) }, { _ = try engine.holdVersions(key) },
      ]
      for (index, call) in calls.enumerated() {
        #expect(failure(call)?.code == .invalidArgument, "\(key.utf8.count) bytes, call \(index)")
      }
    }
    #expect(try contents(of: engine) == before)
    try engine.close()
  }

  @Test("of several items makes all of them or none, and under a condition takes each key once")
  func items() throws {
    let place = try StorePlace(Self.options)
    let engine = try place.engine()
    let old = try engine.put("b", [1]).version.id
    let absent = PutOptions(durability: .relaxed, condition: .absent, metadata: [9])
    let items = ["a", "b", "c"].map { PutItem(key: $0, data: Data($0.utf8), metadata: Array($0.utf8)) }
    let refused = failure { _ = try engine.put(items, absent) }
    #expect(refused?.code == .conditionFailed && refused?.key == "b" && refused?.currentVersion == old)
    let twice = failure { _ = try engine.put([items[0], items[2], items[0]], absent) }
    #expect(twice?.code == .invalidArgument && twice?.key == "a")
    #expect(try engine.keys("", after: nil, limit: 9).map(\.current.id) == [old])
    #expect(try engine.delete(["b"], .relaxed) == 1)
    let first = try engine.put(items, absent).map(\.version)
    #expect(first.map(\.key) == ["a", "b", "c"])
    #expect(first.map(\.metadata) == items.map(\.metadata))
    // Of several for one key each follows the one before.
    let archiving = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    let archived = try engine.put([items[0], items[1], items[0]], archiving).map(\.version.id)
    #expect(try engine.versions("a").map(\.id) == [archived[2], archived[0], first[0].id])
    let replacing = try engine.put([items[0], items[0]], .relaxed).map(\.version.id)
    let versions = [replacing[1], archived[0], first[0].id]
    #expect(try engine.versions("a").map(\.id) == versions)
    try engine.close()
    try place.removeCatalog()
    let reopened = try place.engine()
    #expect(try reopened.versions("a").map(\.id) == versions)
    #expect(try reopened.versions("b").map(\.id) == [archived[1], first[1].id])
    try reopened.close()
  }

  @Test("of keys counts each once, however often it is named, and none that is not there")
  func counts() throws {
    let place = try StorePlace(Self.options)
    let engine = try place.engine()
    let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    for byte in 0..<3 as Range<UInt8> {
      for key in ["a", "b", "c"] { _ = try engine.put(key, [byte], options) }
    }
    let kept = try engine.keep(upTo: 1, keys: ["a", "nothing", "a"], .relaxed)
    #expect(kept.keyCount == 1 && kept.droppedVersionCount == 1)
    #expect(try engine.delete([], .relaxed) == 0)
    #expect(try engine.delete(["a", "nothing", "b", "a"], .relaxed) == 2)
    #expect(try engine.delete(["a", "b"], .relaxed) == 0)
    #expect(try engine.delete(prefix: .bytes("a"), .relaxed) == 0)
    let left = try engine.keys("", after: nil, limit: 9)
    #expect(left.map(\.key) == ["c"] && left.map(\.versionCount) == [3])
    try engine.close()
  }

  // MARK: Where content comes from

  @Test("from a descriptor begins where that stands, and does not close it", arguments: [10_000, 3_000_000])
  func descriptor(_ byteCount: Int) throws {
    let place = try StorePlace(Self.options)
    let engine = try place.engine()
    var random = SplitMix64(seed: 34)
    let bytes = random.bytes(byteCount)
    let path = place.temporary.path.appending("file")
    try Data(bytes).write(to: URL(filePath: path.string))
    let file = try FileDescriptor.open(path, .readOnly)
    defer { try? file.close() }
    _ = try file.seek(offset: 1_000, from: .start)
    let result = try engine.put("k", .descriptor(file.rawValue), .relaxed)
    #expect(result.version.byteCount == Int64(byteCount - 1_000))
    #expect(try engine.data("k", nil) == Data(bytes.dropFirst(1_000)))
    // It is open still, and nothing is left to be read.
    #expect(try file.seek(offset: 0, from: .current) == Int64(byteCount))
    #expect(try engine.put("empty", .descriptor(file.rawValue), .relaxed).version.byteCount == 0)
    #expect(try engine.data("empty", nil) == Data())
    try engine.close()
  }

  @Test("of a file that changes while it is read is refused", arguments: [100_000, 5_000_000])
  func changingFile(_ byteCount: Int) throws {
    let place = try StorePlace(Self.options)
    let engine = try place.engine()
    let old = try engine.put("k", [1]).version.id
    var random = SplitMix64(seed: 35)
    let bytes = Data(random.bytes(byteCount))
    let file = place.temporary.path.appending("file").string
    try bytes.write(to: URL(filePath: file))
    let isChanged = Mutex(false)
    let change: @Sendable (WorkProgress) -> Void = { progress in
      guard progress.doneByteCount > 0, !isChanged.withLock({ $0 }) else { return }
      isChanged.withLock { $0 = true }
      #expect(throws: Never.self) {
        let handle = try #require(FileHandle(forUpdatingAtPath: file))
        _ = try handle.seekToEnd()
        try handle.write(contentsOf: Data([7]))
        try handle.close()
      }
    }
    let error = failure { _ = try engine.put("k", .file(file), .relaxed, change) }
    #expect(isChanged.withLock { $0 })
    #expect(error?.code == .sourceFailed)
    #expect(try engine.versions("k").map(\.id) == [old])
    _ = try engine.put("k", .file(file), .relaxed, change)
    #expect(try engine.data("k", nil) == bytes + Data([7]))
    try engine.close()
  }

  @Test("tells how much of long content has been read up to its end, also if it is there already")
  func progress() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var random = SplitMix64(seed: 36)
    let bytes = random.bytes(3_000_000)
    let file = place.temporary.path.appending("file").string
    try Data(bytes).write(to: URL(filePath: file))
    let contents: [(BlobContent, totalByteCount: Int64)] = [
      (.file(file), 3_000_000), (.file(file), 3_000_000), (.data(Data(bytes)), 3_000_000),
      (Self.stream(bytes), 0),
    ]
    for (content, totalByteCount) in contents {
      let told = Mutex<[WorkProgress]>([])
      _ = try engine.put("k", content, .relaxed) { progress in told.withLock { $0.append(progress) } }
      let all = told.withLock { $0 }
      let done = all.map(\.doneByteCount)
      #expect(done.count > 2 && done.first == 0 && done.last == 3_000_000 && done == done.sorted())
      #expect(all.allSatisfy { $0.phase == "storing" && $0.totalByteCount == totalByteCount })
    }
    try engine.close()
  }

  // MARK: Codecs

  @Test("is encoded by the codec that it names, or else by the store's, however it is put")
  func codecs() throws {
    for own in CodecKind.allCases {
      let place = try StorePlace(
        StoreOptions(averageChunkByteCount: 65_536, codec: own, usesSimilarity: false))
      let engine = try Self.engine(place)
      var seed = SplitMix64(seed: 6)
      for named in [nil, CodecKind.none, .zstd, .zlib] as [CodecKind?] {
        let kind: CodecKind = named ?? own
        let options = PutOptions(durability: .relaxed, codec: named)
        let texts = (0..<3).map { _ in seed.text(8_000) }
        let results = [
          try engine.put("data", .data(Data(texts[0])), options),
          try engine.put("stream", Self.stream(texts[1]), options),
          try engine.put([PutItem(key: "item", data: Data(texts[2]))], options)[0],
        ]
        for (result, text) in zip(results, texts) {
          let digest = result.version.digest
          let number = try engine.catalog.read { (transaction) throws(BlobStorageError) in
            try transaction.chunkRow(digest)?.codecNumber
          }
          #expect(number == kind.rawValue, "\(result.version.key)")
          #expect((result.storedByteCount > 8_000) == (kind == CodecKind.none))
          #expect(try engine.data(digest) == Data(text))
        }
      }
      try engine.close()
    }
  }

  // MARK: However many

  @Test("by a prefix reaches every key")
  func pages() throws {
    let place = try StorePlace(Self.options)
    let engine = try place.engine()
    let items = (0..<1_001).map { PutItem(key: "p/\($0)", data: Data()) }
    let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    for _ in 0..<2 { _ = try engine.put(items, options) }
    _ = try engine.put("q", [1])
    let kept = try engine.keep(upTo: 0, prefix: "p/", .relaxed)
    #expect(kept.keyCount == 1_001 && kept.droppedVersionCount == 1_001)
    #expect(try engine.delete(prefix: "p/", .relaxed) == 1_001)
    #expect(try engine.keys("", after: nil, limit: .max).map(\.key) == ["q"])
    try engine.close()
  }

  @Test("that drops a key drops more versions than a record names, also for a catalog that is made anew")
  func manyVersions() throws {
    let place = try StorePlace(Self.options)
    let engine = try place.engine()
    let digest = try engine.put("other", [1]).version.digest
    _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
      for _ in 0...BlobLimits.dropVersionCountMax {
        let ref = RefRecord(
          key: Array("k".utf8), version: try commit.stamp(), replaced: .none, digest: digest, byteCount: 1,
          created: 0, metadata: [])
        _ = try commit.append(.ref(ref))
      }
    }
    #expect(try engine.versions("k").count == BlobLimits.dropVersionCountMax + 1)
    #expect(try engine.delete(["k"], .relaxed) == 1)
    #expect(try engine.versions("k").isEmpty)
    try engine.close()
    try place.removeCatalog()
    let reopened = try place.engine()
    #expect(try reopened.keys("", after: nil, limit: 9).map(\.key) == ["other"])
    #expect(try reopened.versions("k").isEmpty)
    try reopened.close()
  }

  // MARK: Results

  @Test("says how many bytes it has added to packs, and how many of those it was given are new")
  func results() throws {
    let place = try StorePlace(Self.options)
    let engine = try Self.engine(place)
    var random = SplitMix64(seed: 31)
    let (short, long, streamed) = (random.bytes(500), random.bytes(20_000), random.bytes(20_001))
    let contents: [(content: () -> BlobContent, byteCount: Int64)] = [
      ({ .data(Data(short)) }, 500), ({ .data(Data(long)) }, 20_000), ({ Self.stream(streamed) }, 20_001),
    ]
    for (content, byteCount) in contents {
      for newByteCount in [byteCount, 0] {
        let before = engine.writer.addedByteCount
        let result = try engine.put("k", content(), .relaxed)
        #expect(result.newByteCount == newByteCount)
        // A ref of a chunk that is there names its digest.
        #expect(abs(result.storedByteCount - (engine.writer.addedByteCount - before)) <= 40)
        #expect(result.version.byteCount == byteCount)
      }
    }
    let twice = Data(random.bytes(700))
    let before = engine.writer.addedByteCount
    let items = try engine.put(["a", "b"].map { PutItem(key: $0, data: twice) }, .relaxed)
    #expect(items.map(\.newByteCount) == [700, 0])
    let added = engine.writer.addedByteCount - before
    #expect(abs(items.reduce(0) { $0 + $1.storedByteCount } - added) <= 40)
    try engine.close()
  }

  @Test("keeps the time at which it was made, also in a catalog that is made anew")
  func created() throws {
    let place = try StorePlace(Self.options)
    var environment = Engine.Environment()
    environment.clock = WallClock(now: { 1_700_000_000_123 })
    let engine = try place.engine(environment)
    let expected = Date(timeIntervalSince1970: Double(1_700_000_000_123) / 1_000)
    #expect(try engine.put("k", [1]).version.created == expected)
    #expect(try engine.version("k", nil)?.created == expected)
    try engine.close()
    try place.removeCatalog()
    let reopened = try place.engine()
    #expect(try reopened.version("k", nil)?.created == expected)
    try reopened.close()
  }

  // MARK: What is left behind

  @Test("leaves nothing held for collections, however it ends, nor does a reader that was closed")
  func holds() throws {
    let place = try StorePlace(Self.options)
    let engine = try Self.engine(place)
    func held() throws -> String {
      let leases = try AllLeases(
        in: FilePath(place.path).appending("leases"), SystemFiles(), engine.header.digestAlgorithm)
      let hasPuts = leases.firstPacks.values.contains { $0 != .max }
      return "\(leases.held.count) held, puts: \(hasPuts)"
    }
    let nothing = "0 held, puts: false"
    var random = SplitMix64(seed: 32)
    let bytes = random.bytes(30_000)
    // New, then shared, then with an end that fails.
    for fails in [false, false, true] {
      let error = failure { _ = try engine.put("k", Self.stream(bytes, fails: fails), .relaxed) }
      let expected: BlobStorageError.Code? = fails ? .sourceFailed : nil
      #expect(error?.code == expected)
      #expect(try held() == nothing, "failing: \(fails)")
    }
    let refused = PutOptions(durability: .relaxed, condition: .absent)
    #expect(failure { _ = try engine.put("k", Self.stream(bytes), refused) }?.code == .conditionFailed)
    #expect(try held() == nothing, "refused")
    let blob = try #require(try engine.openBlob("k", nil))
    #expect(try held() == "1 held, puts: false")
    blob.close()
    blob.close()
    #expect(try held() == nothing, "closed")
    let isKeyFound = try engine.openBlob("nothing", nil) != nil
    let isBlobFound = try engine.openBlob(BlobDigest.of([1, 2, 3] as [UInt8])) != nil
    #expect(!isKeyFound && !isBlobFound)
    #expect(try held() == nothing, "not found")
    let versions = try engine.holdVersions("k")
    #expect(try held() == "1 held, puts: false")
    versions.close()
    #expect(try held() == nothing, "the history was closed")
    try engine.close()
  }

  @Test("that fills a pack lets go of it")
  func fullPack() throws {
    let place = try StorePlace(Self.options)
    var environment = Engine.Environment()
    environment.packByteCountTarget = 4_000
    let engine = try place.engine(environment)
    _ = try engine.put("a", [1])
    let name = try #require(try engine.backend.packNames().live.first)
    func isFree() throws -> Bool {
      let file = try SystemFiles().open(
        FilePath(place.path).appending("packs").appending(name.fileName), .readWrite)
      defer { file.close() }
      return try file.lock(.exclusive, wait: false)
    }
    #expect(try !isFree())
    var random = SplitMix64(seed: 33)
    _ = try engine.put("b", random.bytes(5_000))
    #expect(try isFree())
    #expect(try engine.put("c", [2]).version.byteCount == 1)
    #expect(try engine.backend.packNames().live.count == 2)
    try engine.close()
  }
}
