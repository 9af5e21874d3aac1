import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import BlobStorageTrees
import Foundation
import Synchronization
import Testing

@Suite("An import")
struct ImportSyncTests {
  /// Files of the real file system, gone when this object is.
  private final class Tree {
    let path: String
    let contents: [String: Data]

    init(_ contents: [String: Data]) throws {
      self.contents = contents
      path = FileManager.default.temporaryDirectory.path + "/blobstorage-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
      for (name, data) in contents { try data.write(to: URL(filePath: "\(path)/\(name)")) }
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    func importInto(_ engine: Engine, _ durability: Durability = .durable) throws -> ImportReport {
      try Importer(engine, ImportOptions(durability: durability), nil).run([path])
    }
  }

  private static func small() -> [String: Data] {
    Dictionary(uniqueKeysWithValues: (0..<12).map { ("\($0)", noise(UInt64($0), 9_000)) })
  }

  /// Several packs; the earlier content was not forced to the medium.
  @Test("is on the medium when it has ended, with all that was there before it", arguments: [false, true])
  func durable(_ wasThere: Bool) throws {
    // One is longer than what is read whole.
    let contents = Self.small().merging(["long": noise(99, 1_100_000)]) { $1 }
    let tree = try Tree(contents)
    let lab = try Lab(StoreOptions(averageChunkByteCount: 16 << 10, usesSimilarity: false))
    let engine = try lab.open()
    if wasThere { #expect(try tree.importInto(engine, .relaxed).newFileCount == 13) }
    let report = try tree.importInto(engine)
    #expect(report.newFileCount == (wasThere ? 0 : 13))
    #expect(report.unchangedFileCount == (wasThere ? 13 : 0))
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      for (key, data) in contents {
        let read = try engine.data(key, nil)
        #expect(read == data, "\(key)")
      }
    }
  }

  @Test(
    "is on the medium when it has ended, also what it found unchanged in the open pack of any writer",
    arguments: [false, true])
  func unchanged(byAnother: Bool) throws {
    // Less than a pack.
    let tree = try Tree(Self.small().filter { ["0", "1", "2"].contains($0.key) })
    let lab = try Lab()
    let engine = try lab.open()
    let first = byAnother ? try lab.open() : engine
    #expect(try tree.importInto(first, .relaxed).newFileCount == 3)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let keys = try engine.keys("", after: nil, limit: 9)
      #expect(keys.isEmpty, "it is not on the medium by itself")
    }
    #expect(try tree.importInto(engine).unchangedFileCount == 3)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      for (key, data) in tree.contents {
        let read = try engine.data(key, nil)
        #expect(read == data, "\(key)")
      }
    }
  }

  @Test("stores files anew that lie in a pack that another process could not sync")
  func poisonedPack() throws {
    let tree = try Tree(Self.small().filter { ["0", "1", "2"].contains($0.key) })
    let lab = try Lab()
    let engine = try lab.open()
    let process = lab.disk.process()
    let other = try lab.open(process)
    lab.beforeSecondSync(of: process) { () throws(BlobStorageError) in
      throw BlobStorageError(.io, "The sync has failed.")
    }
    #expect(throws: BlobStorageError.self) { try tree.importInto(other) }
    lab.disk.beforeMutations(nil)
    #expect(try engine.versions("0").count == 1, "it can be seen")
    let report = try tree.importInto(engine)
    #expect(report.newFileCount == 3 && report.unchangedFileCount == 0)
    #expect(try engine.versions("0").count == 2, "a second sync of the pack proves nothing")
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      for (key, data) in tree.contents {
        let read = try engine.data(key, nil)
        #expect(read == data, "\(key)")
      }
    }
  }

  /// Fails if only a durable import syncs what it has found there.
  @Test("records no state that survives a power cut without the files that another process has stored")
  func relaxedState() throws {
    let tree = try Tree(Self.small().filter { ["0", "1", "2"].contains($0.key) })
    let lab = try Lab()
    let (engine, other) = (try lab.open(), try lab.open())
    #expect(try tree.importInto(other, .relaxed).newFileCount == 3)
    #expect(try tree.importInto(engine, .relaxed).unchangedFileCount == 3)
    // Syncs the state, as any durable change does.
    try engine.synchronize()
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let states = try engine.internalVersions(InternalKey.Purpose.state.prefix)
      #expect(states.count == 2)
      for (key, data) in tree.contents {
        let read = try engine.data(key, nil)
        #expect(read == data, "\(key)")
      }
    }
  }

  @Test(
    "fails if another process's sync of what it has found unchanged fails before the end, and can be repeated"
  )
  func poisonedMeanwhile() throws {
    let tree = try Tree(Self.small().filter { ["0", "1", "2"].contains($0.key) })
    let lab = try Lab()
    let (process, beside) = (lab.disk.process(), lab.disk.process())
    let (engine, other) = (try lab.open(process), try lab.open(beside))
    #expect(try tree.importInto(other, .relaxed).newFileCount == 3)
    try noise(3, 9_000).write(to: URL(filePath: tree.path + "/3"))
    let syncCount = Mutex(0)
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.kind == .synchronize, call.detail.contains("/packs/") else { return }
      if call.process == beside.number { throw BlobStorageError(.io, "The sync has failed.") }
      // The first sync is of the header of its pack, the second of what it has stored.
      let isSecond = syncCount.withLock { count in
        count += 1
        return count == 2
      }
      if isSecond { do throws(BlobStorageError) { try other.synchronize() } catch {} }
    }
    let error = #expect(throws: BlobStorageError.self) { try tree.importInto(engine) }
    #expect(error?.code == .poisoned)
    lab.disk.beforeMutations(nil)
    let report = try tree.importInto(engine)
    #expect(report.newFileCount == 3 && report.unchangedFileCount == 1)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      for (key, data) in tree.contents {
        let read = try engine.data(key, nil)
        #expect(read == data, "\(key)")
      }
    }
  }

  @Test("records a state that does not build on one whose sync has failed")
  func poisonedState() throws {
    let tree = try Tree(Self.small().filter { ["0", "1", "2"].contains($0.key) })
    let lab = try Lab()
    let process = lab.disk.process()
    let (engine, other) = (try lab.open(), try lab.open(process))
    #expect(try tree.importInto(other, .relaxed).state != nil)
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.process == process.number, call.kind == .synchronize, call.detail.contains("/packs/") else {
        return
      }
      throw BlobStorageError(.io, "The sync has failed.")
    }
    #expect(throws: BlobStorageError.self) { try other.synchronize() }
    lab.disk.beforeMutations(nil)
    let state = try #require(try tree.importInto(engine).state)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let walk = try StateFile(engine).walk(state)
      defer { walk.close() }
      var count = 0
      while try walk.next() != nil { count += 1 }
      #expect(count == state.fileCount + state.folderCount)
    }
  }

  @Test("syncs the pack of a version of another process that it replaces, rather than archive the version")
  func replacedUnsynced() throws {
    let lab = try Lab()
    let (first, second) = (try lab.open(), try lab.open())
    let tree = try Tree(["a": noise(1, 9_000)])
    #expect(try tree.importInto(first, .relaxed).newFileCount == 1)
    try noise(2, 9_001).write(to: URL(filePath: tree.path + "/a"))
    #expect(try tree.importInto(second).newFileCount == 1)
    #expect(try second.versions("a").count == 1)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let read = try engine.data("a", nil)
      #expect(read == noise(2, 9_001))
      #expect(try engine.verify().damaged == [])
      #expect(try engine.collectGarbage().obstacles == [])
    }
    try first.close()
    try second.close()
  }

  @Test("ends on a full disk and says so; it goes on when there is room")
  func full() throws {
    let tree = try Tree(Self.small())
    let lab = try Lab()
    let engine = try lab.open()
    _ = try engine.put("before", .data(noise(50, 100)), PutOptions())
    lab.disk.limit(byteCount: 1_000)
    let error = #expect(throws: BlobStorageError.self) { try tree.importInto(engine) }
    #expect(error?.code == .noSpace)
    lab.disk.limit(byteCount: nil)
    #expect(try engine.keys("", after: nil, limit: 100).map(\.key) == ["before"])
    #expect(try tree.importInto(engine).newFileCount == 12)
    for (key, data) in tree.contents {
      let read = try engine.data(key, nil)
      #expect(read == data, "\(key)")
    }
  }
}
