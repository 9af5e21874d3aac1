import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// A chunk that two packs have: either copy is enough.
@Suite("A second copy of a chunk")
struct SecondCopyTests {
  static let data = noise(1, 900)

  /// Two packs with the same chunk.
  private static func wholeStore() throws -> Lab {
    let lab = try Lab()
    try lab.session { engine in try lab.put(engine, [("first", data)]) }
    try lab.session { engine in
      let digest = BlobDigest.of(data)
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        try commit.append(
          .chunk(ChunkRecord(digest: digest, plainByteCount: data.count, codecNumber: 0)), payload: data.bytes
        )
      }
      try lab.put(engine, [("second", data)])
    }
    return lab
  }

  /// The same, the younger copy damaged. The catalog points at the younger.
  static func store() throws -> Lab {
    let lab = try wholeStore()
    for path in try DamageTests.paths(lab) where try DamageTests.holds(lab, path, key: "second") {
      // In the middle of the payload of the pack's first record.
      try DamageTests.change(lab, path) { $0[64 + 300] ^= 1 }
    }
    return lab
  }

  static func check(_ engine: Engine) throws {
    for key in ["first", "second"] {
      let read = try engine.data(key, nil)
      #expect(read == data, "\(key)")
    }
  }

  @Test("is read when the one that the catalog knows is damaged", arguments: [false, true])
  func read(rebuilds: Bool) throws {
    let lab = try Self.store()
    if rebuilds { try lab.forgetCatalog() }
    try lab.session { try Self.check($0) }
  }

  /// Also when a collection that was killed has left the pack condemned.
  @Test(
    "is read when the medium cannot read the one that the catalog knows, or its pack is lost",
    arguments: [false, true], [false, true])
  func gone(isLost: Bool, isCondemned: Bool) throws {
    let lab = try Self.wholeStore()
    let digest = BlobDigest.of(Self.data)
    var known: PackName?
    try lab.session { engine in
      known = try engine.catalog.read { (view) throws(BlobStorageError) -> PackName? in
        guard let row = try view.chunkRow(digest) else { return nil }
        return try view.packRow(row.place.pack)?.name
      }
      if isCondemned, let known {
        _ = try engine.catalog.write { (transaction) throws(BlobStorageError) in
          try transaction.updatePack(known) { $0.state = .condemned }
        }
      }
    }
    let path = LostPackTests.packs.appending(try #require(known).fileName)
    if isLost {
      try lab.disk.remove(path)
    } else {
      // In the middle of the payload of the pack's first record.
      try DamageTests.breakMedium(lab, path, 64 + 300..<64 + 301)
    }
    try lab.session { try Self.check($0) }
  }

  /// Fails if a pack is scanned for each of its damaged records, or all packs are for those behind a bound.
  @Test("is looked for a few times, however many records of a pack are damaged")
  func scans() throws {
    let lab = try Lab()
    lab.packByteCountTarget = 8 << 20
    try lab.session { engine in
      let items = (0..<300).map { PutItem(key: "k\($0)", data: prose(UInt64($0), 300)) }
      _ = try engine.put(items, PutOptions())
    }
    let path = try #require(try DamageTests.paths(lab).first)
    let file = try #require(path.lastComponent?.string)
    let end = try #require(try DamagedRecordTests.records(lab, path).last).upperBound
    try DamageTests.change(lab, path) { bytes in
      bytes.replaceSubrange(64..<end, with: [UInt8](repeating: 0, count: end - 64))
    }
    let openCount = Mutex(0)
    try lab.session { engine in
      var members: [BlobDigest] = []
      try engine.packs.scan(try #require(PackName(fileName: file))) { record in
        if record.member != nil, let chunk = record.chunk { members.append(chunk.digest) }
      }
      #expect(members.count > 200, "small blobs share frames")
      let few = ChunkSource(
        catalog: engine.catalog, packs: engine.packs, codecs: engine.codecs,
        cache: ChunkCache(byteCountMax: 0),
        otherCopies: OtherCopies(catalog: engine.catalog, packs: engine.packs, soughtCountMax: 20),
        extender: engine.sharing)
      lab.disk.beforeCalls { call in
        if call.kind == .open, call.detail.contains(file) { openCount.withLock { $0 += 1 } }
      }
      for (source, countMax) in [(engine.chunks, 10), (few, 100)] {
        openCount.withLock { $0 = 0 }
        for digest in members {
          let error = #expect(throws: BlobStorageError.self) { _ = try source.bytes(digest) }
          #expect(error?.code == .corrupted)
        }
        let count = openCount.withLock { $0 }
        #expect(count <= countMax, "\(members.count) records")
      }
      lab.disk.beforeCalls(nil)
    }
  }

  /// A hostile store can have more copies than memory holds.
  @Test("is found of each damaged record, also if there are too many to remember all")
  func tooMany() throws {
    let lab = try Lab()
    let chunks = (0..<5).map { Array("chunk \($0)".utf8) }
    for sequence in 1...3 as ClosedRange<UInt32> {
      // Those of the youngest pack count, and have other bytes than their digests say.
      let records = chunks.map { chunk in
        let record = ChunkRecord(digest: BlobDigest.of(chunk), plainByteCount: chunk.count, codecNumber: 0)
        let payload = sequence < 3 ? chunk : Array(chunk.reversed())
        return (content: PackRecord.Content.chunk(record), payload: payload)
      }
      try HostileTests.plant(lab, sequence, records)
    }
    try lab.session { engine in
      let source = ChunkSource(
        catalog: engine.catalog, packs: engine.packs, codecs: engine.codecs,
        cache: ChunkCache(byteCountMax: 0),
        otherCopies: OtherCopies(catalog: engine.catalog, packs: engine.packs, totalCountMax: 4),
        extender: engine.sharing)
      for chunk in chunks {
        let bytes = try source.bytes(BlobDigest.of(chunk))
        #expect(bytes == chunk)
      }
    }
  }

  @Test("is looked for once for all that a lost pack had")
  func scansOfLostPack() throws {
    let lab = try Lab()
    try lab.session { engine in
      let items = (0..<50).map { PutItem(key: "k\($0)", data: noise(UInt64($0), 900)) }
      _ = try engine.put(items, PutOptions())
    }
    let lost = try #require(try DamageTests.paths(lab).first)
    try lab.session { try lab.put($0, [("other", noise(99, 500))]) }
    let other = try #require(try DamageTests.paths(lab).first { $0 != lost }?.lastComponent?.string)
    try lab.disk.remove(lost)
    let openCount = Mutex(0)
    try lab.session { engine in
      let file = try #require(lost.lastComponent?.string)
      let name = try #require(PackName(fileName: file))
      var digests: [BlobDigest] = []
      try engine.catalog.forEachChunk { (digest, row, view) throws(BlobStorageError) in
        if try view.packRow(row.place.pack)?.name == name { digests.append(digest) }
        return true
      }
      #expect(digests.count >= 50)
      lab.disk.beforeCalls { call in
        if call.kind == .open, call.detail.contains(other) { openCount.withLock { $0 += 1 } }
      }
      for digest in digests {
        let error = #expect(throws: BlobStorageError.self) { _ = try engine.chunks.bytes(digest) }
        #expect(error?.code == .corrupted)
      }
      lab.disk.beforeCalls(nil)
    }
    #expect(openCount.withLock { $0 } <= 3)
  }

  @Test("is not collected while the one that stays is damaged", arguments: [false, true])
  func collected(rebuilds: Bool) throws {
    let lab = try Self.store()
    if rebuilds { try lab.forgetCatalog() }
    try lab.session { engine in
      // The older pack has nothing that is live but the copy.
      try lab.delete(engine, ["first"])
      let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      #expect(!report.obstacles.isEmpty)
      let read = try engine.data("second", nil)
      #expect(read == Self.data)
    }
    try lab.forgetCatalog()
    try lab.session { engine in
      let read = try engine.data("second", nil)
      #expect(read == Self.data)
    }
  }

  /// The blob was marked before, and the collection takes the pack with the only good copy.
  @Test("is kept when a read points the catalog at it between marking and condemning")
  func readMeanwhile() throws {
    let lab = try Lab()
    let (long, garbage) = (noise(6, 6_000), noise(7, 3_000))
    try lab.session { engine in
      _ = try engine.put("long", .data(long), PutOptions())
      _ = try engine.put("garbage", .data(garbage), PutOptions())
    }
    try lab.session { engine in
      var first: ChunkEntry?
      try engine.blobs.layout(BlobDigest.of(Array(long)))?.forEachChunk(in: 0..<1, from: engine.chunks) {
        first = $0.entry
        return false
      }
      let entry = try #require(first)
      let part = Data(long.prefix(entry.plainByteCount))
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        try commit.append(
          .chunk(ChunkRecord(digest: entry.digest, plainByteCount: part.count, codecNumber: 0)),
          payload: part.bytes)
      }
      _ = try engine.put("other", .data(noise(8, 500)), PutOptions())
      _ = try engine.delete(["garbage"], .durable)
    }
    for path in try DamageTests.paths(lab) where try DamageTests.holds(lab, path, key: "other") {
      // In the payload of the pack's first record, which is the copy that the catalog knows.
      try DamageTests.change(lab, path) { $0[64 + 100] ^= 1 }
    }
    let (collector, reader) = (try lab.open(), try lab.open())
    let readCount = Mutex(0)
    let handler: ProgressHandler = { progress in
      // Marked, and nothing condemned yet.
      guard progress.phase == "rebasing" else { return }
      let read = try? reader.data("long", nil)
      readCount.withLock { $0 += read == long ? 1 : 0 }
    }
    let report = try collector.collectGarbage(
      GarbageCollectionOptions(minimumGarbageShare: 0), progress: handler)
    #expect(readCount.withLock { $0 } == 1)
    #expect(report.obstacles == [] && report.compactedPackCount >= 1)
    try reader.close()
    try collector.close()
    for _ in 0..<2 {
      try lab.session { engine in
        let read = try engine.data("long", nil)
        #expect(read == long)
      }
      try lab.forgetCatalog()
    }
  }

  @Test("is what a repair leaves, and verify tells the damage without naming keys")
  func repaired() throws {
    let lab = try Self.store()
    try lab.session { engine in
      let damaged = try engine.verify().damaged
      #expect(damaged.count == 1 && damaged.allSatisfy { $0.keys.isEmpty }, "\(damaged)")
      #expect(try engine.repair().unreadable == [])
      try Self.check(engine)
      #expect(try engine.verify().damaged == [])
    }
  }

  // MARK: Manifests

  private static let long = noise(6, 6_000)

  /// Two packs with the same manifest, the younger copy damaged.
  private static func storeOfManifests() throws -> Lab {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("first", long)]) }
    try lab.session { engine in
      let layout = try #require(try engine.blobs.layout(BlobDigest.of(Array(long))))
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        _ = try commit.appendManifest(of: layout, unless: { _ in false })
      }
      try lab.put(engine, [("second", long)])
    }
    for path in try DamageTests.paths(lab) where try DamageTests.holds(lab, path, key: "second") {
      let offset = try DamageTests.manifestOffset(lab, path)
      try DamageTests.change(lab, path) { $0[offset] ^= 1 }
    }
    return lab
  }

  private static func checkLong(_ engine: Engine, _ keys: [String] = ["first", "second"]) throws {
    for key in keys {
      let read = try engine.data(key, nil)
      #expect(read == long, "\(key)")
    }
  }

  @Test("of a manifest is read when the one that the catalog knows is damaged", arguments: [false, true])
  func manifestRead(rebuilds: Bool) throws {
    let lab = try Self.storeOfManifests()
    if rebuilds { try lab.forgetCatalog() }
    try lab.session { engine in
      try Self.checkLong(engine)
      #expect(try engine.repair().unreadable == [])
      try Self.checkLong(engine)
      #expect(try engine.verify().damaged == [])
    }
  }

  @Test(
    "of a manifest stays in a collection when the one that the catalog knows is damaged",
    arguments: [false, true])
  func manifestCollected(rebuilds: Bool) throws {
    let lab = try Self.storeOfManifests()
    if rebuilds { try lab.forgetCatalog() }
    try lab.session { engine in
      try lab.delete(engine, ["first"])
      _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    }
    for _ in 0..<2 {
      try lab.session { try Self.checkLong($0, ["second"]) }
      try lab.forgetCatalog()
    }
  }

  // MARK: What checksums do not tell

  @Test("verify finds a chunk whose checksum is right and whose bytes are not")
  func wrongBytes() throws {
    let lab = try Lab()
    let digest = BlobDigest.of(Self.data)
    try lab.session { engine in
      let other = noise(2, Self.data.count)
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        try commit.append(
          .chunk(ChunkRecord(digest: digest, plainByteCount: other.count, codecNumber: 0)),
          payload: other.bytes)
      }
      let stamp = try engine.put("k", .data(Data("x".utf8)), PutOptions()).version.id.stamp
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        try commit.append(
          .ref(
            RefRecord(
              key: Array("k".utf8), version: try commit.stamp(), replaced: stamp, digest: digest,
              byteCount: Int64(other.count), created: 0, metadata: [])))
      }
      let damaged = try engine.verify().damaged
      #expect(damaged.map(\.digest) == [digest] && damaged.first?.keys == ["k"], "\(damaged)")
    }
  }

  @Test("a manifest that names the chunks of other bytes is found by reading the whole blob")
  func wrongManifest() throws {
    let lab = try Lab()
    let (one, other) = (noise(3, 200), noise(4, 200))
    let digest = BlobDigest.of(Array(noise(5, 400)))
    try lab.session { engine in
      _ = try engine.put("one", .data(one), PutOptions())
      _ = try engine.put("other", .data(other), PutOptions())
      let entries = [one, other].map { data in
        ChunkEntry(digest: BlobDigest.of(Array(data)), plainByteCount: data.count)
      }
      let layout = try BlobLayout(digest: digest, chunks: entries)
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        _ = try commit.appendManifest(of: layout, unless: { _ in false })
        _ = try commit.append(
          .ref(
            RefRecord(
              key: Array("wrong".utf8), version: try commit.stamp(), replaced: .none, digest: digest,
              byteCount: 400, created: 0, metadata: [])))
      }
      #expect(try engine.verify().damaged == [])
      let damaged = try engine.verify(.blobs).damaged
      #expect(damaged.map(\.digest) == [digest] && damaged.first?.keys == ["wrong"], "\(damaged)")
      let blob = try #require(try engine.openBlob("wrong", nil))
      defer { blob.close() }
      let error = #expect(throws: BlobStorageError.self) { try blob.stream(0..<400) { _ in } }
      #expect(error?.code == .corrupted)
      let whole = #expect(throws: BlobStorageError.self) { _ = try engine.data("wrong", nil) }
      #expect(whole?.code == .corrupted && whole?.key == "wrong" && whole?.digest == digest)
      #expect(throws: BlobStorageError.self) { _ = try engine.data(digest) }
      // What no version needs is garbage, whatever it names.
      _ = try engine.delete(["wrong"], .durable)
      #expect(try engine.verify(.blobs).damaged == [])
    }
  }

  @Test("all manifests that name the chunks of other bytes are found, however many, and no other")
  func wrongManifests() throws {
    let lab = try Lab()
    let parts = [Array(noise(3, 20)), Array(noise(4, 20))]
    var payload = ByteWriter()
    var records: [(content: PackRecord.Content, payload: [UInt8])] = []
    for part in parts {
      ChunkEntry(digest: BlobDigest.of(part), plainByteCount: 20).encode(into: &payload)
      records.append(
        (.chunk(ChunkRecord(digest: BlobDigest.of(part), plainByteCount: 20, codecNumber: 0)), part))
    }
    // They are read a thousand at a time.
    let wrong = (0..<2_100).map { BlobDigest.of(Array("blob \($0)".utf8)) }
    for (number, digest) in (wrong + [BlobDigest.of(parts[0] + parts[1])]).enumerated() {
      let manifest = ManifestRecord(digest: digest, byteCount: 40, chunkCount: 2, depth: 0, listedCount: 2)
      records.append((.manifest(manifest), payload.bytes))
      records.append(
        HostileTests.ref("k\(number)", digest, byteCount: 40, time: 1 << 41 + UInt64(number)))
    }
    try HostileTests.plant(lab, 1, records)
    try lab.session { engine in
      #expect(try engine.verify().damaged == [])
      let report = try engine.verify(.blobs)
      #expect(report.damaged.count == wrong.count && report.blobCount == wrong.count + 1)
      var keys: [BlobDigest: [String]] = [:]
      for damage in report.damaged { if let digest = damage.digest { keys[digest] = damage.keys } }
      for (number, digest) in wrong.enumerated() where keys[digest] != ["k\(number)"] {
        Issue.record("blob \(number) is told with \(keys[digest] ?? [])")
        break
      }
      // A quick one reads none.
      #expect(try engine.verify(.structure).damaged == [])
    }
  }

  @Test("a manifest that gives chunks other lengths than they have is damage, wherever the blob is read")
  func wrongLengths() throws {
    let lab = try Lab()
    let parts = [noise(3, 700), noise(4, 700)]
    let digest = BlobDigest.of(Array(parts[0] + parts[1]))
    try lab.session { engine in
      for (number, part) in parts.enumerated() { _ = try engine.put("\(number)", .data(part), PutOptions()) }
      let entries = zip(parts, [600, 800]).map { part, byteCount in
        ChunkEntry(digest: BlobDigest.of(Array(part)), plainByteCount: byteCount)
      }
      let layout = try BlobLayout(digest: digest, chunks: entries)
      _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
        _ = try commit.appendManifest(of: layout, unless: { _ in false })
        _ = try commit.append(
          .ref(
            RefRecord(
              key: Array("wrong".utf8), version: try commit.stamp(), replaced: .none, digest: digest,
              byteCount: 1_400, created: 0, metadata: [])))
      }
      let blob = try #require(try engine.openBlob("wrong", nil))
      defer { blob.close() }
      for range in [0..<1_400, 0..<10, 650..<1_350] as [Range<Int64>] {
        let error = #expect(throws: BlobStorageError.self) { _ = try blob.read(range) }
        #expect(error?.code == .corrupted, "\(range)")
      }
      let error = #expect(throws: BlobStorageError.self) { _ = try engine.data("wrong", nil) }
      #expect(error?.code == .corrupted && error?.key == "wrong")
    }
  }
}
