import BlobStorage
import BlobStorageReports
import BlobStorageTransfer
import Foundation
import SystemPackage

// MARK: Records, packs, and the files of a store

extension FuzzTarget {
  /// Every record and header: the first byte selects one.
  static let records = FuzzTarget("records", seeds: seedsOfRecords) { input in
    var reader = InputReader(input)
    let kind = reader.byte()
    let rest = reader.all()
    switch kind % 11 {
    case 0:
      guard
        let record = Fuzzing.decode(
          rest,
          { raw throws(BlobStorageError) in
            try ChunkRecord(meta: raw, payloadByteCount: 5, algorithm: .blake3)
          })
      else { return }
      Fuzzing.require(record.encodedMeta() == rest, "a chunk record is not what it was read from")
    case 1:
      guard
        let record = Fuzzing.decode(
          rest, { raw throws(BlobStorageError) in try ManifestRecord(meta: raw, algorithm: .sha256) })
      else { return }
      Fuzzing.require(record.encodedMeta() == rest, "a manifest record is not what it was read from")
      Fuzzing.require(
        record.payloadByteCount <= BlobLimits.recordPayloadByteCountMax, "a manifest is too long")
    case 2, 3:
      let records = commit(rest, kind % 11 == 2 ? 0 : RecordHeader.continues)
      guard let records else { return }
      Fuzzing.require(records.allSatisfy { $0.byteCount > 0 }, "an entry without a place")
      Fuzzing.require(
        records.head.beginsRecord
          && zip(records, records.dropFirst()).allSatisfy { $0.offset + Int64($0.byteCount) == $1.offset },
        "the entries do not cover the record")
    case 4 where rest.count != 64, 5 where rest.count != 64:
      // A reader passes 64 bytes, or fewer at the end of a file.
      _ = Fuzzing.decode(rest.prefix(63)) { raw throws(BlobStorageError) in try PackHeader(raw) }
      _ = Fuzzing.decode(rest) { raw throws(BlobStorageError) in try StoreHeader(raw) }
    case 4:
      guard
        let header = Fuzzing.decode(guarded(rest), { raw throws(BlobStorageError) in try PackHeader(raw) })
      else { return }
      Fuzzing.require(header.encoded() == guarded(rest), "a pack header is not what it was read from")
    case 5:
      guard
        let header = Fuzzing.decode(guarded(rest), { raw throws(BlobStorageError) in try StoreHeader(raw) })
      else { return }
      Fuzzing.require(header.encoded() == guarded(rest), "a store header is not what it was read from")
    case 6:
      _ = Fuzzing.decode(rest) { raw throws(BlobStorageError) in try RecordHeader(raw) }
    case 7:
      let bytes = guarded(rest)
      let trailer = bytes.withUnsafeBytes {
        PackFooter.Trailer($0, name: FuzzedPack.name, packByteCount: 1_000)
      }
      Fuzzing.require((trailer?.footerOffset ?? 64) >= 64, "a footer begins inside of the header")
    case 8:
      let chunks = Fuzzing.decode(rest) { raw throws(BlobStorageError) in
        try ChunkEntry.list(raw, algorithm: .blake3)
      }
      guard let chunks else { return }
      _ = Fuzzing.attempt { () throws(BlobStorageError) in
        try BlobLayout(digest: BlobDigest.of(rest), chunks: chunks)
      }
    case 10:
      guard
        let frame = Fuzzing.decode(
          rest,
          { raw throws(BlobStorageError) in
            try FrameRecord(meta: raw, payloadByteCount: 5, algorithm: .blake3)
          })
      else { return }
      Fuzzing.require(frame.encodedMeta() == rest, "a frame is not what it was read from")
      Fuzzing.require(frame.plainByteCount <= BlobLimits.frameByteCountMax, "a frame is too long")
      let members = frame.records(at: 64, payloadByteCount: 5)
      Fuzzing.require(members.allSatisfy { $0.byteCount > 0 }, "a member without a place")
      Fuzzing.require(
        members.head.beginsRecord
          && zip(members, members.dropFirst()).allSatisfy { $0.offset + Int64($0.byteCount) == $1.offset },
        "the members do not cover the record")
    default:
      let lists = Fuzzing.decode(rest) { raw throws(BlobStorageError) in
        try ListEntry.list(raw, algorithm: .blake3)
      }
      guard let lists else { return }
      _ = Fuzzing.attempt { () throws(BlobStorageError) in
        try BlobLayout(digest: BlobDigest.of(rest), lists: lists)
      }
    }
  }

  /// The entries of a commit record with that content; nil if the decoder refuses it.
  private static func commit(_ content: [UInt8], _ flags: UInt8) -> OneOrMore<PackRecord>? {
    let isShort = content.count <= BlobLimits.recordMetaByteCountMax
    let header = RecordHeader(
      type: .commit, flags: flags, metaByteCount: isShort ? content.count : 0,
      payloadByteCount: isShort ? 0 : content.count)
    return Fuzzing.decode(content) { raw throws(BlobStorageError) in
      var decoder = RecordDecoder(pack: FuzzedPack.name, algorithm: .blake3, codecs: CodecPool())
      let none = UnsafeRawBufferPointer(start: nil, count: 0)
      return try decoder.records(
        header, meta: isShort ? raw : none, payload: isShort ? none : raw, at: 1_000)
    }
  }

  /// The bytes, ending in a valid checksum if there are 64.
  private static func guarded(_ bytes: [UInt8]) -> [UInt8] {
    guard bytes.count == 64 else { return bytes }
    var writer = ByteWriter(capacity: 64)
    writer.raw(Array(bytes[..<60]))
    writer.checksum()
    return writer.bytes
  }

  private static func seedsOfRecords() -> [[UInt8]] {
    let digest = BlobDigest.of([1] as [UInt8])
    let stamp = Stamp(time: 1 << 40, writer: 7)
    let chunk = ChunkRecord(digest: digest, plainByteCount: 5_000, codecNumber: 0)
    let based = ChunkRecord(
      digest: digest, plainByteCount: 5_000, codecNumber: 1, base: BlobDigest.of([2] as [UInt8]),
      features: SIMD3(1, 2, 3))
    let store = StoreHeader(
      flags: .similarity, digestAlgorithm: .blake3, codecNumber: 1, level: 3, averageChunkByteCount: 65_536,
      storeID: FuzzedPack.storeID, created: 1)
    let frame = FrameRecord(
      codecNumber: 1,
      members: [
        .init(digest: digest, plainByteCount: 300, features: SIMD3(1, 2, 3)),
        .init(digest: digest, plainByteCount: 9),
      ])
    var chunks = ByteWriter()
    for length in [1, 8 << 20] { ChunkEntry(digest: digest, plainByteCount: length).encode(into: &chunks) }
    var lists = ByteWriter()
    for span: Int64 in [1, 1 << 48] {
      ListEntry(digest: digest, chunkCount: 9, spanByteCount: span).encode(into: &lists)
    }
    let trailer = PackFooter.Trailer(
      name: FuzzedPack.name, recordCount: 2, footerOffset: 200, storedByteCount: 736)
    return [
      [0] + chunk.encodedMeta(), [0] + based.encodedMeta(),
      [1]
        + ManifestRecord(digest: digest, byteCount: 99, chunkCount: 2, depth: 0, listedCount: 2).encodedMeta(),
      [2] + commitContent(digest, stamp), [3] + commitContent(digest, stamp),
      [4] + FuzzedPack.header.encoded(), [5] + store.encoded(),
      [6]
        + RecordHeader(type: .commit, metaByteCount: 0, payloadByteCount: 0)
        .encoded(meta: [], pack: FuzzedPack.name, offset: 64),
      [7] + trailer.encoded(), [8] + chunks.bytes, [9] + lists.bytes,
      [10] + frame.encodedMeta(),
    ]
  }

  /// A whole pack of arbitrary bytes.
  static let pack = FuzzTarget("pack", seeds: { packsOfRecords(seedsOfPackRecords()) }) {
    FuzzedPack.scan($0)
  }

  /// Records with valid checksums around anything: type, flags, length of the meta, length of the payload, both.
  static let packRecords = FuzzTarget("packRecords", seeds: seedsOfPackRecords) { input in
    for pack in packsOfRecords([input]) { FuzzedPack.scan(pack) }
  }

  /// A footer with valid checksums around anything: codec, claimed length and first offset of each block, its fields
  /// and its digests.
  static let footer = FuzzTarget("footer", seeds: seedsOfFooters) { input in
    var reader = InputReader(input)
    let recordCount = reader.byte()
    var bytes = FuzzedPack.header.encoded()
    bytes += FuzzedPack.record(type: 3, flags: 0, meta: [1], payload: [], at: 64)
    let footerOffset = bytes.count
    var blocks: [UInt8] = []
    while !reader.isEmpty {
      let codec = UInt8(truncatingIfNeeded: reader.byte())
      let plainByteCount = reader.short() << (reader.byte() % 10)
      let recordOffset = Int64(reader.byte())
      let fields = reader.bytes(reader.short())
      let digests = reader.bytes(reader.short())
      let header = PackFooter.BlockHeader(
        codecNumber: codec, plainByteCount: plainByteCount, storedByteCount: fields.count,
        digestsByteCount: digests.count, recordOffset: recordOffset)
      let content = fields + digests
      blocks += header.encoded(
        content: content.span.bytes, pack: FuzzedPack.name, offset: Int64(footerOffset + blocks.count))
      blocks += content
    }
    let trailer = PackFooter.Trailer(
      name: FuzzedPack.name, recordCount: recordCount, footerOffset: Int64(footerOffset),
      storedByteCount: blocks.count)
    FuzzedPack.scan(bytes + blocks + trailer.encoded())
  }

  /// A block that lists the only record, and blocks of anything.
  private static func seedsOfFooters() -> [[UInt8]] {
    [
      [1, 0, 4, 0, 0, 64, 4, 0, 3, 1, 0, 1, 0, 0], [1, 0, 20, 0, 0, 64, 20, 0] + Array(1...20) + [0, 0],
      [2, 9, 0, 4, 0, 64, 10, 0] + Array(1...10) + [2, 0, 7, 7],
    ]
  }

  private static func packsOfRecords(_ inputs: [[UInt8]]) -> [[UInt8]] {
    inputs.map { input in
      var reader = InputReader(input)
      var bytes = FuzzedPack.header.encoded()
      while !reader.isEmpty {
        let (type, flags) = (UInt8(reader.byte()), UInt8(reader.byte()))
        // Type 255 means bytes between the records.
        if type == 255 {
          bytes += reader.bytes(Int(flags))
          continue
        }
        let (metaByteCount, payloadByteCount) = (reader.short() % 8_200, reader.short())
        let meta = reader.bytes(metaByteCount)
        bytes += FuzzedPack.record(
          type: type, flags: flags, meta: meta, payload: reader.bytes(payloadByteCount),
          at: Int64(bytes.count))
      }
      return bytes
    }
  }

  private static func seedsOfPackRecords() -> [[UInt8]] {
    func item(_ type: UInt8, _ meta: [UInt8], _ payload: [UInt8] = []) -> [UInt8] {
      [
        type, 0, UInt8(meta.count & 0xff), UInt8(meta.count >> 8), UInt8(payload.count & 0xff),
        UInt8(payload.count >> 8),
      ] + meta + payload
    }
    let plain = Array("plain bytes".utf8)
    let digest = BlobDigest.of(plain)
    let stamp = Stamp(time: 1 << 40, writer: 7)
    let chunk = ChunkRecord(digest: digest, plainByteCount: plain.count, codecNumber: 0)
    let all = item(1, chunk.encodedMeta(), plain) + item(3, commitContent(digest, stamp))
    let frame = FrameRecord(
      codecNumber: 1,
      members: [.init(digest: digest, plainByteCount: 9), .init(digest: digest, plainByteCount: 30)])
    return [
      all, item(200, [1, 2], [3]) + [255, 3, 1, 2, 3] + all,
      item(4, frame.encodedMeta(), plain) + item(3, commitContent(digest, stamp)),
    ]
  }

  /// A commit record's content: a ref by its digest, a ref to the chunk before, and a drop.
  static func commitContent(_ digest: BlobDigest, _ stamp: Stamp) -> [UInt8] {
    var writer = ByteWriter()
    writer.raw([0, 0x24, 1, 97])
    writer.varint(stamp.time >> 16)
    writer.varint(0)
    writer.integer(stamp.writer)
    digest.withUnsafeBytes { writer.raw($0) }
    writer.raw([11, 2, 1, 2])
    writer.raw([0x01, 1, 1, 98, 2])
    writer.raw([0x80, 0, 1, 97, 2, 2, 1, 0, 3, 2])
    return writer.bytes
  }

  /// The lease of a live writer.
  static let lease = FuzzTarget("lease", seeds: seedsOfLease) { input in
    let disk = SimulatedDisk()
    let path: FilePath = "/leases/0000000000000001.lease"
    Fuzzing.attempt { () throws(BlobStorageError) in
      try disk.createDirectory("/leases")
      let owner = disk.process()
      let file = try owner.open(path, .create)
      _ = try file.lock(.exclusive, wait: true)
      try file.put(input, at: 0)
      let leases = try AllLeases(in: "/leases", disk.process(), .blake3)
      Fuzzing.require(leases.held.count <= input.count / 40, "more is held than there are slots")
      file.close()
    }
  }

  /// The catalog's state, beside an empty database: whatever it says, the catalog can be read and written.
  static let state = FuzzTarget(
    "state",
    seeds: {
      ["g1 boot/mount/other 11/12", "g1 boot/mount 11/12 0 1700000000 999999999 0 clean"].map {
        Array("\(CatalogState.layout) \($0)\n".utf8)
      }
    }
  ) { input in
    if let state = CatalogState(String(decoding: input, as: UTF8.self)) {
      Fuzzing.require(CatalogState(state.text)?.text == state.text, "a state reads as another")
    }
    let folder = ScratchFolder()
    defer { folder.remove() }
    Fuzzing.attempt { () throws(BlobStorageError) in
      let files = SystemFiles()
      try files.createDirectory(folder.path.entry("g1"))
      try files.open(folder.path.entry("g1/data.mdb"), .create).close()
      let state = try files.open(folder.path.entry("state"), .create)
      defer { state.close() }
      try state.put(input, at: 0)
      let catalog = try ScratchFolder.catalog(folder.path)
      defer { catalog.close() }
      try catalog.write { (transaction) throws(BlobStorageError) in
        _ = try transaction.packRows()
        try transaction.bumpEpoch()
      }
    }
  }

  private static func seedsOfLease() -> [[UInt8]] {
    let disk = SimulatedDisk()
    var bytes: [UInt8] = []
    Fuzzing.attempt { () throws(BlobStorageError) in
      try disk.createDirectory("/leases")
      let lease = LeaseFile(folder: "/leases", writer: 1, files: disk)
      _ = try lease.hold([.chunk(BlobDigest.of([1] as [UInt8])), .blob(BlobDigest.of([2] as [UInt8]))])
      _ = try lease.beginPut(from: 3)
      let file = try disk.open("/leases/0000000000000001.lease", .read)
      bytes = try file.bytesThere(at: 0, Int(try file.status().byteCount))
    }
    return [bytes]
  }

  /// A store whose packs hold arbitrary records, each intact: the engine must not trust their claims.
  ///
  /// The input is a list of records to write. Small numbers stand for digests, keys and stamps, so that records often
  /// refer to each other.
  static let store = FuzzTarget("store", seeds: seedsOfStore) { input in
    let disk = SimulatedDisk()
    let folder = ScratchFolder()
    defer { folder.remove() }
    var environment = Engine.Environment()
    environment.files = disk
    environment.catalogFolder = folder.path
    environment.mapByteCount = 4 << 20
    environment.bootIdentity = "boot"
    environment.clock = WallClock(now: { 1_700_000_000_000 })
    Fuzzing.attempt { () throws(BlobStorageError) in
      try Engine.create(
        at: "/store", options: StoreOptions(averageChunkByteCount: 1 << 10), environment: environment)
      var plan = StorePlan(disk: disk)
      try plan.write(input)
      let engine = try Engine(
        path: "/store", configuration: StoreConfiguration(cacheByteLimit: 1 << 16, threadCount: 1),
        environment: environment)
      try readAll(engine)
      _ = try engine.verify()
      _ = try engine.statistics()
      let recompresses = input.last.map { $0 % 2 == 1 } ?? false
      _ = try engine.collectGarbage(
        GarbageCollectionOptions(minimumGarbageShare: 0, recompresses: recompresses))
      _ = try engine.repair()
      try readAll(engine)
      let data = Data(StorePlan.contents[3])
      Fuzzing.attempt { () throws(BlobStorageError) in
        _ = try engine.put("healed", .data(data), PutOptions())
        let read = try engine.data("healed", nil)
        Fuzzing.require(read == data, "a put on this store reads as other bytes")
      }
      try engine.close()
    }
  }

  /// Reads every version, whole and by ranges.
  private static func readAll(_ engine: Engine) throws(BlobStorageError) {
    for entry in try engine.keys("", after: nil, limit: 100) {
      for version in try engine.versions(entry.key) {
        Fuzzing.attempt { () throws(BlobStorageError) in
          guard let blob = try engine.openBlob(entry.key, version.id) else { return }
          defer { blob.close() }
          for start in [0, blob.layout.byteCount / 2, max(0, blob.layout.byteCount - 10)] {
            let bytes = try blob.read(start..<min(start + 50, blob.layout.byteCount))
            Fuzzing.require(bytes.count <= 50, "more bytes than were asked for")
          }
          guard blob.layout.byteCount < 1 << 20 else { return }
          let data = try engine.data(entry.key, version.id)
          // A forged manifest can name any chunks. A blob of a single chunk must match its digest.
          if blob.layout.chunkCount <= 1, let data {
            Fuzzing.require(BlobDigest.of(Array(data)) == version.digest, "\(entry.key) reads as other bytes")
          }
        }
      }
    }
  }

  private static func seedsOfStore() -> [[UInt8]] {
    [
      // Chunks, a manifest of them, a ref of it, a ref that replaces that one, a drop, a second pack.
      [
        0, 3, 0, 0, 0, 4, 0, 0, 1, 20, 2, 3, 4, 2, 0, 20, 1, 0, 50, 2, 0, 3, 2, 1, 50, 3, 0, 5, 1, 1, 4, 0, 0,
        5, 0, 0,
      ]
        + [2, 1, 5, 6, 0, 9],
      // Chunks encoded against each other, in a circle.
      [0, 3, 1, 4, 0, 4, 1, 5, 0, 5, 1, 3, 2, 0, 4, 1, 0, 9, 2, 1, 5, 2, 0, 9],
      // Lists of lists.
      [0, 3, 0, 0, 5, 30, 3, 3, 3, 6, 21, 30, 200, 2, 0, 21, 7, 0, 255],
      // A frame, refs of its members, a chunk against one of them, a sealed pack. The last byte is odd: recompress.
      [8, 0, 3, 3, 5, 9, 2, 0, 5, 9, 0, 18, 2, 1, 9, 8, 0, 10, 0, 4, 1, 3, 2, 2, 4, 7, 0, 5, 4, 0, 1],
      // Frames with false claims: other lengths, cut, longer than they say, of an unknown codec.
      [8, 1, 2, 4, 6, 2, 0, 4, 3, 0, 9, 8, 2, 2, 7, 8, 2, 1, 7, 4, 0, 9]
        + [8, 3, 2, 9, 10, 2, 2, 9, 5, 0, 9, 8, 4, 2, 11, 12, 2, 3, 12, 6, 0, 9, 4, 0, 2],
    ]
  }
}
