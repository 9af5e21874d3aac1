import BlobStorage
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
}
