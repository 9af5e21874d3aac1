import BlobStorage
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

@Suite("A closed catalog takes")
struct CatalogSizeTests {
  private static let count = 20_000
  /// About as many as settling applies at once.
  private static let countOfBatch = 1_000

  /// Bytes of the database's file after everything was applied in batches and the catalog was closed, without what an
  /// empty catalog takes.
  private func byteCount(_ packs: SamplePack...) throws -> Int64 {
    try fileByteCount(packs) - fileByteCount([])
  }

  /// - Parameter packs: each is applied to the catalog that the one before left when it was closed.
  private func fileByteCount(_ packs: [SamplePack]) throws -> Int64 {
    let place = try CatalogPlace(mapByteCount: 1 << 26)
    var catalog = place.catalog
    for (index, pack) in packs.enumerated() {
      if index > 0 {
        catalog.close()
        catalog = try CatalogPlace.open(in: place.temporary, mapByteCount: 1 << 26)
      }
      for start in stride(from: 0, to: pack.records.count, by: Self.countOfBatch) {
        let end = min(start + Self.countOfBatch, pack.records.count)
        try CatalogPlace.apply(pack, start..<end, to: catalog, seals: end == pack.records.count)
      }
    }
    catalog.close()
    let folder = place.temporary.path.appending("catalog")
    let generation = try #require(try SystemFiles().list(folder).first { $0.hasPrefix("g") })
    let status = try SystemFiles().status(of: folder.appending(generation).appending("data.mdb"))
    return try #require(status).byteCount
  }

  private static func chunk(_ number: Int, features: SIMD3<UInt32>? = nil) -> SampleRecord {
    let plain = Array("chunk \(number)".utf8)
    return SampleRecord(
      content: .chunk(
        ChunkRecord(
          digest: BlobDigest.of(plain), plainByteCount: plain.count, codecNumber: 0, features: features)),
      payload: plain)
  }

  /// Rows that are added to full pages split them.
  @Test("at most 60 bytes a chunk, also after a few more were added", arguments: [50, 100, 2_000])
  func chunks(added: Int) throws {
    let count = 150_000
    var first = SamplePack(PackPlace.header(sequence: 1))
    for number in 0..<count { first.append(Self.chunk(number)) }
    var second = SamplePack(PackPlace.header(sequence: 2))
    for number in 0..<added { second.append(Self.chunk(count + number)) }
    #expect(try byteCount(first, second) <= 60 * Int64(count + added))
  }

  @Test("at most 90 bytes a chunk that similar ones are looked for by")
  func features() throws {
    var random = SplitMix64(seed: 1)
    var pack = SamplePack(PackPlace.header())
    for number in 0..<Self.count {
      // As many in each bucket as there are when a million chunks use all buckets.
      func feature() -> UInt32 { UInt32.random(in: 0..<(.max / 50), using: &random) }
      pack.append(Self.chunk(number, features: SIMD3(feature(), feature(), feature())))
    }
    #expect(try byteCount(pack) <= 90 * Int64(Self.count))
  }
}

extension CatalogSizeTests {
  enum Order: CaseIterable { case ofKeys, random }

  @Test("at most 120 bytes a key of 40 bytes with one version", arguments: Order.allCases)
  func keys(_ order: Order) throws {
    // Enough that the file's other pages do not count.
    let count = 100_000
    var numbers = Array(0..<count)
    var random = SplitMix64(seed: 1)
    if order == .random { numbers.shuffle(using: &random) }
    var pack = SamplePack(PackPlace.header())
    for (index, number) in numbers.enumerated() {
      let digits = String(number + 100_000_000)
      let key = "photographs/2024/holidays/image-\(digits).jpg".suffix(40)
      // As a put makes it: the stamp says when.
      let created = UInt64(1_700_000_000_000 + index)
      let ref = RefRecord(
        key: Array(key.utf8), version: Stamp(time: created << 16, writer: .max), replaced: .none,
        digest: BlobDigest.of(Array(digits.utf8)), byteCount: 100_000, created: created, metadata: [])
      pack.append(SampleRecord(content: .ref(ref)))
    }
    #expect(try byteCount(pack) <= 120 * Int64(count))
  }
}

@Suite("Rows that lie side by side")
struct PackedRowTests {
  private static func rows(
    _ place: CatalogPlace, after last: BlobDigest?
  ) throws -> [(digest: BlobDigest, row: ChunkRow)] {
    try place.catalog.read { (transaction) throws(BlobStorageError) in
      var rows: [(BlobDigest, ChunkRow)] = []
      try transaction.forEachChunk(after: last) { digest, row in
        rows.append((digest, row))
        return true
      }
      return rows
    }
  }

  /// From a single row over a few on a page with others to many pages.
  @Test("are those that were put and not removed", arguments: [1, 2, 40, 60, 3_000])
  func changes(_ count: Int) throws {
    let place = try CatalogPlace()
    var packs: [SamplePack] = []
    for number in 1...3 {
      var pack = SamplePack(PackPlace.header(writer: UInt64(number), created: UInt64(number)))
      for index in 0..<count {
        let plain = Array("chunk \(index * number)".utf8)
        pack.append(index % 3 == 0 ? .chunk(plain, base: Self.base(of: BlobDigest.of(plain))) : .chunk(plain))
      }
      packs.append(pack)
    }
    func check(_ packs: [SamplePack], _ when: String) throws {
      var expected: [BlobDigest: Bool] = [:]
      for record in packs.flatMap(\.records) {
        guard case .chunk(let chunk) = record.content else { continue }
        let isBased = expected[chunk.digest] ?? true
        expected[chunk.digest] = isBased && chunk.base != nil
      }
      let found = try Self.rows(place, after: nil)
      #expect(found.map(\.digest) == expected.keys.sorted(), "\(when)")
      for (digest, row) in found {
        #expect(row.base == (expected[digest] == true ? Self.base(of: digest) : nil), "\(when)")
      }
      let middle = found.count / 2
      let rest = try Self.rows(place, after: found[middle].digest)
      #expect(rest.map(\.digest) == found[(middle + 1)...].map(\.digest), "\(when)")
      try place.catalog.read { (transaction) throws(BlobStorageError) in
        var single: [ChunkRow?] = []
        for (digest, _) in found { single.append(try transaction.chunkRow(digest)) }
        #expect(single == found.map(\.row), "\(when)")
        #expect(try transaction.chunkRow(BlobDigest.of([0] as [UInt8])) == nil, "\(when)")
        #expect(try transaction.count(.chunks) == found.count, "\(when)")
        // The bases of copies that are not current are not kept.
        let basedCount = found.count { $0.row.base != nil }
        #expect(try transaction.count(.chunkBases) == basedCount, "\(when)")
      }
    }
    for pack in packs { try place.apply(pack, 0..<count) }
    try check(packs, "all")
    try place.retract(packs[2])
    try place.apply(packs[2], 0..<count)
    try check(packs, "again")
    for pack in packs.reversed() { try place.retract(pack) }
    #expect(try Self.rows(place, after: nil).isEmpty)
  }

  private static func base(of digest: BlobDigest) -> BlobDigest {
    digest.withUnsafeBytes { BlobDigest.of(Array($0)) }
  }

  /// A put of one of them must not be taken for the other.
  @Test("are two for digests that begin alike", arguments: [4, 16, 20, 28, 31])
  func alike(_ alikeByteCount: Int) throws {
    let place = try CatalogPlace()
    var packs: [SamplePack] = []
    var bytes = BlobDigest.of([1] as [UInt8]).withUnsafeBytes { Array($0) }
    let features = SIMD3<UInt32>(1, 2, 3)
    func digest() -> BlobDigest { bytes.withUnsafeBytes { BlobDigest(algorithm: .blake3, bytes: $0) } }
    let one = digest()
    bytes[alikeByteCount] ^= 1
    let other = digest()
    for (index, digest) in [one, other].enumerated() {
      packs.append(SamplePack(PackPlace.header(sequence: UInt32(index) + 1)))
      packs[index].append(
        SampleRecord(
          content: .chunk(
            ChunkRecord(digest: digest, plainByteCount: 3, codecNumber: 0, features: features)),
          payload: [1, 2, 3]))
    }
    try place.apply(packs[0], 0..<1)
    try place.catalog.read { (transaction) throws(BlobStorageError) in
      #expect(try transaction.chunkToShare(one) != nil)
      #expect(try transaction.chunkToShare(other) == nil)
    }
    try place.apply(packs[1], 0..<1)
    try place.catalog.read { (transaction) throws(BlobStorageError) in
      for (digest, pack) in [(one, packs[0]), (other, packs[1])] {
        #expect(try transaction.chunkToShare(digest)?.place.pack == transaction.packNumber(pack.header.name))
      }
      #expect(try transaction.similarChunk(features) != nil)
    }
    try place.retract(packs[1])
    #expect(try Self.rows(place, after: nil).map(\.digest) == [one])
  }
}
