import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import Testing

/// Who uses what: against what really becomes free when it is dropped.
@Suite("Usage of blobs")
struct BlobUsageTests {
  /// A store of some keys with versions that share chunks, blobs and, where asked, bases.
  private func makeStore(_ store: BlobStore, _ random: inout SplitMix64) async throws -> [String] {
    let parts = (0..<6).map { _ in Data(random.bytes(40_000)) }
    var keys: [String] = []
    for index in 0..<12 {
      let key = "key \(index)"
      keys.append(key)
      for _ in 0...Int.random(in: 0...2, using: &random) {
        var data = Data()
        for _ in 0..<Int.random(in: 0...4, using: &random) {
          var part = parts.randomElement(using: &random) ?? Data()
          // Now and then a near copy, which is encoded against what it resembles.
          if Int.random(in: 0..<3, using: &random) == 0 {
            part[Int.random(in: 0..<40_000, using: &random)] ^= 1
          }
          data += part
        }
        try await store.set(key, to: data, archivingCurrent: true, durability: .relaxed)
      }
    }
    return keys
  }

  @Test("of the versions that hold a blob, the current one is told from the archived ones")
  func current() async throws {
    let place = try StorePlace(StoreOptions())
    let store = try await place.opened()
    for byte in [1, 2, 1] as [UInt8] {
      try await store.set("k", to: Data([byte]), archivingCurrent: true, durability: .relaxed)
    }
    try await store.set("other", to: Data([2]))
    let first = try #require(try await store.usage(of: .digest(BlobDigest.of([1], by: .blake3))))
    #expect(first.holders.map(\.isCurrent) == [true, false])
    let second = try #require(try await store.usage(of: .digest(BlobDigest.of([2], by: .blake3))))
    #expect(second.holders.map { "\($0.version.key) \($0.isCurrent)" } == ["k false", "other true"])
    try await store.close()
    withExtendedLifetime(place) {}
  }

  @Test(
    "what a key, a blob or a chunk says it frees is what is stored less once it is dropped",
    arguments: [true, false])
  func exclusive(_ usesSimilarity: Bool) async throws {
    var random = SplitMix64.announced()
    let place = try StorePlace(
      StoreOptions(averageChunkByteCount: 4_096, usesSimilarity: usesSimilarity))
    let store = try await place.opened()
    let keys = try await makeStore(store, &random)
    let report = try await store.report(keyLimit: 100)
    var exclusive: [String: Int64] = [:]
    for key in report.largestKeys { exclusive[key.key] = key.exclusiveByteCount }
    for key in keys.shuffled(using: &random) {
      let usage = try #require(try await store.usage(of: .key(key)))
      let versions = try await store.versions(of: key)
      #expect(usage.kind == .key)
      #expect(usage.holderCount == versions.count)
      #expect(usage.byteCount == versions.reduce(0) { $0 + $1.byteCount })
      if keys.count == exclusive.count { #expect(exclusive[key] == usage.exclusiveByteCount, "\(key)") }
      exclusive = [:]  // what the report says is true before the first is dropped
      let before = try await store.statistics().storedByteCount
      for sharer in usage.sharers { #expect(sharer.sharedByteCount <= usage.storedByteCount) }
      // All that is not its own is shared.
      #expect(usage.sharers.isEmpty == (usage.exclusiveByteCount == usage.storedByteCount))
      try await store.delete(key)
      let after = try await store.statistics().storedByteCount
      #expect(before - after == usage.exclusiveByteCount, "\(key)")
    }
    try await store.close()
    withExtendedLifetime(place) {}
  }

  @Test("a report gives every key the bytes that usage gives it")
  func report() async throws {
    var random = SplitMix64.announced()
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 4_096))
    let store = try await place.opened()
    let keys = try await makeStore(store, &random)
    let report = try await store.report(keyLimit: 100)
    #expect(Set(report.largestKeys.map(\.key)) == Set(keys))
    for key in report.largestKeys {
      let usage = try #require(try await store.usage(of: .key(key.key)))
      #expect(key.exclusiveByteCount == usage.exclusiveByteCount, "\(key.key)")
      #expect(key.versionCount == usage.holderCount)
    }
    let statistics = try await store.statistics()
    // While it is made, others can watch it: that takes some room on the disk.
    var compared = report.statistics
    compared.diskByteCount = statistics.diskByteCount
    #expect(compared == statistics)
    #expect(report.history.reduce(0) { $0 + $1.versionCount } == statistics.versionCount)
    #expect(report.history.reduce(0) { $0 + $1.byteCount } == statistics.plainByteCount)
    #expect(report.codecs.reduce(0) { $0 + $1.storedByteCount } == statistics.storedByteCount)
    #expect(report.packs.reduce(0) { $0 + $1.byteCount - $1.liveByteCount } == statistics.garbageByteCount)
    for pack in report.packs { #expect(abs(pack.created.timeIntervalSinceNow) < 3_600) }
    let few = try await store.report(keyLimit: 3)
    #expect(few.largestKeys == Array(report.largestKeys.prefix(3)))
    try await store.close()
    withExtendedLifetime(place) {}
  }

  @Test("what newer versions of its key share with an archived blob is not freed with it")
  func archived() async throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 1_024, usesSimilarity: false))
    let store = try await place.opened()
    var random = SplitMix64(seed: 6)
    let shared = Data(random.bytes(40_000))
    try await store.set("k", to: shared + Data(random.bytes(9_000)))
    let digest = try #require(try await store.versions(of: "k").first).digest
    try await store.set("k", to: shared + Data(random.bytes(9_000)), archivingCurrent: true)
    let usage = try #require(try await store.usage(of: .digest(digest)))
    #expect((9_000..<20_000).contains(usage.exclusiveByteCount))
    let before = try await store.statistics().storedByteCount
    #expect(try await store.keep(upTo: 0, of: "k").droppedVersionCount == 1)
    #expect(try await store.statistics().storedByteCount == before - usage.exclusiveByteCount)
    try await store.close()
    withExtendedLifetime(place) {}
  }

  @Test(
    "what imports have replaced is freed with its key, and the history of a report counts versions of keys alone"
  )
  func replaced() async throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 4_096, usesSimilarity: false))
    let store = try await place.opened()
    var random = SplitMix64(seed: 8)
    let file = place.path + "-log"
    var data = Data(random.bytes(60_000))
    for _ in 0..<3 {
      data += Data(random.bytes(10_000))
      try data.write(to: URL(filePath: file))
      _ = try await store.importFiles([file])
    }
    let usage = try #require(try await store.usage(of: .key("store-log")))
    #expect(usage.holderCount == 1 && usage.byteCount == 90_000)
    let report = try await store.report()
    let key = try #require(report.largestKeys.first)
    #expect(key.key == "store-log" && key.exclusiveByteCount == usage.exclusiveByteCount)
    #expect(report.history.reduce(0) { $0 + $1.versionCount } == report.statistics.versionCount)
    #expect(report.history.reduce(0) { $0 + $1.byteCount } == report.statistics.plainByteCount)
    try await store.delete("store-log")
    let after = try await store.statistics().storedByteCount
    #expect(after == report.statistics.storedByteCount - usage.exclusiveByteCount)
    try await store.close()
    withExtendedLifetime(place) {}
  }

  @Test("a report counts what holds keep, and none of it as freed with a key")
  func held() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    var random = SplitMix64(seed: 7)
    let digest = try await store.set("k", to: Data(random.bytes(9_000))).version.digest
    try await store.hold(digest, as: "h")
    #expect(try await store.report().largestKeys.map(\.exclusiveByteCount) == [0])
    try await store.delete("k")
    let rest = try await store.report()
    #expect(rest.statistics.storedByteCount >= 9_000)
    #expect(rest.codecs.reduce(0) { $0 + $1.storedByteCount } == rest.statistics.storedByteCount)
    try await store.close()
    withExtendedLifetime(place) {}
  }

  @Test("a hold of a blob that was never stored is no damage")
  func abandonedHold() async throws {
    let other = try StorePlace()
    let second = try await other.opened()
    _ = try await second.put(.data(Data("elsewhere".utf8)), holding: "h")
    try await second.close()
    let place = try StorePlace()
    try FileManager.default.copyItem(atPath: other.path + "/holds", toPath: place.path + "/holds")
    let store = try await place.opened()
    try await store.set("k", to: Data("here".utf8))
    let usage = try #require(try await store.usage(of: .key("k")))
    #expect(usage.unreadable == [] && usage.exclusiveByteCount == usage.storedByteCount)
    #expect(try await store.report().unreadable == [])
    try await store.close()
    withExtendedLifetime((place, other)) {}
  }

  @Test("a blob is held by the versions that point at it, a chunk by those that contain it")
  func digests() async throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 1_024, usesSimilarity: false))
    let store = try await place.opened()
    var random = SplitMix64(seed: 5)
    let chunk = Data(random.bytes(200))
    let long = Data(random.bytes(50_000))
    try await store.set("small", to: chunk)
    try await store.set("one", to: long)
    try await store.set("two", to: long)
    try await store.set("more", to: long + Data(random.bytes(3_000)))
    let small = try #require(try await store.usage(of: .digest(.of(chunk))))
    #expect(small.kind == .blob)
    #expect(small.holders.map(\.version.key) == ["small"])
    let blob = try #require(try await store.usage(of: .digest(.of(long))))
    #expect(blob.kind == .blob)
    #expect(blob.holders.map(\.version.key) == ["one", "two"])
    #expect(blob.sharers.map(\.key) == ["more"])
    #expect(blob.byteCount == 50_000)
    #expect(blob.exclusiveByteCount < 5_000)
    let first = try #require(try await firstChunk(of: long, in: store))
    let part = try #require(try await store.usage(of: .digest(first)))
    #expect(part.kind == .chunk)
    #expect(part.holders.map(\.version.key) == ["more", "one", "two"])
    #expect(part.exclusiveByteCount == part.storedByteCount)
    #expect(try await store.usage(of: .digest(.of(Data("not there".utf8)))) == nil)
    #expect(try await store.usage(of: .key("not there")) == nil)

    try await store.delete("small")
    let garbage = try #require(try await store.usage(of: .digest(.of(chunk))))
    #expect(garbage.holderCount == 0)
    #expect(garbage.exclusiveByteCount > 0)
    try await store.close()
    withExtendedLifetime(place) {}
  }

  /// The digest of the first chunk, found by its length.
  private func firstChunk(of data: Data, in store: BlobStore) async throws -> BlobDigest? {
    for count in 1..<8_000 {
      let digest = BlobDigest.of(data.prefix(count))
      if try await store.usage(of: .digest(digest)) != nil { return digest }
    }
    return nil
  }

  @Test("of many, the largest are kept, largest first")
  func largest() {
    var random = SplitMix64.announced()
    for countMax in [0, 1, 7, 100] {
      let numbers = (0..<60).map { _ in Int64.random(in: 0..<50, using: &random) }
      var largest = Largest<Int64>(countMax: countMax)
      for number in numbers { largest.insert(number, rank: number) }
      #expect(largest.descending == Array(numbers.sorted(by: >).prefix(countMax)))
    }
  }
}
