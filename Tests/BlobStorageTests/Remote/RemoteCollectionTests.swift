import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("Collecting on a store that machines share")
struct RemoteCollectionTests {
  private let machines: SharedMachines

  init() throws { machines = try SharedMachines() }

  /// Machine two puts what one is just taking away: once before it has seen the condemnation, and once after.
  private func putBesideCollection(
    _ collector: Weaknesses, _ writer: Weaknesses
  ) throws -> (engines: [Engine], expected: [String: [UInt8]], report: GarbageCollectionReport) {
    var random = SplitMix64.announced()
    let contents = (0..<4).map { _ in random.bytes(40_000) }
    let one = try machines.engine("one", weaknesses: collector)
    let two = try machines.engine("two", weaknesses: writer)
    var expected: [String: [UInt8]] = [:]
    for (index, bytes) in contents.enumerated() {
      _ = try one.put("\(index)", bytes, PutOptions())
      expected["\(index)"] = bytes
    }
    _ = try two.put("other", contents[0] + contents[3], PutOptions())
    expected["other"] = contents[0] + contents[3]
    for key in ["1", "2"] {
      _ = try one.delete([key], .durable)
      expected[key] = nil
    }
    let once = Once()
    let report = try one.collectGarbage(SharedMachines.everything) { progress in
      guard progress.phase == "waiting" else { return }
      once.run {
        _ = try two.put("before", contents[1], PutOptions())
        try two.extend()
        try two.acknowledgeCondemnation()
        _ = try two.put("after", contents[2], PutOptions())
      }
    }
    #expect(once.isDone)
    expected["before"] = contents[1]
    expected["after"] = contents[2]
    return ([one, two], expected, report)
  }

  /// Fails if an import keeps a version whose chunk lies in a condemned pack, because its own ref lies in another.
  @Test("leaves nothing missing when an import replaces a version that another machine drops meanwhile")
  func besideImport() throws {
    var random = SplitMix64.announced()
    let shared = Data(random.bytes(20_000))
    let folder = machines.temporary.path.appending("tree").string
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try shared.write(to: URL(filePath: "\(folder)/file"))
    try Data(random.bytes(200_000)).write(to: URL(filePath: "\(folder)/other"))
    let one = try machines.engine("one")
    // The file's chunk lies in a pack with garbage, and its version in another.
    let items = [PutItem(key: "x", data: shared), PutItem(key: "y", data: Data(random.bytes(20_000)))]
    _ = try one.put(items, PutOptions())
    _ = try Importer(one, ImportOptions(), nil).run([folder])
    let file = try #require(try one.keys("", after: nil, limit: 9).map(\.key).first { $0.hasSuffix("file") })
    _ = try one.delete(["y"], .durable)
    let late = try machines.engine("late")
    _ = try late.put("z", random.bytes(10), PutOptions())
    let two = try machines.engine("two")
    let once = Once()
    let report = try two.collectGarbage(GarbageCollectionOptions(timeout: .seconds(0))) { progress in
      guard progress.phase == "waiting" else { return }
      once.run {
        for engine in [one, late] {
          try engine.extend()
          try engine.acknowledgeCondemnation()
        }
        _ = try one.delete(["x", file], .durable)
      }
    }
    #expect(once.isDone && report.deletedPackCount + report.compactedPackCount > 0)
    // It has not seen the deletion.
    try Data("changed".utf8).write(to: URL(filePath: "\(folder)/file"))
    #expect(try Importer(late, ImportOptions(), nil).run([folder]).newFileCount == 1)
    for engine in [one, late, two] { try engine.close() }
    let last = try machines.engine("last")
    #expect(try last.verify().damaged.isEmpty)
    #expect(try last.data(file, nil) == Data("changed".utf8))
    try last.close()
  }

  @Test("removes what no version needs, beside a machine that puts the same again")
  func besidePuts() throws {
    let (engines, expected, report) = try putBesideCollection([], [])
    #expect(report.obstacles == [])
    #expect(report.deletedPackCount + report.compactedPackCount > 0)
    #expect(report.freedByteCount > 40_000)
    try machines.check(expected, "after the collection")
    for engine in engines {
      try engine.extend()
      for (key, bytes) in expected { #expect(try engine.data(key, nil) == Data(bytes)) }
      try engine.close()
    }
    #expect(machines.names("writers/") == [])
    #expect(machines.names("acks/") == [])
  }

  @Test(
    "fences a machine that sleeps, which then reports no success; without, it would report what is lost",
    arguments: [Weaknesses(), .removesBeforeAllPassed])
  func sleeper(_ weaknesses: Weaknesses) throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(40_000)
    let one = try machines.engine("one", weaknesses: weaknesses)
    let sleeper = try machines.engine("two")
    _ = try one.put("gone", bytes, PutOptions())
    _ = try sleeper.put("kept", Array("reported".utf8), PutOptions())
    try sleeper.extend()
    #expect(try sleeper.put("late", bytes, .relaxed).newByteCount == 0)
    _ = try one.delete(["gone"], .durable)
    _ = try one.collectGarbage(SharedMachines.everything)
    try one.close()
    guard weaknesses.isEmpty else {
      try sleeper.synchronize()
      #expect(try machines.lost(of: ["late": bytes]) == ["late"])
      return
    }
    // It need not know yet that it was not waited for, to be told why what it counted on is gone.
    try sleeper.extend()
    let reading = #expect(throws: BlobStorageError.self) { try sleeper.data("late", nil) }
    #expect(reading?.code == .fenced)
    #expect(reading?.key == "late")
    for _ in 0..<2 {
      let error = #expect(throws: BlobStorageError.self) { try sleeper.synchronize() }
      #expect(error?.code == .fenced)
    }
    #expect(throws: BlobStorageError.self) { try sleeper.put("more", Array("text".utf8), PutOptions()) }
    #expect(throws: BlobStorageError.self) { try sleeper.close() }
    try machines.check(["kept": Array("reported".utf8)], "after the sleeper was fenced")
    let next = try machines.engine("two")
    _ = try next.put("late", bytes, PutOptions())
    try machines.check(["kept": Array("reported".utf8), "late": bytes], "when it was done again")
  }

  @Test("fences a machine that dies: the next process there tells damage from that")
  func fencedAndDead() throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(40_000)
    let one = try machines.engine("one")
    _ = try one.put("gone", bytes, PutOptions())
    _ = try one.put("damaged", random.bytes(30_000), PutOptions())
    let packs = machines.names("packs/")
    do {
      let dying = try machines.engine("two")
      _ = try dying.put("late", bytes, .relaxed)
    }
    _ = try one.delete(["gone"], .durable)
    _ = try one.collectGarbage(SharedMachines.everything)
    let next = try machines.engine("two")
    #expect(try next.versions("late") == [])
    let kept = try #require(packs.last { machines.names("packs/").contains($0) })
    machines.store.set(kept, nil)
    let reading = #expect(throws: BlobStorageError.self) { try next.data("damaged", nil) }
    #expect(reading?.code == .corrupted)
    #expect(try next.verify().damaged.isEmpty == false)
    #expect(try next.repair().unreadable.map(\.key) == ["damaged"])
  }

  @Test("killed at each of its requests leaves a valid store, and the next goes on")
  func killed() throws {
    var random = SplitMix64.announced()
    let contents = (0..<2).map { _ in random.bytes(20_000) }
    var expected: [String: [UInt8]] = [:]
    let one = try machines.engine("one")
    for (index, bytes) in contents.enumerated() {
      for (key, bytes) in [("\(index)", bytes), ("\(index) and more", bytes + bytes.prefix(5_000))] {
        _ = try one.put(key, bytes, PutOptions())
        expected[key] = bytes
      }
    }
    _ = try one.put("asleep", contents[0], .relaxed)
    _ = try one.delete(["0", "0 and more", "1"], .relaxed)
    try one.synchronize()
    expected["asleep"] = contents[0]
    for key in ["0", "0 and more", "1"] { expected[key] = nil }
    // It stays registered, and does not answer.
    try machines.collectKilledAtEachRequest(SharedMachines.everything, expected, byteCountMax: 50_000)
  }

  @Test("frees what was dropped, and what keep leaves out")
  func frees() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    var last: [UInt8] = []
    for _ in 0..<4 {
      last = random.bytes(10_000)
      _ = try one.put("key", last, PutOptions(replacement: .archiveCurrent))
    }
    _ = try one.put("dropped", random.bytes(10_000), PutOptions())
    _ = try one.delete(["dropped"], .durable)
    var options = SharedMachines.everything
    options.archivedVersionLimit = 0
    options.isDryRun = true
    let planned = try one.collectGarbage(options)
    #expect(machines.names("collections/") == [])
    #expect(planned.deletedChunkCount == 4)
    #expect(planned.freedByteCount > 40_000)
    options.isDryRun = false
    let report = try one.collectGarbage(options)
    #expect(report.deletedChunkCount == 4)
    #expect(report.freedByteCount > 40_000)
    try machines.check(["key": last], "after keep")
    #expect(try one.versions("key").count == 1)
    _ = try one.delete(["key"], .durable)
    // Records that hide versions go once the versions have gone.
    for _ in 0..<2 { _ = try one.collectGarbage(SharedMachines.everything) }
    try one.close()
    #expect(machines.names("packs/") == [] && machines.endNames == [])
    try machines.check([:], "when all was dropped")
  }

  /// Fails if a version counts on chunks that a collector is about to remove, because it does not see the version yet.
  @Test(
    "keeps what a version is made of whose source another machine drops meanwhile",
    arguments: ["copy", "old"])
  func madeOfDropped(_ target: String) throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(40_000)
    let one = try machines.engine("one")
    let (two, three) = (try machines.engine("two"), try machines.engine("three"))
    // In one pack, which a collection condemns.
    let items = [
      PutItem(key: "old", data: Data(bytes), metadata: [7]),
      PutItem(key: "gone", data: Data(random.bytes(10_000))),
    ]
    let old = try #require(try one.put(items, PutOptions()).first).version.id
    for (engine, key) in [(two, "two"), (three, "three")] {
      _ = try engine.put(key, Array(key.utf8), PutOptions())
      try engine.extend()
    }
    _ = try one.delete(["gone"], .durable)
    let once = Once()
    let report = try one.collectGarbage(SharedMachines.everything) { progress in
      guard progress.phase == "waiting" else { return }
      once.run {
        for engine in [two, three] {
          try engine.extend()
          try engine.acknowledgeCondemnation()
        }
        _ = try two.delete(["old"], .durable)
        let options = PutOptions(durability: .relaxed)
        #expect(try VersionChanges(three).put(old, of: "old", as: target, options) != nil)
      }
    }
    #expect(once.isDone && report.obstacles == [])
    try three.synchronize()
    #expect(try three.versions(target).first?.metadata == [7])
    for engine in [one, two, three] { try engine.close() }
    let expected = [target: bytes, "two": Array("two".utf8), "three": Array("three".utf8)]
    try machines.check(expected, "afterwards")
  }

  @Test("waits for a put that is open, which may count on what is condemned")
  func stream() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    let two = try machines.engine("two")
    let bytes = random.bytes(3 << 20)
    _ = try one.put("old", bytes, PutOptions())
    try two.extend()
    let machines = machines
    let reads = CallCount()
    let content = BlobContent.stream {
      switch reads.next() {
      case 1: return Data(bytes.prefix(2 << 20))
      case 2:
        _ = try one.delete(["old"], .durable)
        let error = #expect(throws: BlobStorageError.self) {
          try one.collectGarbage(SharedMachines.everything) { progress in
            guard progress.phase == "waiting" else { return }
            two.runPeriodicWork()
            two.renewRegistrations()
          }
        }
        #expect(error?.code == .busy)
        #expect(error?.message.contains("is still writing") == true)
        #expect(machines.names("packs/").count > 1)
        return Data(bytes.suffix(1 << 20))
      default: return nil
      }
    }
    let result = try two.put("new", content, PutOptions())
    #expect(result.newByteCount < 2 << 20)
    two.runPeriodicWork()
    let report = try one.collectGarbage(SharedMachines.everything)
    #expect(report.obstacles == [])
    try machines.check(["new": bytes], "after the put has ended")
    try two.extend()
    #expect(try two.data("new", nil) == Data(bytes))
  }

  @Test(
    "waits three times as long as was asked for before it fences a silent writer, and no longer than needed",
    arguments: [true, false])
  func patience(_ answers: Bool) throws {
    var random = SplitMix64.announced()
    let sleeper = try machines.engine("two", silence: .infinity)
    _ = try sleeper.put("kept", Array("text".utf8), PutOptions())
    let seconds = Mutex(0.0)
    let pauses = Mutex<[Double]>([])
    let once = Once()
    var environment = Engine.Environment()
    environment.worksInline = true
    environment.time = PassingTime(
      now: { seconds.withLock { $0 } },
      wait: { pause in
        pauses.withLock { $0.append(pause) }
        let now = seconds.withLock { seconds -> Double in
          seconds += pause
          return seconds
        }
        if answers, now > 100 { once.run { sleeper.runPeriodicWork() } }
      })
    let one = try Engine(
      path: machines.temporary.path.appending("one").string,
      configuration: StoreConfiguration(cacheByteLimit: 0, threadCount: 1), environment: environment,
      remote: Engine.Remote(
        objects: machines.store, configuration: RemoteConfiguration(interval: .zero)))
    _ = try one.put("gone", random.bytes(10_000), PutOptions())
    _ = try one.delete(["gone"], .durable)
    let report = try one.collectGarbage(
      GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(60)))
    #expect(report.deletedChunkCount == 1)
    let waited = seconds.withLock { $0 }
    #expect(answers ? 100..<103 ~= waited : 180..<183 ~= waited, "\(waited)")
    let made = pauses.withLock { $0 }
    #expect(made.allSatisfy { 0.1...2 ~= $0 })
    #expect(made.first == 0.1 && made.last == 2)
    var expected = ["kept": Array("text".utf8)]
    if answers {
      _ = try sleeper.put("more", Array("more".utf8), PutOptions())
      expected["more"] = Array("more".utf8)
    } else {
      #expect(
        failure { _ = try sleeper.put("more", Array("more".utf8), PutOptions()) }?.code == .fenced)
    }
    try machines.check(expected, "after the collection")
  }

  @Test("gives up when another machine has condemned since")
  func twoCollectors() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    let two = try machines.engine("two")
    let bytes = random.bytes(10_000)
    _ = try one.put("kept", bytes, PutOptions())
    _ = try one.put("gone", random.bytes(10_000), PutOptions())
    _ = try one.delete(["gone"], .durable)
    let once = Once()
    let error = #expect(throws: BlobStorageError.self) {
      try one.collectGarbage(SharedMachines.everything) { progress in
        guard progress.phase == "waiting" else { return }
        once.run {
          let report = try two.collectGarbage(SharedMachines.everything)
          #expect(report.deletedChunkCount == 1)
        }
      }
    }
    #expect(error?.code == .busy)
    try machines.check(["kept": bytes], "after the second")
    #expect(try one.collectGarbage(SharedMachines.everything).deletedChunkCount == 0)
    try machines.check(["kept": bytes], "after the first")
  }

  @Test("deletes what an earlier one had said is removed, and was killed before it could delete")
  func leftovers() throws {
    var random = SplitMix64.announced()
    let kept = Array("text".utf8)
    let one = try machines.engine("one")
    _ = try one.put("kept", kept, PutOptions())
    let before = machines.names("packs/")
    _ = try one.put("gone", random.bytes(10_000), PutOptions())
    let gone = try #require(machines.names("packs/").first { !before.contains($0) })
    _ = try one.delete(["gone"], .durable)
    try one.close()
    let client = machines.store.client { (call) throws(BlobStorageError) in
      if call.kind == .delete, call.name.hasPrefix("packs/") { throw BlobStorageError.simulatedStop }
    }
    #expect(throws: BlobStorageError.self) {
      try machines.engine("two", client).collectGarbage(SharedMachines.everything)
    }
    #expect(machines.names("packs/").contains(gone))
    try machines.check(["kept": kept], "before it is deleted")
    let next = try machines.engine("three")
    #expect(try next.collectGarbage(SharedMachines.everything).obstacles == [])
    try next.close()
    #expect(!machines.names("packs/").contains(gone))
    try machines.check(["kept": kept], "afterwards")
  }

  @Test("changes no object on a dry run, and publishes nothing")
  func dryRun() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    for key in ["kept", "gone"] { _ = try one.put(key, random.bytes(10_000), PutOptions()) }
    _ = try one.delete(["gone"], .durable)
    _ = try one.put("not published yet", random.bytes(100), .relaxed)
    let before = machines.store.objects
    let plan = try one.collectGarbage(
      GarbageCollectionOptions(
        isDryRun: true, archivedVersionLimit: 0, minimumGarbageShare: 0, timeout: .seconds(0)))
    #expect(plan.isDryRun && plan.deletedChunkCount == 1 && plan.freedByteCount > 10_000)
    #expect(machines.store.objects == before)
    try one.close()
  }

  @Test("removes nothing when objects were deleted")
  func deleted() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    for key in ["a", "b"] { _ = try one.put(key, random.bytes(30_000), PutOptions()) }
    _ = try one.delete(["a"], .durable)
    let packs = machines.names("packs/")
    machines.store.set(packs[1], nil)
    let report = try machines.engine("two").collectGarbage(SharedMachines.everything)
    #expect(report.obstacles.count == 1)
    #expect(try one.collectGarbage(SharedMachines.everything).obstacles.isEmpty == false)
    #expect(machines.names("packs/") == [packs[0], packs[2]])
    #expect(machines.names("collections/") == [])
  }

  @Test(
    "condemns nothing once the object store ignores the condition of puts, which held when it was created")
  func conditionLost() throws {
    var random = SplitMix64.announced()
    let one = try machines.engine("one")
    let bytes = random.bytes(30_000)
    _ = try one.put("kept", bytes, PutOptions())
    _ = try one.put("gone", random.bytes(30_000), PutOptions())
    _ = try one.delete(["gone"], .durable)
    let before = machines.store.objects
    let error = #expect(throws: BlobStorageError.self) {
      try machines.engine("two", UnconditionalStore(store: machines.store)).collectGarbage(
        SharedMachines.everything)
    }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains("If-None-Match") == true)
    #expect(machines.store.objects == before)
    #expect(try machines.engine("two").collectGarbage(SharedMachines.everything).deletedPackCount == 1)
    #expect(machines.names("probe/") == [])
  }
}

/// A service before the object store that drops the condition of puts.
private struct UnconditionalStore: ObjectStore {
  let store: SimulatedObjectStore

  func put(
    _ name: String, _ content: ObjectContent, ifAbsent: Bool
  ) throws(BlobStorageError) -> ObjectPutOutcome { try store.put(name, content, ifAbsent: false) }

  func get(_ name: String, _ range: Range<Int64>) throws(BlobStorageError) -> [UInt8]? {
    try store.get(name, range)
  }

  func tail(
    _ name: String, byteCount: Int
  ) throws(BlobStorageError) -> (bytes: [UInt8], byteCount: Int64)? {
    try store.tail(name, byteCount: byteCount)
  }

  func list(_ prefix: String, after name: String?) throws(BlobStorageError) -> ObjectPage {
    try store.list(prefix, after: name)
  }

  func delete(_ name: String) throws(BlobStorageError) { try store.delete(name) }
}
