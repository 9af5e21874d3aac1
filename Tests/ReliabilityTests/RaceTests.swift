import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

/// Two processes at once: one is stopped before each of its calls in turn, while the other does all of its work.
/// A daily run tries ten stops of each race.
@Suite("Two at once")
struct RaceTests {
  typealias Work = @Sendable (Lab) throws -> Void

  /// A pair of processes and what was there before.
  struct Race: Sendable, CustomTestStringConvertible {
    let name: String
    var setUp: @Sendable (Lab) throws -> Void
    let first: Work
    let second: Work
    var testDescription: String { name }
  }

  static let all: [Race] = [
    Race(name: "a put of what is about to go, and a collection (H2)", setUp: garbage, first: collect) { lab in
      try lab.session { engine in
        // The bytes of "k0", which was deleted, and of a version of "a" that was replaced.
        try lab.put(engine, [("back", noise(0, 3_000))])
        try lab.put(engine, [("a", noise(50, 2_500))])
      }
    },
    Race(
      name: "a streamed put of what is about to go, and a collection (H2, H3)", setUp: garbage, first: collect
    ) {
      lab in
      try lab.session { engine in
        try lab.putAgainIfBusy(engine, "back", noise(0, 3_000))
        try lab.putAgainIfBusy(engine, "a", noise(50, 2_500))
      }
    },
    Race(
      name: "puts by a process that is killed before they are settled, and a collection (V6)",
      setUp: garbage
    ) {
      lab in
      let process = lab.disk.process()
      let engine = try lab.open(process)
      try lab.put(engine, [("back", noise(0, 3_000))], durability: .relaxed)
      try lab.put(engine, [("a", noise(50, 2_500))], durability: .relaxed)
      process.kill()
      withExtendedLifetime(engine) {}
    } second: { lab in
      try collect(lab)
    },
    Race(
      name: "a put and a read of what is being encoded anew, and that (H2, H6)",
      setUp: CrashTests.textInTwoPacks, first: recompress
    ) { lab in
      try lab.session { engine in
        try lab.put(engine, [("again", RecompressionTests.text(0, 20_000).prefix(5_000))])
        try lab.checkReads(engine)
      }
    },
    Race(name: "a rebuild of the catalog, and a collection (H5)", setUp: garbage, first: collect) { lab in
      try lab.session { engine in
        try engine.catalog.rebuild(because: nil)
        try lab.put(engine, [("back", noise(0, 3_000))])
      }
    },
    Race(name: "reading, and a collection (H6)", setUp: garbage, first: collect) { lab in
      let engine = try lab.open()
      for _ in 0..<2 { try lab.checkReads(engine) }
      try engine.close()
    },
    Race(name: "an open reader, and a drop with a collection (H3)", setUp: garbage, first: dropAndCollect) {
      lab in
      let engine = try lab.open()
      if let blob = try engine.openBlob("k2", nil) {
        guard Data(try blob.read(0..<3_000)) == noise(2, 3_000) else {
          throw Broken("an open reader lost its bytes")
        }
        blob.close()
      }
      try engine.close()
    },
    Race(name: "two that recover a dead writer's pack (H10)", setUp: CrashTests.packOfADeadWriter) { lab in
      try lab.session { try lab.checkReads($0) }
    } second: { lab in
      try lab.session { try lab.checkReads($0) }
    },
    Race(
      name: "recovery of a dead writer's pack, and a collection", setUp: deadWriterAndGarbage, first: collect
    ) {
      lab in
      try lab.session { try lab.put($0, [("back", noise(0, 3_000))]) }
    },
    Race(name: "two collections", setUp: garbage, first: collect, second: collect),
    Race(name: "closing, and opening", setUp: garbage) { lab in
      try lab.session { try lab.put($0, [("x", noise(200, 900))]) }
    } second: { lab in
      try lab.session { try lab.put($0, [("y", noise(201, 900))]) }
    },
    Race(
      name: "a look at what a dead writer has published, and its recovery (V1, V2)", setUp: { _ in },
      first: { lab in try lab.session { _ in } }
    ) { lab in
      let engine = try lab.open()
      let process = lab.disk.process()
      let dead = try lab.open(process)
      try lab.put(dead, [("x", noise(204, 900))], durability: .relaxed)
      process.kill()
      withExtendedLifetime(dead) {}
      var isSeen = false
      for _ in 0..<2 {
        if try engine.version("x", nil) == nil {
          throw Broken(isSeen ? "V2: what was seen is not seen any more" : "V1: what was put is not seen")
        }
        isSeen = true
      }
      try engine.close()
    },
    Race(
      name:
        "looks by two at what a writer published that died before its call returned, and its recovery (V2)",
      setUp: { _ in }, first: { lab in try lab.session { _ in } }
    ) { lab in
      let (one, other) = (try lab.open(), try lab.open())
      let process = lab.disk.process()
      let dead = try lab.open(process)
      // So that it has a slot.
      try lab.put(dead, [("w", noise(206, 90))], durability: .relaxed)
      // V1 says nothing of a commit that did not return.
      lab.disk.beforeMutations { (call) throws(BlobStorageError) in
        guard call.process == process.number, call.kind == .store, call.detail.contains("leave: ") else {
          return
        }
        throw .simulatedStop
      }
      do { try lab.put(dead, [("x", noise(207, 900))], durability: .relaxed) } catch is BlobStorageError {}
      lab.disk.beforeMutations(nil)
      withExtendedLifetime(dead) {}
      if try one.version("x", nil) != nil, try other.version("x", nil) == nil {
        throw Broken("V2: what one process has seen, another does not see later")
      }
      try one.close()
      try other.close()
    },
    Race(
      name: "two that put what is absent (stripes of keys)", setUp: { _ in }, first: putAbsent,
      second: putAbsent),
    Race(name: "sharing what the other has not synced (H1)", setUp: { _ in }) { lab in
      try lab.session { engine in
        try lab.put(engine, [("x", noise(202, 3_000))], durability: .relaxed)
        try lab.put(engine, [("x", noise(203, 2_000))], durability: .relaxed)
      }
    } second: { lab in
      try lab.session { engine in
        try lab.put(engine, [("y", noise(202, 3_000))])
        try lab.put(engine, [("y", noise(203, 2_000) + prose(1, 80))])
      }
    },
  ]

  /// The first makes `step` calls, then the second runs as far as it can, then either.
  struct Outcome {
    /// Calls that the first made in all.
    var stepCount: Int
    var lab: Lab
  }

  static func run(
    _ origin: Lab, _ works: [Work], _ step: Int, weaknesses: Weaknesses = [],
    without missing: Set<TableStep> = []
  ) throws -> Outcome {
    let lab = try origin.copy()
    lab.weaknesses = weaknesses
    lab.missingSteps = missing
    // A process that is stopped inside a commit continues only when the collection has ended.
    lab.commitPatienceSeconds = 0.02
    let counts = Mutex([Int](repeating: 0, count: works.count))
    let scheduler = Scheduler { situation in
      counts.withLock { counts in
        let isFirstDue = counts[0] < step || !situation.ready.contains(1)
        let next = situation.ready.contains(0) && isFirstDue ? 0 : situation.ready.last ?? 0
        counts[next] += 1
        return .run(next)
      }
    }
    lab.scheduler = scheduler
    let failure = Mutex<(any Error)?>(nil)
    scheduler.run(
      works.map { work in
        {
          do { try work(lab) } catch { failure.withLock { $0 = $0 ?? error } }
        }
      })
    lab.scheduler = nil
    lab.weaknesses = []
    lab.missingSteps = []
    if scheduler.isDeadlocked { throw Broken("every actor waits for another") }
    if let failure = failure.withLock({ $0 }) { throw failure }
    Soak.count("races")
    return Outcome(stepCount: counts.withLock { $0[0] }, lab: lab)
  }

  /// Which process is stopped while the other does all of its work.
  enum Order: CaseIterable {
    case firstStops, secondStops

    func works(_ race: Race) -> [Work] {
      self == .firstStops ? [race.first, race.second] : [race.second, race.first]
    }
  }

  /// Stops the first before each of its calls, then the second, and checks what they leave.
  static func explore(
    _ race: Race, _ orders: [Order] = Order.allCases, weaknesses: Weaknesses = [],
    without missing: Set<TableStep> = [], distance: Int = 1, dailyCount: Int = 10
  ) throws {
    let origin = try Lab()
    try race.setUp(origin)
    var stops: [(order: Order, step: Int)] = []
    for order in orders {
      let stepCount = try run(
        origin, order.works(race), .max, weaknesses: weaknesses, without: missing
      ).stepCount
      stops += stride(from: 1, through: stepCount, by: distance).map { (order, $0) }
    }
    Soak.count("possible races", stops.count)
    for (order, step) in Soak.some(of: stops, daily: distance == 1 ? dailyCount : stops.count) {
      try check(origin, race, order, step, weaknesses: weaknesses, without: missing)
    }
  }

  /// Stops one of them before chosen calls, and checks what they leave.
  static func explore(
    _ race: Race, _ order: Order, at steps: [Int], weaknesses: Weaknesses, without missing: Set<TableStep>
  ) throws {
    let origin = try Lab()
    try race.setUp(origin)
    for step in steps { try check(origin, race, order, step, weaknesses: weaknesses, without: missing) }
  }

  private static func check(
    _ origin: Lab, _ race: Race, _ order: Order, _ step: Int, weaknesses: Weaknesses,
    without missing: Set<TableStep>
  ) throws {
    do {
      let outcome = try run(origin, order.works(race), step, weaknesses: weaknesses, without: missing)
      try outcome.lab.checkInvariants(afterPowerCut: false)
    } catch { throw Broken("\(order) at its call \(step): \(error)") }
  }

  @Test("lose nothing", arguments: all)
  func explore(_ race: Race) throws {
    try Self.explore(race)
    Soak.printCounts(race.name)
  }

  /// Fails if a deletion looks for holds only before it begins.
  @Test("keep a hold that the one makes while the other deletes keys page by page")
  func heldMeanwhile() throws {
    let lab = try Lab()
    lab.packByteCountTarget = 8 << 20
    let (engine, beside) = (try lab.open(), try lab.open())
    _ = try engine.put((0..<1_001).map { PutItem(key: "k\($0)", data: Data()) }, .relaxed)
    let hold = KeyHold(name: "all", prefix: Array("k".utf8))
    let isFirst = Mutex(true)
    // The first page is deleted, and is synced next.
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.kind == .synchronize, call.detail.contains("/packs/"),
        isFirst.withLock({ $0.exchange(false) })
      else { return }
      try beside.putInternal(hold.key, .data(Data()), metadata: hold.metadata)
    }
    let error = #expect(throws: BlobStorageError.self) { try engine.delete(prefix: .bytes("k"), .durable) }
    #expect(error?.code == .held)
    lab.disk.beforeMutations(nil)
    for engine in [engine, beside] {
      let count = try engine.keys(.bytes("k"), after: nil, limit: 9).count
      #expect(count == 1)
      try engine.close()
    }
  }

  /// Fails if only the first attempt of a commit looks for the target.
  @Test("keep what the one puts under a key while the other begins a pack to move a key there")
  func renamedMeanwhile() throws {
    let lab = try Lab()
    let (engine, beside) = (try lab.open(), try lab.open())
    _ = try beside.put("from", .data(noise(1, 500)), PutOptions())
    let isFirst = Mutex(true)
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.kind == .create, call.detail.contains("/packs/"), isFirst.withLock({ $0.exchange(false) })
      else { return }
      _ = try beside.put("to", .data(noise(2, 500)), PutOptions())
    }
    let error = #expect(throws: BlobStorageError.self) {
      try VersionChanges(engine).rename("from", to: "to", .durable)
    }
    #expect(error?.code == .conditionFailed)
    lab.disk.beforeMutations(nil)
    for engine in [engine, beside] {
      let counts = try ["from", "to"].map { try engine.versions($0).count }
      #expect(counts == [1, 1])
      try engine.close()
    }
  }

  @Test("stop at each step between processes")
  func steps() throws {
    var steps: Set<TableStep> = []
    for race in Self.all {
      let origin = try Lab()
      try race.setUp(origin)
      let outcome = try Self.run(origin, [race.first, race.second], .max)
      steps.formUnion(outcome.lab.disk.calls.compactMap(\.step))
    }
    #expect(steps == Set(TableStep.allCases))
  }

  // MARK: What they do

  @Sendable static func garbage(_ lab: Lab) throws { try CrashTests.garbageInEveryPack(lab) }

  @Sendable static func collect(_ lab: Lab) throws {
    try collect(lab, GarbageCollectionOptions(minimumGarbageShare: 0.1, timeout: .seconds(0)))
  }

  @Sendable static func recompress(_ lab: Lab) throws {
    try collect(lab, GarbageCollectionOptions(timeout: .seconds(0), recompresses: true))
  }

  private static func collect(_ lab: Lab, _ options: GarbageCollectionOptions) throws {
    let engine = try lab.open()
    do {
      let report = try engine.collectGarbage(options)
      if !report.obstacles.isEmpty { throw Broken("4: obstacles \(report.obstacles)") }
    } catch let error as BlobStorageError {
      // The catalog was rebuilt, or another collects.
      guard error.code == .busy else { throw error }
    }
    try engine.close()
  }

  /// Of all that do so, one succeeds.
  @Sendable static func putAbsent(_ lab: Lab) throws {
    try lab.session { engine in
      do {
        try lab.put(engine, [("n", noise(205, 300))], durability: .relaxed, condition: .absent)
      } catch let error as BlobStorageError {
        guard error.code == .conditionFailed else { throw error }
      }
      let count = try engine.versions("n").count
      if count != 1 { throw Broken("1: \(count) processes found key n absent") }
    }
  }

  @Sendable static func dropAndCollect(_ lab: Lab) throws {
    try lab.session { try lab.delete($0, ["k2"]) }
    try collect(lab)
    try collect(lab)
  }

  @Sendable static func deadWriterAndGarbage(_ lab: Lab) throws {
    try CrashTests.garbageInEveryPack(lab)
    let engine = try lab.open()
    try lab.put(engine, [("a", noise(61, 1_000))])
    try lab.put(engine, [("c", noise(0, 3_000))], durability: .relaxed)
    try lab.delete(engine, ["c"], durability: .relaxed)
    lab.restart(with: try CatalogFolder(copyOf: lab.catalog))
  }
}

extension Lab {
  /// A streamed put may find that what it shares has gone; then it says so, and does it all once more.
  func putAgainIfBusy(_ engine: Engine, _ key: String, _ data: Data) throws {
    for attempt in 1... {
      do { return try put(engine, [(key, data)], streamed: true) } catch let error as BlobStorageError {
        guard error.code == .busy, attempt < 5 else { throw error }
      }
    }
  }

  /// Every key reads as some version that was put under it.
  func checkReads(_ engine: Engine) throws {
    for entry in try engine.keys("", after: nil, limit: 1_000) {
      guard let data = try engine.data(entry.key, nil) else { continue }
      let isKnown = model.changes.contains { change in
        change.made.contains { $0.key == entry.key && model.contents[$0.number] == data }
      }
      guard isKnown else {
        throw Broken("2: key \(entry.key) reads as \(data.count) bytes that no process put")
      }
    }
  }
}
