import BlobStorage
import BlobStorageReports
import Foundation
import Logging
import SystemPackage

extension FuzzTarget {
  /// A store whose packs hold any records, each whole: nothing that they claim may be taken for granted.
  ///
  /// The input is a list of records to write; small numbers stand for digests, keys and stamps, so that records refer
  /// to each other more often than not.
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
        at: "/store", options: StoreOptions(chunkByteCountAverage: 1 << 10), environment: environment)
      var plan = StorePlan(disk: disk)
      try plan.write(input)
      let engine = try Engine(
        path: "/store", configuration: StoreConfiguration(cacheByteCountMax: 1 << 16, threadCount: 1),
        environment: environment)
      try readAll(engine)
      _ = try engine.verify()
      _ = try engine.statistics()
      _ = try engine.collectGarbage(CollectionOptions(garbageShareMin: 0))
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
          // A blob of several chunks is named by its manifest alone; one of a single chunk is what its name says.
          if blob.layout.chunkCount <= 1, let data {
            Fuzzing.require(Digest.of(Array(data)) == version.digest, "\(entry.key) reads as other bytes")
          }
        }
      }
    }
  }

  private static func seedsOfStore() -> [[UInt8]] {
    [
      // Chunks, a manifest of them, a ref of it, one that replaces it, a drop, a second pack.
      [
        0, 3, 0, 0, 0, 4, 0, 0, 1, 20, 2, 3, 4, 2, 0, 20, 1, 0, 50, 2, 0, 3, 2, 1, 50, 3, 0, 5, 1, 1, 4, 0, 0,
        5, 0, 0,
      ]
        + [2, 1, 5, 6, 0, 9],
      // Chunks against each other, in a circle.
      [0, 3, 1, 4, 0, 4, 1, 5, 0, 5, 1, 3, 2, 0, 4, 1, 0, 9, 2, 1, 5, 2, 0, 9],
      // Lists of lists.
      [0, 3, 0, 0, 5, 30, 3, 3, 3, 6, 21, 30, 200, 2, 0, 21, 7, 0, 255],
    ]
  }
}

/// What a fuzzed store is made of.
struct StorePlan {
  static let contents: [[UInt8]] = (0..<16).map { index in
    Array(String(repeating: "content \(index) ", count: index * 12).utf8)
  }

  let disk: SimulatedDisk
  private var sequence: UInt32 = 0
  private var writer: PackWriter?
  private var lists: [Int: [UInt8]] = [:]

  init(disk: SimulatedDisk) { self.disk = disk }

  /// Numbers below 16 name contents, others what a list or manifest was called.
  private func digest(_ number: Int) -> Digest {
    if let list = lists[number] { return Digest.of(list) }
    return Digest.of(number < 16 ? Self.contents[number] : [UInt8(number & 255)])
  }

  private func stamp(_ number: Int) -> Stamp {
    switch number {
    case 0: .none
    case 255: Stamp(time: Stamp.timeMax - 1, writer: 7)
    default: Stamp(time: UInt64(number) << 40, writer: UInt64(number % 3))
    }
  }

  private func length(_ number: Int) -> Int64 {
    number < 200 ? Int64(number) * 10 : Limits.blobByteCountMax >> Int64(255 - number)
  }

  mutating func write(_ input: [UInt8]) throws(BlobStorageError) {
    try begin()
    var reader = InputReader(input.count > 2_000 ? Array(input.prefix(2_000)) : input)
    while !reader.isEmpty {
      switch reader.byte() % 8 {
      case 0: try writeChunk(&reader)
      case 1: try writeManifest(&reader)
      case 2:
        let key = [UInt8](repeating: UInt8(97 + reader.byte() % 5), count: 1)
        let digest = digest(reader.byte())
        let (version, replaced) = (stamp(max(1, reader.byte())), stamp(reader.byte()))
        guard version != replaced else { continue }
        try append(
          .ref(
            RefRecord(
              key: key, version: version, replaced: replaced, digest: digest,
              byteCount: length(reader.byte()),
              created: .max, metadata: [])), [])
      case 3:
        let drop = DropRecord(
          key: [UInt8(97 + reader.byte() % 5)], stamp: stamp(max(1, reader.byte())),
          versions: [stamp(max(1, reader.byte()))])
        try append(.drop(drop), [])
      case 4:
        if reader.byte() % 2 == 0 { try writer?.seal() }
        try begin()
      case 5: try writeList(&reader)
      case 6: try writeManifestOfLists(&reader)
      default:
        // A chunk that is not what its digest says.
        let content = Self.contents[reader.byte() % 16]
        let digest = digest(reader.byte())
        guard !content.isEmpty else { continue }
        try append(
          .chunk(ChunkRecord(digest: digest, plainByteCount: content.count, codecNumber: 0)), content)
      }
    }
    try writer?.flush()
    writer?.file.close()
  }

  private mutating func begin() throws(BlobStorageError) {
    try writer?.flush()
    writer?.file.close()
    sequence += 1
    let folder = StoreFolder("/store", files: disk)
    let header = PackHeader(
      name: PackName(writer: 9, sequence: sequence), storeID: try folder.readHeader().storeID,
      digestAlgorithm: .blake3, created: UInt64(sequence) << 30)
    writer = try PackWriter(
      header: header, backend: FolderBackend(folder: folder.packs, asideFolder: folder.aside, files: disk),
      codecs: CodecPool())
  }

  private func append(_ content: PackRecord.Content, _ payload: [UInt8]) throws(BlobStorageError) {
    guard let writer else { return }
    _ = try writer.append(content, payload: payload.span.bytes)
  }

  private func writeChunk(_ reader: inout InputReader) throws(BlobStorageError) {
    let number = reader.byte() % 16
    let content = Self.contents[number]
    let usesBase = reader.byte() % 3 == 1
    let base = digest(reader.byte())
    guard usesBase, base != digest(number), content.count > 1 else {
      try append(
        .chunk(ChunkRecord(digest: digest(number), plainByteCount: content.count, codecNumber: 0)), content)
      return
    }
    let stored = Fuzzing.decode(content) { raw throws(BlobStorageError) in
      try ChunkEncoder().withEncoded(raw.bytes, by: .zstd) { Array($1) }
    }
    guard let stored, stored.count < content.count else { return }
    try append(
      .chunk(
        ChunkRecord(
          digest: digest(number), plainByteCount: content.count, codecNumber: 1, base: base
        )),
      stored)
  }

  private func entries(_ reader: inout InputReader) -> [UInt8] {
    var writer = ByteWriter()
    for _ in 0..<reader.byte() % 12 {
      let number = reader.byte()
      let count = number < 16 ? Self.contents[number].count : 5
      ChunkEntry(digest: digest(number), plainByteCount: max(count, 1)).encode(into: &writer)
    }
    return writer.bytes
  }

  private mutating func writeManifest(_ reader: inout InputReader) throws(BlobStorageError) {
    let digest = digest(16 + reader.byte())
    let payload = entries(&reader)
    let chunks = Fuzzing.decode(payload) { raw throws(BlobStorageError) in
      try ChunkEntry.list(raw, algorithm: .blake3)
    }
    let sum = (chunks ?? []).reduce(0) { $0 + Int64($1.plainByteCount) }
    let count = chunks?.count ?? 0
    try append(
      .manifest(
        ManifestRecord(digest: digest, byteCount: sum, chunkCount: Int64(count), depth: 0, listedCount: count)
      ),
      payload)
  }

  private mutating func writeList(_ reader: inout InputReader) throws(BlobStorageError) {
    let number = 16 + reader.byte() % 200
    let list = entries(&reader)
    guard !list.isEmpty else { return }
    lists[number] = list
    try append(.chunk(ChunkRecord(digest: Digest.of(list), plainByteCount: list.count, codecNumber: 0)), list)
  }

  private mutating func writeManifestOfLists(_ reader: inout InputReader) throws(BlobStorageError) {
    let digest = digest(16 + reader.byte())
    let number = reader.byte()
    let list = lists[number] ?? []
    let chunkCount = max(1, list.count / ChunkEntry.byteCount)
    let chunks = Fuzzing.decode(list) { raw throws(BlobStorageError) in
      try ChunkEntry.list(raw, algorithm: .blake3)
    }
    var span = (chunks ?? []).reduce(0) { $0 + Int64($1.plainByteCount) }
    let claim = reader.byte()
    if claim > 128 { span = length(claim) }
    let count = 1 + reader.byte()
    var payload = ByteWriter()
    for _ in 0..<count {
      ListEntry(digest: Digest.of(list), chunkCount: chunkCount, spanByteCount: max(span, 1)).encode(
        into: &payload)
    }
    let sum = max(span, 1).multipliedReportingOverflow(by: Int64(count)).partialValue
    try append(
      .manifest(
        ManifestRecord(
          digest: digest, byteCount: min(max(0, sum), Limits.blobByteCountMax),
          chunkCount: Int64(chunkCount * count), depth: 1, listedCount: count)), payload.bytes)
  }
}
