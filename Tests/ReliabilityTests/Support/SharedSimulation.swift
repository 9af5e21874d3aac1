import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport

/// Machines that share a store by the protocol, at the level of its objects: model writers whose packs are lists of
/// records, and collectors. A seed decides who goes on at each request, who sleeps or dies, and what the engine does.
///
/// What must hold: nothing that was reported done is lost, nothing that was dropped comes back, whoever catches up
/// finds all that was reported before, and nobody reports a pack that is not published, with all before it.
final class SharedSimulation: @unchecked Sendable {
  // Unchecked: one actor runs at a time.
  enum Role { case writer, collector }

  /// Packs that a machine's process has not published yet, as they lie in its state folder.
  struct Spool {
    var writer: UInt64
    var packs: [(name: PackName, records: [SharedRecord], isTried: Bool)] = []
  }

  /// Few, so that writers meet on them; enough that some are garbage at times.
  static let chunkCount = 14

  let seed: UInt64
  let weaknesses: Weaknesses
  let storeID = [UInt8](repeating: 7, count: 16)
  let store: SimulatedObjectStore
  /// Whether the engine keeps puts if absent apart, so that writers can be fenced.
  let canFence: Bool
  var random: SplitMix64
  var oracle = SharedOracle()
  var spools: [Int: Spool] = [:]
  var lastVersion: UInt32 = 0
  private(set) var counts: [String: Int] = [:]
  private var roles: [Role] = []
  private var clients: [SimulatedClient?] = []
  private var isOver = false
  private var failure: String?

  init(seed: UInt64, weaknesses: Weaknesses = [], keepsPutsApart: Bool = true) {
    self.seed = seed
    self.weaknesses = weaknesses
    random = SplitMix64(seed: seed)
    var faults = ObjectFaults.some(&random)
    faults.ignoresIfAbsent = !keepsPutsApart
    canFence = keepsPutsApart || weaknesses.contains(.trustsIfAbsent)
    store = SimulatedObjectStore(seed: random.next(), faults: faults)
  }

  /// - Throws: `Broken` at the first thing that is wrong.
  func run() throws {
    // Where nobody can be fenced there is one maintainer.
    roles =
      [.writer, .writer, .collector]
      + (canFence ? [[], [.writer], [.collector], [.writer, .collector]][below(4)] : [])
    clients = roles.map { _ in nil }
    let policy = SharedPolicy(seed: random.next(), callCountMax: .random(in: 100...600, using: &random)) {
      [self] in isOver = true
    }
    let scheduler = Scheduler(decide: policy.decide) { [self] actor in
      clients[actor]?.kill()
      count("kills")
    }
    scheduler.run(
      roles.indices.map { actor in
        { [self] in live(actor) { (_) throws(BlobStorageError) in scheduler.takeTurn() } }
      })
    count("requests", store.requestCount)
    if let failure { throw Broken("seed \(seed): \(failure)") }
    do { try end() } catch { throw Broken("seed \(seed): \(error)") }
  }

  /// All is quiet: what is late has come, and somebody collects everything that can be.
  private func end() throws {
    store.settle()
    store.faults = ObjectFaults()
    var picture = SharedPicture()
    try picture.catchUp(store, storeID: storeID)
    if !picture.missing.isEmpty { throw Broken("in the end, \(picture.missing) are missing") }
    try oracle.check(picture, since: oracle, "in the end")
    guard canFence else { return }
    var collector = SharedCollector(self, store, choosesAll: true)
    try collector.run()
    try picture.catchUp(store, storeID: storeID)
    try oracle.check(picture, since: oracle, "after the last collection")
  }

  /// An actor's life: one process after the other.
  private func live(_ actor: Int, _ hook: @escaping SimulatedObjectStore.Hook) {
    while !isOver {
      let client = store.client(beforeCall: hook)
      clients[actor] = client
      do {
        switch roles[actor] {
        case .writer:
          var writer = SharedWriter(self, client, machine: actor)
          try writer.run()
        case .collector:
          var collector = SharedCollector(self, client)
          try collector.run()
        }
      } catch let error as BlobStorageError {
        // The engine did not answer, or somebody else was faster: its caller begins anew.
        let isExpected = error.code == .io || error.code == .busy || error.code == .fenced
        if client.isAlive, !isExpected { fail("actor \(actor), \(roles[actor]): \(error)") }
        count(client.isAlive ? error.code.name : "ended")
      } catch { fail("actor \(actor), \(roles[actor]): \(error)") }
      // Even one whose calls all fail lets others go on.
      do { try hook(ObjectCall.restart) } catch {}
    }
  }

  // MARK: For actors

  /// What is certain when a writer reports a pack.
  func checkPublished(_ name: PackName, _ bytes: [UInt8]) throws {
    let raw = store.copy()
    let log = CollectionLog(raw, storeID: storeID)
    let removed = try log.read(after: Collections()).removed
    for sequence in 1...name.sequence {
      let earlier = PackName(writer: name.writer, sequence: sequence)
      if removed.contains(earlier) { continue }
      guard let found = raw.peek(SharedNames.pack(earlier)), found.count > Fence.byteCount,
        sequence < name.sequence || found == bytes
      else { throw Broken("pack \(name) is reported, and \(earlier) is not published") }
    }
  }

  func below(_ count: Int) -> Int { Int.random(in: 0..<count, using: &random) }
  func chance(_ percent: Int) -> Bool { below(100) < percent }
  func count(_ name: String, _ number: Int = 1) { counts[name, default: 0] += number }

  private func fail(_ text: String) {
    failure = failure ?? text
    isOver = true
  }
}

/// Who goes on: mostly who runs already, sometimes another; some sleep for long, some are killed.
private final class SharedPolicy: @unchecked Sendable {
  // Unchecked: called under the scheduler's lock.
  private var random: SplitMix64
  private let callCountMax: Int
  private let percentSwitched: Int
  private let killsOneOf: Int
  private var sleepsUntil: [Int: Int] = [:]
  private var isOver = false
  private let over: () -> Void

  init(seed: UInt64, callCountMax: Int, over: @escaping () -> Void) {
    random = SplitMix64(seed: seed)
    self.callCountMax = callCountMax
    self.over = over
    percentSwitched = [5, 25, 60].randomElement(using: &random) ?? 25
    killsOneOf = [40, 150, 100_000].randomElement(using: &random) ?? 150
  }

  @Sendable func decide(_ situation: Scheduler.Situation) -> Scheduler.Decision {
    if situation.stepCount >= callCountMax {
      if !isOver { over() }
      isOver = true
      return .kill(situation.living[0])
    }
    if Int.random(in: 0..<killsOneOf, using: &random) == 0 {
      return .kill(situation.living[Int.random(in: 0..<situation.living.count, using: &random)])
    }
    if let current = situation.current, Int.random(in: 0..<40, using: &random) == 0 {
      sleepsUntil[current] = situation.stepCount + Int.random(in: 10...300, using: &random)
    }
    let ready = situation.ready.filter { sleepsUntil[$0, default: 0] <= situation.stepCount }
    if let current = situation.current, ready.contains(current),
      Int.random(in: 0..<100, using: &random) >= percentSwitched
    {
      return .run(current)
    }
    let some = ready.isEmpty ? situation.ready : ready
    return .run(some[Int.random(in: 0..<some.count, using: &random)])
  }
}

/// Protections that only this model has a switch for.
extension Weaknesses {
  /// A collector fences writers on an engine that does not keep puts if absent apart.
  static let trustsIfAbsent = Weaknesses(rawValue: 1 << 32)
  /// A writer reads what is condemned before it registers.
  static let registersAfterListing = Weaknesses(rawValue: 1 << 33)
  /// Packs of a shared store are deleted without an entry that says so.
  static let deletesWithoutEntry = Weaknesses(rawValue: 1 << 34)
}
