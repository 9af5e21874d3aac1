import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// Stores that earlier builds wrote: every later build reads them.
@Suite("A frozen store")
struct FrozenStoreTests {
  /// What stands beside a store about each of its versions, keys in byte order, versions newest first.
  struct Listed: Codable, Equatable {
    var key: String
    var version: String
    var digest: String
    var byteCount: Int64
    var created: Int64
    var metadata: String
    /// The bytes themselves, in hexadecimal.
    var bytes: String?
    /// Or what makes them: the low halves of SplitMix64's bytes with that seed; zeros for 0.
    var seed: UInt64?
  }

  static let names = ["v2-blake3", "v2-sha256"]

  @Test("opens with every key, version, digest and byte that it was frozen with", arguments: names)
  func reads(_ name: String) async throws {
    let expected = try JSONDecoder().decode([Listed].self, from: try Fixtures.data("stores/\(name).json"))
    #expect(expected.count > 5)
    let temporary = try TemporaryFolder()
    let path = temporary.path.appending(name).string
    try FileManager.default.copyItem(atPath: Fixtures.url("stores/\(name)").path, toPath: path)
    try Self.checkKinds(path)
    for isOpenedBefore in [false, true] {
      let store = try await BlobStore.open(at: path, configuration: StoreConfiguration(threadCount: 1))
      let engine = store.engine
      var found: [Listed] = []
      for entry in try engine.keys("", after: nil, limit: .max) {
        for version in try engine.versions(entry.key) {
          let data = try #require(try engine.data(entry.key, version.id))
          let listed = expected.first { $0.version == "\(version.id)" }
          #expect(data == (try listed.map { try Self.bytes($0) }), "\(entry.key)")
          #expect(BlobDigest.of(data, by: version.digest.algorithm) == version.digest)
          found.append(Self.listed(version, bytes: listed?.bytes, seed: listed?.seed))
        }
      }
      #expect(found == expected, "opened before: \(isOpenedBefore)")
      #expect(try await store.verify().damaged.isEmpty)
      try await store.close()
    }
    // And it can be written to, collected and read again.
    let store = try await BlobStore.open(at: path)
    try await store.set("new", to: Data("new".utf8))
    try await store.delete(expected[0].key)
    #expect(
      try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.5)).obstacles.isEmpty)
    // A pack with a record of a later build is for that build to collect.
    let error = await #expect(throws: BlobStorageError.self) {
      try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    }
    #expect(error?.code == .unsupportedFormat)
    #expect(try await store.verify().damaged.isEmpty)
    #expect(try await store.data(forKey: "new") == Data("new".utf8))
    try await store.close()
  }

  /// Every kind of record, chunk, commit and stamp is in it, a pack without a footer, and a census.
  private static func checkKinds(_ path: String) throws {
    let packs = FilePath(path).appending("packs")
    let backend = FolderBackend(folder: packs, asideFolder: packs, files: SystemFiles())
    var kinds: Set<String> = []
    for name in try backend.packNames().live {
      let file = try #require(try backend.openPack(name))
      defer { file.close() }
      func insert(_ stamp: Stamp, after last: Stamp) {
        let isOwn = stamp.writer == name.writer
        kinds.insert("further stamp, writer \(isOwn ? 0 : stamp.writer == last.writer ? 2 : 1)")
      }
      let outcome = try PackScanner(file: file, name: name, codecs: CodecPool()).scan {
        (record) throws(BlobStorageError) in
        if record.type == .commit, record.beginsRecord {
          kinds.formUnion(try Self.kindsOfCommit(file, record, name))
        }
        switch record.content {
        case .chunk(let chunk) where record.member != nil:
          kinds.insert("member of a frame\(chunk.features == nil ? "" : ", features")")
        case .chunk(let chunk): kinds.insert("codec \(chunk.codecNumber)\(chunk.base == nil ? "" : ", base")")
        case .manifest(let manifest): kinds.insert("manifest \(manifest.depth)")
        case .ref(let ref):
          kinds.insert(record.continues ? "ref of several" : ref.replaced == .none ? "ref" : "replacing ref")
          if ref.version.writer != name.writer { kinds.insert("another writer's ref") }
          if ref.replaced != .none { insert(ref.replaced, after: ref.version) }
        case .drop(let drop):
          kinds.insert(drop.versions.count == 1 ? "drop" : "drop of several")
          if drop.stamp.writer != name.writer { kinds.insert("another writer's drop") }
          for (version, last) in zip(drop.versions, [drop.stamp] + drop.versions) {
            insert(version, after: last)
          }
        case .skipped: kinds.insert("skipped")
        }
      }
      kinds.insert(outcome.isSealed ? "sealed" : "not sealed")
    }
    let census = try #require(FileManager.default.contents(atPath: path + "/census"))
    for event in census.withUnsafeBytes({ Census($0) }).events {
      kinds.insert("census: \("\(event)".prefix { $0 != "(" })")
    }
    #expect(
      kinds == [
        "codec 0", "codec 1", "codec 2", "codec 1, base", "manifest 0", "manifest 1", "ref", "replacing ref",
        "ref of several", "drop", "sealed", "not sealed", "member of a frame", "member of a frame, features",
        "skipped", "drop of several", "another writer's ref", "another writer's drop",
        "further stamp, writer 0", "further stamp, writer 1", "further stamp, writer 2",
        "commit in the meta", "commit in the meta, compressed", "commit in the payload",
        "commit in the payload, compressed", "commit that continues", "census: store", "census: begun",
        "census: sealed",
      ])
  }

  /// The kinds of the commit record whose first entry is `record`.
  private static func kindsOfCommit(
    _ file: any File, _ record: PackRecord, _ name: PackName
  ) throws(BlobStorageError) -> Set<String> {
    let bytes = try file.bytes(at: record.recordRange.lowerBound, record.recordRange.count, pack: name)
    return try bridge(bytes) { (raw) throws(BlobStorageError) in
      let (header, meta, payload) = try RecordHeader.verified(
        raw, pack: name, offset: record.recordRange.lowerBound)
      let isCompressed = (meta.isEmpty ? payload : meta)[0] & 1 != 0
      let kind = "commit in the \(meta.isEmpty ? "payload" : "meta")\(isCompressed ? ", compressed" : "")"
      return header.flags & RecordHeader.continues == 0 ? [kind] : [kind, "commit that continues"]
    }
  }

  static func listed(_ version: BlobVersion, bytes: String?, seed: UInt64?) -> Listed {
    Listed(
      key: version.key, version: "\(version.id)", digest: "\(version.digest)", byteCount: version.byteCount,
      created: Int64((version.created.timeIntervalSince1970 * 1_000).rounded()),
      metadata: Hex.text(version.metadata),
      bytes: bytes, seed: seed)
  }

  static func bytes(seed: UInt64, _ count: Int) -> Data {
    if seed == 0 { return Data(count: count) }
    var random = SplitMix64(seed: seed)
    // Each byte is one of 16, so that there is something to encode.
    return Data(random.bytes(count).map { $0 & 0x0f })
  }

  private static func bytes(_ listed: Listed) throws -> Data {
    if let seed = listed.seed { return bytes(seed: seed, Int(listed.byteCount)) }
    return Data(try #require(Hex.bytes(listed.bytes ?? "")))
  }
}

/// Makes the frozen stores of format version 2. They are made: running it again would prove that this build reads what
/// this build writes. A later format version gets a generator and stores of its own.
@Suite(
  "The generator of frozen stores", .enabled(if: ProcessInfo.processInfo.environment["BLOB_FREEZE_V2"] == "1")
)
struct FrozenStoreGenerator {
  @Test("makes the stores of format version 2, once", arguments: BlobDigest.Algorithm.allCases)
  func make(_ algorithm: BlobDigest.Algorithm) throws {
    let name = "v2-\(algorithm.name)"
    let target = Fixtures.url("stores/\(name)")
    try #require(!FileManager.default.fileExists(atPath: target.path), "format version 2 is frozen")
    let temporary = try TemporaryFolder()
    let path = temporary.path.appending(name).string
    try Engine.create(
      at: path, options: StoreOptions(digestAlgorithm: algorithm, averageChunkByteCount: 1_024))
    let configuration = StoreConfiguration(threadCount: 1)
    var listed: [BlobVersion.ID: (bytes: String?, seed: UInt64?)] = [:]
    func put(_ engine: Engine, _ key: String, seed: UInt64, _ count: Int, _ options: PutOptions) throws {
      let bytes = FrozenStoreTests.bytes(seed: seed, count)
      listed[try engine.put(key, .data(bytes), options).version.id] = (nil, seed)
    }
    func put(_ engine: Engine, _ key: String, _ text: String, _ options: PutOptions = PutOptions()) throws {
      let result = try engine.put(key, .data(Data(text.utf8)), options)
      listed[result.version.id] = (Hex.text(Array(text.utf8)), nil)
    }
    let archiving = PutOptions(replacement: .archiveCurrent)
    for (version, seed) in try Self.writeForeignPack(path, algorithm) { listed[version] = (nil, seed) }

    var engine = try Engine(path: path, configuration: configuration)
    for (seed, codec) in CodecKind.allCases.enumerated() {
      try put(
        engine, "codec/\(codec.name)", seed: UInt64(seed) + 1, 6_000,
        PutOptions(codec: codec, metadata: [7, 8]))
    }
    try put(engine, "empty", "")
    for text in ["one", "two", "three"] { try put(engine, "history", text, archiving) }
    try put(engine, "replaced", "gone")
    try put(engine, "replaced", "here")
    try put(engine, "dropped", "gone")
    _ = try engine.delete(["dropped"], .durable)
    try put(engine, String(repeating: "long/", count: 800), "under a long key")
    let (based, bytes) = try Self.putEncoded(engine, "base")
    listed[based] = (Hex.text(bytes), nil)
    // More than 4,096 chunks, all but the last the same: a manifest of depth 1 in a small store.
    try put(engine, "long", seed: 0, 4_100 * 4_096 + 5, PutOptions())
    try engine.close()

    var environment = Engine.Environment()
    environment.joinsItems = true
    engine = try Engine(path: path, configuration: configuration, environment: environment)
    try put(engine, "history", "four", archiving)
    let joined = (50..<55).map { (seed: UInt64($0), data: FrozenStoreTests.bytes(seed: $0, 400 + Int($0))) }
    _ = try engine.put(joined.map { PutItem(key: "frame/\($0.seed)", data: $0.data) }, PutOptions())
    for (seed, _) in joined {
      if let version = try engine.version("frame/\(seed)", nil) { listed[version.id] = (nil, seed) }
    }
    _ = try engine.put(
      [PutItem(key: "batch/a", data: Data("a".utf8)), PutItem(key: "batch/b", data: Data("b".utf8))],
      PutOptions())
    for key in ["batch/a", "batch/b"] {
      if let version = try engine.version(key, nil) {
        listed[version.id] = (Hex.text([key.utf8.last ?? 0]), nil)
      }
    }
    let lines = try engine.keys("", after: nil, limit: .max).flatMap { try engine.versions($0.key) }.map {
      version in
      FrozenStoreTests.listed(version, bytes: listed[version.id]?.bytes, seed: listed[version.id]?.seed)
    }
    // Copied before the last writer closes: its pack has no footer.
    try FileManager.default.createDirectory(
      at: target.appending(path: "packs"), withIntermediateDirectories: true)
    for file in ["store", "census"]
      + (try FileManager.default.contentsOfDirectory(atPath: path + "/packs")).map({ "packs/" + $0 })
    {
      try FileManager.default.copyItem(atPath: "\(path)/\(file)", toPath: target.appending(path: file).path)
    }
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    try encoder.encode(lines).write(to: Fixtures.url("stores/\(name).json"))
    try engine.close()
  }

  /// Writes a pack as other writers and a later build may: with stamps of others, commits of several records, and a
  /// record that readers skip. Its last writer has died. Returns the seeds of its versions.
  private static func writeForeignPack(
    _ path: String, _ algorithm: BlobDigest.Algorithm
  ) throws -> [BlobVersion.ID: UInt64] {
    let folder = StoreFolder(FilePath(path), files: SystemFiles())
    let header = PackHeader(
      name: PackName(writer: 0xf00d, sequence: 1), storeID: try folder.readHeader().storeID,
      digestAlgorithm: algorithm, created: 1_760_000_000_000 << 16)
    let backend = FolderBackend(folder: folder.packs, asideFolder: folder.aside, files: SystemFiles())
    let writer = try PackWriter(header: header, backend: backend, codecs: CodecPool())
    let seeds = Array(UInt64(60)..<64)
    let plain = seeds.map { Array(FrozenStoreTests.bytes(seed: $0, 700)) }
    let digests = plain.map { BlobDigest.of($0, by: algorithm) }
    let members = digests.indices.map {
      FrameRecord.Member(
        digest: digests[$0], plainByteCount: 700,
        features: $0 == 1 ? nil : SIMD3(repeating: 77 + UInt32($0)))
    }
    let (codec, stored) = try ChunkEncoder().encoded(plain.flatMap { $0 }, by: .zstd)
    try #require(codec == .zstd)
    _ = try writer.append(FrameRecord(codecNumber: 1, members: members), payload: stored.span.bytes)

    var found: [BlobVersion.ID: UInt64] = [:]
    let (pack, one, other) = (header.name.writer, UInt64(0xaaaa), UInt64(0xbbbb))
    func stamp(_ number: UInt64, _ writer: UInt64) -> Stamp {
      Stamp(time: header.created + number << 16, writer: writer)
    }
    func ref(
      _ key: String, _ version: Stamp, replacing replaced: Stamp = .none, metadata: [UInt8] = []
    ) -> CommitRecord.Entry {
      let index = found.count % digests.count
      found[BlobVersion.ID(version)] = seeds[index]
      return .ref(
        RefRecord(
          key: Array(key.utf8), version: version, replaced: replaced, digest: digests[index], byteCount: 700,
          created: version.time >> 16 + 5, metadata: metadata))
    }
    func drop(_ key: String, _ stamp: Stamp, _ versions: [Stamp]) -> CommitRecord.Entry {
      .drop(DropRecord(key: Array(key.utf8), stamp: stamp, versions: versions))
    }
    guard case .ref(let first) = ref("foreign/versions", stamp(1, one)) else { return [:] }
    _ = try writer.append(.ref(first), continues: true)
    var entries = [
      ref("foreign/versions", stamp(2, other)),
      ref("foreign/versions", stamp(3, one), replacing: stamp(2, other)),
      ref("foreign/versions", stamp(4, pack)),
      ref("foreign/versions", stamp(5, one), replacing: stamp(1, one)),
    ]
    entries += (10..<20).map { ref("foreign/dropped", stamp($0, $0 < 14 ? one : $0 < 17 ? other : pack)) }
    entries.append(
      drop(
        "foreign/dropped", stamp(20, one), (10..<19).map { stamp($0, $0 < 14 ? one : $0 < 17 ? other : pack) }
      ))
    try writer.append(commit: entries) { _ in }
    // Too long for the meta: once a drop of versions that are not there, and once what can be compressed.
    var random = SplitMix64(seed: 5)
    let absent = (0..<600).map { _ in Stamp(time: random.next() >> 20, writer: random.next()) }
    try writer.append(commit: [drop("foreign/dropped", stamp(21, one), absent)]) { _ in }
    try writer.append(
      commit: (40..<62).map {
        ref("metadata/text \($0)", stamp($0, pack), metadata: Array(Hex.text(random.bytes(500)).utf8))
      }
    ) { _ in }
    try writer.flush()
    let offset = writer.byteCount
    let skipped = Self.skippedRecord(pack: header.name, offset: offset)
    try writer.file.put(skipped, at: offset)
    let last = PackWriter(
      adopting: writer.file, header: header, byteCount: offset + Int64(skipped.count), codecs: CodecPool())
    try last.append(commit: [
      drop("foreign/dropped", stamp(90, other), [stamp(19, pack)]), ref("foreign/last", stamp(91, pack)),
    ]) { _ in }
    try last.flush()
    last.file.close()
    return found
  }

  /// A record of a type and flags that no build knows yet.
  private static func skippedRecord(pack: PackName, offset: Int64) -> [UInt8] {
    var header = RecordHeader(type: .chunk, metaByteCount: 3, payloadByteCount: 5)
    header.typeNumber = 130
    header.flags = 0x60
    var bytes = header.encoded(meta: [1, 2, 3], pack: pack, offset: offset)
    let payload: [UInt8] = [5, 6, 7, 8, 9]
    let checksum = RecordHeader.payloadChecksum(
      payload.span.bytes, continuing: bytes.withUnsafeBytes { header.writtenChecksum($0) })
    bytes += payload
    withUnsafeBytes(of: checksum.littleEndian) { bytes += $0 }
    return bytes
  }

  /// Puts a blob of one chunk that is encoded against another, record by record.
  private static func putEncoded(
    _ engine: Engine, _ key: String
  ) throws -> (BlobVersion.ID, [UInt8]) {
    let algorithm = engine.header.digestAlgorithm
    var random = SplitMix64(seed: 41)
    let words = (0..<200).map { _ in random.bytes(12) }
    func text() -> [UInt8] { (0..<60).flatMap { _ in words.randomElement(using: &random) ?? [] } }
    let plain = text()
    let base = Array(text().prefix(500)) + plain
    let names = [plain, base].map { BlobDigest.of($0, by: algorithm) }
    let (codec, stored) = try ChunkEncoder().encoded(plain, by: .zstd, base: base)
    try #require(codec == .zstd)
    let (stamp, watermark) = try engine.writer.commit { (commit) throws(BlobStorageError) in
      let baseRecord = ChunkRecord(digest: names[1], plainByteCount: base.count, codecNumber: 0)
      try commit.append(.chunk(baseRecord), payload: base.span.bytes)
      let record = ChunkRecord(
        digest: names[0], plainByteCount: plain.count, codecNumber: CodecKind.zstd.rawValue,
        base: names[1])
      try commit.append(.chunk(record), payload: stored.span.bytes)
      let stamp = try commit.stamp()
      try commit.append(
        .ref(
          RefRecord(
            key: Array(key.utf8), version: stamp, replaced: .none, digest: names[0],
            byteCount: Int64(plain.count),
            created: commit.wallTime, metadata: [])))
      return stamp
    }
    if let watermark { try engine.writer.synchronize(watermark) }
    return (BlobVersion.ID(stamp), plain)
  }
}
