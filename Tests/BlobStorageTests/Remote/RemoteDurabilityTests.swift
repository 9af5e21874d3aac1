import BlobStorage
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import SystemPackage
import Testing

@testable import BlobStorageTrees

@Suite("What a machine reports as durable")
struct RemoteDurabilityTests {
  private func tree(_ place: RemotePlace) throws -> String {
    let folder = place.temporary.path.appending("tree").string
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    for index in 0..<5 { try Data("file \(index)".utf8).write(to: URL(filePath: "\(folder)/\(index)")) }
    try Data(repeating: 7, count: 2 << 20).write(to: URL(filePath: "\(folder)/long"))
    return folder
  }

  @discardableResult
  private func importTree(
    _ engine: Engine, _ folder: String, _ durability: Durability = .durable
  ) throws -> ImportReport {
    // A state would be published each time.
    let options = ImportOptions(durability: durability, recordsState: false)
    return try Importer(engine, options, nil).run([folder])
  }

  private func count(_ engine: Engine) throws -> Int { try engine.keys("", after: nil, limit: 100).count }

  @Test("are not files that are unchanged since an import that could not be published")
  func importAgain() throws {
    let place = try RemotePlace()
    let folder = try tree(place)
    let engine = try place.engine("one")
    try engine.writer.join()
    place.objects.setDown(true)
    for _ in 0..<2 { #expect(throws: BlobStorageError.self) { try importTree(engine, folder) } }
    place.objects.setDown(false)
    #expect(try importTree(engine, folder).unchangedFileCount == 6)
    #expect(try count(place.engine("two")) == 6)
    place.objects.forgetCounts()
    #expect(try importTree(engine, folder).unchangedFileCount == 6)
    #expect(place.objects.count == 0)
  }

  /// A machine that has imported a tree, whose packs another program has changed in the bucket.
  ///
  /// - Parameter change: what it made of an object; nil if it deleted it.
  private func changedPacks(
    _ change: ([UInt8]) -> [UInt8]? = { _ in nil }
  ) throws -> (place: RemotePlace, folder: String) {
    let place = try RemotePlace()
    let folder = try tree(place)
    let first = try place.engine("one")
    try importTree(first, folder)
    try first.close()
    for name in place.packNames { place.objects.objects[name] = place.objects.objects[name].flatMap(change) }
    return (place, folder)
  }

  @Test("are not unchanged files whose pack was deleted: the import says so, and the next stores them again")
  func importLost() throws {
    let (place, folder) = try changedPacks()
    let engine = try place.engine("one")
    #expect(failure { try importTree(engine, folder) }?.code == .corrupted)
    #expect(try importTree(engine, folder).unchangedFileCount == 0)
    let other = try place.engine("two")
    #expect(try count(other) == 6)
    for entry in try other.keys("", after: nil, limit: 9) { #expect(try other.data(entry.key, nil) != nil) }
    try engine.close()
  }

  @Test("are not unchanged files whose pack was deleted, also if a deletion that finds nothing comes before")
  func importLostBesideDeletion() throws {
    let (place, folder) = try changedPacks()
    let engine = try place.engine("one")
    #expect(try importTree(engine, folder, .relaxed).unchangedFileCount == 6)
    #expect(try engine.delete(["absent"], .durable) == 0)
    #expect(failure { try importTree(engine, folder) }?.code == .corrupted)
    try engine.close()
  }

  /// Fails if a check for the chunks of a new file makes the import forget what the unchanged ones rely on.
  @Test("are not unchanged files whose pack was cut, also if a new file shows that before the end")
  func importCut() throws {
    let (place, folder) = try changedPacks { Array($0.dropLast(40)) }
    try Data(repeating: 7, count: 2 << 20).write(to: URL(filePath: "\(folder)/new"))
    let engine = try place.engine("one")
    #expect(failure { try importTree(engine, folder) }?.code == .corrupted)
    try engine.close()
    // As the message says.
    let next = try place.engine("one")
    _ = try next.repair(acceptsLosses: true)
    try importTree(next, folder)
    let other = try place.engine("two")
    #expect(try count(other) == 7)
    for entry in try other.keys("", after: nil, limit: 9) { #expect(try other.data(entry.key, nil) != nil) }
    try next.close()
  }

  @Test("are not unchanged files whose pack was deleted, also if another import notices that first")
  func importLostBesideImport() throws {
    let (place, folder) = try changedPacks()
    let engine = try place.engine("one")
    let lossCount = engine.sharing.keptLossCount(of: engine.writer)
    // What an import relies on that is about to end.
    #expect(try importTree(engine, folder, .relaxed).unchangedFileCount == 6)
    let other = place.temporary.path.appending("other").string
    try FileManager.default.createDirectory(atPath: other, withIntermediateDirectories: true)
    try Data("other".utf8).write(to: URL(filePath: "\(other)/file"))
    #expect(failure { try importTree(engine, other) }?.code == .corrupted)
    let error = failure { try engine.sharing.checkKept(of: engine.writer, since: lossCount) }
    #expect(error?.code == .corrupted)
    #expect(try importTree(engine, folder).unchangedFileCount == 0)
    try engine.close()
  }

  @Test("are not versions that are kept for a state and whose pack was deleted: the import says so")
  func importKept() throws {
    let (place, folder) = try changedTree()
    let engine = try place.engine("one")
    // Without bases to look for, nothing shows the loss before the end.
    let error = failure { () throws(BlobStorageError) in
      _ = try Importer(engine, ImportOptions(codec: CodecKind.none), nil).run([folder])
    }
    #expect(error?.code == .corrupted)
    #expect(try Importer(engine, ImportOptions(), nil).run([folder]).fileCount == 5)
    try engine.close()
  }

  @Test(
    "are not what an import replaces once it has found that pack lost: it archives that, and does not fail")
  func importArchived() throws {
    let (place, folder) = try changedTree()
    let engine = try place.engine("one")
    #expect(try Importer(engine, ImportOptions(), nil).run([folder]).newFileCount == 5)
    for entry in try engine.keys("", after: nil, limit: 9) {
      #expect(try engine.versions(entry.key).count == 2)
    }
    try engine.close()
  }

  /// Fails if a state builds on one that only this machine can still read.
  @Test("are states that other machines can read, though the pack of the state before was deleted")
  func state() throws {
    let (place, folder) = try changedTree()
    let engine = try place.engine("one")
    let state = try #require(try Importer(engine, ImportOptions(), nil).run([folder]).state)
    try engine.close()
    let other = try place.engine("two")
    let walk = try StateFile(other).walk(state)
    var count = 0
    while try walk.next() != nil { count += 1 }
    walk.close()
    #expect(count == state.fileCount + state.folderCount)
    try other.close()
  }

  @Test("are no states whose pack was deleted: an import that finds one equal records another")
  func equalState() throws {
    let place = try RemotePlace()
    let folder = try tree(place)
    let first = try place.engine("one")
    let lost = try #require(try Importer(first, ImportOptions(), nil).run([folder]).state)
    try first.close()
    // The files lie in packs before it.
    place.objects.objects[try #require(place.packNames.last)] = nil
    let engine = try place.engine("one")
    var options = ImportOptions()
    options.knownState = lost.id
    // The loss may end the first import.
    _ = failure { [options] () throws(BlobStorageError) in
      _ = try Importer(engine, options, nil).run([folder])
    }
    let state = try #require(try Importer(engine, options, nil).run([folder]).state)
    #expect(state.id != lost.id)
    try engine.close()
    let other = try place.engine("two")
    let walk = try StateFile(other).walk(state)
    #expect(try walk.next() != nil)
    walk.close()
    try other.close()
  }

  /// A folder whose files have all changed since their import, which recorded a state and whose packs were deleted.
  private func changedTree() throws -> (RemotePlace, String) {
    let place = try RemotePlace()
    let folder = try tree(place)
    try FileManager.default.removeItem(atPath: "\(folder)/long")
    let first = try place.engine("one")
    _ = try Importer(first, ImportOptions(), nil).run([folder])
    try first.close()
    for name in place.packNames { place.objects.objects[name] = nil }
    for index in 0..<5 { try Data("changed \(index)".utf8).write(to: URL(filePath: "\(folder)/\(index)")) }
    return (place, folder)
  }

  @Test("are not refused because an earlier put has stored the chunks of a lost pack again")
  func storedAgain() throws {
    let place = try RemotePlace()
    var random = SplitMix64.announced()
    let bytes = random.bytes(20_000)
    let first = try place.engine("one")
    _ = try first.put("a", bytes, PutOptions())
    try first.close()
    for name in place.packNames { place.objects.objects[name] = nil }
    let engine = try place.engine("one")
    #expect(try engine.put("b", bytes, PutOptions()).newByteCount > 0)
    // It relies on nothing in the lost pack, and looks for what it has found.
    #expect(try engine.delete(["absent"], .durable) == 0)
    #expect(try importTree(engine, tree(place)).newFileCount == 6)
    #expect(try place.engine("two").data("b", nil) == Data(bytes))
    try engine.close()
  }

  @Test("are not files that another process has stored and not published")
  func importBeside() throws {
    let place = try RemotePlace()
    let folder = try tree(place)
    let living = try place.engine("one")
    try importTree(living, folder, .relaxed)
    let beside = try place.engine("one")
    #expect(try importTree(beside, folder).newFileCount == 6)
    #expect(try count(place.engine("two")) == 6)
    #expect(try importTree(beside, folder).unchangedFileCount == 6)
  }

  @Test("is not what was deleted by an attempt that could not be published", arguments: [false, true])
  func deleteAgain(isBatch: Bool) throws {
    let place = try RemotePlace()
    let engine = try place.engine("one")
    for key in ["a", "b"] {
      for _ in 0..<3 {
        _ = try engine.put(
          key, Array("value".utf8), PutOptions(durability: .durable, replacement: .archiveCurrent))
      }
    }
    place.objects.setDown(true)
    for _ in 0..<2 {
      #expect(throws: BlobStorageError.self) { try engine.delete(["a"], .durable) }
      #expect(throws: BlobStorageError.self) { try engine.keep(upTo: 1, keys: ["b"], .durable) }
    }
    place.objects.setDown(false)
    if isBatch {
      _ = try engine.change([.delete("a")], .durable)
    } else {
      #expect(try engine.delete(["a"], .durable) == 0)
    }
    let other = try place.engine("two")
    #expect(try other.versions("a").isEmpty)
    #expect(try other.versions("b").count == 2)
  }

  /// Fails if a published version is dropped for one that may never be published.
  @Test("is not dropped by keep for a version that another process has not published")
  func keepBeside() throws {
    let machines = try SharedMachines()
    let (one, beside) = (try machines.engine("one"), try machines.engine("one"))
    _ = try one.put("a", Array("first".utf8), PutOptions())
    let options = PutOptions(durability: .relaxed, replacement: .archiveCurrent)
    _ = try beside.put("a", Array("second".utf8), options)
    #expect(try one.data("a", nil) == Data("second".utf8))
    #expect(try one.keep(upTo: 0, keys: ["a"], .durable).droppedVersionCount == 0)
    try machines.check(["a": Array("first".utf8)], "before the second is published")
    try beside.synchronize()
    #expect(try one.keep(upTo: 0, keys: ["a"], .durable).droppedVersionCount == 1)
    #expect(try machines.engine("two").versions("a").count == 1)
    try machines.check(["a": Array("second".utf8)], "afterwards")
  }

  /// Fails if a published version or state is dropped for one that may never be published.
  @Test("is not dropped by a policy for a version or a state that another process has not published")
  func policyBeside() throws {
    let machines = try SharedMachines()
    let (one, beside) = (try machines.engine("one"), try machines.engine("one"))
    for (engine, number, durability) in [(one, 0, Durability.durable), (beside, 1, .relaxed)] {
      let options = PutOptions(durability: durability, replacement: .archiveCurrent)
      _ = try engine.put("a", Array("version \(number)".utf8), options)
      let recorder = try StateRecorder(
        engine, prefix: "", name: nil, origin: TreeOrigin([]),
        created: Date(timeIntervalSince1970: Double(number)))
      recorder.addFolder(Array("folder \(number)/".utf8), [])
      _ = try recorder.finish(durability)
    }
    var policy = RetentionPolicy()
    policy.last = 1
    for droppedCount in [0, 1] {
      if droppedCount > 0 { try beside.synchronize() }
      var retention = Retention(one, .all, policy, isDryRun: false)
      let report = try retention.run()
      #expect(report.droppedStateCount == droppedCount && report.droppedVersionCount == droppedCount)
      let elsewhere = try machines.engine("two \(droppedCount)")
      #expect(try elsewhere.versions("a").count == 1)
      #expect(try StateFile(elsewhere).states().count == 1)
    }
  }

  /// Fails if a key is passed over as long as another process of the machine puts it again and again.
  @Test(
    "is dropped by a policy beside one that another process has not published, if it is too old without that, too"
  )
  func policyBesideBusy() throws {
    let machines = try SharedMachines()
    let (one, beside) = (try machines.engine("one"), try machines.engine("one"))
    for (engine, durability) in [(one, Durability.durable), (one, .durable), (beside, .relaxed)] {
      _ = try engine.put(
        "a", Array("v".utf8), PutOptions(durability: durability, replacement: .archiveCurrent))
    }
    var policy = RetentionPolicy()
    policy.last = 1
    for isDryRun in [true, false] {
      var retention = Retention(one, .all, policy, isDryRun: isDryRun)
      #expect(try retention.run().droppedVersionCount == 1)
    }
    #expect(try machines.engine("two").versions("a").count == 1)
    try beside.synchronize()
    #expect(try machines.engine("three").versions("a").count == 2)
  }

  @Test("is published by a synchronization beside puts, without an error", arguments: [1, 0, -1])
  func synchronizing(_ waitingPackLimit: Int) throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace()
    let engine = try place.engine("one", packByteCount: 20_000, waitingPackLimit: waitingPackLimit)
    let values = (0..<300).map { _ in random.bytes(8_000) }
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
      #expect(throws: Never.self) {
        for index in 0..<75 {
          if thread == 0 {
            try engine.synchronize()
          } else {
            _ = try engine.put("key \(thread) \(index)", values[thread * 75 + index])
          }
        }
      }
    }
    try engine.synchronize()
    #expect(try place.engine("two").keys("", after: nil, limit: 1_000).count == 225)
  }
}
