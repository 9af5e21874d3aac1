import BlobStorage
import BlobStorageCache
import BlobStorageReports
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import SystemPackage
import Testing

/// Packs that are whole, with right checksums, and that claim what no writer writes.
@Suite("A hostile store", .serialized)
struct HostileTests {
  /// Writes a pack of these records into a store, as some other program would.
  static func plant(
    _ lab: Lab, _ sequence: UInt32 = 1, frames: [(FrameRecord, payload: [UInt8])] = [],
    _ records: [(content: PackRecord.Content, payload: [UInt8])]
  ) throws {
    let folder = StoreFolder(FilePath(Lab.storePath), files: lab.disk)
    let header = PackHeader(
      name: PackName(writer: 0xbad, sequence: sequence), storeID: try folder.readHeader().storeID,
      digestAlgorithm: .blake3, created: 1 << 40)
    let writer = try PackWriter(
      header: header,
      backend: FolderBackend(folder: folder.packs, asideFolder: folder.aside, files: lab.disk),
      codecs: CodecPool())
    for (frame, payload) in frames { _ = try writer.append(frame, payload: payload.span.bytes) }
    for (content, payload) in records {
      _ = try writer.append(content, payload: payload.span.bytes)
    }
    try writer.seal()
    writer.file.close()
  }

  static func ref(
    _ key: String, _ digest: BlobDigest, byteCount: Int64, time: UInt64 = 1 << 41, created: UInt64 = .max
  ) -> (content: PackRecord.Content, payload: [UInt8]) {
    let ref = RefRecord(
      key: Array(key.utf8), version: Stamp(time: time, writer: 1), replaced: .none, digest: digest,
      byteCount: byteCount, created: created, metadata: [])
    return (.ref(ref), [])
  }

  static func encoded(_ plain: [UInt8], _ choice: CodecChoice) throws -> [UInt8] {
    try ChunkEncoder().withEncoded(plain.span.bytes, by: choice) { _, stored in Array(stored) }
  }

  /// Reads, counts, verifies, collects and repairs; puts go on afterwards.
  static func use(_ lab: Lab) throws {
    let engine = try lab.open()
    _ = try engine.verify()
    _ = try engine.statistics()
    _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    _ = try engine.repair()
    _ = try engine.put("good", .data(Data([1, 2, 3])), PutOptions())
    #expect(try engine.data("good", nil) == Data([1, 2, 3]))
    try engine.close()
  }

  /// How much more memory than before the process has ever had, in bytes.
  static func growth(_ body: () throws -> Void) rethrows -> Int {
    func peak() -> Int {
      // Where the system does not tell, nothing is found to grow.
      let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
      let line = status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
      return (line.flatMap { Int($0.filter(\.isNumber)) } ?? 0) * 1_024
    }
    let before = peak()
    try body()
    return peak() - before
  }

  @Test("with chunks that grow beyond what they say stops there", arguments: [CodecChoice.zstd, .zlib])
  func bombs(_ choice: CodecChoice) throws {
    let lab = try Lab()
    let stored = try Self.encoded([UInt8](repeating: 0, count: 8 << 20), choice)
    let claimed = 64 << 10
    let digest = BlobDigest.of([UInt8](repeating: 0, count: claimed))
    let record = ChunkRecord(digest: digest, plainByteCount: claimed, codecNumber: choice.kind.rawValue)
    try Self.plant(lab, 1, [(.chunk(record), stored), Self.ref("bomb", digest, byteCount: Int64(claimed))])
    let engine = try lab.open()
    let error = #expect(throws: BlobStorageError.self) { try engine.data("bomb", nil) }
    #expect(error?.code == .corrupted)
    #expect(error?.digest == digest && error?.pack != nil && error?.offset == 64, "the place is named")
    try engine.close()
    try Self.use(lab)
  }

  /// A frame of these chunks, with its payload, in a sealed pack with a ref of each.
  private static func plantFrame(
    _ lab: Lab, _ chunks: [[UInt8]], byteCounts: [Int]? = nil, payload: [UInt8]
  ) throws {
    let members = chunks.indices.map { index in
      FrameRecord.Member(
        digest: BlobDigest.of(chunks[index]), plainByteCount: byteCounts?[index] ?? chunks[index].count)
    }
    let refs = chunks.enumerated().map { index, chunk in
      ref("k\(index)", BlobDigest.of(chunk), byteCount: Int64(chunk.count), time: 1 << 41 + UInt64(index))
    }
    try plant(lab, 1, frames: [(FrameRecord(codecNumber: 1, members: members), payload)], refs)
  }

  /// What each of so many keys reads as; nil where its chunk is damaged.
  private static func read(_ lab: Lab, _ count: Int) throws -> [Data?] {
    let engine = try lab.open()
    let found = (0..<count).map { index -> Data? in
      do throws(BlobStorageError) { return try engine.data("k\(index)", nil) } catch {
        #expect(error.code == .corrupted && error.pack != nil && error.offset != nil, "\(error)")
        return nil
      }
    }
    try engine.close()
    return found
  }

  /// A process of its own: the memory that counts is that of a whole process.
  @Test("with a frame that grows beyond what it says stops there")
  func frameBomb() async {
    await #expect(processExitsWith: .success) { try Self.readFrameBomb() }
  }

  private static func readFrameBomb() throws {
    let lab = try Lab()
    let chunks = [[UInt8](repeating: 0, count: 3_000), [UInt8](repeating: 0, count: 200_000)]
    try Self.plantFrame(lab, chunks, payload: try Self.encoded([UInt8](repeating: 0, count: 8 << 20), .zstd))
    let growth = try Self.growth {
      // The beginning of the frame is what it should be, and all of it is not.
      #expect(try Self.read(lab, 2) == [Data(chunks[0]), nil])
      try Self.use(lab)
    }
    #expect(growth < 200 << 20, "\(growth >> 20) MiB")
  }

  @Test("with a frame that names one chunk twice reads it")
  func doubleMember() throws {
    let lab = try Lab()
    let chunks = [prose(1, 900), prose(2, 700), prose(1, 900)].map { [UInt8]($0) }
    try Self.plantFrame(lab, chunks, payload: try Self.encoded(chunks.flatMap { $0 }, .zstd))
    #expect(try Self.read(lab, 3) == chunks.map { Data($0) })
    try Self.use(lab)
    #expect(try Self.read(lab, 3) == chunks.map { Data($0) })
  }

  @Test("with a frame whose members have other lengths says that they are damaged")
  func wrongLengths() throws {
    let lab = try Lab()
    let chunks = [prose(1, 900), prose(2, 700), prose(3, 300)].map { [UInt8]($0) }
    try Self.plantFrame(
      lab, chunks, byteCounts: [899, 701, 300], payload: try Self.encoded(chunks.flatMap { $0 }, .zstd))
    #expect(try Self.read(lab, 3) == [nil, nil, Data(chunks[2])])
    let engine = try lab.open()
    #expect(
      Set(try engine.verify().damaged.compactMap(\.digest)) == Set(chunks.prefix(2).map { BlobDigest.of($0) })
    )
    try engine.close()
    try Self.use(lab)
  }

  /// A process of its own: the memory that counts is that of a whole process.
  @Test("with a frame that asks for a longer window than it may is refused, read in part or as a whole")
  func longWindow() async {
    await #expect(processExitsWith: .success) { try Self.readLongWindows() }
  }

  private static func readLongWindows() throws {
    let chunks = [[UInt8](repeating: 7, count: 3_000), [UInt8](repeating: 7, count: 200_000)]
    // A frame of two blocks that repeat one byte. Windows of 2 MiB and of 128 MiB.
    func payload(_ window: UInt8) -> [UInt8] {
      func block(_ count: Int, isLast: Bool) -> [UInt8] {
        let header = count << 3 | 1 << 1 | (isLast ? 1 : 0)
        return [UInt8(header & 255), UInt8(header >> 8 & 255), UInt8(header >> 16), 7]
      }
      return [0x28, 0xb5, 0x2f, 0xfd, 0, window] + block(103_000, isLast: false)
        + block(100_000, isLast: true)
    }
    for (window, isTaken) in [(UInt8(11 << 3), true), (11 << 3 | 1, false), (17 << 3, false)] {
      let lab = try Lab()
      try Self.plantFrame(lab, chunks, payload: payload(window))
      let growth = try Self.growth {
        #expect(try Self.read(lab, 2) == chunks.map { isTaken ? Data($0) : nil }, "\(window)")
        let engine = try lab.open()
        #expect(try engine.verify().damaged.count == (isTaken ? 0 : 2))
        try engine.close()
      }
      #expect(growth < 100 << 20, "\(growth >> 20) MiB")
      try Self.use(lab)
    }
  }

  /// A process of its own: the memory that counts is that of a whole process.
  @Test("with a blob of 512 GiB out of one chunk is read at any place, and counted in little memory")
  func hugeBlob() async {
    await #expect(processExitsWith: .success) { try Self.readHugeBlob() }
  }

  private static func readHugeBlob() throws {
    let lab = try Lab()
    let plain = [UInt8](repeating: 7, count: 8 << 20)
    let chunk = BlobDigest.of(plain)
    var list = ByteWriter()
    for _ in 0..<4_096 { ChunkEntry(digest: chunk, plainByteCount: plain.count).encode(into: &list) }
    let span = Int64(4_096) * Int64(plain.count)
    var lists = ByteWriter()
    for _ in 0..<16 {
      ListEntry(digest: BlobDigest.of(list.bytes), chunkCount: 4_096, spanByteCount: span).encode(
        into: &lists)
    }
    let blob = BlobDigest.of([42] as [UInt8])
    try plant(
      lab, 1,
      [
        (
          .chunk(ChunkRecord(digest: chunk, plainByteCount: plain.count, codecNumber: 1)),
          try encoded(plain, .zstd)
        ),
        (
          .chunk(
            ChunkRecord(digest: BlobDigest.of(list.bytes), plainByteCount: list.bytes.count, codecNumber: 0)),
          list.bytes
        ),
        (
          .manifest(
            ManifestRecord(
              digest: blob, byteCount: 16 * span, chunkCount: 16 * 4_096, depth: 1, listedCount: 16)),
          lists.bytes
        ),
        ref("huge", blob, byteCount: 16 * span),
      ])
    let growth = try growth {
      let engine = try lab.open()
      let open = try #require(try engine.openBlob("huge", nil))
      for start in [0, 8 * span + 12_345, 16 * span - 10] {
        let bytes = try open.read(start..<min(start + 100, 16 * span))
        #expect(bytes.allSatisfy { $0 == 7 } && !bytes.isEmpty)
      }
      open.close()
      try engine.close()
      try use(lab)
    }
    #expect(growth < 400 << 20, "\(growth >> 20) MiB")
  }

  @Test(
    "with a blob that names one chunk 33 million times has it replaced and renamed in little memory")
  func repeatedChunk() async {
    await #expect(processExitsWith: .success) { try Self.renameRepeatedChunk() }
  }

  private static func renameRepeatedChunk() throws {
    let lab = try Lab()
    let chunk = BlobDigest.of([7] as [UInt8])
    let raw = ChunkRecord(digest: chunk, plainByteCount: 1, codecNumber: 0)
    var list = ByteWriter()
    for _ in 0..<4_096 { ChunkEntry(digest: chunk, plainByteCount: 1).encode(into: &list) }
    let digest = BlobDigest.of(list.bytes)
    let listCount = 8_192
    var lists = ByteWriter()
    for _ in 0..<listCount {
      ListEntry(digest: digest, chunkCount: 4_096, spanByteCount: 4_096).encode(into: &lists)
    }
    let byteCount = Int64(listCount * 4_096)
    let manifest = ManifestRecord(
      digest: BlobDigest.of([43] as [UInt8]), byteCount: byteCount, chunkCount: byteCount, depth: 1,
      listedCount: listCount)
    try plant(
      lab, 1,
      [
        (.chunk(raw), [7]),
        (
          .chunk(ChunkRecord(digest: digest, plainByteCount: list.bytes.count, codecNumber: 0)), list.bytes
        ),
        (.manifest(manifest), lists.bytes), ref("many", manifest.digest, byteCount: byteCount),
      ])
    let other = BlobDigest.of([8] as [UInt8])
    try plant(lab, 2, [(.chunk(ChunkRecord(digest: other, plainByteCount: 1, codecNumber: 0)), [8])])
    let file = FileManager.default.temporaryDirectory.appending(path: "zeros-\(UUID().uuidString)")
    try Data(count: Int(byteCount)).write(to: file)
    defer { try? FileManager.default.removeItem(at: file) }  // what stays is temporary
    let growth = try growth {
      let engine = try lab.open()
      _ = try engine.put("many", .file(file.path), PutOptions(replacement: .archiveCurrent))
      _ = try engine.catalog.write { (transaction) throws(BlobStorageError) in
        try transaction.updatePack(PackName(writer: 0xbad, sequence: 2)) { $0.state = .condemned }
      }
      #expect(try VersionChanges(engine).rename("many", to: "more", .durable))
      try engine.close()
    }
    #expect(growth < 400 << 20, "\(growth >> 20) MiB")
  }

  @Test(
    "with manifests that claim 10⁹ chunks, or lengths that no sum can hold, is refused there and read elsewhere"
  )
  func manifests() throws {
    let lab = try Lab()
    let entry = ListEntry(
      digest: BlobDigest.of([1] as [UInt8]), chunkCount: 1, spanByteCount: BlobLimits.maximumBlobByteCount)
    var overflowing = ByteWriter(capacity: 40_000 * ListEntry.byteCount)
    for _ in 0..<40_000 { entry.encode(into: &overflowing) }
    let claims: [(ManifestRecord, [UInt8])] = [
      (
        ManifestRecord(
          digest: BlobDigest.of([2] as [UInt8]), byteCount: 1 << 40, chunkCount: 1_000_000_000, depth: 0,
          listedCount: 1_000_000_000), []
      ),
      (
        ManifestRecord(
          digest: BlobDigest.of([3] as [UInt8]), byteCount: 1 << 40, chunkCount: 1_000_000_000, depth: 1,
          listedCount: 0), []
      ),
      (
        ManifestRecord(
          digest: BlobDigest.of([4] as [UInt8]), byteCount: .max, chunkCount: .max, depth: 1, listedCount: 0),
        []
      ),
      (
        ManifestRecord(
          digest: BlobDigest.of([5] as [UInt8]), byteCount: 1 << 48, chunkCount: 40_000, depth: 1,
          listedCount: 40_000), overflowing.bytes
      ),
    ]
    for (index, (manifest, payload)) in claims.enumerated() {
      try Self.plant(
        lab, UInt32(index + 1),
        [(.manifest(manifest), payload), Self.ref("claim \(index)", manifest.digest, byteCount: 1 << 40)])
    }
    let engine = try lab.open()
    for index in claims.indices {
      // Where not even the record is possible, the pack ends before it, and the key is not known.
      var data: Data?
      do throws(BlobStorageError) { data = try engine.data("claim \(index)", nil) } catch {
        #expect(error.code == .corrupted && error.key == "claim \(index)")
      }
      #expect(data == nil)
    }
    try engine.close()
    try Self.use(lab)
  }

  @Test(
    "with a manifest of one chunk or none, whose bytes no name would guard, refuses the blob",
    arguments: [0, 1])
  func shortManifest(chunkCount: Int) throws {
    let lab = try Lab()
    let plain = Array("other bytes than the blob's".utf8)
    let blob = BlobDigest.of([6] as [UInt8])
    var payload = ByteWriter()
    for _ in 0..<chunkCount {
      ChunkEntry(digest: BlobDigest.of(plain), plainByteCount: plain.count).encode(into: &payload)
    }
    let byteCount = Int64(chunkCount * plain.count)
    try Self.plant(
      lab, 1,
      [
        (
          .chunk(ChunkRecord(digest: BlobDigest.of(plain), plainByteCount: plain.count, codecNumber: 0)),
          plain
        ),
        (
          .manifest(
            ManifestRecord(
              digest: blob, byteCount: byteCount, chunkCount: Int64(chunkCount), depth: 0,
              listedCount: chunkCount)), payload.bytes
        ),
        Self.ref("short", blob, byteCount: byteCount),
      ])
    let engine = try lab.open()
    #expect(throws: BlobStorageError.self) { try engine.data("short", nil) }
    #expect(throws: BlobStorageError.self) { try engine.openBlob("short", nil) }
    try engine.close()
    try Self.use(lab)
  }

  @Test(
    "with a chunk of no bytes under another's name refuses the blob, or reads another copy",
    arguments: [false, true])
  func emptyChunk(hasOther: Bool) throws {
    let lab = try Lab()
    let plain = Array("bytes".utf8)
    let blob = BlobDigest.of(plain)
    if hasOther {
      try Self.plant(
        lab, 1, [(.chunk(ChunkRecord(digest: blob, plainByteCount: plain.count, codecNumber: 0)), plain)])
    }
    try Self.plant(
      lab, 2,
      [
        (.chunk(ChunkRecord(digest: blob, plainByteCount: 0, codecNumber: 0)), []),
        Self.ref("empty", blob, byteCount: Int64(plain.count)),
      ])
    let engine = try lab.open()
    if hasOther {
      #expect(try engine.data("empty", nil) == Data(plain))
    } else {
      for read in [{ try engine.data("empty", nil) }, { try engine.data(blob) }] as [() throws -> Data?] {
        let error = #expect(throws: BlobStorageError.self) { try read() }
        #expect(error?.code == .corrupted)
      }
      #expect(throws: BlobStorageError.self) { try engine.openBlob("empty", nil) }
    }
    try engine.close()
    try Self.use(lab)
  }

  @Test("with refs whose lengths add up to more than a number holds is counted all the same")
  func lengths() async throws {
    let (lab, other) = (try Lab(), try Lab(seed: 1))
    let digest = BlobDigest.of([1] as [UInt8])
    // Too far ahead of the clock to be copied: a copy only counts them. The sum is full before the last ten.
    let refs = (0..<33_000).map { index in
      Self.ref(
        "k\(index)", digest, byteCount: BlobLimits.maximumBlobByteCount, time: 1 << 62 + UInt64(index),
        created: index < 20_000 ? 0 : index < 32_990 ? 1 << 63 : .max)
    }
    try Self.plant(
      lab, 1, [(.chunk(ChunkRecord(digest: digest, plainByteCount: 1, codecNumber: 0)), [1])] + refs)
    let engine = try lab.open()
    #expect(try engine.statistics().plainByteCount == .max)
    #expect(try engine.data("k7", nil) == Data([1]))
    let limits = CacheLimits(byteLimit: 1 << 40, keyLimit: 10)
    let forecast = try engine.cacheForecast(prefix: "", limits: limits)
    #expect(forecast.keyCount == refs.count && forecast.byteCount == .max)
    #expect(forecast.evictedKeyCount >= refs.count - 10 && forecast.evictedByteCount == .max)
    let target = try other.open()
    let copied = try Copier(from: engine, to: target, CopyOptions()) { _ in }.run()
    #expect(copied.keyCount == refs.count && copied.byteCount == .max)
    #expect(copied.newVersionCount == 0 && copied.damaged.count == refs.count)
    try target.close()
    try engine.close()
    let store = try BlobStore.open(
      at: Lab.storePath, StoreConfiguration(), in: lab.environment(lab.disk.process()))
    let exported = try await store.exportFiles(
      to: FileManager.default.temporaryDirectory.appending(path: UUID().uuidString).path,
      options: ExportOptions(isDryRun: true))
    #expect(exported.fileCount == refs.count && exported.byteCount == .max)
    try await store.close()
  }

  @Test("with versions of one key whose lengths add up to more than a number holds is counted in a copy")
  func versionLengths() throws {
    let (lab, other) = (try Lab(), try Lab(seed: 1))
    let digest = BlobDigest.of([1] as [UInt8])
    let refs = (0..<33_000).map { index in
      Self.ref("k", digest, byteCount: BlobLimits.maximumBlobByteCount, time: 1 << 41 + UInt64(index))
    }
    try Self.plant(
      lab, 1, [(.chunk(ChunkRecord(digest: digest, plainByteCount: 1, codecNumber: 0)), [1])] + refs)
    let (source, target) = (try lab.open(), try other.open())
    let copied = try Copier(from: source, to: target, CopyOptions(isDryRun: true)) { _ in }.run()
    #expect(copied.byteCount == .max && copied.newVersionCount == refs.count)
    try target.close()
    try source.close()
  }

  @Test("with versions of times that no clock shows can be a cache")
  func cacheTimes() throws {
    let lab = try Lab()
    let digest = BlobDigest.of([1] as [UInt8])
    let times: [UInt64] = [.max, .max - 1, 1 << 63, 1 << 62]
    let refs = times.enumerated().map { index, created in
      Self.ref("k\(index)", digest, byteCount: 1, time: 1 << 41 + UInt64(index), created: created)
    }
    try Self.plant(
      lab, 1, [(.chunk(ChunkRecord(digest: digest, plainByteCount: 1, codecNumber: 0)), [1])] + refs)
    let engine = try lab.open()
    var limits = CacheLimits(byteLimit: CacheLimits.smallestByteLimit)
    let cache = try CacheCore(
      engine: engine, prefix: "", limits: limits, memoryByteLimit: 0, durability: .relaxed)
    #expect(try cache.statistics().keyCount == times.count)
    #expect(try cache.data("k0") == Data([1]))
    // What is dated in the future is too old for any lifetime.
    limits.lifetime = .seconds(60)
    try cache.setLimits(limits)
    #expect(try cache.statistics().keyCount == 0)
    try engine.close()
  }

  @Test("with a stamp at the end of the clock is read, written to and collected")
  func endOfClock() throws {
    let lab = try Lab()
    let digest = BlobDigest.of([1] as [UInt8])
    try Self.plant(
      lab, 1,
      [
        (.chunk(ChunkRecord(digest: digest, plainByteCount: 1, codecNumber: 0)), [1]),
        Self.ref("last", digest, byteCount: 1, time: Stamp.timeMax - 1),
      ])
    let engine = try lab.open()
    #expect(try engine.data("last", nil) == Data([1]))
    for data in [Data([2]), noise(1, 3 << 20)] {
      _ = try engine.put("next", .data(data), PutOptions())
      #expect(try engine.data("next", nil) == data)
    }
    _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(try engine.data("last", nil) == Data([1]))
    try engine.close()
  }

  /// Fails if the record becomes part of the footer that recovery writes: no block may be so long.
  @Test("with an open pack that ends with the longest commit record of a single drop is opened without that")
  func longCommit() throws {
    let lab = try Lab()
    let folder = StoreFolder(FilePath(Lab.storePath), files: lab.disk)
    let name = PackName(writer: 0xbad, sequence: 1)
    let header = PackHeader(
      name: name, storeID: try folder.readHeader().storeID, digestAlgorithm: .blake3, created: 1 << 40)
    let writer = try PackWriter(
      header: header,
      backend: FolderBackend(folder: folder.packs, asideFolder: folder.aside, files: lab.disk),
      codecs: CodecPool())
    let plain: [UInt8] = [1]
    let digest = BlobDigest.of(plain)
    _ = try writer.append(
      .chunk(ChunkRecord(digest: digest, plainByteCount: 1, codecNumber: 0)), payload: plain.span.bytes)
    _ = try writer.append(Self.ref("k", digest, byteCount: 1).content)
    try writer.flush()
    // A zstd frame of empty blocks, and one with the drop.
    let drop: [UInt8] = [0x80, 1, 97, 1, 0, 1, 1, 0]
    var payload: [UInt8] = [1, UInt8(drop.count), 0x28, 0xb5, 0x2f, 0xfd, 0, 0]
    payload += [UInt8](repeating: 0, count: 3 * 2_796_196)
    payload += [UInt8(drop.count << 3 | 1), 0, 0]
    payload += drop
    #expect(payload.count == BlobLimits.recordPayloadByteCountMax - 1)
    let record = RecordHeader(type: .commit, metaByteCount: 0, payloadByteCount: payload.count)
    var bytes = record.encoded(meta: [], pack: name, offset: writer.byteCount)
    let checksum = RecordHeader.payloadChecksum(
      payload.span.bytes, continuing: bytes.withUnsafeBytes { record.writtenChecksum($0) })
    bytes += payload
    withUnsafeBytes(of: checksum.littleEndian) { bytes += $0 }
    try bytes.withUnsafeBytes { try writer.file.write($0, at: writer.byteCount) }
    writer.file.close()
    try lab.session { engine in
      let data = try engine.data("k", nil)
      #expect(data == Data(plain))
    }
    try Self.use(lab)
  }

  @Test("with bases in a circle, and bases of bases, ends")
  func circles() throws {
    let lab = try Lab()
    let contents = (0..<3).map { [UInt8](prose(UInt64($0), 3_000)) }
    let digests = contents.map { BlobDigest.of($0) }
    var records: [(content: PackRecord.Content, payload: [UInt8])] = []
    for index in 0..<3 {
      let record = ChunkRecord(
        digest: digests[index], plainByteCount: 3_000, codecNumber: 1, base: digests[(index + 1) % 3])
      records.append((.chunk(record), try Self.encoded(contents[index], .zstd)))
      records.append(Self.ref("k\(index)", digests[index], byteCount: 3_000, time: 1 << 41 + UInt64(index)))
    }
    try Self.plant(lab, 1, records)
    let engine = try lab.open()
    for index in 0..<3 {
      let error = #expect(throws: BlobStorageError.self) { try engine.data("k\(index)", nil) }
      #expect(error?.code == .corrupted)
    }
    try engine.close()
    try Self.use(lab)
  }
  @Test("with damaged chunks whose other copies are encoded against each other ends")
  func circleOfCopies() throws {
    let lab = try Lab()
    let contents = (0..<2).map { [UInt8](prose(UInt64($0), 3_000)) }
    let digests = contents.map { BlobDigest.of($0) }
    var damaged: [(content: PackRecord.Content, payload: [UInt8])] = []
    var based: [(content: PackRecord.Content, payload: [UInt8])] = []
    for index in 0..<2 {
      let (digest, other) = (digests[index], 1 - index)
      let alone = ChunkRecord(digest: digest, plainByteCount: 3_000, codecNumber: 0)
      damaged.append((.chunk(alone), contents[other]))
      damaged.append(Self.ref("k\(index)", digest, byteCount: 3_000, time: 1 << 41 + UInt64(index)))
      let record = ChunkRecord(
        digest: digest, plainByteCount: 3_000, codecNumber: 1, base: digests[other])
      based.append((.chunk(record), try Self.encoded(contents[index], .zstd)))
    }
    try Self.plant(lab, 1, damaged)
    try Self.plant(lab, 2, based)
    let engine = try lab.open()
    for index in 0..<2 {
      let error = #expect(throws: BlobStorageError.self) { try engine.data("k\(index)", nil) }
      #expect(error?.code == .corrupted)
    }
    try engine.close()
    try Self.use(lab)
  }
}
