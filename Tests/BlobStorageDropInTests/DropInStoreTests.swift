import BlobStorage
import BlobStorageDropIn
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite struct DropInStoreTests {
  let root: Folder

  init() throws { root = try Folder() }

  @Test("after a failed sync, the next operation opens the store anew")
  func failedSync() async throws {
    let files = RecordedFiles(root: FilePath(root.url.path))
    let isToFail = Mutex(false)
    files.beforeMutations { (kind, path) throws(BlobStorageError) in
      guard kind == .synchronize, path.string.contains("/packs/") else { return }
      let fails = isToFail.withLock { isToFail in
        defer { isToFail = false }
        return isToFail
      }
      if fails { throw .systemCall("sync (planned)", path: path, errno: Errno.ioError.rawValue) }
    }
    var environment = Engine.Environment()
    environment.files = files
    let archive = StoreEnvironment.$current.withValue(environment) { DataArchive(rootUrl: root.url) }
    #expect(await archive.set("k", "one").isSuccess)
    isToFail.withLock { $0 = true }
    guard case .couldNotWriteToFile(_, let error) = await archive.set("k", "two") else {
      Issue.record("the sync did not fail")
      return
    }
    #expect((error as? BlobStorageError)?.code == .poisoned)
    // No open pack is left whose sync has failed: the store is closed before it is opened again.
    guard case .fileNotFound = await archive.delete("missing") else {
      Issue.record("a key that is not there could not be deleted")
      return
    }
    // The store that failed would refuse this.
    #expect(await archive.set("k", "three").isSuccess)
    #expect(await archive.archive("k", Data("four".utf8)).isSuccess)
    #expect(await archive.texts("k") == ["four", "three"])
    #expect(archive.keys == ["k"])
  }

  @Test("keys of a forged store that are not UTF-8 are listed once", .timeLimit(.minutes(1)))
  func forgedKeys() async throws {
    let archive = DataArchive(rootUrl: root.url)
    #expect(await archive.set("k", "value").isSuccess)
    let path = root.url.appendingPathComponent("data_archive/.blobstore").path
    let store = try BlockingBlobStore.open(at: path)
    _ = try store.store.engine.writer.commit { (commit) throws(BlobStorageError) in
      for number in 0..<1_001 {
        _ = try commit.append(
          .ref(
            RefRecord(
              key: Array("a/".utf8) + [0xff] + Array("\(number)".utf8), version: try commit.stamp(),
              replaced: .none, digest: BlobDigest.of(Array("value".utf8)), byteCount: 5, created: 0,
              metadata: [])))
      }
    }
    try store.close()
    #expect(archive.keys.count == 1_002)
  }

  @Test("libraries that share a folder do not see or remove what others have there")
  func oneFolder() async throws {
    let data = try UserFolders.$environment.withValue(root.environment) {
      try PersistentDataStore(name: "x/data_archive")
    }
    let archive = DataArchive(rootUrl: root.url.appendingPathComponent("Documents/x"))
    func text() async -> String? {
      await withCheckedContinuation { done in
        data.loadData(forIdentifier: "k", dataTransformer: { String(decoding: $0, as: UTF8.self) }) {
          done.resume(returning: $0)
        }
      }
    }
    #expect(await archive.set("k", "archived").isSuccess)
    #expect(await text() == nil)
    data.storeData({ Data("data".utf8) }, identifier: "k") { _ in }
    #expect(await text() == "data")
    #expect(await archive.text("k") == "archived")
    #expect(archive.keys == ["k"])
    data.removeAll()
    #expect(await text() == nil)
    #expect(await archive.text("k") == "archived")
    #expect(await archive.delete("k").isSuccess)
  }
}
