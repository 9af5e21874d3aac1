import BlobStorage
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
    let information = try #require(try BlobInformation.take(engine, key, nil))
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
    let place = try StorePlace(StoreOptions(chunkByteCountAverage: 4_096))
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

  @Test("may be unreadable: the new one is put all the same")
  func unreadable() throws {
    let place = try StorePlace(StoreOptions(chunkByteCountAverage: 4_096))
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
