import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// One protection is switched off at a time: the checks of the other tests must notice.
@Suite("A protection that is switched off is noticed")
struct MutationTests {
  /// Cuts the scenario everywhere, first before the call that is known to break, and says what broke first.
  private func firstBreak(
    _ name: String, _ weaknesses: Weaknesses, known: Int? = nil,
    _ cuts: (Int) -> [Cut] = { [.dropAll, .dropData, .seed(UInt64($0))] }
  ) throws -> String? {
    guard let scenario = CrashTests.all.first(where: { $0.name == name }) else {
      throw Broken("no scenario \(name)")
    }
    let origin = try Lab()
    try scenario.setUp(origin)
    origin.weaknesses = weaknesses
    let whole = try origin.copy()
    let before = whole.disk.mutationCount
    try scenario.act(whole)
    let numbers = 1...whole.disk.mutationCount - before
    for number in [known].compactMap(\.self).filter(numbers.contains) + numbers {
      for moment in CrashTests.Moment.allCases {
        let crash = try CrashTests.stop(origin, scenario, moment, number)
        for cut in cuts(number) {
          do {
            let lab = try crash.after(cut)
            // Recovery is what is tried there; elsewhere it is only what looks at the rest.
            if weaknesses != .skipsRecovery { lab.weaknesses = [] }
            try lab.checkInvariants(afterPowerCut: cut.isPower)
          } catch {
            print("\(name): broken \(moment) its change \(number), \(cut): \(error)")
            return "\(error)"
          }
        }
      }
    }
    return nil
  }

  /// Explores the race, first at the call that is known to break, and says what broke.
  private func firstBreak(
    race name: String, _ order: RaceTests.Order, _ weaknesses: Weaknesses = [],
    without missing: Set<TableStep> = [], known: Int? = nil
  ) throws -> String? {
    guard let race = RaceTests.all.first(where: { $0.name.contains(name) }) else {
      throw Broken("no race \(name)")
    }
    do {
      if let known {
        try RaceTests.explore(race, order, at: [known], weaknesses: weaknesses, without: missing)
      }
      // Here and there first, because most of what can break can do so at many a step.
      for distance in [9, 4, 2, 1] {
        try RaceTests.explore(
          race, [order], weaknesses: weaknesses, without: missing, distance: distance, dailyCount: 100_000)
      }
    } catch {
      print("\(name): broken with \(error)")
      return "\(error)"
    }
    return nil
  }

  private func counted(_ broken: String?) -> String? {
    if broken != nil { Soak.count("mutations caught") }
    return broken
  }

  @Test("a durable put without a sync")
  func skippedSync() throws {
    let sound = try firstBreak("a durable put", []) { _ in [.dropAll] }
    #expect(sound == nil)
    let broken = counted(try firstBreak("a durable put", .skipsSync, known: 21))
    #expect(broken?.hasPrefix("1") == true)
  }

  @Test("H1: sharing what another writer has not synced")
  func sharedWithoutSync() throws {
    let broken = counted(
      try firstBreak("a put that shares another writer's relaxed chunks", .skipsSharedSync, known: 35))
    #expect(broken != nil)
  }

  @Test("H2: sharing what lies in a condemned pack")
  func sharedCondemned() throws {
    let broken = counted(
      try firstBreak(race: "a put of what is about to go", .firstStops, .trustsCondemnedPacks, known: 136))
    #expect(broken != nil)
  }

  @Test("H3: a collection that does not look at leases")
  func ignoredLeases() throws {
    for weaknesses in [[], Weaknesses.ignoresLeases] {
      let lab = try Lab()
      try lab.session { try lab.put($0, [("a", noise(1, 5_000))]) }
      let reader = try lab.open()
      let collector = try lab.open()
      let blob = try #require(try reader.openBlob("a", nil))
      try lab.delete(collector, ["a"])
      lab.weaknesses = weaknesses
      let weak = try lab.open()
      for _ in 1...2 { _ = try weak.collectGarbage() }
      let read = Result { try blob.read(0..<5_000) }
      if weaknesses.isEmpty {
        let data = Data(try read.get())
        #expect(data == noise(1, 5_000))
      } else {
        #expect(throws: BlobStorageError.self) { try read.get() }
        _ = counted("")
      }
      blob.close()
    }
  }

  @Test("H4: a collection that forgets too early what hides a version")
  func forgottenDrop() throws {
    for weaknesses in [[], Weaknesses.forgetsDropsEarly] {
      let lab = try Lab()
      // The ref of the first version stays in a pack that is not worth compacting; what hides it is in another.
      try lab.session { engine in
        try lab.put(engine, [("a", noise(1, 100))])
        try lab.put(engine, [("big", noise(2, 60_000))])
      }
      try lab.session { engine in
        try lab.put(engine, [("other", noise(3, 20_000))])
        try lab.delete(engine, ["a"])
        try lab.delete(engine, ["other"])
      }
      lab.weaknesses = weaknesses
      try lab.session { _ = try $0.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.5)) }
      lab.weaknesses = []
      try lab.forgetCatalog()
      try lab.session { engine in
        let isRight = try lab.observed(engine) == lab.model.state
        #expect(isRight == weaknesses.isEmpty)
      }
    }
  }

  @Test("H8: a clock that goes back, and stamps that follow it")
  func clockGoesBack() throws {
    for weaknesses in [[], Weaknesses.clockFollowsWall] {
      let lab = try Lab()
      lab.weaknesses = weaknesses
      try lab.session { try lab.put($0, [("a", noise(1, 100))], archives: true) }
      lab.clock.set(1_000_000)
      try lab.session { engine in
        try lab.put(engine, [("a", noise(2, 100))], archives: true)
        let isRight = try lab.observed(engine) == lab.model.state
        #expect(isRight == weaknesses.isEmpty)
      }
    }
  }

  @Test("H5: a collection that goes on by a catalog that was rebuilt")
  func ignoredRebuild() throws {
    for weaknesses in [[], Weaknesses.ignoresRebuilds] {
      let lab = try Lab()
      try CrashTests.garbageInEveryPack(lab)
      let writer = try lab.open()
      try lab.put(writer, [("open", noise(70, 100))], durability: .relaxed)
      let path = try #require(
        try DamageTests.paths(lab).first { try DamageTests.holds(lab, $0, key: "open") })
      lab.weaknesses = weaknesses
      let process = lab.disk.process()
      let collector = try lab.open(process)
      lab.weaknesses = []
      let done = Mutex(false)
      // The collector has retired packs in the catalog, and is about to take their files away.
      lab.disk.beforeMutations { [weak lab] (call) throws(BlobStorageError) in
        guard let lab, call.process == process.number, call.kind == .synchronize,
          call.detail.hasPrefix(path.string), !done.withLock({ $0.exchange(true) })
        else { return }
        do {
          try lab.session { engine in
            try engine.catalog.rebuild(because: nil)
            try lab.put(engine, [("back", noise(0, 3_000))])
          }
        } catch { throw BlobStorageError(.io, "\(error)") }
      }
      let result = Result {
        do { _ = try collector.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.1)) } catch {
          // It may have noticed.
          guard (error as? BlobStorageError)?.code == .busy else { throw error }
        }
        lab.disk.beforeMutations(nil)
        try collector.close()
        try writer.close()
        try lab.checkInvariants(afterPowerCut: false)
      }
      #expect(done.withLock { $0 })
      if weaknesses.isEmpty {
        try result.get()
      } else {
        #expect(throws: (any Error).self) { try result.get() }
        _ = counted("")
      }
    }
  }

  @Test("H6: a reader that does not look again when its pack has gone")
  func lookedUpOnce() throws {
    let broken = counted(
      try firstBreak(race: "reading, and a collection", .secondStops, .looksUpOnce, known: 44))
    #expect(broken != nil)
  }

  @Test("H7: a pack that goes before the new one is on the medium")
  func retiredBeforeSync() throws {
    let broken = counted(
      try firstBreak("a collection that compacts packs", .retiresBeforeSync, known: 25) { _ in [.dropAll] })
    #expect(broken != nil)
  }

  @Test("H7: a pack that goes before the recompressed one is on the medium")
  func recompressedWithoutSync() throws {
    let broken = counted(
      try firstBreak("a collection that encodes chunks anew", .retiresBeforeSync) { _ in [.dropAll] })
    #expect(broken != nil)
  }

  @Test("a frame of which garbage is copied along")
  func deadMembers() throws {
    for weaknesses in [[], Weaknesses.copiesDeadMembers] {
      let lab = try Lab()
      let keys = (0..<8).map { "\($0)" }
      try lab.session { try lab.put($0, keys.map { ($0, prose(UInt64($0) ?? 0, 250)) }) }
      lab.weaknesses = weaknesses
      try lab.session { engine in
        try lab.delete(engine, Array(keys.prefix(3)))
        #expect(
          try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)).deletedChunkCount == 3)
        let isRight = try engine.verify().chunkCount == 5
        #expect(isRight == weaknesses.isEmpty)
      }
      if !weaknesses.isEmpty { _ = counted("") }
    }
  }

  @Test("a recompression that stores chunks in more bytes")
  func recompressedToMore() throws {
    for weaknesses in [[], Weaknesses.recompressesToMore] {
      let lab = try Lab(StoreOptions(averageChunkByteCount: 64 << 10))
      lab.packByteCountTarget = 1 << 20
      let (long, short) = (RecompressionTests.text(1, 50_000), Data(Hex.text(Array(noise(2, 1_000))).utf8))
      try lab.session { engine in
        try lab.put(engine, [("long", long + RecompressionTests.text(2, 10_000))])
        try lab.put(engine, [("short", short)])
      }
      // The long chunk keeps its base, and so parts the short one from the text.
      try lab.session { engine in
        try lab.put(engine, [("text", RecompressionTests.text(4, 200_000))])
        try lab.put(engine, [("long", long + RecompressionTests.text(3, 10_000))], archives: true)
        try lab.put(engine, [("short", short + noise(5, 50))], archives: true)
      }
      lab.weaknesses = weaknesses
      try lab.session { engine in
        func byteCount() throws -> Int {
          let digest = try #require(try engine.versions("short").first).digest
          return try #require(
            try engine.catalog.read { (transaction) throws(BlobStorageError) in
              try transaction.chunkRow(digest)
            }
          ).recordByteCount
        }
        let before = try byteCount()
        try #require(before < 400)
        let report = try engine.collectGarbage(GarbageCollectionOptions(recompresses: true))
        #expect(report.recompressedPackCount == 2)
        let isRight = try byteCount() <= before
        #expect(isRight == weaknesses.isEmpty)
      }
      if !weaknesses.isEmpty { _ = counted("") }
    }
  }

  @Test("H9: what a dead writer left is not taken in")
  func skippedRecovery() throws {
    let broken = counted(try firstBreak("a durable put", .skipsRecovery, known: 16) { _ in [.kill] })
    #expect(broken != nil)
  }

  @Test("H10: a pack that is recovered while its writer lives")
  func recoveredWithoutLock() throws {
    for weaknesses in [[], Weaknesses.recoversWithoutLock] {
      let lab = try Lab()
      let writer = try lab.open()
      try lab.put(writer, [("a", noise(1, 2_000))], durability: .relaxed)
      lab.weaknesses = weaknesses
      let other = try lab.open()
      lab.weaknesses = []
      try lab.delete(other, ["a"])
      let result = Result {
        // What is sealed, and garbage through and through, goes; what is being written to stays.
        _ = try other.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        try lab.put(writer, [("b", noise(2, 3_000))])
        try writer.close()
        try other.close()
        try lab.checkInvariants(afterPowerCut: false)
      }
      if weaknesses.isEmpty {
        try result.get()
      } else {
        #expect(throws: (any Error).self) { try result.get() }
        _ = counted("")
      }
    }
  }

  @Test("H11: a collection that goes on when it cannot read a manifest")
  func obstacleIgnored() throws {
    for weaknesses in [[], Weaknesses.collectsDespiteObstacles] {
      let lab = try Lab()
      try lab.session { try lab.put($0, [("a", noise(1, 9_000))]) }
      try lab.session { try lab.put($0, [("b", noise(1, 9_000) + prose(1, 100))]) }
      try lab.session { try lab.delete($0, ["a"]) }
      // The second pack has the manifest of "b", whose chunks lie in the first.
      let path = try #require(try DamageTests.paths(lab).first { try DamageTests.holds(lab, $0, key: "b") })
      let place = try DamageTests.manifestOffset(lab, path)
      func flip() throws { try DamageTests.change(lab, path) { $0[place] ^= 1 } }
      try flip()
      lab.weaknesses = weaknesses
      try lab.session { engine in
        let report = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        if weaknesses.isEmpty { #expect(!report.obstacles.isEmpty) }
      }
      lab.weaknesses = []
      // Once the medium can be read again, all must be there.
      try flip()
      let result = Result { try lab.session { try lab.checkSound($0, "afterwards") } }
      if weaknesses.isEmpty {
        try result.get()
      } else {
        #expect(throws: (any Error).self) { try result.get() }
        _ = counted("")
      }
    }
  }

  @Test("H12: a pack's name is used a second time")
  func nameUsedTwice() throws {
    for weaknesses in [[], Weaknesses.reusesPackNames] {
      let lab = try Lab()
      try lab.session { try lab.put($0, [("a", noise(1, 100))]) }
      lab.weaknesses = weaknesses
      let engine = try lab.open()
      let name = try #require(try engine.backend.packNames().live.first)
      let result = Result { _ = try engine.backend.createPack(name, header: [1, 2, 3]) }
      let read = Result { try engine.data("a", nil) }
      if weaknesses.isEmpty {
        #expect(throws: BlobStorageError.self) { try result.get() }
        let data = try read.get()
        #expect(data == noise(1, 100))
        try engine.backend.retirePacks([name])
        #expect(throws: BlobStorageError.self) { _ = try engine.backend.createPack(name, header: []) }
      } else {
        #expect(throws: BlobStorageError.self) { try read.get() }
        _ = counted("")
      }
    }
  }

  @Test(
    "H2: a commit that says nothing of itself while it counts on what is about to go",
    arguments: [TableStep.enter, .lockSlot])
  func unseenCommit(_ step: TableStep) throws {
    let broken = counted(
      try firstBreak(
        race: "a put of what is about to go", .secondStops, without: [step], known: step == .enter ? 61 : 55))
    #expect(broken != nil)
  }

  @Test("two that change a key beside each other")
  func noStripes() throws {
    let broken = counted(
      try firstBreak(race: "two that put what is absent", .firstStops, without: [.lockStripe], known: 55))
    #expect(broken != nil)
  }

  @Test("V1: a view that goes with an older snapshot than the newest")
  func oldSnapshot() throws {
    let broken = counted(
      try firstBreak(race: "a look at what a dead writer", .secondStops, .viewsOldSnapshots, known: 83))
    #expect(broken != nil)
  }

  @Test("V2: a view that goes with an older snapshot than a view before it")
  func olderView() throws {
    let broken = counted(
      try firstBreak(race: "looks by two at what a writer published", .secondStops, .viewsOldSnapshots))
    #expect(broken?.contains("V2: ") == true, "\(broken ?? "nothing broke")")
  }
}

extension Bool {
  /// Sets it and says what it was.
  mutating func exchange(_ new: Bool) -> Bool {
    defer { self = new }
    return self
  }
}
