import BlobStorage
import BlobStorageTestSupport
import Testing

@Suite("The catalog")
struct CommutativityTests {
  /// Records of every kind over several packs: copies of refs, maskers before and after what they hide, chunks twice.
  struct Sample {
    var packs: [SamplePack] = []
    var keys: [[UInt8]] = []
    var stamps: [Stamp] = []
    var digests: [BlobDigest] = []

    init(_ random: inout SplitMix64) {
      keys = ["a", "b", "c", "long-" + String(repeating: "x", count: 700)].map { Array($0.utf8) }
      stamps = (1...12).map { Stamp(time: UInt64($0) / 2, writer: UInt64($0)) }
      let plains = (UInt8(0)..<12).map { [UInt8](repeating: $0, count: Int($0) + 1) }
      digests = plains.map { BlobDigest.of($0) }
      // One ref record a version: all its copies say the same.
      var refs: [SampleRecord] = []
      for key in keys {
        for stamp in stamps {
          let replaced = Bool.random(using: &random) ? stamps.randomElement(using: &random) ?? .none : .none
          let index = Int.random(in: 0..<plains.count, using: &random)
          refs.append(
            .ref(
              String(decoding: key, as: UTF8.self), stamp, replaces: replaced == stamp ? .none : replaced,
              digest: digests[index], byteCount: Int64(plains[index].count)))
        }
      }
      for number in 1...5 {
        // Two packs that were begun at the same time, too: then their names decide.
        var pack = SamplePack(
          PackPlace.header(
            writer: UInt64.random(in: 1...9, using: &random) * 100 + UInt64(number),
            created: UInt64(number / 2)))
        for _ in 0..<40 {
          switch Int.random(in: 0..<10, using: &random) {
          case 0..<3: pack.append(.chunk(plains.randomElement(using: &random) ?? []))
          case 3:
            let entry = ChunkEntry(digest: digests[0], plainByteCount: 1)
            pack.append(.manifest(digests.randomElement(using: &random) ?? digests[0], [entry, entry]))
          case 4, 5:
            let key = keys.randomElement(using: &random) ?? keys[0]
            let versions = Array(
              stamps.shuffled(using: &random).prefix(Int.random(in: 1...2, using: &random)))
            pack.append(.drop(String(decoding: key, as: UTF8.self), versions, at: stamps[11]))
          default: if let ref = refs.randomElement(using: &random) { pack.append(ref) }
          }
        }
        packs.append(pack)
      }
    }

    /// Applies all packs, in parts, in an order of chance.
    func apply(to place: CatalogPlace, _ random: inout SplitMix64) throws {
      var next = packs.map { _ in 0 }
      while let index = packs.indices.filter({ next[$0] < packs[$0].records.count }).randomElement(
        using: &random)
      {
        let end = min(next[index] + Int.random(in: 1...25, using: &random), packs[index].records.count)
        try place.apply(packs[index], next[index]..<end)
        next[index] = end
      }
    }

    func dump(_ place: CatalogPlace) throws -> [String] {
      try place.dump(keys: keys, stamps: stamps, digests: digests)
    }
  }

  @Test("says the same whatever the order in which packs are applied", arguments: 0..<4)
  func anyOrder(_ round: Int) throws {
    var random = SplitMix64.announced()
    let sample = Sample(&random)
    let first = try CatalogPlace()
    try sample.apply(to: first, &random)
    let expected = try sample.dump(first)
    #expect(expected.contains { $0.contains("maskers") } && expected.contains { $0.contains(" x") })
    for _ in 0..<4 {
      let place = try CatalogPlace()
      try sample.apply(to: place, &random)
      #expect(try sample.dump(place) == expected)
    }
  }

  @Test("shows a version if and only if a copy of its ref is there and nothing hides it")
  func visibility() throws {
    var random = SplitMix64.announced()
    let sample = Sample(&random)
    let place = try CatalogPlace()
    try sample.apply(to: place, &random)
    var written: Set<[UInt8]> = []
    var hidden: Set<[UInt8]> = []
    func name(_ key: [UInt8], _ stamp: Stamp) -> [UInt8] { key + Array(stamp.text.utf8) }
    for record in sample.packs.flatMap(\.records) {
      switch record.content {
      case .ref(let ref):
        written.insert(name(ref.key, ref.version))
        if ref.replaced != .none { hidden.insert(name(ref.key, ref.replaced)) }
      case .drop(let drop): for version in drop.versions { hidden.insert(name(drop.key, version)) }
      default: break
      }
    }
    try place.catalog.read { (transaction) throws(BlobStorageError) in
      for key in sample.keys {
        let row = try transaction.nameRow(key)
        for stamp in sample.stamps {
          var isVisible = false
          if let row {
            isVisible = try transaction.versionRow(of: row, stamp) != nil
          }
          let name = name(key, stamp)
          #expect(isVisible == (written.contains(name) && !hidden.contains(name)))
        }
      }
    }
  }

  @Test("is as before once a pack that was applied is taken out again")
  func retraction() throws {
    var random = SplitMix64.announced()
    let sample = Sample(&random)
    let place = try CatalogPlace()
    try sample.apply(to: place, &random)
    // Versions and chunks that no other pack has, some of them replaced and dropped where they are.
    func stamp(_ time: UInt64) -> Stamp { Stamp(time: time, writer: 77) }
    let longest = String(repeating: "k", count: 4_096)
    let plain = [UInt8](repeating: 99, count: 99)
    var pack = SamplePack(PackPlace.header(writer: 1, sequence: 9, created: 100))
    pack.append(.chunk(plain))
    pack.append(.ref("a", stamp(50), digest: BlobDigest.of(plain), byteCount: 99))
    pack.append(.ref("a", stamp(51), replaces: stamp(50)))
    pack.append(.drop("a", [stamp(51), stamp(60)], at: stamp(52)))
    pack.append(.ref("a", stamp(53)))
    pack.append(.ref("new", stamp(54)))
    pack.append(.ref(longest, stamp(55)))
    pack.append(
      .manifest(
        BlobDigest.of(longest.utf8.map { $0 }), [ChunkEntry(digest: BlobDigest.of(plain), plainByteCount: 99)]
      ))
    let keys = sample.keys + [Array("new".utf8), Array(longest.utf8)]
    let stamps = sample.stamps + (50..<61).map { stamp($0) }
    let digests = sample.digests + [BlobDigest.of(plain), BlobDigest.of(longest.utf8.map { $0 })]
    let before = try place.dump(keys: keys, stamps: stamps, digests: digests)
    try place.apply(pack, 0..<pack.records.count)
    #expect(try place.dump(keys: keys, stamps: stamps, digests: digests) != before)
    try place.retract(pack)
    #expect(try place.dump(keys: keys, stamps: stamps, digests: digests) == before)
  }

  @Test("knows the blob of a version that only one of its copies knows, in either order")
  func unknownBlob() throws {
    let (digest, stamp) = (BlobDigest.of([1] as [UInt8]), Stamp(time: 5, writer: 1))
    for isReversed in [false, true] {
      let place = try CatalogPlace()
      var packs = [(BlobDigest.unknown(.blake3), 1), (digest, 7)].enumerated().map { index, blob in
        var pack = SamplePack(PackPlace.header(sequence: UInt32(index) + 1))
        pack.append(.ref("k", stamp, digest: blob.0, byteCount: Int64(blob.1)))
        return pack
      }
      if isReversed { packs.reverse() }
      for pack in packs { try place.apply(pack, 0..<1) }
      let row = try place.catalog.read { (transaction) throws(BlobStorageError) in
        guard let name = try transaction.nameRow(Array("k".utf8)) else { return VersionRow?.none }
        return try transaction.versionRow(of: name, stamp)
      }
      #expect(row?.digest == digest && row?.byteCount == 7 && row?.copyCount == 2)
    }
  }
}
