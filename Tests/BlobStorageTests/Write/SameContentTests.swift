import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A file that is put under its key once more")
struct SameContentTests {
  private static func put(_ bytes: [UInt8], _ place: StorePlace, _ engine: Engine) throws -> PutResult {
    let file = place.temporary.path.appending("file").string
    try Data(bytes).write(to: URL(filePath: file))
    return try engine.put(
      "key", .file(file), PutOptions(durability: .relaxed, replacement: .archiveCurrent))
  }

  @Test("adds a ref and nothing else")
  func same() throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 16_384))
    let engine = try place.engine()
    defer { try? engine.close() }
    var random = SplitMix64.announced()
    let bytes = random.bytes(3_000_000)
    let first = try Self.put(bytes, place, engine)
    let second = try Self.put(bytes, place, engine)
    #expect(first.newByteCount == Int64(bytes.count))
    #expect(second.newByteCount == 0)
    #expect(second.storedByteCount < 200)
    #expect(second.version.id != first.version.id)
    #expect(try engine.versions("key").map(\.digest) == [first.version.digest, first.version.digest])
    #expect(try engine.data("key", second.version.id) == Data(bytes))
    #expect(try engine.verify().damaged.isEmpty)
  }

  @Test("is stored as it is if the version's manifest names its chunks under another digest")
  func otherDigest() throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 16_384))
    let engine = try place.engine()
    defer { try? engine.close() }
    var random = SplitMix64.announced()
    let bytes = random.bytes(3_000_000)
    let right = try Self.put(bytes, place, engine).version.digest
    try plantManifest("key", BlobDigest.of(random.bytes(20)), naming: right, in: engine)
    let again = try Self.put(bytes, place, engine)
    #expect(again.version.digest == right)
    #expect(try engine.data("key", nil) == Data(bytes))
  }

  @Test("is stored as it is, wherever a byte of it has changed", arguments: [0, 1_499_999, 2_999_999])
  func changed(at index: Int) throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 16_384))
    let engine = try place.engine()
    defer { try? engine.close() }
    var random = SplitMix64.announced()
    var bytes = random.bytes(3_000_000)
    let first = try Self.put(bytes, place, engine)
    bytes[index] ^= 1
    let second = try Self.put(bytes, place, engine)
    #expect(second.version.digest == BlobDigest.of(bytes))
    #expect(second.newByteCount > 0 && second.newByteCount < 300_000)
    #expect(try engine.data("key", nil) == Data(bytes))
    #expect(try engine.data("key", first.version.id) != Data(bytes))
  }

  @Test("is stored as it is when it has become longer or shorter", arguments: [1, 400_000, -1, -400_000])
  func otherLength(by difference: Int) throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 16_384))
    let engine = try place.engine()
    defer { try? engine.close() }
    var random = SplitMix64.announced()
    let bytes = random.bytes(3_400_000)
    _ = try Self.put(Array(bytes.prefix(3_000_000)), place, engine)
    let changed = Array(bytes.prefix(3_000_000 + difference))
    #expect(try Self.put(changed, place, engine).version.digest == BlobDigest.of(changed))
    #expect(try engine.data("key", nil) == Data(changed))
  }

  @Test("heals what has been damaged of it")
  func heals() throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 16_384))
    let engine = try place.engine()
    defer { try? engine.close() }
    var random = SplitMix64.announced()
    let bytes = random.bytes(3_000_000)
    let first = try Self.put(bytes, place, engine)
    let packs = URL(filePath: place.path).appending(path: "packs")
    let name = try #require(try FileManager.default.contentsOfDirectory(atPath: packs.path).first)
    let file = packs.appending(path: name)
    var pack = try Data(contentsOf: file)
    pack[pack.count / 2] ^= 1
    try pack.write(to: file)
    #expect(throws: BlobStorageError.self) { try engine.data("key", first.version.id) }
    let second = try Self.put(bytes, place, engine)
    #expect(second.newByteCount > 0)
    #expect(try engine.data("key", nil) == Data(bytes))
  }

  @Test("is stored anew when what it was compared with has been replaced and collected meanwhile")
  func goneMeanwhile() throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 16_384))
    var random = SplitMix64.announced()
    let bytes = random.bytes(3_000_000)
    let first = try place.engine()
    _ = try Self.put(bytes, place, first)
    // Its pack is sealed: a collection can take it.
    try first.close()
    let (engine, other) = (try place.engine(), try place.engine())
    defer { for engine in [engine, other] { try? engine.close() } }
    let isGone = Mutex(false)
    let replace: @Sendable (WorkProgress) -> Void = { progress in
      guard progress.doneByteCount == 3_000_000, !isGone.withLock({ $0 }) else { return }
      isGone.withLock { $0 = true }
      #expect(throws: Never.self) {
        _ = try other.put("key", [1])
        #expect(
          try other.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)).deletedChunkCount > 100)
      }
    }
    let file = place.temporary.path.appending("file").string
    let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    let result = try engine.put("key", .file(file), options, replace)
    #expect(isGone.withLock { $0 })
    #expect(result.newByteCount == 3_000_000)
    #expect(try engine.data("key", nil) == Data(bytes))
    #expect(try engine.versions("key").map(\.byteCount) == [3_000_000, 1])
    #expect(try engine.verify().damaged.isEmpty)
  }

  @Test("is not taken for the same when it changes behind what was compared")
  func changesMeanwhile() throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 16_384))
    let engine = try place.engine()
    defer { try? engine.close() }
    var random = SplitMix64.announced()
    let first = try Self.put(random.bytes(4_000_000), place, engine)
    let file = place.temporary.path.appending("file").string
    let isChanged = Mutex(false)
    let change: @Sendable (WorkProgress) -> Void = { progress in
      // By then the first bytes have been compared.
      guard progress.doneByteCount > 3_500_000, !isChanged.withLock({ $0 }) else { return }
      isChanged.withLock { $0 = true }
      let handle = FileHandle(forUpdatingAtPath: file)
      #expect(throws: Never.self) { try handle?.write(contentsOf: Data("changed".utf8)) }
      #expect(throws: Never.self) { try handle?.close() }
    }
    let error = failure { _ = try engine.put("key", .file(file), .relaxed, change) }
    #expect(isChanged.withLock { $0 })
    #expect(error?.code == .sourceFailed)
    #expect(try engine.versions("key").map(\.id) == [first.version.id])
  }
}
