import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

/// Cuts each scenario before and after each of its calls that change the disk: once by a kill and several times by a
/// power cut. Each power cut has other fates for what was not synced. A daily run tries nine of these points.
@Suite("Crashes")
struct CrashTests {
  struct Scenario: Sendable, CustomTestStringConvertible {
    let name: String
    var options = Lab.options
    var setUp: @Sendable (Lab) throws -> Void = { _ in }
    let act: @Sendable (Lab) throws -> Void
    var testDescription: String { name }
  }

  static let scenarios: [Scenario] = all.filter { name in
    ProcessInfo.processInfo.environment["BLOB_STORAGE_SCENARIO"].map { name.name.hasPrefix($0) } ?? true
  }

  private static func smallBlobs(_ numbers: Range<UInt64>) -> [(String, Data)] {
    numbers.map { ("f\($0)", prose(200 + $0, 500)) }
  }

  static let all: [Scenario] = [
    Scenario(name: "a durable put") { lab in
      try lab.session { try lab.put($0, [("a", prose(1, 700))]) }
    },
    Scenario(name: "relaxed puts") { lab in
      try lab.session { engine in
        for number in 0..<4 {
          try lab.put(engine, [("k\(number % 2)", noise(UInt64(number), 900))], durability: .relaxed)
        }
      }
    },
    Scenario(name: "relaxed and durable puts in turn") { lab in
      try lab.session { engine in
        for number in 0..<5 {
          try lab.put(
            engine, [("k\(number % 2)", noise(UInt64(number), 1_500))], archives: number == 2,
            durability: number % 3 == 1 ? .durable : .relaxed)
        }
      }
    },
    Scenario(name: "several keys at once", setUp: historyOfA) { lab in
      try lab.session { engine in
        try lab.put(engine, [("a", noise(5, 400)), ("b", prose(6, 3_000)), ("c", Data())])
      }
    },
    Scenario(name: "small blobs that are joined in frames", setUp: historyOfA) { lab in
      try lab.session { engine in
        try lab.put(engine, smallBlobs(0..<5), durability: .relaxed)
        try lab.put(engine, smallBlobs(3..<8) + [("a", noise(5, 400))])
        try lab.put(engine, [("alone", prose(204, 500))])
      }
    },
    Scenario(
      name: "a collection that empties frames",
      setUp: { lab in
        try lab.session { try lab.put($0, smallBlobs(0..<6)) }
        try lab.session { engine in
          try lab.put(engine, smallBlobs(6..<9))
          try lab.delete(engine, ["f1", "f3"])
        }
      },
      act: { lab in
        try lab.session { _ = try $0.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.01)) }
      }),
    Scenario(name: "streamed puts", setUp: historyOfA) { lab in
      try lab.session { engine in
        try lab.put(engine, [("s", noise(8, 8_000))], streamed: true)
        try lab.put(engine, [("a", noise(8, 5_000) + noise(9, 3_000))], durability: .relaxed, streamed: true)
      }
    },
    Scenario(name: "a put without a key", setUp: historyOfA) { lab in
      try lab.session { engine in
        try lab.put(engine, holding: "short", noise(30, 900))
        // The blob of a key that is held, too.
        try lab.put(engine, holding: "of b", prose(104, 5_000))
        try lab.delete(engine, ["b"])
        try lab.put(engine, holding: "long", noise(31, 8_000), streamed: true)
        try lab.put(engine, [("long", noise(31, 8_000))], durability: .relaxed)
      }
    },
    Scenario(
      name: "a collection beside held blobs",
      setUp: { lab in
        try garbageInEveryPack(lab)
        try lab.session { engine in
          for number in 0..<3 {
            try lab.put(engine, holding: "h\(number)", noise(UInt64(30 + number), 1_500))
          }
        }
      },
      act: { lab in
        try lab.session { engine in
          try lab.release(engine, "h1")
          _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
          try lab.put(engine, holding: "h1", noise(31, 1_500))
        }
      }),
    Scenario(name: "durable puts that follow each other, into zeros written ahead") { lab in
      try lab.session { engine in
        for number in 0..<6 { try lab.put(engine, [("k\(number % 3)", noise(UInt64(number), 400))]) }
      }
    },
    Scenario(name: "relaxed puts that follow each other, into zeros written ahead") { lab in
      try lab.session { engine in
        for number in 0..<12 {
          try lab.put(engine, [("k\(number % 3)", noise(UInt64(40 + number), 100))], durability: .relaxed)
        }
        try lab.put(engine, [("k0", noise(52, 100))])
        try lab.put(engine, [("k1", noise(53, 100))], durability: .relaxed)
      }
    },
    Scenario(name: "a put that shares what another writer has put into zeros") { lab in
      let other = try lab.open()
      let engine = try lab.open()
      for number in 0..<3 { try lab.put(other, [("theirs", noise(UInt64(20 + number), 300))]) }
      try lab.put(engine, [("ours", noise(22, 300))])
      try lab.put(other, [("theirs", noise(23, 300))], durability: .relaxed)
      try lab.put(engine, [("ours", noise(23, 300))])
      try engine.close()
      try other.close()
    },
    Scenario(name: "a put that shares another writer's relaxed chunks") { lab in
      let other = try lab.open()
      let engine = try lab.open()
      try lab.put(other, [("theirs", noise(10, 5_000))], durability: .relaxed)
      try lab.put(engine, [("ours", noise(10, 5_000))])
      try lab.put(other, [("theirs", noise(11, 4_000))], durability: .relaxed)
      try lab.put(engine, [("theirs", noise(11, 4_000) + prose(3, 100))], durability: .relaxed)
      try engine.close()
      try other.close()
    },
    Scenario(name: "replacing, archiving, keeping and deleting", setUp: historyOfA) { lab in
      try lab.session { engine in
        try lab.put(engine, [("a", noise(20, 800))], archives: true)
        try lab.put(engine, [("a", noise(21, 800))])
        try lab.keep(engine, "a", upTo: 1)
        try lab.delete(engine, ["b"])
        try lab.put(engine, [("b", noise(22, 300))])
        try lab.keep(engine, "a", upTo: 0, durability: .relaxed)
      }
    },
    Scenario(name: "packs that fill up") { lab in
      lab.packByteCountTarget = 4_000
      try lab.session { engine in
        for number in 0..<5 { try lab.put(engine, [("k\(number)", noise(UInt64(number), 2_500))]) }
      }
    },
    Scenario(name: "a collection that deletes packs", setUp: garbageInWholePacks) { lab in
      try lab.session { _ = try $0.collectGarbage() }
    },
    Scenario(name: "a collection that compacts packs", setUp: garbageInEveryPack) { lab in
      try lab.session { _ = try $0.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.1)) }
    },
    Scenario(
      name: "a collection that encodes chunks anew", setUp: textInTwoPacks, act: recompress),
    Scenario(
      name: "a collection that joins versions with their bases", options: RecompressionTests.similar,
      setUp: similarVersions, act: recompress),
    Scenario(name: "two collections and a put between", setUp: garbageInEveryPack) { lab in
      try lab.session { engine in
        _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.1))
        try lab.put(engine, [("a", noise(60, 700))])
        try lab.delete(engine, ["k1"])
        _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      }
    },
    Scenario(name: "a collection beside unsettled changes", setUp: garbageInEveryPack) { lab in
      let writer = try lab.open()
      let engine = try lab.open()
      try lab.put(writer, [("a", noise(90, 900))], durability: .relaxed)
      try lab.put(writer, [("again", noise(1, 3_000)), ("b", noise(91, 200))], durability: .relaxed)
      _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0.1))
      try lab.put(writer, [("a", noise(92, 800))])
      try lab.delete(writer, ["b"], durability: .relaxed)
      try engine.close()
      try writer.close()
    },
    Scenario(name: "opening after the death of a writer with an unsettled tail", setUp: unsettledPack) {
      lab in
      try lab.session { try lab.put($0, [("a", noise(93, 400))]) }
    },
    Scenario(name: "opening after a crash", setUp: packOfADeadWriter) { lab in
      try lab.session { try lab.put($0, [("z", noise(70, 500))]) }
    },
    Scenario(name: "rebuilding the catalog", setUp: packOfADeadWriter) { lab in
      try lab.forgetCatalog()
      try lab.session { _ in }
    },
    Scenario(name: "repairing what is whole", setUp: garbageInEveryPack) { lab in
      try lab.session { engine in
        try lab.put(engine, [("a", noise(80, 700))], durability: .relaxed)
        _ = try engine.repair()
      }
    },
  ]

  @Test("leave a store in which nothing is lost", arguments: scenarios)
  func enumerate(_ scenario: Scenario) throws {
    let origin = try Lab(scenario.options)
    try scenario.setUp(origin)
    let whole = try origin.copy()
    let before = whole.disk.mutationCount
    try scenario.act(whole)
    let count = whole.disk.mutationCount - before
    let points = (1...count).flatMap { number in Moment.allCases.map { (number, $0) } }
    for (turn, (number, moment)) in Soak.some(of: points, daily: 9).enumerated() {
      let crash = try Self.stop(origin, scenario, moment, number)
      for cut in Cut.all(turn, crash.lab.disk.pendingChanges) {
        do {
          let lab = try crash.after(cut)
          try lab.checkInvariants(afterPowerCut: cut.isPower)
        } catch {
          Issue.record("\(scenario.name), stopped \(moment) call \(number) of \(count), \(cut): \(error)")
          return
        }
        Soak.count(cut.isPower ? "power cuts" : "kills")
      }
      Soak.count("crash points")
    }
    Soak.count("possible crash points", points.count)
    Soak.printCounts(scenario.name)
  }

  /// A stripe is locked right before a commit enters, and the catalog has changed by the next call. To extend changes
  /// nothing.
  @Test("come at each store by which processes tell each other what they do")
  func steps() throws {
    let expected: Set<TableStep> = [.publish, .announce, .enter, .leave, .replace]
    var steps: Set<TableStep> = []
    for scenario in Self.all where steps != expected {
      let lab = try Lab(scenario.options)
      try scenario.setUp(lab)
      try scenario.act(lab)
      steps.formUnion(lab.disk.calls.filter { $0.mutationNumber != nil }.compactMap(\.step))
    }
    #expect(steps == expected)
  }

  @Test("would show a held blob that a collection removes, and a hold that is lost")
  func lostHolds() throws {
    for collects in [true, false] {
      let lab = try Lab()
      try Self.garbageInEveryPack(lab)
      let engine = try lab.open()
      try lab.put(engine, holding: "h", noise(30, 1_500))
      try lab.checkHolds(engine, "before")
      let hold = try #require(try BlobHolds(engine).all().first)
      // Behind the model's back.
      _ = try BlobHolds(engine).release("h")
      if collects {
        _ = try engine.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        #expect(try engine.openBlob(hold.digest) == nil)
      }
      #expect(throws: Broken.self) { try lab.checkHolds(engine, "afterwards") }
      try engine.close()
    }
  }

  /// When a process dies: before the disk has done what the call says, or before the process learns of it.
  enum Moment: CaseIterable { case before, after }

  /// A scenario that was stopped before one of its calls.
  struct Crash {
    var lab: Lab
    /// As it was at that moment: what dying code did to it later did not happen.
    var catalog: CatalogFolder

    func after(_ cut: Cut) throws -> Lab {
      switch cut {
      case .kill: return try lab.afterKill(catalog)
      case .killThenPower:
        let lab = try lab.afterKill(catalog)
        try lab.session { _ in }
        return try lab.afterPowerCut { $0.powerCut() }
      default: return try lab.afterPowerCut(cut.apply)
      }
    }
  }

  /// Runs the scenario up to its `number`-th changing call.
  static func stop(_ origin: Lab, _ scenario: Scenario, _ moment: Moment, _ number: Int) throws -> Crash {
    let lab = try origin.copy()
    let atStop = Mutex<CatalogFolder?>(nil)
    let stop = lab.disk.mutationCount + number
    let lastCatalog = Mutex(lab.catalog)
    lab.catalogChanged = { catalog in lastCatalog.withLock { $0 = catalog } }
    @Sendable func end() throws(BlobStorageError) {
      atStop.withLock { copy in
        if copy == nil { copy = try? CatalogFolder(copyOf: lastCatalog.withLock { $0 }) }
      }
      throw .simulatedStop
    }
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard let mutation = call.mutationNumber else { return }
      if mutation > stop || moment == .before && mutation == stop { try end() }
    }
    lab.disk.afterMutations { (call) throws(BlobStorageError) in
      if call.mutationNumber == stop { try end() }
    }
    do { try scenario.act(lab) } catch {
      guard atStop.withLock({ $0 != nil }) else { throw error }
    }
    lab.restart()
    return Crash(lab: lab, catalog: atStop.withLock { $0 } ?? lab.catalog)
  }

  // MARK: What was there before

  @Sendable static func historyOfA(_ lab: Lab) throws {
    try lab.session { engine in
      for number in 0..<3 { try lab.put(engine, [("a", noise(UInt64(100 + number), 2_000))], archives: true) }
      try lab.put(engine, [("b", prose(104, 5_000))])
    }
  }

  @Sendable static func garbageInWholePacks(_ lab: Lab) throws {
    for number in 0..<3 {
      try lab.session { try lab.put($0, [("k\(number)", noise(UInt64(number), 3_000))]) }
    }
    try lab.session { engine in
      try lab.put(engine, [("k0", noise(40, 100))])
      try lab.delete(engine, ["k1"])
    }
  }

  @Sendable static func garbageInEveryPack(_ lab: Lab) throws {
    for number in 0..<3 {
      try lab.session { engine in
        try lab.put(engine, [("k\(number)", noise(UInt64(number), 3_000))])
        try lab.put(engine, [("a", noise(UInt64(50 + number), 2_500))], archives: number == 1)
      }
    }
    try lab.session { try lab.delete($0, ["k0"]) }
  }

  @Sendable static func textInTwoPacks(_ lab: Lab) throws {
    for number in 0..<2 {
      let text = RecompressionTests.text(UInt64(number), 20_000)
      try lab.session { engine in
        for index in 0..<4 {
          try lab.put(engine, [("t\(number)\(index)", text.dropFirst(index * 5_000).prefix(5_000))])
        }
      }
    }
  }

  @Sendable private static func recompress(_ lab: Lab) throws {
    try lab.session { engine in
      let report = try engine.collectGarbage(GarbageCollectionOptions(recompresses: true))
      // A collection that says what it could not read has answered, as one that throws has.
      guard report.recompressedPackCount > 0 || !report.obstacles.isEmpty else {
        throw Broken("nothing was encoded anew")
      }
    }
  }

  /// Versions of two keys, in packs of their own, where the first is the base of the later ones.
  @Sendable static func similarVersions(_ lab: Lab) throws {
    for number in 0..<2 {
      try lab.session { engine in
        for version in 0..<3 {
          let text =
            RecompressionTests.text(UInt64(number), 2_500)
            + RecompressionTests.text(UInt64(50 + version), 150)
          try lab.put(engine, [("v\(number)", text)], archives: true)
        }
      }
    }
  }

  @Sendable static func unsettledPack(_ lab: Lab) throws {
    try historyOfA(lab)
    let beside = try lab.open()
    let engine = try lab.open()
    try lab.put(engine, [("a", noise(94, 1_000))], durability: .relaxed)
    try lab.put(engine, [("c", noise(95, 3_000)), ("d", noise(96, 100))], durability: .relaxed)
    try lab.delete(engine, ["b"], durability: .relaxed)
    // Another process sees all of it, and does not settle it either.
    guard try lab.model.matches(lab.observed(beside)) else { throw Broken("1: changes are not seen") }
    let catalog = try CatalogFolder(copyOf: lab.catalog)
    lab.restart(with: catalog)
  }

  @Sendable static func packOfADeadWriter(_ lab: Lab) throws {
    try historyOfA(lab)
    let engine = try lab.open()
    try lab.put(engine, [("a", noise(61, 1_000))])
    try lab.put(engine, [("c", noise(62, 3_000))], durability: .relaxed)
    try lab.delete(engine, ["b"], durability: .relaxed)
    let catalog = try CatalogFolder(copyOf: lab.catalog)
    lab.restart(with: catalog)
  }
}

extension Lab {
  /// Opens the store, runs `body`, closes it.
  func session(_ body: (Engine) throws -> Void) throws {
    let engine = try open()
    try body(engine)
    try engine.close()
  }
}
