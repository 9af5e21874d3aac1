import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import SystemPackage
import Testing

/// A store of small files that arrived together.
private struct FramePlace {
  let place: StorePlace
  let folder: URL
  var files: [String: [UInt8]] = [:]

  init(_ options: StoreOptions = StoreOptions(), count: Int = 60) throws {
    place = try StorePlace(options)
    folder = URL(filePath: place.path).deletingLastPathComponent().appending(path: "files")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    var random = SplitMix64(seed: 77)
    let words = (0..<200).map { _ -> [UInt8] in
      let count = Int.random(in: 3...9, using: &random)
      return random.bytes(count).map { (byte: UInt8) -> UInt8 in 97 + byte % 26 }
    }
    for number in 0..<count {
      let wordCount = Int.random(in: 60...300, using: &random)
      var text: [UInt8] = []
      for _ in 0..<wordCount { text += (words.randomElement(using: &random) ?? []) + [32] }
      files["\(number / 10)/\(number).\(number % 2 == 0 ? "txt" : "md")"] = text
    }
    for (path, bytes) in files {
      let file = folder.appending(path: path)
      try FileManager.default.createDirectory(
        at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
      try Data(bytes).write(to: file)
    }
  }

  func add(_ engine: Engine) throws -> ImportReport {
    try Importer(engine, ImportOptions(durability: .relaxed, recordsState: false), nil).run([folder.path])
  }

  func check(_ engine: Engine, except gone: (String) -> Bool = { _ in false }) throws {
    for (path, bytes) in files where !gone(path) {
      #expect(try engine.data(path, nil) == Data(bytes), "\(path)")
    }
  }

  /// The packs' records, by their packs' files.
  func records() throws -> [(path: FilePath, records: [PackRecord])] {
    let packs = FilePath(place.path).appending("packs")
    let backend = FolderBackend(folder: packs, asideFolder: packs, files: SystemFiles())
    return try backend.packNames().live.map { name in
      let file = try #require(try backend.openPack(name))
      defer { file.close() }
      var records: [PackRecord] = []
      _ = try PackScanner(file: file, name: name, codecs: CodecPool()).scan { records.append($0) }
      return (packs.appending(name.fileName), records)
    }
  }

  func members() throws -> [PackRecord] { try records().flatMap(\.records).filter { $0.member != nil } }

  func change(_ path: FilePath, _ body: (inout [UInt8]) -> Void) throws {
    var bytes = try SystemFiles().bytes(of: path)
    body(&bytes)
    try SystemFiles().write(bytes, to: path)
  }
}

@Suite("Small files that arrive together", .serialized)
struct FrameTests {
  private static func rows(_ engine: Engine) throws -> [String] {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var rows: [String] = []
      try transaction.forEachChunk { (digest, row) throws(BlobStorageError) in
        let pack = try transaction.packRow(row.place.pack)?.name
        rows.append(
          "\(digest) \(pack.map { "\($0)" } ?? "?") \(row.place.offset) \(row.place.ordinal) "
            + "\(row.plainByteCount) \(row.storedByteCount) \(row.frameOffset ?? -1) \(row.isSuspect)")
        return true
      }
      return rows
    }
  }

  private static func recordsByteCount(_ engine: Engine) throws -> Int64 {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.packRows().reduce(0) { $0 + $1.row.appliedByteCount - Int64(PackHeader.byteCount) }
    }
  }

  @Test("are stored in frames, take fewer bytes, and are read one by one")
  func stored() throws {
    let place = try FramePlace()
    let engine = try place.place.engine()
    let report = try place.add(engine)
    #expect(report.newFileCount == 60)
    #expect(report.newByteCount == place.files.values.reduce(0) { $0 + Int64($1.count) })
    try place.check(engine)
    try engine.close()
    let members = try place.members()
    #expect(members.count == 60)
    // What is alike lies side by side.
    #expect(Set(members.map(\.recordRange)).count <= 2)
    let packed = members.reduce(0) { $0 + $1.byteCount }
    #expect(packed == Set(members.map(\.recordRange)).reduce(0) { $0 + $1.count })
    let alone = try place.files.values.reduce(0) { sum, bytes in
      try sum
        + CodecPool().withEncoder { (encoder) throws(BlobStorageError) in
          try encoder.withEncoded(bytes.span.bytes, by: .zstd) { 50 + $1.count }
        }
    }
    #expect(packed < alone * 4 / 5, "\(packed) of \(alone)")
    // The report counts what the packs have, but for refs.
    #expect(report.storedByteCount >= Int64(packed))
    let again = try place.place.engine()
    try place.check(again)
    #expect(try again.verify(.blobs).damaged == [])
    #expect(try again.verify().chunkCount == 60)
    try again.close()
  }

  @Test("are known to a catalog that is rebuilt as they are to one that grew")
  func rebuilt() throws {
    let place = try FramePlace()
    let engine = try place.place.engine()
    _ = try place.add(engine)
    try engine.catalog.settle()
    let rows = try Self.rows(engine)
    #expect(rows.count == 60)
    #expect(rows.filter { !$0.contains(" -1 ") }.count == 60)
    try engine.catalog.rebuild(because: nil)
    #expect(try Self.rows(engine) == rows)
    try place.check(engine)
    try engine.close()
    try place.place.removeCatalog()
    let again = try place.place.engine()
    #expect(try Self.rows(again) == rows)
    try place.check(again)
    try again.close()
  }

  @Test("are shared, within a batch, between batches and by a put; a put makes no frame")
  func shared() throws {
    var place = try FramePlace(count: 20)
    for (path, bytes) in place.files {
      place.files["copy/" + path] = bytes
      let file = place.folder.appending(path: "copy/" + path)
      try FileManager.default.createDirectory(
        at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
      try Data(bytes).write(to: file)
    }
    let engine = try place.place.engine()
    let report = try place.add(engine)
    #expect(report.newFileCount == 40 && report.duplicateByteCount == report.newByteCount)
    let before = try Self.recordsByteCount(engine)
    for (index, bytes) in place.files.values.enumerated() {
      #expect(try engine.put("put\(index)", bytes).newByteCount == 0)
    }
    #expect(try Self.recordsByteCount(engine) - before < 40 * 80)
    let own = Array("a put of its own, ".utf8) + Array(repeating: 46, count: 500)
    for index in 0..<3 { _ = try engine.put("own\(index)", own + [UInt8(index)]) }
    try place.check(engine)
    try engine.close()
    let records = try place.records().flatMap(\.records)
    #expect(records.filter { $0.member != nil }.count == 20)
    #expect(records.filter { $0.type == .chunk }.count == 3)
  }

  @Test("are stored alone where frames are of no use", arguments: [CodecKind.zlib, .none])
  func otherCodecs(_ codec: CodecKind) throws {
    let place = try FramePlace(StoreOptions(codec: codec), count: 10)
    let engine = try place.place.engine()
    _ = try place.add(engine)
    try place.check(engine)
    try engine.close()
    #expect(try place.members().isEmpty)
  }

  @Test("go one by one: a frame that is live stays as it is, and one that is partly dead is made anew")
  func collected() throws {
    let place = try FramePlace()
    let engine = try place.place.engine()
    _ = try place.add(engine)
    _ = try engine.put("garbage", SplitMix64.bytes(9_000, seed: 3))
    try engine.writer.rollOver()
    let whole = Set(try place.members().map { $0.recordRange.count })
    // Nothing of the frames is garbage.
    _ = try engine.delete(["garbage"], .durable)
    var before = try Self.recordsByteCount(engine)
    var report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(report.obstacles == [] && report.compactedPackCount > 0)
    #expect(try report.freedByteCount == before - Self.recordsByteCount(engine))
    #expect(Set(try place.members().map { $0.recordRange.count }) == whole)
    try place.check(engine)
    // Half of one kind is.
    let gone = { (path: String) in path.hasSuffix("4.txt") || path.hasSuffix("6.txt") }
    _ = try engine.delete(place.files.keys.filter(gone), .durable)
    before = try Self.recordsByteCount(engine)
    let statistics = try engine.statistics()
    #expect(statistics.garbageByteCount > 0)
    let plan = try engine.collectGarbage(GarbageCollectionOptions(isDryRun: true, minimumGarbageShare: 0))
    report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(report.obstacles == [])
    #expect(plan.deletedChunkCount == 12 && report.deletedChunkCount == 12)
    #expect(try report.freedByteCount == before - Self.recordsByteCount(engine))
    #expect(try report.garbageByteCount == engine.statistics().garbageByteCount)
    try place.check(engine, except: gone)
    #expect(try engine.verify().damaged == [])
    let rows = try Self.rows(engine)
    try engine.catalog.rebuild(because: nil)
    #expect(try Self.rows(engine) == rows)
    try engine.close()
    let live = try place.members()
    #expect(live.count == 48)
    let names = Set(place.files.filter { gone($0.key) }.values.map { BlobDigest.of($0) })
    for case .chunk(let chunk) in live.lazy.map(\.content) { #expect(!names.contains(chunk.digest)) }
  }

  @Test("are joined by a collection that copies them if they were put one by one", arguments: [false, true])
  func putOneByOne(_ hasCache: Bool) throws {
    let place = try FramePlace()
    var engine = try place.place.engine()
    if hasCache {
      try CacheFile(prefix: Array("c/".utf8), limits: CacheLimits(byteLimit: 100_000_000)).write(
        engine.folder)
    }
    for (path, bytes) in place.files.sorted(by: { $0.key < $1.key }) { _ = try engine.put(path, bytes) }
    let alone = try Self.recordsByteCount(engine)
    _ = try engine.put("garbage", SplitMix64.bytes(90_000, seed: 3))
    _ = try engine.delete(["garbage"], .durable)
    try engine.writer.rollOver()
    #expect(try place.members().isEmpty)
    let before = try Self.recordsByteCount(engine)
    let report = try engine.collectGarbage()
    let after = try Self.recordsByteCount(engine)
    #expect(
      report.obstacles == [] && report.compactedPackCount == 1 && report.freedByteCount == before - after)
    // The values of a cache are read one by one, and evicted one by one.
    #expect(try place.members().count == (hasCache ? 0 : 60))
    #expect(hasCache ? after > alone * 9 / 10 : after < alone * 7 / 10, "\(after) of \(alone)")
    try place.check(engine)
    let rows = try Self.rows(engine)
    try engine.close()
    try place.place.removeCatalog()
    engine = try place.place.engine()
    #expect(try Self.rows(engine) == rows)
    try place.check(engine)
    #expect(try engine.verify(.blobs).damaged == [])
    try engine.close()
  }

  @Test("are encoded once, with the others; what does not compress or is there is not left for that")
  func encodedLater() throws {
    let place = try FramePlace(count: 4)
    let engine = try place.place.engine()
    let text = try #require(place.files.values.first)
    func chunk(_ bytes: [UInt8]) throws -> ChunkPlan.Chunk {
      let plan = try engine.memoryPut.prepare(Array("key".utf8), Data(bytes), .relaxed, joins: true)
      return plan.plan.chunks.head
    }
    let features = try engine.memoryPut.prepare(Array("key".utf8), Data(text), .relaxed).plan.chunks.head
      .encoded?
      .record.features
    let left = try chunk(text)
    #expect(left.isToBeJoined && left.encoded == nil && left.features == features && features != nil)
    let noise = try chunk(SplitMix64.bytes(5_000, seed: 1))
    #expect(!noise.isToBeJoined && noise.encoded != nil)
    _ = try engine.put("there", text)
    let there = try chunk(text)
    #expect(!there.isToBeJoined && there.encoded == nil)
    try engine.close()
  }

  @Test("are stored like a put if no other arrives with them")
  func only() throws {
    let place = try FramePlace(count: 1)
    let bytes = try #require(place.files.values.first)
    let engine = try place.place.engine()
    _ = try place.add(engine)
    try engine.close()
    let imported = try #require(try place.records().flatMap(\.records).first { $0.type == .chunk })
    let again = try place.place.engine()
    try place.check(again)
    try again.close()
    #expect(imported.member == nil && imported.byteCount < bytes.count)
  }

  @Test("are named one by one when a frame is damaged, and healed by the same bytes")
  func damaged() throws {
    let place = try FramePlace()
    var engine = try place.place.engine()
    _ = try place.add(engine)
    try engine.close()
    let (path, records) = try #require(try place.records().first)
    let frame = try #require(records.first { $0.member != nil }).recordRange
    let members = records.filter { $0.recordRange == frame }
    try place.change(path) { $0[Int(frame.upperBound) - 40] ^= 1 }
    engine = try place.place.engine()
    let damage = try engine.verify().damaged
    let named = Set(damage.compactMap(\.digest))
    #expect(!named.isEmpty && damage.flatMap(\.keys).count == named.count)
    var digests: Set<BlobDigest> = []
    for case .chunk(let chunk) in members.lazy.map(\.content) { digests.insert(chunk.digest) }
    #expect(named.isSubset(of: digests))
    for (path, bytes) in place.files {
      if named.contains(BlobDigest.of(bytes)) {
        #expect(failure { _ = try engine.data(path, nil) }?.code == .corrupted, "\(path)")
      } else {
        #expect(try engine.data(path, nil) == Data(bytes), "\(path)")
      }
    }
    for (index, bytes) in place.files.values.enumerated() where named.contains(BlobDigest.of(bytes)) {
      #expect(try engine.put("healed\(index)", bytes).newByteCount == Int64(bytes.count))
    }
    try place.check(engine)
    #expect(try engine.repair().unreadable.isEmpty)
    try place.check(engine)
    #expect(try engine.verify().damaged == [])
    try engine.close()
  }

  @Test("are read although the header of their frame is damaged, because the footer says the same")
  func damagedHeader() throws {
    let place = try FramePlace(count: 12)
    var engine = try place.place.engine()
    _ = try place.add(engine)
    try engine.close()
    let (path, records) = try #require(try place.records().first)
    let frame = try #require(records.first { $0.member != nil }).recordRange
    for offset in [0, 3, 6, 12, 40] {
      try place.change(path) { $0[Int(frame.lowerBound) + offset] ^= 1 }
      engine = try place.place.engine()
      try place.check(engine)
      let damage = try engine.verify().damaged
      #expect(damage.count == 1 && damage.allSatisfy { $0.digest == nil }, "\(damage)")
      try engine.close()
      try place.change(path) { $0[Int(frame.lowerBound) + offset] ^= 1 }
    }
    try place.change(path) { $0[Int(frame.lowerBound) + 12] ^= 1 }
    engine = try place.place.engine()
    #expect(try engine.repair().unreadable.isEmpty)
    #expect(try engine.verify().damaged == [])
    try place.check(engine)
    try engine.close()
    #expect(try place.members().count == 12)
  }

  @Test("are read from a second copy if the first is damaged")
  func secondCopy() throws {
    let place = try FramePlace(count: 12)
    var engine = try place.place.engine()
    _ = try place.add(engine)
    try engine.close()
    let (path, records) = try #require(try place.records().first)
    let frame = try #require(records.first { $0.member != nil }).recordRange
    // The same frame once more, in a pack of another writer.
    engine = try place.place.engine()
    try Self.repeatFrames(place, engine)
    try engine.close()
    try place.change(path) { $0[Int(frame.upperBound) - 20] ^= 1 }
    engine = try place.place.engine()
    try place.check(engine)
    try engine.close()
  }

  /// Appends what the frames of all packs have once more, and commits it.
  private static func repeatFrames(_ place: FramePlace, _ engine: Engine) throws {
    for (path, records) in try place.records() {
      let bytes = try SystemFiles().bytes(of: path)
      for record in records where record.beginsRecord && record.member != nil {
        let range = Int(record.recordRange.lowerBound)..<Int(record.recordRange.upperBound)
        let (meta, payload) = try bytes[range].withUnsafeBytes { raw in
          let header = try RecordHeader(raw)
          let start = header.byteCount + header.metaByteCount
          return (
            try FrameRecord(
              meta: UnsafeRawBufferPointer(rebasing: raw[header.byteCount..<start]),
              payloadByteCount: header.payloadByteCount, algorithm: .blake3),
            Array(raw[start..<start + header.payloadByteCount])
          )
        }
        try engine.writer.append(meta, payload: payload.span.bytes)
      }
    }
    _ = try engine.writer.commit { _ in }
  }

  @Test("are stored together by a copy, too", arguments: CopyPlace.pairs)
  func copied(_ fromRemote: Bool, _ toRemote: Bool) throws {
    let files = try FramePlace()
    let (from, to) = (
      try CopyPlace(isRemote: fromRemote, packByteCount: 1 << 20),
      try CopyPlace(isRemote: toRemote, packByteCount: 1 << 20)
    )
    let source = try from.engine()
    _ = try files.add(source)
    try source.synchronize()
    let target = try to.engine("two")
    let report = try runCopy(source, to: target)
    #expect(report.chunkCount == 60)
    #expect(try contents(of: target) == contents(of: source))
    for engine in [source, target] {
      #expect(try Self.rows(engine).filter { !$0.contains(" -1 ") }.count == 60)
      try files.check(engine)
      #expect(try engine.verify().damaged == [])
    }
    #expect(try runCopy(source, to: target).chunkCount == 0)
    _ = try target.delete(files.files.keys.filter { $0.hasSuffix("4.txt") }, .durable)
    let other = try CopyPlace(isRemote: false)
    let alone = try other.engine()
    _ = try runCopy(target, to: alone)
    try files.check(alone) { $0.hasSuffix("4.txt") }
    for engine in [source, target, alone] { try engine.close() }
  }
}

extension SplitMix64 {
  fileprivate static func bytes(_ count: Int, seed: UInt64) -> [UInt8] {
    var random = SplitMix64(seed: seed)
    return random.bytes(count)
  }
}
