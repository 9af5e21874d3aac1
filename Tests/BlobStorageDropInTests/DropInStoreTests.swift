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
    // The store that failed would refuse this.
    #expect(await archive.set("k", "three").isSuccess)
    #expect(await archive.archive("k", Data("four".utf8)).isSuccess)
    #expect(await archive.texts("k") == ["four", "three"])
    #expect(archive.keys == ["k"])
  }

  @Test("a forged store of a thousand keys that are not UTF-8 lists each of them once")
  func forgedKeys() async throws {
    let archive = DataArchive(rootUrl: root.url)
    #expect(await archive.set("k", "mine").isSuccess)
    let path = root.url.appendingPathComponent("data_archive/.blobstore").path
    let engine = try Engine(path: path, configuration: StoreConfiguration())
    let items = try (0..<1_000).map { number in
      let key: [UInt8] = Array("a/".utf8) + [0xF8] + Array("\(number)".utf8)
      return try engine.memoryPut.prepare(key, Data([1]), PutOptions(durability: .relaxed))
    }
    _ = try engine.memoryPut.commit(items)
    try engine.close()
    #expect(archive.keys.count == 1_001)
    #expect(archive.keys.first == "k")
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
