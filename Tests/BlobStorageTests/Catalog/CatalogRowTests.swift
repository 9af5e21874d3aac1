import BlobStorage
import BlobStorageCache
import Foundation
import Synchronization
import Testing

/// What the catalog says of a record once it was applied, one rule at a time.
@Suite("The catalog says")
struct CatalogRowTests {
  private static let features = SIMD3<UInt32>(0x8000_0001, 0x4000_0002, 0x2000_0003)

  private static func change(
    _ pack: SamplePack, in place: CatalogPlace, _ body: (inout PackRow) -> Void
  ) throws {
    _ = try place.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.updatePack(pack.header.name, body)
    }
  }

  // MARK: What is written is read

  @Test("of a pack each thing by itself")
  func packs() throws {
    let place = try CatalogPlace()
    let plain = PackRow(name: PackName(writer: .max - 1, sequence: .max - 1), created: 5)
    let changes: [(inout PackRow) -> Void] = [
      { _ in }, { $0.state = .condemned }, { $0.state = .retired }, { $0.isSealed = true },
      { $0.isDamaged = true }, { $0.isPoisoned = true }, { $0.isLost = true }, { $0.hasLostRecords = true },
      { $0.isUnreadable = true }, { $0.appliedByteCount = BlobLimits.packByteCountMax },
      { $0.recordCount = BlobLimits.packRecordCountMax }, { $0.durableByteCount = 1 << 41 },
      { $0.promisedByteCount = 1 << 42 },
    ]
    let number = try place.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.addPack(plain)
    }
    for (index, change) in changes.enumerated() {
      var row = plain
      change(&row)
      let expected = row
      let read = try place.catalog.write { (transaction) throws(BlobStorageError) -> PackRow? in
        try transaction.setPackRow(number, expected)
        return try transaction.packRow(number)
      }
      #expect(read == expected, "change \(index)")
    }
  }

  @Test(
    "of the longest chunk at the end of the largest pack where it lies",
    arguments: [false, true], [false, true])
  func chunks(hasBase: Bool, hasFeatures: Bool) throws {
    let place = try CatalogPlace()
    let record = ChunkRecord(
      digest: BlobDigest.of([1] as [UInt8]), plainByteCount: BlobLimits.chunkByteCountMax, codecNumber: 2,
      base: hasBase ? BlobDigest.of([2] as [UInt8]) : nil,
      features: hasFeatures ? Self.features : nil)
    let offset = BlobLimits.packByteCountMax - 1
    let packRecord = PackRecord(
      .chunk(record), offset: offset, payloadByteCount: BlobLimits.recordPayloadByteCountMax)
    try place.catalog.write { (transaction) throws(BlobStorageError) in
      var pack = PackRow(name: PackPlace.header().name, created: 1)
      pack.appliedByteCount = offset
      pack.recordCount = BlobLimits.packRecordCountMax - 1
      let number = try transaction.addPack(pack)
      try transaction.apply(packRecord, from: number, &pack)
      try transaction.setPackRow(number, pack)
    }
    let (row, number) = try place.catalog.read { (transaction) throws(BlobStorageError) in
      (try transaction.chunkRow(record.digest), try transaction.packNumber(PackPlace.header().name))
    }
    let (found, pack) = (try #require(row), try #require(number))
    #expect(found.place == Place(pack: pack, offset: offset, ordinal: BlobLimits.packRecordCountMax - 1))
    #expect(found.plainByteCount == record.plainByteCount)
    #expect(found.storedByteCount == packRecord.payloadByteCount)
    #expect(found.codecNumber == 2 && found.base == record.base)
    #expect(!found.isSuspect)
    #expect(found.recordByteCount == packRecord.byteCount)
    #expect(found.payloadOffset == packRecord.payloadOffset)
  }

  @Test("of the longest manifest how long it is and where it lies")
  func manifests() throws {
    let place = try CatalogPlace()
    let record = ManifestRecord(
      digest: BlobDigest.of([1] as [UInt8]), byteCount: BlobLimits.maximumBlobByteCount, chunkCount: 1 << 33,
      depth: 1,
      listedCount: BlobLimits.manifestListCountMax)
    let packRecord = PackRecord(
      .manifest(record), offset: Int64(PackHeader.byteCount), payloadByteCount: record.payloadByteCount)
    let row = try place.catalog.write { (transaction) throws(BlobStorageError) -> ManifestRow? in
      var pack = PackRow(name: PackPlace.header().name, created: 1)
      let number = try transaction.addPack(pack)
      try transaction.apply(packRecord, from: number, &pack)
      return try transaction.manifestRow(record.digest)
    }
    let found = try #require(row)
    #expect(found.byteCount == record.byteCount && found.chunkCount == record.chunkCount)
    #expect(found.depth == 1 && found.listedCount == record.listedCount)
    #expect(found.place.offset == packRecord.offset && found.recordByteCount == packRecord.byteCount)
    #expect(found.payloadByteCount == packRecord.payloadByteCount)
  }

  /// An index may come from a machine that means harm.
  @Test("that it is damaged if it has a row that no build writes, and traps for none")
  func forged() throws {
    let place = try CatalogPlace()
    let pack = PackRow(name: PackName(writer: 1, sequence: 1), created: 5)
    func isRefused(
      _ table: Table, _ key: [UInt8], _ value: [UInt8],
      _ read: (ReadTransaction) throws(BlobStorageError) -> Void
    ) throws -> Bool {
      let generation = place.catalog.generation
      try place.catalog.write { (transaction) throws(BlobStorageError) in
        try transaction.put(table, key, value)
      }
      try place.catalog.read(read)
      return place.catalog.generation != generation
    }
    func little(_ value: Int64) -> [UInt8] { withUnsafeBytes(of: value.littleEndian) { Array($0) } }
    func zeros(_ count: Int) -> [UInt8] { [UInt8](repeating: 0, count: count) }
    func joined(_ parts: [UInt8]...) -> [UInt8] { parts.flatMap { $0 } }
    let digest = BlobDigest.of([1] as [UInt8])
    let digestBytes = digest.withUnsafeBytes { Array($0) }
    // Flags for a current version and a number; the number, no versions, no masks; the stamp; the version.
    let name = joined([3, 1, 0, 0], little(1), little(1), [0], digestBytes, zeros(7))
    let key = Array("k".utf8)
    let isNameRefused = try isRefused(.names, joined([0], key), name) {
      (transaction) throws(BlobStorageError) in _ = try transaction.nameRow(key)
    }
    #expect(isNameRefused)
    // A part of a key that its own rest begins with, and so on.
    let part = [UInt8](repeating: UInt8(ascii: "a"), count: 480)
    try place.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.put(.names, joined([1, 7], part), [4, 7])
    }
    let isCircleRefused = try isRefused(.names, joined([0], part), [4, 7]) {
      (transaction) throws(BlobStorageError) in
      try transaction.forEachKey(prefix: [], after: nil) { (_, _) in true }
    }
    #expect(isCircleRefused)
    // No record can have the greatest stamp, length or metadata here.
    func version(_ time: Int64, _ byteCount: Int64, _ metadataByteCount: Int) -> [UInt8] {
      var length = ByteWriter()
      length.varint(UInt64(byteCount))
      return joined(
        [1], little(time), little(0), [0], digestBytes, length.bytes, zeros(6), zeros(metadataByteCount))
    }
    let longest = version(.max, BlobLimits.maximumBlobByteCount, BlobLimits.maximumMetadataByteCount)
    let impossible = [
      version(.min, 1, 0), version(-1, 1, 0), version(0, 1, 0),
      version(1, BlobLimits.maximumBlobByteCount + 1, 0), version(1, .max, 0),
      version(1, 1, BlobLimits.maximumMetadataByteCount + 1),
    ]
    for (index, value) in ([longest] + impossible).enumerated() {
      let isVersionRefused = try isRefused(.names, joined([0], key), value) {
        (transaction) throws(BlobStorageError) in _ = try transaction.nameRow(key)
      }
      #expect(isVersionRefused == (index > 0), "\(index)")
    }
    // Keys that no record can have: of nine parts, and of no bytes.
    try place.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.put(.names, joined([0], part), [4, 1])
      for number in 1..<8 as Range<UInt8> {
        try transaction.put(.names, joined([1, number], part), [4, number + 1])
      }
    }
    for row in [joined([1, 8], part), [0]] {
      let isKeyRefused = try isRefused(.names, row, longest) { (transaction) throws(BlobStorageError) in
        try transaction.forEachKey(prefix: [], after: nil, includesInternal: true) { (_, _) in true }
      }
      #expect(isKeyRefused)
    }
    // The longest payload and chunk, each a byte longer, and a frame that begins before the pack does.
    let longestChunk = Int64(BlobLimits.chunkByteCountMax) << 24 | Int64(BlobLimits.recordPayloadByteCountMax)
    let chunkLengths: [Int64] = [
      longestChunk, longestChunk + 1, longestChunk + (1 << 24), 1 << 24 | 1 | 90 << 49,
    ]
    for (index, lengths) in chunkLengths.enumerated() {
      let chunk = joined(zeros(4), little(100), little(lengths), [0])
      let isChunkRefused = try isRefused(.chunks, digestBytes, chunk) {
        (transaction) throws(BlobStorageError) in _ = try transaction.chunkRow(digest)
      }
      #expect(isChunkRefused == (index > 0), "\(index)")
    }
    for (depth, byteCount, chunkCount) in [(7, 1, 1), (1, -1, 1), (1, 1, .min)] as [(UInt8, Int64, Int64)] {
      let manifest = joined(zeros(16), [depth], little(byteCount), little(chunkCount))
      let isManifestRefused = try isRefused(.manifests, digestBytes, manifest) {
        (transaction) throws(BlobStorageError) in _ = try transaction.manifestRow(digest)
      }
      #expect(isManifestRefused)
    }
    for (length, count) in [(.min, 0), (-1, 0), (1 << 32, 0), (100, 255)] as [(Int64, UInt8)] {
      // The records are counted in four bytes.
      let row = joined(
        little(1), [1, 0, 0, 0], little(5), zeros(2), little(length), [count, count, count, count], zeros(16))
      let isPackRefused = try isRefused(.packs, [0, 0, 0, 1], row) {
        (transaction) throws(BlobStorageError) in _ = try transaction.packRow(1)
      }
      #expect(isPackRefused)
    }
    let read = try place.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.packRow(try transaction.addPack(pack))
    }
    #expect(read == pack)
  }

  @Test("nothing by an index whose rows are damaged, even in a catalog that was just rebuilt")
  func forgedIndex() throws {
    let temporary = try TemporaryFolder()
    let rows = ForgedRows()
    let catalog = try CatalogPlace.open(in: temporary, outerRowsSource: rows)
    let row = try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.nameRow(Array("k".utf8))
    }
    #expect(row == nil)
    #expect(rows.isTrusted.withLock { !$0 })
    catalog.close()
  }

  @Test("each manifest once, also if it is rebuilt meanwhile")
  func manifestPages() throws {
    let place = try CatalogPlace()
    try place.catalog.write { (transaction) throws(BlobStorageError) in
      for first in [1, 2] as [UInt8] {
        // The second one is damaged. The rebuilt catalog has neither.
        var (digest, row) = ([UInt8](repeating: 0, count: 32), [UInt8](repeating: 0, count: 33))
        digest[0] = first
        if first == 2 { row[16] = 7 }
        try transaction.put(.manifests, digest, row)
      }
    }
    var found = 0
    try place.catalog.forEachManifestPage { (page) in found += page.count }
    #expect(found == 0)
  }

  // MARK: The clock

  @Test(
    "how late it is by every stamp that it finds, but for those far ahead",
    arguments: ["ref", "drop", "pack"])
  func clock(_ kind: String) throws {
    let now = UInt64(Date().timeIntervalSince1970 * 1_000)
    for (milliseconds, isFar) in [(now + 3_600_000, false), (now + 3 * 86_400_000, true)] {
      let place = try CatalogPlace()
      let time = milliseconds << 16
      var pack = SamplePack(PackPlace.header(created: kind == "pack" ? time : 1))
      switch kind {
      case "ref": pack.append(.ref("k", Stamp(time: time, writer: 1)))
      case "drop": pack.append(.drop("k", [Stamp(time: 1, writer: 1)], at: Stamp(time: time, writer: 1)))
      default: pack.append(.chunk([1]))
      }
      try place.apply(pack, 0..<1)
      let clock = try place.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.clock()
      }
      if isFar { #expect(clock <= 1) } else { #expect(clock == time) }
    }
  }

  // MARK: What may be shared

  enum Trouble: CaseIterable {
    case condemned, retired, poisoned, lost

    func strike(_ row: inout PackRow) {
      switch self {
      case .condemned: row.state = .condemned
      case .retired: row.state = .retired
      case .poisoned: row.isPoisoned = true
      case .lost: row.isLost = true
      }
    }
  }

  @Test(
    "that nothing may be shared whose pack, or whose base's pack, may not stay",
    arguments: Trouble.allCases, [false, true])
  func shared(_ trouble: Trouble, strikesBase: Bool) throws {
    let place = try CatalogPlace()
    let (plain, base): ([UInt8], [UInt8]) = ([1, 2, 3], [4, 5, 6])
    let blob = BlobDigest.of([7] as [UInt8])
    let entry = ChunkEntry(digest: BlobDigest.of(plain), plainByteCount: 3)
    var basePack = SamplePack(PackPlace.header(writer: 1))
    basePack.append(.chunk(base))
    var pack = SamplePack(PackPlace.header(writer: 2))
    pack.append(.chunk(plain, base: BlobDigest.of(base)))
    pack.append(.manifest(blob, [entry, entry]))
    try place.apply(basePack, 0..<1)
    try place.apply(pack, 0..<2)
    func sharing() throws -> [Bool] {
      try place.catalog.read { (transaction) throws(BlobStorageError) in
        [
          try transaction.chunkToShare(BlobDigest.of(plain)) != nil,
          try transaction.baseToShare(BlobDigest.of(base)) != nil,
          try transaction.manifestToShare(blob) != nil,
        ]
      }
    }
    #expect(try sharing() == [true, true, true])
    try Self.change(strikesBase ? basePack : pack, in: place) { trouble.strike(&$0) }
    #expect(try sharing() == [false, !strikesBase, strikesBase])
    let row = try place.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.chunkRow(BlobDigest.of(plain))
    }
    #expect(row != nil, "it can be read still")
  }

  @Test(
    "of two copies that the one without a base counts, whichever comes first, and in the younger pack or not",
    arguments: [false, true], [false, true])
  func withoutBase(comesFirst: Bool, isYounger: Bool) throws {
    let place = try CatalogPlace()
    let (plain, base): ([UInt8], [UInt8]) = ([1, 2, 3], [4, 5, 6])
    var basePack = SamplePack(PackPlace.header(writer: 1, created: 1))
    basePack.append(.chunk(base))
    var without = SamplePack(PackPlace.header(writer: 2, created: isYounger ? 3 : 2))
    without.append(.chunk(plain))
    var with = SamplePack(PackPlace.header(writer: 3, created: isYounger ? 2 : 3))
    with.append(.chunk(plain, base: BlobDigest.of(base)))
    try place.apply(basePack, 0..<1)
    for pack in comesFirst ? [without, with] : [with, without] { try place.apply(pack, 0..<1) }
    let name = try place.catalog.read { (transaction) throws(BlobStorageError) -> PackName? in
      guard let row = try transaction.chunkRow(BlobDigest.of(plain)), row.base == nil else { return nil }
      return try transaction.packRow(row.place.pack)?.name
    }
    #expect(name == without.header.name)
  }

  /// V5: a rebuild may come to the bases last. Fails if a copy gives way because its base has not been seen yet.
  @Test("of two copies that have bases that the younger one counts, whichever pack comes first")
  func withBases() throws {
    let plain: [UInt8] = [1, 2, 3]
    let bases: [[UInt8]] = [[4, 5, 6], [7, 8, 9]]
    var packs = (1...3).map { SamplePack(PackPlace.header(writer: UInt64($0), created: UInt64($0))) }
    packs[0].append(.chunk(plain, base: BlobDigest.of(bases[0])))
    packs[1].append(.chunk(plain, base: BlobDigest.of(bases[1])))
    for base in bases { packs[2].append(.chunk(base)) }
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
      let place = try CatalogPlace()
      for index in order {
        try place.apply(packs[index], 0..<packs[index].records.count, isRebuilding: true)
      }
      let row = try place.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.chunkToShare(BlobDigest.of(plain))
      }
      #expect(row?.base == BlobDigest.of(bases[1]), "\(order)")
    }
  }

  @Test("that a copy whose base is gone gives way to an older one whose base is there")
  func goneBase() throws {
    let plain: [UInt8] = [1, 2, 3]
    var packs = (1...3).map { SamplePack(PackPlace.header(writer: UInt64($0), created: UInt64($0))) }
    packs[0].append(.chunk([4, 5, 6]))
    packs[1].append(.chunk(plain, base: BlobDigest.of([4, 5, 6] as [UInt8])))
    packs[2].append(.chunk(plain, base: BlobDigest.of([7, 8, 9] as [UInt8])))
    for isTakenIn in [false, true] {
      let place = try CatalogPlace()
      for index in [0, 2, 1] { try place.apply(packs[index], 0..<1, isTakenIn: isTakenIn) }
      let row = try place.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.chunkToShare(BlobDigest.of(plain))
      }
      #expect(row?.base == BlobDigest.of([4, 5, 6] as [UInt8]))
    }
  }

  // MARK: Bases

  @Test("that a chunk is a base for as long as a record needs it")
  func bases() throws {
    let place = try CatalogPlace()
    let base = BlobDigest.of([9] as [UInt8])
    let packs = (1...2).map { number in
      var pack = SamplePack(PackPlace.header(writer: UInt64(number)))
      let plain = [UInt8(number), 0, 0]
      pack.append(.chunk(plain, base: base))
      return pack
    }
    func isBase() throws -> Bool {
      try place.catalog.read { (transaction) throws(BlobStorageError) in try transaction.isBase(base) }
    }
    #expect(try !isBase())
    for pack in packs {
      try place.apply(pack, 0..<1)
      #expect(try isBase())
    }
    try place.retract(packs[0])
    #expect(try isBase())
    try place.retract(packs[1])
    #expect(try !isBase())
  }

  @Test("which chunk with the same features is the youngest, and forgets the oldest of very many")
  func similar() throws {
    let place = try CatalogPlace()
    var pack = SamplePack(PackPlace.header())
    let digests = (0..<340).map { BlobDigest.of([UInt8($0 & 0xff), UInt8($0 >> 8), 2, 3]) }
    for (number, digest) in digests.enumerated() {
      pack.append(
        SampleRecord(
          content: .chunk(
            ChunkRecord(digest: digest, plainByteCount: 4, codecNumber: 0, features: Self.features)),
          payload: [UInt8(number & 0xff), UInt8(number >> 8), 2, 3]))
    }
    try place.apply(pack, 0..<pack.records.count)
    func youngest() throws -> BlobDigest? {
      try place.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.similarChunk(Self.features)?.digest
      }
    }
    func retract(_ range: Range<Int>) throws {
      try place.catalog.write { (transaction) throws(BlobStorageError) in
        guard let number = try transaction.packNumber(pack.header.name) else { return }
        for record in pack.records[range].reversed() {
          try transaction.retract(record, from: number)
        }
      }
    }
    #expect(try youngest() == digests[339])
    try retract(339..<340)
    #expect(try youngest() == digests[338])
    try retract(11..<339)
    #expect(try youngest() == digests[10])
    // Those before were pushed out, though their chunks are there.
    try retract(10..<11)
    #expect(try youngest() == nil)
  }

  // MARK: What a cache notes

  @Test("of a cache's keys each once, in the order in which they go")
  func cachedKeys() throws {
    let place = try CatalogPlace()
    func row(_ key: String, _ priority: UInt8, _ tick: UInt64) -> CachedKeyRow {
      CachedKeyRow(
        priority: priority, tick: tick, byteCount: 1 << 40, digest: BlobDigest.of(Array(key.utf8)),
        key: Array(key.utf8))
    }
    func set(_ key: String, _ row: CachedKeyRow?) throws {
      try place.catalog.write { (transaction) throws(BlobStorageError) in
        try transaction.setCachedKey(CachedKeyRow.id(of: Array(key.utf8)), row)
      }
    }
    func listed() throws -> [CachedKeyRow] {
      let (rows, count) = try place.catalog.read { (transaction) throws(BlobStorageError) in
        var rows: [CachedKeyRow] = []
        try transaction.forEachCachedKey { _, row in
          rows.append(row)
          return true
        }
        return (rows, try transaction.cachedKeyCount())
      }
      #expect(count == rows.count)
      return rows
    }
    try set("a", row("a", 1, 1))
    try set("b", row("b", 1, 2))
    try set("c", row("c", 0, 300))
    #expect(try listed() == [row("c", 0, 300), row("a", 1, 1), row("b", 1, 2)])
    // Used: its place before is gone.
    try set("a", row("a", 1, 70_000))
    #expect(try listed() == [row("c", 0, 300), row("b", 1, 2), row("a", 1, 70_000)])
    try set("b", nil)
    #expect(try listed() == [row("c", 0, 300), row("a", 1, 70_000)])
    let ticks = try place.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.raiseCacheTick(70_000)
      try transaction.raiseCacheTick(7)
      let first = try transaction.nextCacheTick()
      return [first, try transaction.nextCacheTick()]
    }
    #expect(ticks == [70_001, 70_002])
  }
}

/// An index in which each key has a version, and none that is current.
private final class ForgedRows: OuterRows, OuterRowsSource, @unchecked Sendable {
  // Unchecked: one test with one thread uses the memory.
  private let memory = RowMemory()
  let isTrusted = Mutex(true)

  var root: [UInt8] { [1] }
  var isDamaged: Bool { false }

  func distrust() { isTrusted.withLock { $0 = false } }

  func row(
    _ table: Table, _ key: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> (value: UnsafeRawBufferPointer, owner: AnyObject)? {
    guard table == .names else { return nil }
    let value = try bridge([2, 1, 1, 0]) { (bytes) throws(BlobStorageError) in memory.copy(bytes) }
    return (value, self)
  }

  func walk(_ table: Table, from start: UnsafeRawBufferPointer) throws(BlobStorageError) -> any RowSteps {
    NoSteps()
  }

  func adopt(into database: Database) throws(BlobStorageError) -> Set<PackName> {
    guard isTrusted.withLock({ $0 }) else { return [] }
    return try database.adopt(self) { (_) throws(BlobStorageError) in Set<PackName>() }
  }

  func open(_ root: [UInt8]) throws(BlobStorageError) -> any OuterRows { self }

  private struct NoSteps: RowSteps {
    var row: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)? { nil }
    mutating func advance() {}
  }
}
