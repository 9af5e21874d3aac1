import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("Long work whose task is cancelled")
struct CancellationTests {
  enum Work: CaseIterable { case importing, exporting, copying }

  @Test("ends, says so, and leaves nothing half done", arguments: Work.allCases)
  func cancelled(_ work: Work) async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let root = place.temporary.path.string
    let target = try await BlobStore.create(at: "\(root)/target")
    try await store.put(
      (0..<600).map { PutItem(key: "k\($0)", data: Data("\($0)".utf8)) }, options: .relaxed)
    let tree = "\(root)/tree"
    try FileManager.default.createDirectory(atPath: tree, withIntermediateDirectories: true)
    for index in 0..<5 { try Data("\(index)".utf8).write(to: URL(filePath: "\(tree)/\(index)")) }
    let running = Mutex<Task<Void, any Error>?>(nil)
    let cancel: ProgressHandler = { _ in
      // The work may tell before its task is known here.
      while true {
        let task = running.withLock { $0 }
        task?.cancel()
        if task != nil { return }
      }
    }
    let task = Task<Void, any Error> {
      switch work {
      case .importing:
        _ = try await store.importFiles([tree], options: ImportOptions(prefix: "tree/"), progress: cancel)
      case .exporting: _ = try await store.exportFiles(to: "\(root)/out", progress: cancel)
      case .copying: _ = try await store.copy(to: target, progress: cancel)
      }
    }
    running.withLock { $0 = task }
    let error = await #expect(throws: BlobStorageError.self) { try await task.value }
    #expect(error?.code == .cancelled)
    #expect(try await store.keys(prefix: "tree/", limit: 9) == [])
    #expect(try await target.keys(limit: 9) == [])
    if work == .exporting {
      let names = try FileManager.default.contentsOfDirectory(atPath: "\(root)/out")
      #expect(names.count < 600)
      for name in names {
        let bytes = try Data(contentsOf: URL(filePath: "\(root)/out/\(name)"))
        #expect(name == "k" + String(decoding: bytes, as: UTF8.self))
      }
    }
    try await target.close()
    try await store.close()
    withExtendedLifetime(place) {}
  }

  @Test("leaves a key as it was when content streamed in, and hands on no more when it is read")
  func streams() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    var random = SplitMix64(seed: 61)
    let bytes = random.noise(16_000_000)
    let old = try await store.put(.data(bytes), forKey: "k").version.id
    for isRead in [false, true] {
      let running = Mutex<Task<Void, any Error>?>(nil)
      let doneByteCount = Mutex(0)
      let cancel: @Sendable (Int) -> Void = { count in
        doneByteCount.withLock { $0 += count }
        // The work may begin before its task is known here.
        while true {
          let task = running.withLock { $0 }
          task?.cancel()
          if task != nil { return }
        }
      }
      let task = Task<Void, any Error> {
        if isRead {
          guard let reader = try await store.reader(forKey: "k") else { return }
          defer { reader.close() }
          try await reader.stream { cancel($0.count) }
        } else {
          let content = BlobContent.stream {
            cancel(1 << 20)
            return doneByteCount.withLock { $0 } > 64 << 20 ? nil : Data(count: 1 << 20)
          }
          try await store.put(content, forKey: "k")
        }
      }
      running.withLock { $0 = task }
      let error = await #expect(throws: BlobStorageError.self) { try await task.value }
      #expect(error?.code == .cancelled)
      let count = doneByteCount.withLock { $0 }
      #expect(count > 0 && count < (isRead ? 16_000_000 : 64 << 20))
    }
    #expect(try await store.versions(of: "k").map(\.id) == [old])
    #expect(try await store.data(forKey: "k") == bytes)
    // Nothing of it is held any more.
    try await store.delete("k")
    #expect(
      try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)).deletedChunkCount > 100
    )
    try await store.close()
    withExtendedLifetime(place) {}
  }

  @Test("before it has begun changes nothing")
  func beforehand() throws {
    let place = try StorePlace()
    let engine = try place.engine()
    for byte in 0..<2 as Range<UInt8> {
      _ = try engine.put("k", [byte], PutOptions(durability: .relaxed, replacement: .archiveCurrent))
    }
    let before = try contents(of: engine)
    let calls: [() throws -> Void] = [
      { _ = try engine.delete(prefix: .bytes("k"), .relaxed) },
      { _ = try engine.keep(upTo: 0, prefix: .bytes("k"), .relaxed) },
      { _ = try engine.put("k", .stream { nil }, .relaxed) },
    ]
    let flag = CancellationFlag()
    flag.cancel()
    let codes = CancellationFlag.$current.withValue(flag) { calls.map { failure($0)?.code } }
    #expect(codes == [.cancelled, .cancelled, .cancelled])
    #expect(try contents(of: engine) == before)
    try engine.close()
  }
}
