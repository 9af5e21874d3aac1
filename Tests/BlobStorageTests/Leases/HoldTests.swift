import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// What a collection leaves alone because it is in use.
@Suite("A collection beside others")
struct HoldTests {
  private static let everything = GarbageCollectionOptions(minimumGarbageShare: 0)

  /// - Parameter isByDigest: whether the blob is opened by its digest, or as the current version of its key.
  @Test("leaves every chunk of an open blob, and takes them when it is closed", arguments: [true, false])
  func openBlob(isByDigest: Bool) throws {
    let place = try StorePlace(StoreOptions(averageChunkByteCount: 16_384))
    let (reader, other) = (try place.engine(), try place.engine())
    defer { for engine in [reader, other] { try? engine.close() } }
    var random = SplitMix64.announced()
    let data = random.noise(2_000_000)
    let digest = try other.put("key", .data(data), .relaxed).version.digest
    let found = isByDigest ? try reader.openBlob(digest) : try reader.openBlob("key", nil)
    let blob = try #require(found)
    #expect(try other.delete(["key"], .relaxed) == 1)
    #expect(try other.collectGarbage(Self.everything).deletedChunkCount == 0)
    #expect(try Data(blob.read(0..<2_000_000)) == data)
    blob.close()
    #expect(try other.collectGarbage(Self.everything).deletedChunkCount > 1)
  }

  @Test("leaves what a long put shares with a key that is deleted meanwhile, also after its first commits")
  func longPut() throws {
    let place = try StorePlace()
    let (writer, other) = (try place.engine(), try place.engine())
    defer { for engine in [writer, other] { try? engine.close() } }
    var random = SplitMix64.announced()
    let shared = random.noise(4_000_000)
    _ = try other.put("old", .data(shared), .relaxed)
    let long = shared + random.noise(28_000_000)
    let file = place.temporary.path.appending("file").string
    try long.write(to: URL(filePath: file))
    let isCollected = Mutex(false)
    let collect: @Sendable (WorkProgress) -> Void = { progress in
      // By then more than 16 MiB are new: these have been committed.
      guard progress.doneByteCount > 26_000_000, !isCollected.withLock({ $0 }) else { return }
      isCollected.withLock { $0 = true }
      #expect(throws: Never.self) {
        _ = try other.delete(["old"], .relaxed)
        _ = try other.collectGarbage(Self.everything)
      }
    }
    let result = try writer.put("new", .file(file), .relaxed, collect)
    #expect(isCollected.withLock { $0 })
    #expect(result.newByteCount < 30_000_000)
    #expect(try other.data("new", nil) == long)
    #expect(try other.verify().damaged.isEmpty)
  }
}
