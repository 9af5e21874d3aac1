import BlobStorage
import SystemPackage

/// Writes the packs of a fuzzed store.
struct StorePlan {
  static let contents: [[UInt8]] = (0..<16).map { index in
    Array(String(repeating: "content \(index) ", count: index * 12).utf8)
  }

  let disk: SimulatedDisk
  private var sequence: UInt32 = 0
  private var writer: PackWriter?
  private var lists: [Int: [UInt8]] = [:]

  init(disk: SimulatedDisk) { self.disk = disk }

  /// The digest of a number: below 16, that of a content; otherwise, that of a list or manifest with this number.
  private func digest(_ number: Int) -> BlobDigest {
    if let list = lists[number] { return BlobDigest.of(list) }
    return BlobDigest.of(number < 16 ? Self.contents[number] : [UInt8(number & 255)])
  }

  private func stamp(_ number: Int) -> Stamp {
    switch number {
    case 0: .none
    case 255: Stamp(time: Stamp.timeMax - 1, writer: 7)
    default: Stamp(time: UInt64(number) << 40, writer: UInt64(number % 3))
    }
  }

  private func length(_ number: Int) -> Int64 {
    number < 200 ? Int64(number) * 10 : BlobLimits.maximumBlobByteCount >> Int64(255 - number)
  }

  mutating func write(_ input: [UInt8]) throws(BlobStorageError) {
    try begin()
    var reader = InputReader(input.count > 2_000 ? Array(input.prefix(2_000)) : input)
    while !reader.isEmpty {
      switch reader.byte() % 9 {
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
      case 8: try writeFrame(&reader)
      default:
        // A chunk that may not match its digest.
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

  /// Writes contents in a frame, whose record may make false claims.
  private func writeFrame(_ reader: inout InputReader) throws(BlobStorageError) {
    let lie = reader.byte() % 8
    var members: [FrameRecord.Member] = []
    var plain: [UInt8] = []
    for _ in 0..<reader.byte() % 12 {
      let number = reader.byte() % 16
      let content = Self.contents[number]
      guard !content.isEmpty else { continue }
      let features: SIMD3<UInt32>? = number % 2 == 0 ? SIMD3(repeating: UInt32(number)) : nil
      members.append(.init(digest: digest(number), plainByteCount: content.count, features: features))
      plain += content
    }
    guard let last = members.indices.last else { return }
    var stored = Fuzzing.decode(plain) { raw throws(BlobStorageError) in
      try ChunkEncoder().withEncoded(raw.bytes, by: .zstd) { Array($1) }
    }
    var codec: UInt8 = 1
    switch lie {
    case 1: members[last].plainByteCount += 1
    case 2: stored?.removeLast()
    case 3: members[last].plainByteCount = 1
    case 4: codec = 99
    default: break
    }
    guard let stored, let writer else { return }
    // More false claims would only make a frame that no reader accepts.
    _ = try writer.append(FrameRecord(codecNumber: codec, members: members), payload: stored.span.bytes)
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
    try append(
      .chunk(ChunkRecord(digest: BlobDigest.of(list), plainByteCount: list.count, codecNumber: 0)), list)
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
      ListEntry(digest: BlobDigest.of(list), chunkCount: chunkCount, spanByteCount: max(span, 1)).encode(
        into: &payload)
    }
    let sum = max(span, 1).multipliedReportingOverflow(by: Int64(count)).partialValue
    try append(
      .manifest(
        ManifestRecord(
          digest: digest, byteCount: min(max(0, sum), BlobLimits.maximumBlobByteCount),
          chunkCount: Int64(chunkCount * count), depth: 1, listedCount: count)), payload.bytes)
  }
}
