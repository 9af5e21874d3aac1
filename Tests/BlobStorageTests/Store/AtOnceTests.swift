import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Gets and puts that are answered on the thread of their task.
@Suite("What needs no thread of the store")
struct AtOnceTests {
  /// Says whether packs are in the page cache.
  private final class PageCache: Sendable {
    let isEmpty = Atomic<Bool>(false)
  }

  private let place: StorePlace
  private let cache = PageCache()
  private let store: BlockingBlobStore
  private var engine: Engine { store.store.engine }
  private let noise: [UInt8]

  init() throws {
    // Nothing of up to 64 KiB is cut.
    place = try StorePlace(StoreOptions(averageChunkByteCount: 1 << 20))
    let cache = cache
    var environment = Engine.Environment()
    environment.files = HookedFiles { (call, path) throws(BlobStorageError) in
      if call == "readIfCached", cache.isEmpty.load(ordering: .relaxed) {
        throw BlobStorageError(.io, "not in the page cache")
      }
    }
    store = try BlobStore.open(at: place.path, StoreConfiguration(), in: environment).blocking
    var random = SplitMix64.announced()
    noise = random.bytes(64 << 10)
  }

  /// Puts a value and reads it once, so that its pack is open.
  private func put(_ key: String, _ bytes: [UInt8]) throws {
    try store.put(.data(Data(bytes)), forKey: key, options: .relaxed)
    #expect(try store.data(forKey: key) == Data(bytes))
  }

  @Test("is a get of up to 64 KiB from the page cache", arguments: [Verification.digest, .checksum])
  func small(_ verification: Verification) throws {
    for count in [1, 10_000, 64 << 10] {
      let bytes = Array(noise.prefix(count))
      try put("k", bytes)
      #expect(engine.dataAtOnce("k", nil, verification) == .some(Data(bytes)), "\(count) bytes")
      #expect(engine.dataAtOnce(BlobDigest.of(bytes), verification) == .some(Data(bytes)))
      let version = try #require(try store.versions(of: "k").first)
      #expect(engine.dataAtOnce("k", version.id, verification) == .some(Data(bytes)))
    }
  }

  @Test("is a get of a key or a version that does not exist")
  func missing() throws {
    try put("k", [1, 2, 3])
    let version = try #require(try store.versions(of: "k").first)
    try put("k", [4])
    #expect(engine.dataAtOnce("other", nil, .digest) == .some(nil))
    #expect(engine.dataAtOnce("k", version.id, .digest) == .some(nil))
  }

  @Test("is no get that would wait for the medium, or take long")
  func long() async throws {
    try put("k", Array(noise.prefix(10_000)))
    cache.isEmpty.store(true, ordering: .relaxed)
    #expect(engine.dataAtOnce("k", nil, .digest) == nil)
    #expect(engine.dataAtOnce("k", nil, .checksum) == nil)
    #expect(try await store.store.data(forKey: "k") == Data(noise.prefix(10_000)))
    cache.isEmpty.store(false, ordering: .relaxed)
    #expect(engine.dataAtOnce("k", nil, .digest) != nil)
    try put("long", noise + [0])
    #expect(engine.dataAtOnce("long", nil, .digest) == nil)
    #expect(try await store.store.data(forKey: "long") == Data(noise + [0]))
    // The long way says whether a blob is missing.
    #expect(engine.dataAtOnce(BlobDigest.of(Data("missing".utf8)), .digest) == nil)
  }

  @Test("is no get before its pack was opened, nor after the store was closed")
  func opened() async throws {
    try put("k", [1, 2, 3])
    try store.close()
    #expect(engine.dataAtOnce("k", nil, .digest) == nil)
    let error = await #expect(throws: BlobStorageError.self) { try await store.store.data(forKey: "k") }
    #expect(error?.code == .closed)
    let again = try await place.opened()
    #expect(again.engine.dataAtOnce("k", nil, .digest) == nil)
    for _ in 0..<2 { #expect(try await again.data(forKey: "k") == Data([1, 2, 3])) }
    #expect(again.engine.dataAtOnce("k", nil, .digest) == .some(Data([1, 2, 3])))
    try await again.close()
  }

  @Test("is no get that finds damage: the long way reports it")
  func damaged() async throws {
    let bytes = Array(noise.prefix(1_000))
    try put("k", bytes)
    let digest = BlobDigest.of(bytes)
    let found = try engine.catalog.read { (view) throws(BlobStorageError) -> (Int64, PackName)? in
      guard let row = try view.chunkRow(digest), let pack = try view.packRow(row.place.pack) else {
        return nil
      }
      return (row.payloadOffset, pack.name)
    }
    let (offset, pack) = try #require(found)
    let path = FilePath(place.path).appending("packs").appending(pack.fileName)
    let file = try SystemFiles().open(path, .readWrite)
    try file.put([bytes[0] ^ 1], at: offset)
    #expect(engine.dataAtOnce("k", nil, .digest) == nil)
    let error = await #expect(throws: BlobStorageError.self) { try await store.store.data(forKey: "k") }
    #expect(error?.code == .corrupted)
    #expect(error?.key == "k")
    try file.put([bytes[0]], at: offset)
    #expect(engine.dataAtOnce("k", nil, .digest) == .some(Data(bytes)))
    file.close()
  }
}
