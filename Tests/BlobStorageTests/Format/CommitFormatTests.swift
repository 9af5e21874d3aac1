import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// Refs and drops as they stand in the records of commits.
@Suite("Commit records")
struct CommitFormatTests {
  private static let header = PackPlace.header()
  private static let writer = header.name.writer
  private static let digest = BlobDigest.of([1, 2, 3] as [UInt8])
  private static let key = Array("a key".utf8)
  private static let stamp = Stamp(time: header.created + 9, writer: writer)

  private static func ref(_ change: (inout RefRecord) -> Void = { _ in }) -> RefRecord {
    var ref = RefRecord(
      key: key, version: stamp, replaced: .none, digest: digest, byteCount: 3, created: stamp.time >> 16,
      metadata: [])
    change(&ref)
    return ref
  }

  /// What a commit may say.
  private static let entries: [CommitRecord.Entry] = [
    .ref(ref()),
    .ref(
      ref {
        $0.metadata = [1]; $0.created += 5
      }),
    .ref(
      ref {
        $0.key = Array("a key that goes on".utf8); $0.version.time += 1; $0.created = .max
      }),
    .ref(
      ref {
        $0.version = Stamp(time: 0, writer: 1); $0.replaced = stamp; $0.created = 0
      }),
    .ref(
      ref {
        $0.version = Stamp(time: Stamp.timeMax - 1, writer: .max); $0.replaced = Stamp(time: 1, writer: .max)
      }),
    .ref(ref { $0.replaced = Stamp(time: 5, writer: 77) }),
    .ref(
      ref {
        $0.key = [UInt8](repeating: 0xff, count: BlobLimits.maximumKeyByteCount)
        $0.metadata = [UInt8](repeating: 3, count: BlobLimits.maximumMetadataByteCount)
        $0.byteCount = BlobLimits.maximumBlobByteCount
      }),
    .drop(DropRecord(key: [0], stamp: stamp, versions: [Stamp(time: stamp.time - 1, writer: writer)])),
    .drop(
      DropRecord(
        key: key, stamp: Stamp(time: 1, writer: 3),
        versions: (0..<BlobLimits.dropVersionCountMax).map {
          Stamp(time: UInt64($0), writer: UInt64($0 / 3) + 1)
        }
      )),
  ]

  /// A pack with one commit of these entries.
  private static func pack(
    _ entries: [CommitRecord.Entry], chunks: [[UInt8]] = [], seals: Bool = false
  ) throws -> (place: PackPlace, written: [PackRecord]) {
    let place = try PackPlace()
    let writer = try PackWriter(header: header, backend: place.backend, codecs: place.codecs)
    var written: [PackRecord] = []
    for chunk in chunks {
      let sample = SampleRecord.chunk(chunk)
      written.append(try writer.append(sample.content, payload: sample.payload.span.bytes))
    }
    try writer.append(commit: entries) { written.append($0) }
    try writer.flush()
    if seals { try writer.seal() }
    writer.file.close()
    return (place, written)
  }

  /// What a record of that content says, at that place of a pack.
  private static func decode(_ content: [UInt8], at offset: Int64 = 64) throws(BlobStorageError)
    -> [PackRecord]
  {
    let isShort = content.count <= BlobLimits.recordMetaByteCountMax
    let header = RecordHeader(
      type: .commit, metaByteCount: isShort ? content.count : 0, payloadByteCount: isShort ? 0 : content.count
    )
    return try decoding(content) { (raw) throws(BlobStorageError) in
      var decoder = RecordDecoder(pack: Self.header.name, algorithm: .blake3, codecs: CodecPool())
      let none = UnsafeRawBufferPointer(start: nil, count: 0)
      return Array(
        try decoder.records(header, meta: isShort ? raw : none, payload: isShort ? none : raw, at: offset))
    }
  }

  /// The content of the only record of a pack.
  private static func content(_ entries: [CommitRecord.Entry]) throws -> [UInt8] {
    let (place, written) = try pack(entries)
    let bytes = Array(
      try place.bytes(header.name)[64..<Int(try #require(written.first).recordRange.upperBound)])
    return try decoding(bytes) { (raw) throws(BlobStorageError) in
      let (_, meta, payload) = try RecordHeader.verified(raw, pack: Self.header.name, offset: 64)
      return Array(meta.isEmpty ? payload : meta)
    }
  }

  @Test("come back as they were written, from the records and from the footer", arguments: [false, true])
  func roundTrip(seals: Bool) throws {
    for entries in [Self.entries] + Self.entries.map({ [$0] }) {
      let (place, written) = try Self.pack(entries, chunks: [[1, 2, 3], [9]], seals: seals)
      let (records, outcome) = try place.scan(Self.header.name)
      #expect(records.map(\.summary) == written.map(\.summary))
      #expect(outcome.isSealed == seals && outcome.gaps.isEmpty)
      let found = try records.dropFirst(2).map { "\(try #require($0.content.entry))" }
      #expect(found == entries.map { "\($0)" })
      // The parts cover the record, and all but the last go on.
      for (part, next) in zip(records.dropFirst(2), records.dropFirst(3)) {
        #expect(part.offset + Int64(part.byteCount) == next.offset && part.continues)
      }
      #expect(records.last?.endsCommit == true)
    }
  }

  @Test("name what lies in the same commit by its place: the record before takes no byte, others a few")
  func places() throws {
    let chunks: [[UInt8]] = [Array("first".utf8), Array("second".utf8)]
    func size(_ digest: BlobDigest, _ byteCount: Int) throws -> Int {
      let entry = CommitRecord.Entry.ref(Self.ref { ($0.digest, $0.byteCount) = (digest, Int64(byteCount)) })
      let (place, written) = try Self.pack([entry], chunks: chunks)
      let found = try place.scan(Self.header.name).records.last?.content.entry
      #expect(found.map { "\($0)" } == "\(entry)")
      return try #require(written.last).byteCount
    }
    let last = try size(BlobDigest.of(chunks[1]), 6)
    #expect(try size(BlobDigest.of(chunks[0]), 5) == last + 2)
    #expect(try size(BlobDigest.of([7]), 1) == last + 33)
    // Of another length than the ref says, it is not what the ref names.
    #expect(try size(BlobDigest.of(chunks[1]), 7) == last + 33)
    #expect(last <= 9 + 10 + Self.key.count)
  }

  @Test("name a chunk that cannot be read as unknown, and no other in its place")
  func damagedTarget() throws {
    let chunks: [[UInt8]] = [Array("first".utf8), Array("second".utf8), Array("third".utf8)]
    let entries = chunks.enumerated().map { index, chunk in
      CommitRecord.Entry.ref(
        Self.ref {
          $0.key = [UInt8(97 + index)]
          ($0.digest, $0.byteCount) = (BlobDigest.of(chunk), Int64(chunk.count))
        })
    }
    for damaged in chunks.indices {
      let (place, written) = try Self.pack(entries, chunks: chunks)
      var bytes = try place.bytes(Self.header.name)
      bytes[Int(written[damaged].offset) + 12] ^= 1
      // The damage counts as such where a later record says that it had been synced.
      let later = SampleRecord.ref("later", Self.stamp)
      let promise = try PackPlace()
      let writer = try PackWriter(header: Self.header, backend: promise.backend, codecs: promise.codecs)
      for chunk in chunks {
        let sample = SampleRecord.chunk(chunk)
        _ = try writer.append(sample.content, payload: sample.payload.span.bytes)
      }
      try writer.append(commit: entries) { _ in }
      _ = try writer.append(later.content, syncedByteCount: Int64(bytes.count))
      try writer.flush()
      writer.file.close()
      let whole = try promise.bytes(Self.header.name)
      try place.replace(Self.header.name, with: bytes + whole[bytes.count...])
      let refs = try place.scan(Self.header.name).records.compactMap { record -> RefRecord? in
        if case .ref(let ref) = record.content { ref } else { nil }
      }
      #expect(refs.count == 4)
      for (index, ref) in refs.prefix(3).enumerated() {
        #expect(ref.digest == (index == damaged ? BlobDigest.unknown(.blake3) : BlobDigest.of(chunks[index])))
      }
    }
  }

  @Test("of many entries are compressed, and of very many they are several that go on")
  func many() throws {
    let entries = (0..<60_000).map { index in
      CommitRecord.Entry.ref(
        Self.ref {
          $0.key = Array("some/folder/\(index / 100)/some file \(index).txt".utf8)
          $0.version.time += UInt64(index)
          $0.digest = BlobDigest.of([UInt8](withUnsafeBytes(of: index) { Array($0) }))
        })
    }
    let (place, written) = try Self.pack(entries)
    let ends = written.map(\.recordRange.upperBound)
    #expect(Set(ends).count > 2)
    #expect(try #require(ends.last) < 64 + 60_000 * 42)
    #expect(try place.scan(Self.header.name).records.map(\.summary) == written.map(\.summary))
    // Without its last record, there is none of it.
    let bytes = try place.bytes(Self.header.name)
    try place.replace(Self.header.name, with: bytes.dropLast())
    let (records, outcome) = try place.scan(Self.header.name)
    #expect(records.isEmpty && outcome.endOffset == 64)
  }

  // MARK: Bad input

  @Test("are refused one step beyond what is accepted")
  func refused() throws {
    func code(_ change: (inout RefRecord) -> Void) throws -> BlobStorageError.Code? {
      let content = try Self.content([.ref(Self.ref(change))])
      return failure { _ = try Self.decode(content) }?.code
    }
    #expect(try code { _ in } == nil)
    #expect(try code { $0.byteCount = BlobLimits.maximumBlobByteCount } == nil)
    #expect(try code { $0.byteCount += BlobLimits.maximumBlobByteCount } == .corrupted)
    #expect(try code { $0.version.time = Stamp.timeMax - 1 } == nil)
    #expect(try code { $0.version.time = Stamp.timeMax } == .corrupted)
    #expect(try code { $0.version = .none } == .corrupted)
    #expect(try code { $0.replaced = $0.version } == .corrupted, "a version that replaces itself")
    #expect(try code { $0.key = [] } == .corrupted)
    #expect(try code { $0.key = [UInt8](repeating: 1, count: BlobLimits.maximumKeyByteCount) } == nil)
    #expect(
      try code { $0.key = [UInt8](repeating: 1, count: BlobLimits.maximumKeyByteCount + 1) } == .corrupted)
    #expect(
      try code { $0.metadata = [UInt8](repeating: 1, count: BlobLimits.maximumMetadataByteCount + 1) }
        == .corrupted)
    for (count, expected) in [
      (0, BlobStorageError.Code.corrupted), (1, nil), (4_096, nil), (4_097, .corrupted),
    ] {
      let drop = DropRecord(key: [1], stamp: Self.stamp, versions: Array(repeating: Self.stamp, count: count))
      let content = try Self.content([.drop(drop)])
      #expect(failure { _ = try Self.decode(content) }?.code == expected, "\(count) versions")
    }
    let none = try Self.content([.drop(DropRecord(key: [1], stamp: Self.stamp, versions: [.none]))])
    #expect(failure { _ = try Self.decode(none) }?.code == .corrupted)
    #expect(failure { _ = try Self.decode([0]) }?.code == .corrupted, "no entry")
  }

  @Test("with what a later build may write are refused as such")
  func later() throws {
    let content = try Self.content([.ref(Self.ref())])
    func code(_ index: Int, _ bits: UInt8) -> BlobStorageError.Code? {
      var changed = content
      changed[index] |= bits
      return failure { _ = try Self.decode(changed) }?.code
    }
    for bit in 2..<8 { #expect(code(0, 1 << UInt8(bit)) == .unsupportedFormat, "flag \(bit) of the record") }
    #expect(code(1, 64) == .unsupportedFormat, "a ref of another kind")
    #expect(code(1, 3) == .unsupportedFormat, "a blob named in another way")
    #expect(code(1, 128 | 32) == .unsupportedFormat, "a drop with metadata")
  }

  @Test("that are cut or changed anywhere say something possible or are refused")
  func everyBit() throws {
    let short = Array(Self.entries.prefix(6)) + [Self.entries[7]]
    let long = (0..<30).map { index in
      CommitRecord.Entry.ref(
        Self.ref {
          $0.key = Array("key \(index)".utf8); $0.version.time += UInt64(index)
        })
    }
    for entries in [short, long] {
      let content = try Self.content(entries)
      for count in 0..<content.count {
        let found = try? Self.decode(Array(content.prefix(count)))
        #expect(found?.count ?? 0 < entries.count)
      }
      var impossible: [Int] = []
      for index in 0..<content.count * 8 {
        var changed = content
        changed[index / 8] ^= 1 << UInt8(index % 8)
        do throws(BlobStorageError) {
          if !(try Self.decode(changed)).allSatisfy(Self.isPossible) { impossible.append(index) }
        } catch { #expect(error.code == .corrupted || error.code == .unsupportedFormat) }
      }
      #expect(impossible.isEmpty)
    }
    // In a pack the checksum finds each of them.
    let (place, written) = try Self.pack(short)
    let bytes = try place.bytes(Self.header.name)
    for index in Int(try #require(written.first).offset)..<bytes.count {
      var changed = bytes
      changed[index] ^= 1 << UInt8(index % 8)
      try place.replace(Self.header.name, with: changed)
      #expect(try place.scan(Self.header.name).records.isEmpty, "byte \(index)")
    }
  }

  private static func isPossible(_ record: PackRecord) -> Bool {
    switch record.content {
    case .ref(let ref):
      1...BlobLimits.maximumKeyByteCount ~= ref.key.count && ref.version != .none
        && ref.version != ref.replaced
        && ref.version.time < Stamp.timeMax && ref.metadata.count <= BlobLimits.maximumMetadataByteCount
        && 0...BlobLimits.maximumBlobByteCount ~= ref.byteCount
    case .drop(let drop):
      1...BlobLimits.maximumKeyByteCount ~= drop.key.count && drop.stamp != .none
        && 1...BlobLimits.dropVersionCountMax ~= drop.versions.count && !drop.versions.contains(.none)
    case .chunk, .manifest, .skipped: false
    }
  }

  @Test("do not unfold to more than a record may take")
  func bombs() throws {
    // A long key, and then entries that share all of it.
    var plain = ByteWriter()
    plain.raw([0x20, 0x80, 0x20])
    plain.raw([UInt8](repeating: 97, count: 4_096))
    plain.varint(Self.stamp.time >> 16)
    plain.varint(9)
    plain.raw(Self.digest.withUnsafeBytes { Array($0) })
    plain.raw([3, 1, 1])
    for _ in 0..<30_000 {
      plain.raw([0, 0x80, 0x20, 0, 2])
      plain.raw(Self.digest.withUnsafeBytes { Array($0) })
      plain.raw([3])
    }
    #expect(plain.bytes.count < BlobLimits.commitRecordByteCountMax)
    #expect(failure { _ = try Self.decode([0] + plain.bytes) }?.code == .corrupted)
    let frame = try ChunkEncoder().encoded(plain.bytes, by: .zstd)
    try #require(frame.kind == .zstd)
    var packed = ByteWriter()
    packed.integer(UInt8(1))
    packed.varint(plain.bytes.count)
    packed.raw(frame.bytes)
    #expect(failure { _ = try Self.decode(packed.bytes) }?.code == .corrupted)
    // A plain length beyond the maximum is not allocated, and one that is wrong is found.
    for count in [BlobLimits.commitRecordByteCountMax + 1, 1 << 40, plain.bytes.count - 1] {
      var packed = ByteWriter()
      packed.integer(UInt8(1))
      packed.varint(count)
      packed.raw(frame.bytes)
      #expect(failure { _ = try Self.decode(packed.bytes) }?.code == .corrupted)
    }
    // Nor may there be more of them if they are not compressed.
    var loose = ByteWriter()
    loose.raw([0, 0x20, 1, 97])
    loose.varint(Self.stamp.time >> 16)
    loose.varint(9)
    func end(_ writer: inout ByteWriter) {
      writer.raw(Self.digest.withUnsafeBytes { Array($0) })
      writer.varint(3)
      writer.varint(1_024)
      writer.raw([UInt8](repeating: 5, count: 1_024))
    }
    end(&loose)
    var counts: [Bool: Int] = [:]
    while loose.bytes.count < BlobLimits.commitRecordByteCountMax + 5_000 {
      loose.raw([0x20, 1, 0, 2])
      end(&loose)
      let isLong = loose.bytes.count > BlobLimits.commitRecordByteCountMax + 1
      guard isLong || loose.bytes.count > BlobLimits.commitRecordByteCountMax - 1_100 else { continue }
      counts[isLong, default: 0] += 1
      let code = failure { _ = try Self.decode(loose.bytes) }?.code
      #expect(code == (isLong ? .corrupted : nil), "\(loose.bytes.count)")
    }
    #expect(counts.count == 2)
    // More entries than the record has bytes.
    let many = (0..<20_000).flatMap { _ in [0x80, 1, 0, 0, 1, 1, 0] as [UInt8] }
    let drops = [0x80, 1, 97, 1, 0, 1, 1, 0] + many
    let small = try ChunkEncoder().encoded(drops, by: .zstd)
    var dense = ByteWriter()
    dense.integer(UInt8(1))
    dense.varint(drops.count)
    dense.raw(small.bytes)
    #expect(small.bytes.count < 20_000)
    #expect(failure { _ = try Self.decode(dense.bytes) }?.code == .corrupted)
    // Nor may they take more bytes than zstd makes of any: a frame may have empty blocks, however many.
    let drop = Array(drops.prefix(8))
    func hollow(_ count: Int) -> [UInt8] {
      var content: [UInt8] = [1, UInt8(drop.count), 0x28, 0xb5, 0x2f, 0xfd, 0, 0]
      content += [UInt8](repeating: 0, count: 3 * count)
      content += [UInt8(drop.count << 3 | 1), 0, 0]
      content += drop
      return content
    }
    let countMax = (BlobLimits.commitRecordStoredByteCountMax - (hollow(0).count - 2)) / 3
    #expect(try Self.decode(hollow(countMax)).count == 1)
    #expect(failure { _ = try Self.decode(hollow(countMax + 1)) }?.code == .corrupted)
  }

  // MARK: Sizes

  @Test(
    "make a put of a new small blob add at most 120 bytes, besides payload and key",
    arguments: [Durability.relaxed, .durable])
  func small(_ durability: Durability) throws {
    let place = try StorePlace()
    let count = durability == .durable ? 300 : 2_000
    let engine = try place.engine()
    var random = SplitMix64(seed: 1)
    var (payload, keys) = (0, 0)
    for _ in 0..<count {
      // 40 bytes. The list at the end of the pack repeats them, compressed.
      let key = "photographs/holidays/2024/IMG-\(random.next() % 9_000_000_000 + 1_000_000_000)"
      let bytes = random.bytes(200)
      payload += bytes.count
      keys += key.utf8.count
      _ = try engine.put(key, .data(Data(bytes)), PutOptions(durability: durability))
    }
    try engine.close()
    let packs = FilePath(place.path).appending("packs")
    let stored = try SystemFiles().list(packs).reduce(0) { sum, name in
      let file = try SystemFiles().open(packs.appending(name), .read)
      defer { file.close() }
      return sum + Int(try file.status().byteCount)
    }
    let each = Double(stored - payload - keys - 128) / Double(count)
    print("\(each) bytes each")
    #expect(each <= 120)
  }
}
