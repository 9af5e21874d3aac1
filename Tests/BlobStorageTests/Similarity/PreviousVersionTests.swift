import BlobStorage
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// How content reaches a put.
enum Way: CaseIterable {
  case data, file, stream

  func put(_ engine: Engine, _ key: String, _ bytes: [UInt8], _ place: StorePlace) throws {
    let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    switch self {
    case .data: _ = try engine.put(key, .data(Data(bytes)), options)
    case .file:
      let path = place.temporary.path.appending("content").string
      try Data(bytes).write(to: URL(filePath: path))
      _ = try engine.put(key, .file(path), options)
    case .stream:
      let rest = Mutex(bytes[...])
      _ = try engine.put(
        key,
        .stream({
          rest.withLock { rest in
            let part = Data(rest.prefix(10_007))
            rest = rest.dropFirst(10_007)
            return part.isEmpty ? nil : part
          }
        }), options)
    }
  }
}

@Suite("The version that a key has so far")
struct PreviousVersionTests {
  /// How many chunks of a key's current version are encoded against another, of how many.
  private static func based(_ engine: Engine, _ key: String) throws -> (Int, of: Int) {
    let information = try #require(try BlobInformation.find(engine, key, nil))
    return (information.basedChunkCount, information.chunkCount)
  }

  private static func check(_ engine: Engine, _ key: String, _ bytes: [UInt8]) throws {
    let data = try #require(try engine.data(key, nil))
    #expect([UInt8](data) == bytes)
  }

  @Test("is a base for a small blob that has no features, however it is put", arguments: Way.allCases)
  func small(_ way: Way) throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 1)
    var bytes = seed.text(SuperFeatures.plainByteCountMin - 10)
    try way.put(engine, "k", bytes, place)
    bytes.replaceSubrange(100..<103, with: Array("new".utf8))
    try way.put(engine, "k", bytes, place)
    #expect(try Self.based(engine, "k") == (1, of: 1))
    try Self.check(engine, "k", bytes)
    try way.put(engine, "other", bytes.reversed(), place)
    #expect(try Self.based(engine, "other").0 == 0)
    try engine.close()
  }

  @Test("is a base for chunks that have too little in common to be found otherwise", arguments: Way.allCases)
  func guessed(_ way: Way) throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 2)
    var bytes = seed.bytes(1_500_000)
    try way.put(engine, "k", bytes, place)
    // The features are made of 64 bytes each, so that none is left.
    for offset in stride(from: 7, to: bytes.count, by: 37) { bytes[offset] = 0x2e }
    try way.put(engine, "other", bytes, place)
    #expect(try Self.based(engine, "other").0 == 0)
    let changed = bytes.map { $0 == 0x2e ? 0x2c : $0 }
    try way.put(engine, "k", changed, place)
    let (count, total) = try Self.based(engine, "k")
    #expect(count >= 3 && total > 3, "\(count) of \(total)")
    try Self.check(engine, "k", changed)
    try engine.close()
  }

  @Test("is followed when its content has moved", arguments: Way.allCases)
  func moved(_ way: Way) throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 4_096))
    let engine = try place.engine()
    var seed = SplitMix64(seed: 3)
    let same = seed.text(40_000)
    let part = seed.bytes(60_000)
    try way.put(engine, "k", seed.text(30_000) + same + part, place)
    // Noise with a byte changed here and there: nothing but the right chunk makes it smaller.
    var changed = part
    for offset in stride(from: 11, to: changed.count, by: 41) { changed[offset] ^= 0xff }
    let bytes = seed.text(5_000) + same + changed
    try way.put(engine, "k", bytes, place)
    let (count, _) = try Self.based(engine, "k")
    #expect(count >= 2)
    try Self.check(engine, "k", bytes)
    try engine.close()
  }

  @Test(
    "is a base if that leaves at most half of what the chunk takes alone",
    arguments: [(8_000, true), (9_500, true), (10_600, false), (16_000, false)])
  func worthwhile(newByteCount: Int, isBased: Bool) throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 1 << 20))
    let engine = try place.engine()
    var seed = SplitMix64(seed: UInt64(newByteCount))
    var bytes = seed.bytes(20_000)
    try Way.data.put(engine, "k", bytes, place)
    bytes.replaceSubrange(..<newByteCount, with: seed.bytes(newByteCount))
    try Way.data.put(engine, "k", bytes, place)
    #expect(try Self.based(engine, "k") == (isBased ? 1 : 0, of: 1))
    try Self.check(engine, "k", bytes)
    try engine.close()
  }

  @Test("is no base where similarity is off, for another codec, or for what is compressed already")
  func none() throws {
    let cases: [(StoreOptions, CodecKind?, beginning: [UInt8], count: Int)] = [
      (StoreOptions(), nil, [], 1), (StoreOptions(usesSimilarity: false), nil, [], 0),
      (StoreOptions(), .zlib, [], 0), (StoreOptions(), CodecKind.none, [], 0),
      (StoreOptions(codec: .zlib), nil, [], 0), (StoreOptions(codec: .zlib), .zstd, [], 1),
      (StoreOptions(), nil, [0x1f, 0x8b, 0x08], 0),
    ]
    for (index, (options, codec, beginning, count)) in cases.enumerated() {
      let place = try StorePlace(options)
      let engine = try place.engine()
      var seed = SplitMix64(seed: 7)
      var bytes = beginning + seed.text(9_000)
      let put = PutOptions(durability: .relaxed, replacement: .archiveCurrent, codec: codec)
      for byte in [UInt8(ascii: "1"), UInt8(ascii: "2")] {
        bytes[5_000] = byte
        _ = try engine.put("k", bytes, put)
      }
      #expect(try Self.based(engine, "k") == (count, of: 1), "case \(index)")
      try Self.check(engine, "k", bytes)
      try engine.close()
    }
  }

  @Test("is never a base of a base, however long the history is")
  func oneHop() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    var seed = SplitMix64(seed: 8)
    var bytes = seed.text(9_000)
    for index in 0..<20 {
      bytes.replaceSubrange(index * 400..<index * 400 + 200, with: seed.bytes(200))
      try Way.allCases[index % 3].put(engine, "k", bytes, place)
    }
    let digests = try engine.versions("k").map(\.digest)
    let basedCount = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var count = 0
      for digest in digests {
        guard let base = try transaction.chunkRow(digest)?.base else { continue }
        let row = try transaction.chunkRow(base)
        #expect(row != nil && row?.base == nil)
        count += 1
      }
      return count
    }
    #expect(basedCount > 10 && basedCount < 20)
    try engine.close()
  }

  @Test("may be unreadable: the new one is put all the same")
  func unreadable() throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 4_096))
    var engine = try place.engine()
    var seed = SplitMix64(seed: 4)
    let bytes = seed.text(100_000)
    try Way.data.put(engine, "k", bytes, place)
    try engine.close()
    let packs = URL(filePath: place.path).appending(path: "packs")
    for name in try FileManager.default.contentsOfDirectory(atPath: packs.path) {
      let url = packs.appending(path: name)
      var data = try Data(contentsOf: url)
      for offset in stride(from: 200, to: data.count - 30_000, by: 50) { data[offset] ^= 1 }
      try data.write(to: url)
    }
    engine = try place.engine()
    var changed = bytes
    for offset in stride(from: 7, to: changed.count, by: 997) { changed[offset] = 0x2e }
    try Way.stream.put(engine, "k", changed, place)
    try Self.check(engine, "k", changed)
    try engine.close()
  }
}
