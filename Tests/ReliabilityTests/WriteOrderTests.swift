import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// What has to be on the medium before what, one case at a time.
@Suite("The order of writing")
struct WriteOrderTests {
  @Test("a durable put forces what another process has written to its pack since that was forced last")
  func othersPackAgain() throws {
    let lab = try Lab()
    let (relaxed, durable) = (try lab.open(), try lab.open())
    for number in 1...3 {
      let data = noise(UInt64(number), 500)
      _ = try relaxed.put("relaxed \(number)", .data(data), PutOptions(durability: .relaxed))
      let result = try durable.put("durable \(number)", .data(data), PutOptions())
      #expect(result.newByteCount == 0, "shared")
    }
    try lab.afterPowerCut { $0.powerCut() }.session { engine in
      for number in 1...3 {
        let data = try engine.data("durable \(number)", nil)
        #expect(data == noise(UInt64(number), 500))
      }
    }
    try relaxed.close()
    try durable.close()
  }

  @Test(
    "a durable put stores anew what another process's pack may have lost when it was forced to the medium")
  func othersPackLost() throws {
    let lab = try Lab()
    let (relaxed, durable) = (try lab.open(), try lab.open())
    _ = try relaxed.put("relaxed", .data(noise(1, 500)), PutOptions(durability: .relaxed))
    lab.disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(throws: BlobStorageError.self) { try durable.put("a", .data(noise(1, 500)), PutOptions()) }
    for key in ["a", "b"] {
      let result = try durable.put(key, .data(noise(1, 500)), PutOptions())
      #expect(result.newByteCount == (key == "a" ? 500 : 0))
    }
    try lab.afterPowerCut { $0.powerCut() }.session { engine in
      for key in ["a", "b"] {
        let data = try engine.data(key, nil)
        #expect(data == noise(1, 500))
      }
    }
    try durable.close()
  }

  @Test(
    "a collection forces the packs of other processes before it takes other copies of what is in them away")
  func othersCopyFirst() throws {
    let lab = try Lab()
    let data = noise(1, 900)
    try lab.session { try lab.put($0, [("a", data)]) }
    let (other, collector) = (try lab.open(), try lab.open())
    let digest = BlobDigest.of(Array(data))
    _ = try other.writer.commit { (commit) throws(BlobStorageError) in
      try commit.append(
        .chunk(ChunkRecord(digest: digest, plainByteCount: data.count, codecNumber: 0)), payload: data.bytes)
    }
    let report = try collector.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(report.obstacles == [] && report.compactedPackCount == 1)
    try lab.afterPowerCut { $0.powerCut() }.session { engine in
      let read = try engine.data("a", nil)
      #expect(read == data)
    }
    try other.close()
    try collector.close()
  }

  @Test(
    "what was put without waiting is on the medium once the store was synchronized, or closed",
    arguments: [false, true])
  func synchronized(_ isClosed: Bool) throws {
    let lab = try Lab()
    let engine = try lab.open()
    for number in 1...3 {
      let data = noise(UInt64(number), 500)
      _ = try engine.put("k\(number)", .data(data), PutOptions(durability: .relaxed))
    }
    if isClosed { try engine.close() } else { try engine.synchronize() }
    try lab.afterPowerCut { $0.powerCut() }.session { engine in
      for number in 1...3 {
        let data = try engine.data("k\(number)", nil)
        #expect(data == noise(UInt64(number), 500))
      }
    }
    try engine.close()
  }

  @Test("a full pack is on the medium before a version in the next pack needs one of its chunks")
  func fullPackFirst() throws {
    for stop in 1...100 {
      let lab = try Lab()
      lab.packByteCountTarget = 4_000
      let process = lab.disk.process()
      var environment = lab.environment(process)
      environment.catalogFiles = CatalogFiles(process, lab.catalog.locks, nil)
      let engine = try Engine(
        path: Lab.storePath, configuration: StoreConfiguration(), environment: environment)
      let shared = noise(9, 400)
      // Another thread appends a chunk of a stream when the commit that fills the pack is published.
      // The first attempt finds that it needs a pack.
      let attempt = Mutex(0)
      lab.catalog.locks.afterRelease { path in
        guard path.string.hasSuffix("/live") else { return }
        let count = attempt.withLock { count in
          count += 1
          return count
        }
        guard count == 2 else { return }
        let record = ChunkRecord(
          digest: BlobDigest.of(Array(shared)), plainByteCount: shared.count, codecNumber: 0)
        _ = try? engine.writer.append(.chunk(record), payload: shared.bytes)
      }
      try lab.put(engine, [("full", noise(1, 5_000))])
      lab.catalog.locks.afterRelease(nil)
      #expect(engine.writer.hasPendingChunk(BlobDigest.of(Array(shared))), "the chunk came at another time")
      let first = lab.disk.mutationCount
      lab.disk.stop(beforeMutation: first + stop)
      do { try lab.put(engine, [("a", shared)], durability: .relaxed) } catch is BlobStorageError {}
      let isWhole = lab.disk.mutationCount < first + stop
      lab.disk.heal()
      if isWhole { return try engine.close() }
      // All stays that was written, but for one change.
      let count = lab.disk.pendingChanges.count
      for place in 0..<max(1, count) {
        do {
          try lab.afterPowerCut(Cut.subset(~(1 << UInt64(place))).apply).checkInvariants(
            afterPowerCut: true, collects: false)
        } catch {
          Issue.record(
            "stopped before call \(stop), without change \(place) of \(lab.disk.pendingChanges): \(error)")
          return
        }
      }
    }
    Issue.record("the put makes more calls than are tried")
  }

  @Test(
    "no put is durable any more after the names of packs could not be forced, another process's pack included"
  )
  func lostNames() throws {
    let lab = try Lab()
    let (relaxed, durable) = (try lab.open(), try lab.open())
    _ = try relaxed.put("relaxed", .data(noise(1, 500)), PutOptions(durability: .relaxed))
    lab.disk.plan(Fault(.syncDirectory, errno: .ioError))
    // A later sync of the folder does not tell what this one has lost.
    for _ in 0..<2 {
      let error = #expect(throws: BlobStorageError.self) {
        try durable.put("a", .data(noise(1, 500)), PutOptions())
      }
      #expect(error?.code == .poisoned)
    }
    #expect(throws: BlobStorageError.self) { try durable.close() }
    try relaxed.close()
  }

  @Test("what was put before a pack was given up is on the medium once the store was synchronized")
  func packGivenUp() throws {
    let lab = try Lab()
    let engine = try lab.open()
    _ = try engine.put("a", .data(noise(1, 500)), PutOptions(durability: .relaxed))
    lab.disk.plan(Fault(.write, errno: .noSpace))
    #expect(throws: BlobStorageError.self) { try engine.put("b", .data(noise(2, 500)), PutOptions()) }
    try engine.synchronize()
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let read = try engine.data("a", nil)
      #expect(read == noise(1, 500))
    }
    try engine.close()
  }

  @Test("a durable put forces the name of a pack that was begun while another thread forced names")
  func nameOfPackBegunMeanwhile() throws {
    let lab = try Lab()
    let engine = try lab.open()
    let (held, goOn, done) = (
      DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0)
    )
    let isFirst = Mutex(true)
    lab.disk.afterMutations { (call) throws(BlobStorageError) in
      guard call.kind == .syncDirectory, isFirst.withLock({ $0.clear() }) else { return }
      held.signal()
      goOn.wait()
    }
    Thread {
      _ = try? engine.put("a", .data(noise(1, 500)), PutOptions())
      done.signal()
    }.start()
    held.wait()
    // The names are on the medium, and the thread does not know it yet.
    try engine.writer.rollOver()
    _ = try engine.put("b", .data(noise(2, 500)), PutOptions(durability: .relaxed))
    goOn.signal()
    done.wait()
    _ = try engine.put("c", .data(noise(3, 500)), PutOptions())
    try lab.afterPowerCut { $0.powerCut() }.session { engine in
      for (key, seed) in [("a", 1), ("b", 2), ("c", 3)] {
        let data = try engine.data(key, nil)
        #expect(data == noise(UInt64(seed), 500), "\(key)")
      }
    }
    try engine.close()
  }

  @Test("a durable put whose pack another thread seals meanwhile succeeds")
  func packSealedMeanwhile() throws {
    let folder = FilePath(FileManager.default.temporaryDirectory.path)
      .appending("blobstorage-order-\(String(randomUInt64(), radix: 16))")
    try SystemFiles().createDirectory(folder)
    defer { try? FileManager.default.removeItem(atPath: folder.string) }
    let files = RecordedFiles(root: folder)
    var environment = Engine.Environment()
    environment.files = files
    let path = folder.appending("store").string
    try Engine.create(at: path, options: Lab.options, environment: environment)
    let engine = try Engine(path: path, configuration: StoreConfiguration(), environment: environment)
    _ = try engine.put("a", .data(noise(1, 500)), PutOptions(durability: .relaxed))
    let (held, goOn, done) = (
      DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0)
    )
    let isFirst = Mutex(true)
    files.beforeMutations { (kind, path) throws(BlobStorageError) in
      guard kind == .synchronize, path.string.contains("/packs/"), isFirst.withLock({ $0.clear() }) else {
        return
      }
      held.signal()
      goOn.wait()
    }
    let failure = Mutex<(any Error)?>(nil)
    Thread {
      do { _ = try engine.put("b", .data(noise(2, 500)), PutOptions()) } catch {
        failure.withLock { $0 = error }
      }
      done.signal()
    }.start()
    held.wait()
    // Sealing needs a sync of the same pack: it waits for the one under way.
    Thread {
      do { try engine.writer.rollOver() } catch { failure.withLock { $0 = error } }
      done.signal()
    }.start()
    goOn.signal()
    done.wait()
    done.wait()
    #expect(failure.withLock { $0 } == nil)
    _ = try engine.put("c", .data(noise(3, 500)), PutOptions())
    try engine.close()
  }

  @Test(
    "a version that another process has put without waiting is on the medium before one that is made of it counts (H1)",
    arguments: [false, true])
  func otherVersions(isProtected: Bool) throws {
    for isRenamed in [false, true] {
      let lab = try Lab()
      if !isProtected { lab.weaknesses = [.skipsSharedSync] }
      let (one, two) = (try lab.open(lab.disk.process()), try lab.open(lab.disk.process()))
      // Both have a pack, so that the blob and its second version are in two.
      _ = try two.put("own", .data(noise(2, 500)), PutOptions())
      _ = try one.put("a", .data(noise(1, 3_000)), PutOptions(durability: .relaxed))
      if isRenamed {
        #expect(try VersionChanges(two).rename("a", to: "b", .durable))
      } else {
        #expect(try VersionChanges(two).put(nil, of: "a", as: "b", PutOptions()) != nil)
      }
      let after = try Lab(Cut.dropAll.apply(lab.disk), Model())
      let engine = try after.open()
      let data = try? engine.data("b", nil)
      #expect((data == noise(1, 3_000)) == isProtected, "renamed: \(isRenamed)")
      withExtendedLifetime((one, two)) {}
    }
  }

  @Test("the records of a pack are on the medium before the footer that lists them is written")
  func recordsBeforeFooter() throws {
    let lab = try Lab()
    lab.packByteCountTarget = 4_000
    let engine = try lab.open()
    let unsynced = Mutex<[[String]]>([])
    lab.disk.beforeMutations { [disk = lab.disk] (call) throws(BlobStorageError) in
      guard call.kind == .write, call.detail.contains("/packs/") else { return }
      unsynced.withLock { $0.append(disk.pendingChanges.filter { $0.byteCount > 0 }.map(\.description)) }
    }
    _ = try engine.put("a", .data(noise(1, 5_000)), PutOptions(durability: .relaxed))
    // The header, the records, the footer.
    #expect(unsynced.withLock { $0.count } == 3)
    #expect(unsynced.withLock { $0.last } == [])
    try engine.close()
  }

  @Test("a pack whose sealing could not be synced is written again before it counts as sealed")
  func footerAgain() throws {
    var failureCount = 0
    for number in 1...20 {
      let lab = try Lab()
      let engine = try lab.open()
      try lab.put(engine, [("a", noise(1, 900))])
      lab.disk.plan(Fault(.synchronize, count: number, errno: .ioError))
      do {
        try engine.close()
        break
      } catch { failureCount += 1 }
      lab.restart()
      // Left clean, so that nothing is looked at after the power cut.
      try lab.session { _ in }
      try lab.loseData { $0.powerCut() }
      try lab.session { engine in
        let data = try engine.data("a", nil)
        #expect(data == noise(1, 900))
        let damaged = try engine.verify().damaged
        #expect(damaged == [], "sync \(number) failed")
      }
    }
    #expect(failureCount > 1)
  }

  @Test("a retired pack stays retired in a power cut")
  func retiredForGood() throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 500))]) }
    try lab.session { try lab.put($0, [("b", noise(2, 500))]) }
    let packs = FilePath(Lab.storePath).appending("packs")
    let backend = FolderBackend(folder: packs, asideFolder: FilePath("/aside"), files: lab.disk)
    let names = try backend.packNames().live
    #expect(names.count == 2)
    try backend.retirePacks([names[0]])
    let after = try lab.afterPowerCut { $0.powerCut() }
    let left = try FolderBackend(folder: packs, asideFolder: FilePath("/aside"), files: after.disk)
      .packNames()
    #expect(left.live == [names[1]] && left.retired == [names[0]])
  }

  @Test("a pack that was set aside survives a power cut, also in a folder that a killed process has made")
  func setAsideForGood() throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 500))]) }
    let (packs, aside) = (FilePath("\(Lab.storePath)/packs"), FilePath("\(Lab.storePath)/set-aside"))
    let backend = FolderBackend(folder: packs, asideFolder: aside, files: lab.disk)
    try lab.disk.createDirectory(aside)
    let place = try backend.setAsidePack(try #require(try backend.packNames().live.first))
    let after = try lab.afterPowerCut { $0.powerCut() }
    #expect(try after.disk.status(of: FilePath(place)) != nil)
  }

  @Test(
    "a durable deletion that finds nothing to do makes durable what has deleted the key before",
    arguments: [false, true])
  func deletedBefore(byOther: Bool) throws {
    let lab = try Lab()
    let (engine, other) = (try lab.open(), try lab.open())
    for durability in [Durability.relaxed, .durable] {
      _ = try engine.put("k", .data(noise(1, 300)), PutOptions())
      #expect(try (byOther ? other : engine).delete(["k"], .relaxed) == 1)
      #expect(try engine.delete(["k"], durability) == 0)
      try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
        let data = try engine.data("k", nil)
        #expect((data == nil) == (durability == .durable))
      }
    }
    for engine in [engine, other] { try engine.close() }
  }

  @Test("a pack whose removal could not be synced counts as no loss when another process has finished it")
  func removedAfterFailedSync() throws {
    var failedCount = 0
    for number in 1...12 {
      let lab = try Lab()
      try lab.session { try lab.put($0, [("a", noise(1, 3_000)), ("b", noise(2, 3_000))]) }
      for key in ["c", "d"] { try lab.session { try lab.put($0, [(key, noise(3, 3_000))]) } }
      try lab.session { try lab.delete($0, ["c", "d"]) }
      let engine = try lab.open()
      lab.disk.plan(Fault(.synchronize, count: number, errno: .ioError))
      do { _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)) } catch {
        failedCount += 1
      }
      lab.disk.heal()
      lab.restart()
      try lab.session { _ = try $0.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)) }
      let after = try lab.afterPowerCut { $0.powerCut(keeping: []) }
      try after.session { engine in
        let report = try engine.verify()
        #expect(report.damaged.isEmpty && report.losses.isEmpty, "sync \(number) failed: \(report.damaged)")
        let keys = try engine.keys("", after: nil, limit: 10).map(\.key)
        #expect(keys == ["a", "b"])
      }
    }
    #expect(failedCount > 0)
  }

  @Test(
    "a durable deletion makes durable what another process has deleted before, beside its own",
    arguments: 0..<4)
  func deletedBeside(way: Int) throws {
    let lab = try Lab()
    let (engine, other) = (try lab.open(), try lab.open())
    for key in ["k", "l"] { _ = try engine.put(key, .data(noise(1, 300)), PutOptions()) }
    #expect(try other.delete(["k"], .relaxed) == 1)
    switch way {
    case 0: #expect(try engine.delete(["k", "l"], .durable) == 1)
    case 1: #expect(try engine.delete(prefix: .bytes("k"), .durable) == 0)
    case 2: #expect(try engine.keep(upTo: 0, prefix: .bytes("k"), .durable).keyCount == 0)
    default: _ = try engine.change([.delete("k"), .delete("l")], .durable)
    }
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let data = try engine.data("k", nil)
      #expect(data == nil)
    }
    for engine in [engine, other] { try engine.close() }
  }

  @Test(
    "a durable deletion that finds nothing to do fails if the sync of what has deleted the key before has failed",
    arguments: [false, true])
  func deletedWithoutSync(reopens: Bool) throws {
    let lab = try Lab()
    let engine = try lab.open()
    let process = lab.disk.process()
    let other = try lab.open(process)
    _ = try engine.put("k", .data(noise(1, 300)), PutOptions())
    lab.beforeSecondSync(of: process) { () throws(BlobStorageError) in
      throw BlobStorageError(.io, "The sync has failed.")
    }
    #expect(throws: BlobStorageError.self) { try other.delete(["k"], .durable) }
    lab.disk.beforeMutations(nil)
    let error = #expect(throws: BlobStorageError.self) { try engine.delete(["k"], .durable) }
    #expect(error?.code == .poisoned)
    #expect(throws: BlobStorageError.self) { try other.close() }
    // The next opening writes the pack again, or else the next deletion.
    if reopens {
      try lab.session { engine in
        let data = try engine.data("k", nil)
        #expect(data == nil)
      }
    }
    #expect(try engine.delete(["k"], .durable) == 0)
    try lab.afterPowerCut { $0.powerCut(keeping: []) }.session { engine in
      let data = try engine.data("k", nil)
      #expect(data == nil)
    }
    try engine.close()
  }

  @Test(
    "no put or clean catalog counts on a pack whose sync failed when the census was made",
    arguments: [false, true])
  func censusWithoutSync(collects: Bool) throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 900))]) }
    try lab.disk.remove("/store/census")
    try lab.forgetCatalog()
    let isFirst = Mutex(true)
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.kind == .synchronize, call.detail.contains("/packs/"), isFirst.withLock({ $0.clear() })
      else { return }
      throw BlobStorageError(.io, "The sync has failed.")
    }
    let engine = try lab.open()
    lab.disk.beforeMutations(nil)
    #expect(try engine.put("b", .data(noise(1, 900)), PutOptions()).newByteCount == 900)
    guard collects else {
      // After a power cut the catalog has to be rebuilt.
      try engine.close()
      let state = try String(contentsOfFile: lab.catalog.path.appending("state").string, encoding: .utf8)
      #expect(!state.contains("clean"))
      return
    }
    // The next collection stores the pack again.
    #expect(try engine.collectGarbage().obstacles == [])
    #expect(try engine.catalog.packRows().allSatisfy { !$0.row.isPoisoned })
    let data = try engine.data("a", nil)
    #expect(data == noise(1, 900))
    try engine.close()
  }

  @Test("a collection takes a pack's name away for good before the pack's records leave the catalog")
  func retiredBeforeForgotten() throws {
    let lab = try Lab()
    for number in 0..<2 {
      try lab.session { try lab.put($0, [("k\(number)", noise(UInt64(number), 3_000))]) }
    }
    try lab.session { try lab.delete($0, ["k0"]) }
    let engine = try lab.open()
    let uncertain = Mutex<[String]?>(nil)
    lab.disk.beforeMutations { [disk = lab.disk] (call) throws(BlobStorageError) in
      guard call.kind == .remove, call.detail.contains(".gone") else { return }
      let renames = disk.pendingChanges.map(\.description).filter { $0.hasPrefix("rename") }
      uncertain.withLock { $0 = ($0 ?? []) + renames }
    }
    _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(uncertain.withLock { $0 } == [])
    try engine.close()
  }
}

extension Bool {
  /// Makes it false; returns what it was.
  fileprivate mutating func clear() -> Bool {
    defer { self = false }
    return self
  }
}
