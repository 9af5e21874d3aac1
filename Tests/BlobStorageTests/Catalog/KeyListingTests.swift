import BlobStorage
import BlobStorageTestSupport
import Testing

@Suite("Keys")
struct KeyListingTests {
  /// Keys that share prefixes as long as the parts that the catalog cuts them into.
  private static func keys(_ random: inout SplitMix64) -> [[UInt8]] {
    var keys: Set<[UInt8]> = [[UInt8](repeating: 0x6b, count: 4_096), [0x6b], [0xff, 0xff], [1]]
    let shared = [0, 1, 479, 480, 481, 959, 960, 961, 1_440, 3_840]
    while keys.count < 250 {
      let count = shared.randomElement(using: &random) ?? 0
      let tail = random.bytes(Int.random(in: 0...6, using: &random)).map { $0 % 3 + 0x6a }
      let key = Array(([UInt8](repeating: 0x6b, count: count) + tail).prefix(4_096))
      if !key.isEmpty { keys.insert(key) }
    }
    return keys.sorted { $0.lexicographicallyPrecedes($1) }
  }

  private static func listed(
    _ place: CatalogPlace, prefix: [UInt8], after: [UInt8]?, limit: Int = .max
  ) throws -> [[UInt8]] {
    try place.catalog.read { (transaction) throws(BlobStorageError) in
      var found: [[UInt8]] = []
      try transaction.forEachKey(prefix: prefix, after: after) { key, _ in
        found.append(key)
        return found.count < limit
      }
      return found
    }
  }

  @Test("of any length are listed in byte order, by prefix and from any place on")
  func listing() throws {
    var random = SplitMix64.announced()
    var keys = Self.keys(&random)
    let place = try CatalogPlace()
    var pack = SamplePack(PackPlace.header())
    for (index, key) in keys.shuffled(using: &random).enumerated() {
      pack.append(
        SampleRecord(
          content: .ref(
            RefRecord(
              key: key, version: Stamp(time: UInt64(index) + 1, writer: 1), replaced: .none,
              digest: BlobDigest.of([1] as [UInt8]), byteCount: 1, created: 1, metadata: []))))
    }
    // Some are dropped again: they are not listed, and what they share with others stays.
    for record in pack.records.prefix(60) {
      guard case .ref(let ref) = record.content else { continue }
      let drop = DropRecord(key: ref.key, stamp: Stamp(time: 900, writer: 1), versions: [ref.version])
      pack.append(SampleRecord(content: .drop(drop)))
      keys.removeAll { $0 == ref.key }
    }
    try place.apply(pack, 0..<pack.records.count)
    #expect(try Self.listed(place, prefix: [], after: nil) == keys)
    for _ in 0..<120 {
      let source = keys.randomElement(using: &random) ?? []
      let prefix = Array(source.prefix(Int.random(in: 0...source.count, using: &random)))
      var after = Bool.random(using: &random) ? keys.randomElement(using: &random) : nil
      if Bool.random(using: &random) { after?.append(0x6b) }
      let expected = keys.filter { key in
        key.starts(with: prefix) && after.map { $0.lexicographicallyPrecedes(key) } ?? true
      }
      #expect(
        try Self.listed(place, prefix: prefix, after: after) == expected,
        "prefix of \(prefix.count), after \(after?.count ?? -1)")
      let limit = Int.random(in: 1...20, using: &random)
      #expect(
        try Self.listed(place, prefix: prefix, after: after, limit: limit) == Array(expected.prefix(limit)))
    }
  }

  @Test("that end where a part of others ends come and go by themselves", arguments: [480, 960])
  func endOfPart(_ byteCount: Int) throws {
    let place = try CatalogPlace()
    let short = String(repeating: "k", count: byteCount)
    let keys = [short, short + "l", short + String(repeating: "l", count: 600)]
    let packs = keys.enumerated().map { index, key in
      var pack = SamplePack(PackPlace.header(sequence: UInt32(index) + 1))
      pack.append(.ref(key, Stamp(time: 1, writer: 1)))
      return pack
    }
    for pack in packs { try place.apply(pack, 0..<1) }
    for (index, pack) in packs.enumerated() {
      try place.retract(pack)
      let left = keys.indices.filter { $0 != index }.map { Array(keys[$0].utf8) }
      #expect(
        try Self.listed(place, prefix: [], after: nil) == left, "without the key of \(keys[index].count)")
      #expect(try Self.listed(place, prefix: Array(short.utf8), after: nil) == left)
      let isFound = try place.catalog.read { (transaction) throws(BlobStorageError) in
        var isFound: [Bool] = []
        for key in left { isFound.append(try transaction.nameRow(key)?.versionCount == 1) }
        return isFound
      }
      #expect(isFound == [true, true])
      try place.apply(pack, 0..<1)
      #expect(try Self.listed(place, prefix: [], after: nil) == keys.map { Array($0.utf8) })
    }
  }

  @Test("make the map grow, however small it was at first")
  func growth() throws {
    let place = try CatalogPlace(mapByteCount: 1 << 16)
    var pack = SamplePack(PackPlace.header())
    let count = 3_000
    for index in 0..<count {
      pack.append(
        .ref("key-\(index)-" + String(repeating: "z", count: 200), Stamp(time: UInt64(index) + 1, writer: 1)))
    }
    for start in stride(from: 0, to: count, by: 100) {
      try place.apply(pack, start..<start + 100)
      #expect(try Self.listed(place, prefix: [], after: nil).count == start + 100)
    }
  }
}
