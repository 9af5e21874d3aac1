import BlobStorage
import BlobStorageCache
import BlobStorageReports
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Which packs a collection takes and in what order, what it says of them, and what it leaves where it cannot
/// go on.
@Suite("What a collection takes", .serialized)
struct CollectionPlanTests {
  private static let everything = GarbageCollectionOptions(minimumGarbageShare: 0)

  private static func rows(_ engine: Engine) throws -> [(number: UInt32, row: PackRow)] {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in try transaction.packRows() }
  }

  /// Bytes of all records.
  private static func recordByteCount(_ engine: Engine) throws -> Int64 {
    try rows(engine).reduce(0) { $0 + $1.row.appliedByteCount - Int64(PackHeader.byteCount) }
  }

  // MARK: Which packs

  @Test(
    "is a pack of which just the share that is asked for is garbage, and no pack below; the numbers add up",
    arguments: [0.5, 0.500_001])
  func share(_ share: Double) throws {
    let lab = try Lab()
    // Of the same length each, the commits too: none says what had been synced.
    try lab.session {
      try lab.put($0, [("a", noise(1, 200))], durability: .relaxed)
      try lab.put($0, [("b", noise(2, 200))], durability: .relaxed)
    }
    try lab.session { engine in
      try lab.delete(engine, ["b"])
      let before = try Self.recordByteCount(engine)
      let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: share))
      let (after, statistics) = (try Self.recordByteCount(engine), try engine.statistics())
      #expect(report.obstacles == [])
      #expect(report.freedByteCount == before - after)
      #expect(report.garbageByteCount == statistics.garbageByteCount)
      #expect(report.deletedPackCount == 0)
      #expect(report.compactedPackCount == (share == 0.5 ? 1 : 0))
      #expect(report.deletedChunkCount == (share == 0.5 ? 1 : 0))
      // In the pack of another writer a ref names its own: so much more is copied, and so much less freed.
      let named: Int64 = share == 0.5 ? 8 : 0
      #expect(report.copiedByteCount - named == report.freedByteCount + named)
      #expect((report.freedByteCount > 200) == (share == 0.5))
      // What is needed as a whole is not copied for nothing.
      let again = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: share))
      #expect(again.compactedPackCount == 0 && again.copiedByteCount == 0)
    }
  }

  @Test(
    "keeps as many archived versions as it is told, and a dry run counts the rest as garbage",
    arguments: [0, 1, 2, 3])
  func keeps(_ count: Int) throws {
    let lab = try Lab()
    try lab.session { engine in
      for number in 0..<3 { try lab.put(engine, [("k", noise(UInt64(number), 400))], archives: true) }
    }
    try lab.session { engine in
      var options = Self.everything
      options.archivedVersionLimit = count
      options.isDryRun = true
      let planned = try engine.collectGarbage(options)
      #expect(try engine.versions("k").count == 3)
      options.isDryRun = false
      let report = try engine.collectGarbage(options)
      #expect(try engine.versions("k").count == min(3, count + 1))
      #expect(planned.deletedChunkCount == max(0, 2 - count))
      #expect(report.deletedChunkCount == planned.deletedChunkCount)
    }
  }

  @Test("leaves versions that a hold or a state keeps, however few it is told to keep, and a dry run says so")
  func heldVersions() throws {
    let lab = try Lab()
    try lab.session { engine in
      for number in 0..<3 { try lab.put(engine, [("k", noise(UInt64(number), 400))], archives: true) }
      let hold = KeyHold(name: "h", prefix: Array("k".utf8))
      try engine.putInternal(hold.key, .data(Data()), metadata: hold.metadata)
      // As imports keep replaced versions for states.
      let replaced = InternalKey.Purpose.replaced.key(Array("x".utf8))
      for seed in [3, 4] as [UInt64] {
        let data = noise(seed, 400)
        let digest = try engine.put("x", .data(data), PutOptions()).version.digest
        _ = try engine.writer.commit { (commit) throws(BlobStorageError) in
          _ = try commit.append(
            .ref(
              RefRecord(
                key: replaced, version: try commit.stamp(), replaced: .none, digest: digest,
                byteCount: Int64(data.count), created: 0, metadata: [])))
        }
      }
    }
    try lab.session { engine in
      var options = Self.everything
      options.archivedVersionLimit = 0
      for isDryRun in [true, false] {
        options.isDryRun = isDryRun
        let report = try engine.collectGarbage(options)
        #expect(report.obstacles == [] && report.deletedChunkCount == 0, "dry run: \(isDryRun)")
      }
      #expect(try engine.versions("k").count == 3)
    }
  }

  @Test("are small packs once there are more than 32 of them", arguments: [32, 33])
  func small(_ count: Int) throws {
    let lab = try Lab()
    // Each put fills a pack.
    lab.packByteCountTarget = 100
    try lab.session { engine in
      for number in 0..<count { try lab.put(engine, [("k\(number)", noise(UInt64(number), 200))]) }
      #expect(try Self.rows(engine).count == count)
    }
    lab.packByteCountTarget = 64 << 10
    try lab.session { engine in
      let report = try engine.collectGarbage()
      #expect(report.obstacles == [] && report.deletedPackCount == 0)
      #expect(report.compactedPackCount == (count == 33 ? 33 : 0))
      let (rows, found) = (try Self.rows(engine), try lab.observed(engine))
      #expect(rows.count == (count == 33 ? 1 : 32))
      #expect(found == lab.model.state)
    }
  }

  @Test("are all packs that nothing needs, also when they are more than share their syncs")
  func manyDead() throws {
    let lab = try Lab()
    lab.packByteCountTarget = 100
    let keys = (0..<130).map { "k\($0)" }
    try lab.session { engine in
      for (number, key) in keys.enumerated() {
        _ = try engine.put(key, .data(noise(UInt64(number), 200)), PutOptions(durability: .relaxed))
      }
    }
    lab.packByteCountTarget = 64 << 10
    try lab.session { engine in
      let before = try Self.recordByteCount(engine)
      _ = try engine.delete(keys, .durable)
      let report = try engine.collectGarbage(Self.everything)
      #expect(report.deletedPackCount >= 130 && report.deletedChunkCount == 130)
      #expect(report.freedByteCount >= before)
      let rows = try Self.rows(engine)
      // At most that of the deletions is left.
      #expect(rows.count <= 1)
    }
  }

  @Test("go oldest first, so that what hides a version goes in the same collection as the version")
  func oldestFirst() throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 200)), ("kept", noise(2, 200))]) }
    try lab.session { engine in
      try lab.delete(engine, ["a"])
      try lab.put(engine, [("kept too", noise(3, 200)), ("garbage", noise(4, 200))])
      try lab.delete(engine, ["garbage"])
    }
    var options = Self.everything
    // Each is taken away before the next is copied.
    options.batchByteCountMax = 1
    try lab.session { engine in
      let report = try engine.collectGarbage(options)
      #expect(report.obstacles == [] && report.compactedPackCount == 2)
      let statistics = try engine.statistics()
      #expect(statistics.garbageByteCount == 0 && report.garbageByteCount == 0)
    }
    try lab.forgetCatalog()
    try lab.session { engine in
      let found = try lab.observed(engine)
      #expect(found == lab.model.state)
    }
  }

  @Test("is what may not have been synced before anything that it hides")
  func unsyncedFirst() throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 200))], durability: .relaxed) }
    let first = try #require(try LostPackTests.names(lab).first)
    try lab.session { try lab.put($0, [("a", noise(2, 200))]) }
    let second = try #require(try LostPackTests.names(lab).first { $0 != first })
    let name = try #require(PackName(fileName: second))
    try lab.session { engine in
      try engine.catalog.write { (transaction) throws(BlobStorageError) in try transaction.poison(name) }
      let report = try engine.collectGarbage(Self.everything)
      #expect(report.compactedPackCount == 1 && report.deletedPackCount == 0)
      let left = try LostPackTests.names(lab)
      // A power cut before may have lost the new version: then the old one must be there.
      #expect(left.contains(first) && !left.contains(second))
      let again = try engine.collectGarbage(Self.everything)
      #expect(again.deletedPackCount == 1)
      let (found, names) = (try lab.observed(engine), try LostPackTests.names(lab))
      #expect(found == lab.model.state && !names.contains(first))
    }
  }

  @Test("of a pack of more records than are looked at together is what is garbage, and nothing else")
  func manyRecords() throws {
    let lab = try Lab()
    lab.packByteCountTarget = 8 << 20
    let keys = (0..<4_200).map { "k\($0)" }
    func value(_ index: Int) -> Data { Data("value \(index % 3)".utf8) }
    try lab.session { engine in
      let items = keys.enumerated().map { PutItem(key: $1, data: value($0)) }
      _ = try engine.put(items, PutOptions(durability: .relaxed))
      _ = try engine.delete(Array(keys.dropLast(10)), .durable)
    }
    try lab.session { engine in
      let report = try engine.collectGarbage(Self.everything)
      #expect(report.obstacles == [] && report.compactedPackCount == 1)
      let statistics = try engine.statistics()
      // What hid versions goes with the only copies of their refs.
      #expect(statistics.keyCount == 10 && statistics.garbageByteCount == 0)
    }
    try lab.forgetCatalog()
    try lab.session { engine in
      let found = try engine.keys("", after: nil, limit: 100).map(\.key)
      #expect(found == keys.suffix(10).sorted())
      for (index, key) in keys.enumerated().suffix(10) {
        let data = try engine.data(key, nil)
        #expect(data == value(index))
      }
    }
  }

  // MARK: Options

  @Test("on a dry run is nothing: no pack is sealed, made or taken away, and the reserve is not put back")
  func dryRun() throws {
    let lab = try Lab()
    try CrashTests.garbageInEveryPack(lab)
    let reserve = FilePath("\(Lab.storePath)/reserve")
    try lab.session { engine in
      try lab.put(engine, [("open", noise(70, 200))], durability: .relaxed)
      try lab.disk.remove(reserve)
      let before = lab.disk.callCount
      let plan = try engine.collectGarbage(
        GarbageCollectionOptions(isDryRun: true, archivedVersionLimit: 0, minimumGarbageShare: 0))
      let changes = lab.disk.calls.filter { call in
        call.number > before && call.mutationNumber != nil
          && (call.detail.contains("/packs/") || call.detail.contains("/reserve"))
      }
      #expect(changes.isEmpty, "\(changes)")
      #expect(plan.isDryRun && plan.freedByteCount > 0)
      #expect(plan.deletedPackCount + plan.compactedPackCount > 0)
      let found = try lab.observed(engine)
      #expect(found == lab.model.state)
      let report = try engine.collectGarbage(Self.everything)
      #expect(!report.isDryRun)
      let byteCount = try lab.disk.status(of: reserve)?.byteCount
      #expect(byteCount == 512 << 10, "the reserve is put back")
    }
  }

  @Test("is nothing when the options make no sense")
  func invalid() throws {
    let lab = try Lab()
    try lab.session { engine in
      for share in [-0.01, 1.01, .nan] {
        let error = #expect(throws: BlobStorageError.self) {
          try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: share))
        }
        #expect(error?.code == .invalidArgument, "\(share)")
      }
      for isDryRun in [false, true] {
        let error = #expect(throws: BlobStorageError.self) {
          try engine.collectGarbage(GarbageCollectionOptions(isDryRun: isDryRun, archivedVersionLimit: -1))
        }
        #expect(error?.code == .invalidArgument)
      }
      for share in [0.0, 1.0] {
        let report = try engine.collectGarbage(
          GarbageCollectionOptions(archivedVersionLimit: 0, minimumGarbageShare: share))
        #expect(report.obstacles == [])
      }
    }
  }

  @Test(
    "waits for another collection as long as it is told to, and no longer, and so does a repair",
    arguments: ["gc", "repair"], [true, false])
  func waiting(_ work: String, isFreed: Bool) throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 200))], durability: .relaxed) }
    let other = try lab.disk.process().open(FilePath("\(Lab.storePath)/gc.lock"), .openOrCreate)
    let seconds = Mutex(0.0)
    var environment = lab.environment(lab.disk.process())
    environment.time = PassingTime(
      now: { seconds.withLock { $0 } },
      wait: { count in
        let now = seconds.withLock { seconds in
          seconds += count
          return seconds
        }
        if now >= (isFreed ? 1 : 20) { other.close() }
      })
    let engine = try Engine(
      path: Lab.storePath, configuration: StoreConfiguration(threadCount: 1), environment: environment)
    func run() throws {
      if work == "gc" {
        _ = try engine.collectGarbage(GarbageCollectionOptions(timeout: .seconds(2)))
      } else {
        _ = try engine.repair(waitSeconds: 2)
      }
    }
    let isLocked = try other.lock(.exclusive, wait: false)
    #expect(isLocked)
    if isFreed {
      try run()
    } else {
      let error = #expect(throws: BlobStorageError.self) { try run() }
      #expect(error?.code == .busy)
    }
    let waited = seconds.withLock { $0 }
    #expect(isFreed ? 1...1.2 ~= waited : 2...2.2 ~= waited, "\(waited) s")
    other.close()
    try run()
    try engine.close()
  }

  // MARK: What is in the way

  @Test("is not a pack with a damaged record that is needed, and others all the same")
  func damagedRecord() throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("a", noise(1, 200)), ("garbage", noise(2, 200))]) }
    let name = try #require(try LostPackTests.names(lab).first)
    try lab.session { try lab.put($0, [("b", noise(3, 200)), ("more garbage", noise(4, 200))]) }
    let path = LostPackTests.packs.appending(name)
    let bytes = try DamageTests.bytes(lab, path)
    let place = try #require(Data(bytes).range(of: noise(1, 200))).lowerBound
    try DamageTests.change(lab, path) { $0[place + 5] ^= 1 }
    try lab.session { engine in
      try lab.delete(engine, ["garbage", "more garbage"])
      let report = try engine.collectGarbage(Self.everything)
      #expect(report.obstacles.count == 1)
      #expect(
        report.obstacles.allSatisfy {
          $0.message.contains(name.dropLast(5)) && $0.message.contains("run verify")
        })
      #expect(report.compactedPackCount == 1 && report.deletedPackCount == 0)
      let names = try LostPackTests.names(lab)
      #expect(names.contains(name))
    }
    // Once the medium can be read again, all is there.
    try DamageTests.change(lab, path) { $0[place + 5] ^= 1 }
    for forgets in [false, true] {
      if forgets { try lab.forgetCatalog() }
      try lab.session { try lab.checkSound($0, "catalog forgotten: \(forgets)") }
    }
  }

  @Test("is not held up by leases on what is not there")
  func strangeLease() throws {
    let lab = try Lab()
    try lab.session { try lab.put($0, [("garbage", noise(1, 200))]) }
    let leases = FilePath("\(Lab.storePath)/leases")
    let lease = LeaseFile(folder: leases, writer: 99, files: lab.disk.process())
    let absent = BlobDigest.of(Array("absent".utf8))
    let hold = try lease.hold([.chunk(absent), .blob(absent)])
    try lab.session { engine in
      try lab.delete(engine, ["garbage"])
      let report = try engine.collectGarbage(Self.everything)
      #expect(report.obstacles == [] && report.deletedPackCount >= 1)
    }
    lease.release(hold)
  }

  @Test(
    "and that stays, because the collection failed or was killed, is shared again, after the next at the latest"
  )
  func pardoned() throws {
    for isKilled in [false, true] {
      let lab = try Lab()
      try lab.session { try lab.put($0, [("a", noise(1, 200)), ("garbage", noise(2, 200))]) }
      let process = lab.disk.process()
      let collector = try lab.open(process)
      try lab.delete(collector, ["garbage"])
      let atStop = Mutex<CatalogFolder?>(nil)
      // Packs are condemned, and the one that copies go to is about to be made.
      lab.disk.beforeMutations { [weak lab] (call) throws(BlobStorageError) in
        guard let lab, call.process == process.number, call.kind == .create, call.detail.contains("/packs/")
        else { return }
        atStop.withLock { copy in
          if copy == nil { copy = try? CatalogFolder(copyOf: lab.catalog) }
        }
        throw isKilled ? BlobStorageError.simulatedStop : BlobStorageError(.io, "not now")
      }
      #expect(throws: BlobStorageError.self) { try collector.collectGarbage(Self.everything) }
      lab.disk.beforeMutations(nil)
      let before = try #require(atStop.withLock { $0 })
      if isKilled {
        lab.restart(with: before)
        withExtendedLifetime(collector) {}
      } else {
        try? collector.close()
      }
      try lab.session { engine in
        if isKilled {
          let condemned = try Self.rows(engine).filter { $0.row.state == .condemned }
          #expect(condemned.count == 1, "it was killed at another time")
          // Too little of it is garbage.
          _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 1))
        }
        let rows = try Self.rows(engine)
        #expect(rows.allSatisfy { $0.row.state == .live }, "killed: \(isKilled)")
        let result = try engine.put("same", .data(noise(1, 200)), PutOptions())
        #expect(result.newByteCount == 0, "killed: \(isKilled)")
      }
    }
  }

  @Test("and that stays has its chunks again, as a rebuild would choose, though they were stored twice (V5)")
  func pardonedRows() throws {
    var storedAgainCount = 0
    // The collection fails, and so many calls later another process stores what is condemned.
    for step in 0... {
      let lab = try Lab()
      let data = prose(1, 900)
      let state = Mutex((hasBegun: false, hasFailed: false, callCount: 0, newByteCount: Int64(0)))
      let failure = Mutex<(any Error)?>(nil)
      let scheduler = Scheduler { situation in
        state.withLock { state -> Scheduler.Decision in
          let isWritersTurn = !state.hasBegun || state.hasFailed && state.callCount >= step
          let wanted = isWritersTurn ? 1 : 0
          let next = situation.ready.contains(wanted) ? wanted : situation.ready[0]
          if next == 0, state.hasFailed { state.callCount += 1 }
          return .run(next)
        }
      }
      @Sendable func attempt(_ body: () throws -> Void) {
        do { try body() } catch { failure.withLock { $0 = error } }
      }
      lab.scheduler = scheduler
      scheduler.run([
        {
          attempt {
            let process = lab.disk.process()
            let collector = try lab.open(process)
            _ = try collector.put("a", .data(data), PutOptions(codec: CodecKind.none))
            try lab.put(collector, [("garbage", noise(2, 200))])
            try lab.delete(collector, ["garbage"])
            lab.disk.beforeMutations { (call) throws(BlobStorageError) in
              guard call.process == process.number, call.kind == .create, call.detail.contains("/packs/")
              else { return }
              state.withLock { $0.hasFailed = true }
              throw BlobStorageError(.io, "not now")
            }
            #expect(throws: BlobStorageError.self) { try collector.collectGarbage(Self.everything) }
            lab.disk.beforeMutations(nil)
            try collector.close()
          }
        },
        {
          attempt {
            let writer = try lab.open()
            // Its pack is begun before the one that is condemned, and takes the second copy.
            try lab.put(writer, [("open", noise(3, 100))])
            state.withLock { $0.hasBegun = true }
            let put = try writer.put("b", .data(data), PutOptions())
            state.withLock { $0.newByteCount = put.newByteCount }
            try writer.close()
          }
        },
      ])
      lab.scheduler = nil
      if let failure = failure.withLock({ $0 }) { throw failure }
      if state.withLock({ $0.newByteCount }) > 0 { storedAgainCount += 1 }
      func statistics() throws -> StoreStatistics {
        let engine = try lab.open()
        defer { try? engine.close() }
        return try engine.statistics()
      }
      let known = try statistics()
      try lab.forgetCatalog()
      let rebuilt = try statistics()
      #expect(rebuilt.storedByteCount == known.storedByteCount, "\(step)")
      #expect(rebuilt.garbageByteCount == known.garbageByteCount, "\(step)")
      if state.withLock({ $0.callCount < step }) { break }
    }
    #expect(storedAgainCount > 1, "nothing was condemned")
  }

  @Test("and that stays, and is of a time to come, has its versions where a rebuild has them (V5)")
  func packOfTimeToCome() throws {
    let lab = try Lab()
    let now = lab.clock.now
    lab.clock.set(now + 30 * 86_400_000)
    try lab.session { try lab.put($0, [("a", noise(1, 200)), ("garbage", noise(2, 200))]) }
    // The clock was wrong, and what is written from now on would be older.
    lab.clock.set(now)
    try lab.forgetCatalog()
    let process = lab.disk.process()
    let collector = try lab.open(process)
    try lab.delete(collector, ["garbage"])
    // The copies are in the catalog, and are about to be forced to the medium, as the pack's header was.
    let counts = Mutex((packs: 0, syncs: 0))
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.process == process.number, call.detail.contains("/packs/") else { return }
      let isToFail = counts.withLock { counts -> Bool in
        if call.kind == .create { counts.packs += 1 }
        if call.kind == .synchronize, counts.packs > 0 { counts.syncs += 1 }
        return call.kind == .synchronize && counts.syncs > 1
      }
      if isToFail { throw BlobStorageError(.io, "not now") }
    }
    #expect(throws: BlobStorageError.self) { try collector.collectGarbage(Self.everything) }
    lab.disk.beforeMutations(nil)
    try? collector.close()
    func packOfVersion() throws -> PackName? {
      var name: PackName?
      try lab.session { engine in
        name = try engine.catalog.read { (transaction) throws(BlobStorageError) in
          guard let current = try transaction.nameRow(Array("a".utf8))?.current else { return nil }
          #expect(current.row.copyCount == 2, "nothing was copied")
          return try transaction.packRow(current.row.place.pack)?.name
        }
      }
      return name
    }
    let known = try packOfVersion()
    try lab.forgetCatalog()
    let rebuilt = try packOfVersion()
    #expect(known != nil && known == rebuilt)
  }

  @Test("is what a collection had retired that was killed before it took the files away")
  func killedAfterRetiring() throws {
    let lab = try Lab()
    try CrashTests.garbageInEveryPack(lab)
    let writer = try lab.open()
    try lab.put(writer, [("open", noise(70, 100))], durability: .relaxed)
    let path = try #require(
      try DamageTests.paths(lab).first { try DamageTests.holds(lab, $0, key: "open") })
    let process = lab.disk.process()
    let collector = try lab.open(process)
    // Packs are retired, and those that are being written to are about to be forced to the medium.
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      if call.process == process.number, call.kind == .synchronize, call.detail.hasPrefix(path.string) {
        throw .simulatedStop
      }
    }
    #expect(throws: BlobStorageError.self) {
      try collector.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.1))
    }
    lab.restart(with: try CatalogFolder(copyOf: lab.catalog))
    withExtendedLifetime((writer, collector)) {}
    try lab.session { engine in
      let retired = try Self.rows(engine).filter { $0.row.state == .retired }
      #expect(!retired.isEmpty, "it was killed at another time")
      // Nothing else is worth it.
      let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 1))
      #expect(report.obstacles == [])
      let (rows, found) = (try Self.rows(engine), try lab.observed(engine))
      let files = try lab.disk.list(LostPackTests.packs)
      #expect(rows.allSatisfy { $0.row.state == .live } && files.count == rows.count)
      #expect(found == lab.model.state)
    }
    try lab.forgetCatalog()
    try lab.session { try lab.checkSound($0, "afterwards") }
  }

  @Test("verify, gc and statistics name the chunks that a long blob lacks, wherever they are in it")
  func missingInLong() throws {
    let lab = try Lab()
    var records: [(content: PackRecord.Content, payload: [UInt8])] = []
    var lists = ByteWriter()
    var missing: Set<BlobDigest> = []
    for part in 0..<3 {
      var list = ByteWriter()
      for number in part * 2_000..<(part + 1) * 2_000 {
        let plain = withUnsafeBytes(of: number) { Array($0) }
        let digest = BlobDigest.of(plain)
        ChunkEntry(digest: digest, plainByteCount: plain.count).encode(into: &list)
        if number == 0 || number == 5_999 {
          missing.insert(digest)
        } else {
          records.append(
            (.chunk(ChunkRecord(digest: digest, plainByteCount: plain.count, codecNumber: 0)), plain))
        }
      }
      let entry = ListEntry(digest: BlobDigest.of(list.bytes), chunkCount: 2_000, spanByteCount: 16_000)
      entry.encode(into: &lists)
      records.append(
        (
          .chunk(ChunkRecord(digest: entry.digest, plainByteCount: list.bytes.count, codecNumber: 0)),
          list.bytes
        ))
    }
    let blob = BlobDigest.of(Array("long".utf8))
    let manifest = ManifestRecord(
      digest: blob, byteCount: 48_000, chunkCount: 6_000, depth: 1, listedCount: 3)
    records.append((.manifest(manifest), lists.bytes))
    records.append(HostileTests.ref("long", blob, byteCount: 48_000))
    try HostileTests.plant(lab, 1, records)
    try lab.session { engine in
      let verified = try engine.verify()
      #expect(verified.damaged.count == 2 && Set(verified.damaged.compactMap(\.digest)) == missing)
      #expect(verified.damaged.allSatisfy { $0.keys == ["long"] })
      #expect(verified.blobCount == 1 && verified.chunkCount == 5_998 + 3)
      let (report, statistics) = (try engine.collectGarbage(Self.everything), try engine.statistics())
      #expect(report.obstacles.count == 2 && statistics.unreadable.count == 2)
      for digest in missing {
        #expect(report.obstacles.contains { $0.message.contains("\(digest)") })
        #expect(statistics.unreadable.contains { $0.contains("\(digest)") })
      }
    }
  }

  // MARK: Little room

  private static let reserve = FilePath("\(Lab.storePath)/reserve")

  /// Leaves so many bytes free on the disk.
  private static func leave(_ byteCount: Int64, _ lab: Lab) throws {
    let all: Int64 = 1 << 40
    lab.disk.limit(byteCount: Int(all))
    let free = try lab.disk.availableByteCount(at: FilePath(Lab.storePath))
    lab.disk.limit(byteCount: Int(all - free + byteCount))
  }

  private static func labOfLongChunks() throws -> Lab {
    let lab = try Lab(StoreOptions(averageChunkByteCount: 64 << 10, usesSimilarity: false))
    lab.packByteCountTarget = 8 << 20
    return lab
  }

  @Test("is a pack that there is no room to copy, once another has gone")
  func roomLater() throws {
    let lab = try Self.labOfLongChunks()
    try lab.session { try lab.put($0, [("big", noise(1, 800_000)), ("g1", noise(2, 20_000))]) }
    try lab.session { try lab.put($0, [("small", noise(3, 10_000)), ("g2", noise(4, 1_200_000))]) }
    let engine = try lab.open()
    try lab.delete(engine, ["g1", "g2"])
    // Enough for the small one, and for the big one not even with the reserve.
    try Self.leave(250_000, lab)
    let report = try engine.collectGarbage(Self.everything)
    #expect(report.obstacles == [] && report.compactedPackCount == 2)
    lab.disk.limit(byteCount: nil)
    let found = try lab.observed(engine)
    #expect(found == lab.model.state)
    try engine.close()
  }

  @Test("is only what needs no room where there is none, and it says how much is missing")
  func noRoom() throws {
    let lab = try Self.labOfLongChunks()
    try lab.session { try lab.put($0, [("kept", noise(2, 800_000)), ("g1", noise(3, 20_000))]) }
    let first = try #require(try LostPackTests.names(lab).first)
    try lab.session { try lab.put($0, [("g0", noise(1, 50_000))]) }
    let second = try #require(try LostPackTests.names(lab).first { $0 != first })
    let engine = try lab.open()
    try lab.delete(engine, ["g0", "g1"])
    try Self.leave(500_000, lab)
    let error = #expect(throws: BlobStorageError.self) { try engine.collectGarbage(Self.everything) }
    #expect(error?.code == .noSpace)
    let told = error?.message.firstMatch(of: /make room for (\d+) bytes more/)?.output.1
    let missing = try #require(told.flatMap { Int64($0) })
    let (left, rows) = (try LostPackTests.names(lab), try Self.rows(engine))
    #expect(left.contains(first) && !left.contains(second))
    #expect(try lab.disk.status(of: Self.reserve) != nil, "it would not have been enough")
    #expect(rows.allSatisfy { $0.row.state == .live })
    try Self.leave(lab.disk.availableByteCount(at: FilePath(Lab.storePath)) + missing, lab)
    let report = try engine.collectGarbage(Self.everything)
    #expect(report.obstacles == [] && report.freedByteCount > 20_000)
    lab.disk.limit(byteCount: nil)
    let (after, found) = (try LostPackTests.names(lab), try lab.observed(engine))
    #expect(!after.contains(first) && found == lab.model.state)
    try engine.close()
  }

  @Test("is a pack that fits into the reserve where no byte is free, and the reserve is put back")
  func reserve() throws {
    let lab = try Self.labOfLongChunks()
    try lab.session { try lab.put($0, [("kept", noise(1, 100_000)), ("g", noise(2, 700_000))]) }
    let engine = try lab.open()
    try lab.delete(engine, ["g"])
    try Self.leave(0, lab)
    let report = try engine.collectGarbage(Self.everything)
    #expect(report.obstacles == [] && report.compactedPackCount == 1 && report.freedByteCount > 600_000)
    #expect(try lab.disk.status(of: Self.reserve)?.byteCount == 512 << 10)
    let found = try lab.observed(engine)
    #expect(found == lab.model.state)
    try engine.close()
  }

  @Test("is put back where one pack fits into it and the next does not")
  func reserveAfterFailure() throws {
    let lab = try Self.labOfLongChunks()
    try lab.session { try lab.put($0, [("small", noise(1, 10_000)), ("g1", noise(2, 300_000))]) }
    try lab.session { try lab.put($0, [("big", noise(3, 2_000_000)), ("g2", noise(4, 20_000))]) }
    let engine = try lab.open()
    try lab.delete(engine, ["g1", "g2"])
    try Self.leave(0, lab)
    let error = #expect(throws: BlobStorageError.self) { try engine.collectGarbage(Self.everything) }
    #expect(error?.code == .noSpace)
    let names = try LostPackTests.names(lab)
    #expect(names.count == 3, "one was copied, and the deletion has a pack of its own")
    #expect(try lab.disk.status(of: Self.reserve)?.byteCount == 512 << 10)
    let found = try lab.observed(engine)
    #expect(found == lab.model.state)
    try engine.close()
  }

  // MARK: What a cache counts

  @Test("what is dropped while it is copied is noted as garbage of the new pack")
  func droppedMeanwhile() throws {
    let lab = try Lab()
    try lab.session { engine in
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        try transaction.beginCountingVersions()
      }
      try lab.put(engine, [("a", noise(1, 200)), ("b", noise(2, 200)), ("c", noise(3, 200))])
    }
    let process = lab.disk.process()
    let (collector, other) = (try lab.open(process), try lab.open())
    let packs = Set(try Self.rows(collector).map(\.number))
    try lab.delete(other, ["c"])
    let isDone = Mutex(false)
    lab.disk.beforeMutations { [weak lab] (call) throws(BlobStorageError) in
      guard let lab, call.process == process.number, call.kind == .create, call.detail.contains("/packs/"),
        !isDone.withLock({ $0.exchange(true) })
      else { return }
      do { try lab.delete(other, ["a"]) } catch { throw BlobStorageError(.io, "\(error)") }
    }
    let report = try collector.collectGarbage(in: packs)
    lab.disk.beforeMutations(nil)
    #expect(isDone.withLock { $0 } && report.compactedPackCount == 1 && report.obstacles == [])
    let noted = try collector.catalog.read { (transaction) throws(BlobStorageError) in
      var sum: Int64 = 0
      for (number, _) in try transaction.packRows() { sum += try transaction.garbageByteCount(number) }
      return sum
    }
    // One chunk, and not the two.
    #expect(200..<400 ~= noted, "\(noted) bytes")
    let found = try lab.observed(other)
    #expect(found == lab.model.state)
    try other.close()
    try collector.close()
  }
}
