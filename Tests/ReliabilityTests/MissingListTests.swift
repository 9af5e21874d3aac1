import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// A long blob names its chunks in lists, which are chunks themselves: one that is missing is damage like any other.
@Suite("A missing list of a long blob", .serialized)
struct MissingListTests {
  private static let everything = GarbageCollectionOptions(minimumGarbageShare: 0)

  /// A blob of three lists, under the key "long". One of them is not there, if `absent` says, and neither is the first
  /// chunk.
  private static func plant(_ lab: Lab, without absent: Int?) throws -> (list: BlobDigest, chunk: BlobDigest)
  {
    var records: [(content: PackRecord.Content, payload: [UInt8])] = []
    var lists: [ListEntry] = []
    var chunks: [BlobDigest] = []
    for part in 0..<3 {
      var list = ByteWriter()
      for number in part * 50..<(part + 1) * 50 {
        let plain = withUnsafeBytes(of: number) { Array($0) }
        chunks.append(BlobDigest.of(plain))
        ChunkEntry(digest: BlobDigest.of(plain), plainByteCount: plain.count).encode(into: &list)
        if number == 0 { continue }
        let record = ChunkRecord(digest: BlobDigest.of(plain), plainByteCount: plain.count, codecNumber: 0)
        records.append((.chunk(record), plain))
      }
      let entry = ListEntry(digest: BlobDigest.of(list.bytes), chunkCount: 50, spanByteCount: 400)
      lists.append(entry)
      if part == absent { continue }
      let record = ChunkRecord(digest: entry.digest, plainByteCount: list.bytes.count, codecNumber: 0)
      records.append((.chunk(record), list.bytes))
    }
    var payload = ByteWriter()
    for list in lists { list.encode(into: &payload) }
    let blob = BlobDigest.of(Array("long".utf8))
    let manifest = ManifestRecord(digest: blob, byteCount: 1_200, chunkCount: 150, depth: 1, listedCount: 3)
    records.append((.manifest(manifest), payload.bytes))
    records.append(HostileTests.ref("long", blob, byteCount: 1_200))
    try HostileTests.plant(lab, 1, records)
    return (lists[absent ?? 1].digest, chunks[0])
  }

  @Test("is told beside the numbers of other keys, which it makes uncertain")
  func numbers() throws {
    let lab = try Lab()
    let (list, _) = try Self.plant(lab, without: 1)
    try lab.session { engine in
      // The first chunk that "long" has, named before the list that is missing.
      let shared = withUnsafeBytes(of: 1) { Data($0) }
      _ = try engine.put("short", .data(shared), PutOptions())
      let usage = try #require(try UsageSearch(engine, .key("short"), listCountMax: 5).run())
      #expect(usage.unreadable.contains { $0.contains("\(list)") }, "\(usage.unreadable)")
      #expect(usage.sharers.map(\.key) == ["long"])
      #expect(usage.exclusiveByteCount == 0)
      let information = try #require(try BlobInformation.find(engine, "short", nil))
      #expect(information.unreadable.contains { $0.contains("\(list)") }, "\(information.unreadable)")
    }
  }

  @Test(
    "is told by verify with the keys that need it, and with what is missing before it", arguments: [0, 1, 2])
  func verified(_ absent: Int) throws {
    let lab = try Lab()
    let (list, chunk) = try Self.plant(lab, without: absent)
    // A list that is missing takes the names of its chunks along.
    let missing: Set<BlobDigest> = absent == 0 ? [list] : [list, chunk]
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { engine in
        for isQuick in [false, true] {
          let damaged = try engine.verify(isQuick ? .structure : .chunks).damaged
          #expect(damaged.count == missing.count && Set(damaged.compactMap(\.digest)) == missing)
          #expect(damaged.allSatisfy { $0.keys == ["long"] && $0.pack.isEmpty }, "\(damaged)")
        }
      }
    }
  }

  @Test("is told with its key when its record is damaged, also by a quick verify")
  func damagedRecord() throws {
    let lab = try Lab()
    let (list, chunk) = try Self.plant(lab, without: nil)
    let path = try #require(DamageTests.paths(lab).first)
    // 49 chunks, the first list, 50 chunks, the second list.
    let record = try DamagedRecordTests.records(lab, path)[100]
    try lab.session { _ in }
    try DamageTests.change(lab, path) { $0[record.upperBound - 8] ^= 1 }
    try lab.session { engine in
      for isQuick in [true, false] {
        let damaged = try engine.verify(isQuick ? .structure : .chunks).damaged
        #expect(Set(damaged.compactMap(\.digest)) == [list, chunk], "\(damaged)")
        #expect(damaged.allSatisfy { $0.keys == ["long"] }, "\(damaged)")
      }
    }
  }

  @Test("keeps gc from removing anything until a repair has accepted the loss")
  func accepted() throws {
    let lab = try Lab()
    let (list, _) = try Self.plant(lab, without: 1)
    try lab.session { try lab.put($0, [("garbage", noise(1, 3_000))]) }
    try lab.session { engine in
      try lab.delete(engine, ["garbage"])
      let before = try LostPackTests.names(lab)
      let kept = try engine.collectGarbage(Self.everything)
      #expect(kept.obstacles.contains { $0.message.contains("\(list)") } && kept.freedByteCount == 0)
      let after = try LostPackTests.names(lab)
      #expect(Set(before).isSubset(of: after))
      for _ in 0..<2 {
        let repaired = try engine.repair()
        #expect(repaired.unreadable.map(\.key) == ["long"] && repaired.dropped == [])
      }
      let repaired = try engine.repair(acceptsLosses: true)
      #expect(repaired.dropped.map(\.key) == ["long"] && repaired.unreadable == [])
      #expect(try engine.version("long", nil) == nil)
      #expect(try engine.verify().damaged == [])
      let collected = try engine.collectGarbage(Self.everything)
      #expect(collected.obstacles == [])
    }
  }

  @Test("that was damaged, and that a repair has set aside with its pack, is told until it is put again")
  func setAside() throws {
    let lab = try Lab(StoreOptions(averageChunkByteCount: 1 << 10, codec: .none, usesSimilarity: false))
    lab.packByteCountTarget = 32 << 20
    let data = noise(1, 6 << 20)
    var lists: [BlobDigest] = []
    try lab.session { engine in
      try lab.put(engine, [("long", data)])
      lists = try #require(try engine.blobs.layout(BlobDigest.of(Array(data)))).listDigests
    }
    // Too long for the cache of a lab's engine.
    let list = try #require(lists.count > 1 ? lists.first : nil)
    for path in try DamageTests.paths(lab) {
      let name = try #require(PackName(fileName: path.lastComponent?.string ?? ""))
      let file = try lab.disk.open(path, .read)
      defer { file.close() }
      var ends: [Int] = []
      _ = try PackScanner(file: file, name: name, codecs: CodecPool()).scan { record in
        guard case .chunk(let chunk) = record.content, chunk.digest == list else { return }
        ends.append(Int(record.offset) + record.byteCount)
      }
      // The last byte of the payload, before its checksum.
      try DamageTests.change(lab, path) { bytes in for end in ends { bytes[end - 5] ^= 1 } }
    }
    func check(_ damaged: [Damage], sourceLocation: SourceLocation = #_sourceLocation) {
      #expect(damaged.map(\.digest) == [list], sourceLocation: sourceLocation)
      #expect(damaged.first?.keys == ["long"], sourceLocation: sourceLocation)
    }
    try lab.session { engine in
      check(try engine.verify().damaged)
      let repaired = try engine.repair()
      #expect(repaired.setAside.count == 1 && repaired.unreadable.map(\.key) == ["long"])
    }
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { engine in
        check(try engine.verify(.structure).damaged)
        check(try engine.verify().damaged)
        let repaired = try engine.repair()
        #expect(repaired.setAside == [] && repaired.unreadable.map(\.key) == ["long"])
        let collected = try engine.collectGarbage(Self.everything)
        #expect(!collected.obstacles.isEmpty && collected.freedByteCount == 0)
      }
    }
    try lab.session { engine in
      try lab.put(engine, [("long", data)])
      try lab.checkSound(engine, "put again")
      #expect(try engine.repair().unreadable == [])
    }
  }
}
