import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// What only archived versions need is looked after like what current ones need.
@Suite("Damage of archived versions", .serialized)
struct ArchivedDamageTests {
  private static let everything = GarbageCollectionOptions(minimumGarbageShare: 0)

  /// The key "k" has four versions. The second and the last hold bytes that no other version has.
  private static func store(byteCount: Int) throws -> Lab {
    let lab = try Lab()
    try lab.session { engine in
      try lab.put(engine, [("k", noise(1, byteCount))])
      for seed in [2, 1, 3] as [UInt64] {
        try lab.put(engine, [("k", noise(seed, byteCount))], archives: true)
      }
      try lab.put(engine, [("other", noise(4, byteCount)), ("garbage", noise(5, byteCount))])
    }
    return lab
  }

  @Test(
    "is named by verify, gc and repair; accepting it loses these versions and no others",
    arguments: [200, 9_000])
  func damaged(byteCount: Int) throws {
    let lab = try Self.store(byteCount: byteCount)
    let lost = noise(1, byteCount)
    let blob = BlobDigest.of(Array(lost))
    for path in try DamageTests.paths(lab) {
      try DamageTests.change(lab, path) { bytes in
        if let place = Data(bytes).range(of: Data(lost.prefix(64))) { bytes[place.lowerBound + 5] ^= 1 }
      }
    }
    var left: [BlobVersion.ID] = []
    try lab.session { engine in
      let versions = try engine.versions("k").map(\.id)
      try #require(versions.count == 4)
      let hurt = [versions[1], versions[3]]
      left = [versions[0], versions[2]]
      func check(_ found: [UnreadableVersion], sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(found.map(\.version) == hurt, sourceLocation: sourceLocation)
        #expect(found.allSatisfy { $0.key == "k" && $0.digest == blob }, sourceLocation: sourceLocation)
      }
      try lab.delete(engine, ["garbage"])
      // It reads no chunks of data.
      let quick = try engine.verify(.structure)
      #expect(quick.damaged == [] && quick.blobCount == 4)

      let verified = try engine.verify()
      #expect(verified.damaged.map(\.keys) == [["k"]], "once, though two versions need it")
      #expect(verified.blobCount == 4 && verified.damaged.first?.pack.isEmpty == false)
      let digest = try #require(verified.damaged.first?.digest)
      if byteCount == 200 { #expect(digest == blob) }
      func checkKept(sourceLocation: SourceLocation = #_sourceLocation) throws {
        let before = try LostPackTests.names(lab)
        let collected = try engine.collectGarbage(Self.everything)
        #expect(collected.freedByteCount == 0, sourceLocation: sourceLocation)
        #expect(
          collected.obstacles.contains { $0.message.contains("\(digest)") }, "\(collected.obstacles)",
          sourceLocation: sourceLocation)
        let after = try LostPackTests.names(lab)
        #expect(Set(before).isSubset(of: after), sourceLocation: sourceLocation)
      }
      try checkKept()

      let repaired = try engine.repair()
      check(repaired.unreadable)
      #expect(repaired.setAside.count == 1 && repaired.dropped == [])
      #expect(repaired.damaged.map(\.digest) == [digest], "\(repaired.damaged)")
      let names = try LostPackTests.names(lab)
      #expect(repaired.packCount == names.count && repaired.keyCount == 2)
      for isQuick in [true, false] {
        let damaged = try engine.verify(isQuick ? .structure : .chunks).damaged
        #expect(damaged.map(\.digest) == [digest] && damaged.map(\.keys) == [["k"]], "\(damaged)")
        #expect(damaged.allSatisfy { $0.pack.isEmpty })
      }
      let statistics = try engine.statistics()
      #expect(statistics.unreadable.contains { $0.contains("\(digest)") }, "\(statistics.unreadable)")
      #expect(statistics.keyCount == 2 && statistics.versionCount == 5)
      try checkKept()

      let accepted = try engine.repair(acceptsLosses: true)
      check(accepted.dropped)
      #expect(accepted.unreadable == [] && accepted.keyCount == 2)
      let (after, collected) = (try engine.statistics(), try engine.collectGarbage(Self.everything))
      #expect(after.unreadable == [] && after.versionCount == 3)
      #expect(collected.obstacles == [] && collected.freedByteCount > 0)
    }
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { engine in
        let versions = try engine.versions("k").map(\.id)
        #expect(versions == left, "forgotten: \(forgets)")
        for (version, seed) in zip(versions, [3, 2] as [UInt64]) {
          let data = try engine.data("k", version)
          #expect(data == noise(seed, byteCount), "\(seed), forgotten: \(forgets)")
        }
        let damaged = try engine.verify().damaged
        #expect(damaged == [])
      }
    }
  }

  @Test("a current version that is lost is dropped when that is accepted, and the one before it answers")
  func current() throws {
    let lab = try Lab()
    let lost = noise(2, 300)
    try lab.session { engine in
      try lab.put(engine, [("k", noise(1, 300)), ("single", noise(2, 300))])
      try lab.put(engine, [("k", lost)], archives: true)
    }
    for path in try DamageTests.paths(lab) {
      try DamageTests.change(lab, path) { bytes in
        if let place = Data(bytes).range(of: Data(lost.prefix(64))) { bytes[place.lowerBound + 5] ^= 1 }
      }
    }
    try lab.session { engine in
      let versions = try engine.versions("k").map(\.id)
      let report = try engine.repair(acceptsLosses: true)
      #expect(
        report.dropped.map(\.key) == ["k", "single"] && report.dropped.first?.version == versions.first)
      #expect(report.unreadable == [] && report.keyCount == 1)
    }
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { engine in
        let (data, single) = (try engine.data("k", nil), try engine.version("single", nil))
        #expect(data == noise(1, 300) && single == nil, "forgotten: \(forgets)")
      }
    }
  }

  @Test(
    "what one lacks, or the base of what it has, is told; garbage without its base is no damage",
    arguments: [false, true])
  func missing(ofBase: Bool) throws {
    let lab = try Lab()
    let there = Array(noise(1, 300))
    let absent = BlobDigest.of(Array(noise(2, 300)))
    var records: [(content: PackRecord.Content, payload: [UInt8])] = []
    func encode(_ plain: [UInt8], against base: BlobDigest) throws {
      let record = ChunkRecord(
        digest: BlobDigest.of(plain), plainByteCount: plain.count, codecNumber: 1, base: base)
      records.append((.chunk(record), try HostileTests.encoded(plain, .zstd)))
    }
    let chunk = ChunkRecord(digest: BlobDigest.of(there), plainByteCount: there.count, codecNumber: 0)
    records.append((.chunk(chunk), there))
    let based = [UInt8](prose(3, 3_000))
    if ofBase { try encode(based, against: absent) }
    // No version needs it.
    try encode([UInt8](prose(4, 3_000)), against: BlobDigest.of(Array(noise(5, 300))))
    let blob = ofBase ? BlobDigest.of(based) : absent
    let byteCount: Int64 = ofBase ? 3_000 : 300
    records.append(HostileTests.ref("k", blob, byteCount: byteCount, time: 1 << 41))
    records.append(HostileTests.ref("k", BlobDigest.of(there), byteCount: 300, time: 1 << 41 + 1))
    records.append(HostileTests.ref("z", BlobDigest.of(there), byteCount: 300, time: 1 << 41 + 2))
    try HostileTests.plant(lab, 1, records)
    try lab.session { engine in
      let versions = try engine.versions("k").map(\.id)
      try #require(versions.count == 2)
      for isQuick in [true, false] {
        let report = try engine.verify(isQuick ? .structure : .chunks)
        // Only a read of the record finds it damaged.
        let expected: Set<BlobDigest> = ofBase && !isQuick ? [absent, blob] : [absent]
        #expect(Set(report.damaged.compactMap(\.digest)) == expected, "\(report.damaged)")
        #expect(report.damaged.count == expected.count && report.damaged.allSatisfy { $0.keys == ["k"] })
        #expect(report.blobCount == 2)
      }
      let (kept, statistics) = (try engine.collectGarbage(Self.everything), try engine.statistics())
      #expect(kept.freedByteCount == 0 && kept.obstacles.contains { $0.message.contains("\(absent)") })
      #expect(statistics.unreadable.contains { $0.contains("\(absent)") })

      let repaired = try engine.repair()
      #expect(repaired.unreadable.map(\.version) == [versions[1]])
      #expect(repaired.unreadable.map(\.digest) == [blob])
      #expect(repaired.setAside == [] && repaired.damaged.map(\.digest) == (ofBase ? [blob] : []))

      let accepted = try engine.repair(acceptsLosses: true)
      #expect(accepted.dropped == repaired.unreadable && accepted.unreadable == [])
      let (left, data) = (try engine.versions("k").map(\.id), try engine.data("k", nil))
      #expect(left == [versions[0]] && data == Data(there))
      let (verified, collected) = (try engine.verify(), try engine.collectGarbage(Self.everything))
      #expect(verified.damaged == [])
      #expect(collected.obstacles == [] && collected.freedByteCount > 0)
    }
  }
}
