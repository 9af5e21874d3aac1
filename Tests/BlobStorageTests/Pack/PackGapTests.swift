import BlobStorage
import BlobStorageSharing
import Testing

/// Where a pack ends, what counts as damage of it, and what the second copy in the footer makes good.
@Suite("A pack that is not whole")
struct PackGapTests {
  private static let header = PackScanTests.header
  private static let name = header.name

  private static func stamp(_ number: Int) -> Stamp { Stamp(time: UInt64(number), writer: 5) }

  private static func drop(synced: Int64) -> SampleRecord {
    let drop = DropRecord(key: [0x6b], stamp: stamp(9), versions: [stamp(8)])
    return SampleRecord(content: .drop(drop), synced: synced)
  }

  @Test(
    "has damage where a later record says that it had been synced, and a torn tail one byte further",
    arguments: ["ref", "drop"])
  func promise(kind: String) throws {
    let place = try PackPlace()
    let chunks: [SampleRecord] = [.chunk([1, 2, 3]), .chunk([UInt8](repeating: 9, count: 300))]
    let hole = try place.write(Self.header, chunks, seals: false)[1]
    for (beyond, isDamage) in [(0, false), (1, true)] as [(Int64, Bool)] {
      let place = try PackPlace()
      let synced = hole.offset + beyond
      let promise: SampleRecord =
        kind == "ref" ? .ref("promise", Self.stamp(1), synced: synced) : Self.drop(synced: synced)
      // The most that any of them says counts.
      let last = SampleRecord.ref("last", Self.stamp(2))
      let written = try place.write(Self.header, chunks + [promise, last], seals: false)
      var bytes = try place.bytes(Self.name)
      for offset in Int(hole.offset)..<Int(hole.offset) + hole.byteCount { bytes[offset] = 0 }
      try place.replace(Self.name, with: bytes)
      let (records, outcome) = try place.scan(Self.name)
      let expected = isDamage ? [written[0], written[2], written[3]] : [written[0]]
      #expect(records.map(\.summary) == expected.map(\.summary))
      #expect(outcome.gaps == (isDamage ? [hole.offset..<written[2].offset] : []))
      #expect(outcome.lost == outcome.gaps)
      #expect(outcome.endOffset == (isDamage ? Int64(bytes.count) : hole.offset))
    }
  }

  @Test("ends before a commit that is not whole, also where another thread's chunk lies in it")
  func chunkInCommit() throws {
    let place = try PackPlace()
    let records: [SampleRecord] = [
      .chunk([1]), .ref("a", Self.stamp(1), continues: true), .chunk([2, 3]), .ref("b", Self.stamp(2)),
      .chunk([4]),
    ]
    let written = try place.write(Self.header, records, seals: false)
    let bytes = try place.bytes(Self.name)
    for (count, whole) in [(1, 1), (2, 1), (3, 1), (4, 4), (5, 5)] {
      let length = Int(written[count - 1].offset) + written[count - 1].byteCount
      try place.replace(Self.name, with: Array(bytes.prefix(length)))
      let (found, outcome) = try place.scan(Self.name)
      #expect(found.map(\.summary) == written.prefix(whole).map(\.summary), "\(count) records")
      #expect(outcome.endOffset == written[whole - 1].offset + Int64(written[whole - 1].byteCount))
    }
  }

  @Test("is read up to where it counts")
  func upTo() throws {
    let place = try PackPlace()
    let written = try place.write(Self.header, PackScanTests.records())
    let file = try #require(try place.backend.openPack(Self.name))
    defer { file.close() }
    var records: [String] = []
    let scanner = try PackScanner(
      file: file, name: Self.name, codecs: place.codecs, upTo: written[3].offset)
    let outcome = try scanner.scan { records.append($0.summary) }
    #expect(records == written.prefix(3).map(\.summary))
    #expect(!outcome.isSealed && outcome.endOffset == written[3].offset && outcome.gaps.isEmpty)
  }

  /// The search for the next record goes through the file in parts of 1 MiB.
  @Test("has its next record found also where that begins at the end of a part", arguments: [0, 1, 3, 4])
  func markAcrossParts(byteCountBefore: Int) throws {
    let place = try PackPlace()
    let long = [UInt8](repeating: 7, count: (1 << 20) - 100)
    let added = try place.write(PackPlace.header(sequence: 2), [.chunk(long)])[0].byteCount - long.count
    let plain = [UInt8](repeating: 7, count: (1 << 20) - byteCountBefore - added)
    let written = try place.write(Self.header, [.chunk(plain), .ref("next", Self.stamp(1))])
    #expect(written[1].offset == 64 + 1 << 20 - Int64(byteCountBefore))
    var bytes = try place.bytes(Self.name)
    bytes[64] ^= 1
    try place.replace(Self.name, with: bytes)
    let (records, outcome) = try place.scan(Self.name, verifiesPayloads: true)
    #expect(records.map(\.summary) == [written[1].summary])
    #expect(outcome.gaps == [64..<written[1].offset])
  }

  @Test("is whole only when it is sealed and all of it matches")
  func whole() throws {
    let place = try PackPlace()
    func isWhole() throws -> Bool {
      let file = try #require(try place.backend.openPack(Self.name))
      defer { file.close() }
      return try PackScanner(file: file, name: Self.name, codecs: place.codecs).isWhole()
    }
    try place.write(Self.header, PackScanTests.records(), seals: false)
    #expect(try !isWhole())
    try SystemFiles().remove(place.path(Self.name))
    let written = try place.write(Self.header, PackScanTests.records())
    let bytes = try place.bytes(Self.name)
    #expect(try isWhole())
    let payloadEnd = Int(written[0].offset) + written[0].byteCount
    for offset in [70, payloadEnd - 5, payloadEnd - 1, bytes.count - 70, bytes.count - 1] {
      var damaged = bytes
      damaged[offset] ^= 1
      try place.replace(Self.name, with: damaged)
      #expect(try !isWhole(), "byte \(offset) of \(bytes.count)")
    }
  }

  @Test("with a damaged header is read where the store is known, and counts as the oldest")
  func damagedHeader() throws {
    let place = try PackPlace()
    let written = try place.write(Self.header, PackScanTests.records())
    let bytes = try place.bytes(Self.name)
    let store = StoreHeader(
      flags: [], digestAlgorithm: .blake3, codecNumber: 1, level: 3, averageChunkByteCount: 65_536,
      storeID: PackPlace.storeID, created: 1)
    func scan(_ store: StoreHeader?) throws -> ([String], PackScanner.Outcome) {
      let file = try #require(try place.backend.openPack(Self.name))
      defer { file.close() }
      var records: [String] = []
      let outcome = try PackScanner(file: file, name: Self.name, codecs: place.codecs, store: store)
        .scan { records.append($0.summary) }
      return (records, outcome)
    }
    for offset in [0, 8, 20, 40, 63] {
      var damaged = bytes
      damaged[offset] ^= 4
      try place.replace(Self.name, with: damaged)
      #expect(failure { _ = try scan(nil) }?.code == .corrupted)
      let (records, outcome) = try scan(store)
      #expect(records == written.map(\.summary), "byte \(offset)")
      #expect(outcome.gaps == [0..<64])
      #expect(
        outcome.header
          == PackHeader(name: Self.name, storeID: store.storeID, digestAlgorithm: .blake3, created: 0))
    }
    // One that is whole and says another name tells that the file is another pack.
    let other = PackPlace.header(sequence: 2)
    try place.replace(Self.name, with: other.encoded() + Array(bytes[64...]))
    #expect(failure { _ = try scan(store) }?.code == .corrupted)
    try place.replace(Self.name, with: Array(bytes.prefix(63)))
    #expect(failure { _ = try scan(store) }?.code == .corrupted)
  }

  @Test("has damaged records made good by undamaged blocks of its footer, from both of its ends")
  func damagedBlock() throws {
    let place = try PackPlace()
    let key = String(repeating: "k", count: 4_000)
    func refs(_ count: Int) -> [SampleRecord] {
      (0..<count).map { .ref(key, Stamp(time: 1 << 30 + UInt64($0), writer: 5)) }
    }
    let one = try PackPlace().write(Self.header, refs(1))[0]
    // As many as end a block, three times. The footer does not repeat mark and checksum.
    let perBlock = PackFooter.BlockHeader.plainByteCountTarget / (one.byteCount - 6) + 1
    let written = try place.write(Self.header, refs(3 * perBlock))
    var bytes = try place.bytes(Self.name)
    let byteCount = Int64(bytes.count)
    let found = Array(bytes.suffix(PackFooter.Trailer.byteCount)).withUnsafeBytes {
      PackFooter.Trailer($0, name: Self.name, packByteCount: byteCount)
    }
    let trailer = try #require(found)
    var places: [Int] = []
    var offset = Int(trailer.footerOffset)
    while offset < bytes.count - 64 {
      places.append(offset + PackFooter.BlockHeader.byteCount)
      let lengths = Array(bytes[offset + 8..<offset + 16])
      let stored = lengths.withUnsafeBytes { UInt64(littleEndian: $0.loadUnaligned(as: UInt64.self)) }
      offset += PackFooter.BlockHeader.byteCount + Int(stored & 0xffff_ffff) + Int(stored >> 32)
    }
    try #require(places.count == 3)
    bytes[places[1]] ^= 0xff
    // The last record of the first block and the first of the second, side by side, and the first of the third.
    for index in [perBlock - 1, perBlock, 2 * perBlock] { bytes[Int(written[index].offset) + 200] ^= 1 }
    try place.replace(Self.name, with: bytes)
    let (records, outcome) = try place.scan(Self.name)
    var expected = written.map(\.offset)
    expected.remove(at: perBlock)
    #expect(records.map(\.offset) == expected)
    #expect(outcome.recordCount == expected.count && !outcome.isSealed)
    #expect(
      outcome.gaps == [
        written[perBlock - 1].offset..<written[perBlock + 1].offset,
        written[2 * perBlock].offset..<written[2 * perBlock + 1].offset,
      ])
    #expect(outcome.lost == [written[perBlock].offset..<written[perBlock + 1].offset])
  }
}
