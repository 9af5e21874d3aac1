import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import SystemPackage

/// Machines that share a store of objects: whole engines, each machine with a disk, a state folder and a clock of its
/// own, some with two processes. They put, drop, keep, read and collect garbage. A seed decides all: which
/// process goes on at each request and at each call on a disk, and which sleeps or is killed. It also decides which
/// machine loses power or its folder, and what the object store does.
///
/// What must hold: a machine that catches up reads every version that was reported done and not dropped, byte by byte.
/// It sees none that was reported dropped, and nothing that reads as other bytes. In the end all machines see the same,
/// and it verifies. Packs are published in their order, and deleted only after an entry has said that they are removed.
/// Objects that no machine has put change nothing of that. At last another program deletes a pack. Every machine
/// notices, and what is put from then on can be read everywhere. Once the loss is accepted, all see the same again.
final class MachineSimulation: @unchecked Sendable {
  // Unchecked: one actor runs at a time.
  /// Whether puts of one name are kept apart, and what the store says of it.
  enum Kind {
    case usual
    /// The same, and each collection that can puts an index, which all machines read.
    case indexed
    /// They are not, and the store names one maintainer: the first machine.
    case maintained
    /// They are not, and no machine knows.
    case trusted

    var hasConditionalPuts: Bool { self == .usual || self == .indexed }
  }

  let seed: UInt64
  private let kind: Kind
  let store: SimulatedObjectStore
  var random: SplitMix64
  /// Decides on stray objects, which change nothing of what `random` decides.
  private var strayRandom: SplitMix64
  var model = MachineModel()
  /// Few, so that machines meet on the same chunks again and again.
  private(set) var contents: [Data] = []
  private(set) var counts: [String: Int] = [:]
  private(set) var isOver = false
  private var environment = Engine.Environment()
  private var storeID: [UInt8]?
  private var seconds = 0.0
  private var machines: [Machine] = []
  /// On which machine each actor's processes run.
  private var places: [Int] = []
  private var lives: [Life?] = []
  private var engines: [Int: Engine] = [:]
  /// When each actor's process shows next that it lives.
  private var signs: [Int: Double] = [:]
  private var isShowingLife: Set<Int> = []
  private var scheduler: Scheduler?
  private var policy: MachinePolicy?
  private var failure: String?
  private var lines: [String] = []

  /// One process.
  struct Life {
    let actor: Int
    let machine: Machine
    let process: SimulatedProcess
    let client: SimulatedClient
    /// Its ordinal among the processes on its machine.
    var share = 0
    var shareCount = 1

    var isAlive: Bool { client.isAlive && process.isAlive }

    func kill() {
      client.kill()
      process.kill()
    }
  }

  init(seed: UInt64, weaknesses: Weaknesses = [], kind: Kind = .usual) {
    self.seed = seed
    self.kind = kind
    random = SplitMix64(seed: seed)
    strayRandom = SplitMix64(seed: ~seed)
    var faults = ObjectFaults.some(&random)
    faults.attemptCountMax = max(2, faults.attemptCountMax)
    faults.ignoresIfAbsent = !kind.hasConditionalPuts
    store = SimulatedObjectStore(seed: random.next(), faults: faults)
    for number in 0..<6 { contents.append(noise(UInt64(number), below(5_000))) }
    for number in 0..<4 { contents.append(prose(UInt64(number), below(5_000))) }
    for _ in 0..<4 { contents.append(pick(contents) + pick(contents).prefix(below(3_000))) }
    for _ in 0..<3 { contents.append(pick(contents) + noise(random.next(), 6_000) + pick(contents)) }
    prepareEnvironment(weaknesses)
  }

  private func prepareEnvironment(_ weaknesses: Weaknesses) {
    environment.worksInline = true
    environment.joinsItems = true
    environment.mapByteCount = 4 << 20
    environment.packByteCountTarget = pick([3_000, 12_000, 64 << 10])
    environment.recordCountOfBatch = pick([3, 20_000])
    // All that streams in goes through the pipeline, in several parts if it is long enough.
    environment.streamHeadByteCount = 1
    environment.streamBatchByteCount = 1
    environment.weaknesses = weaknesses
    environment.randomNumber = { [self] in random.next() }
    environment.time = PassingTime(now: { [self] in seconds }) { [self] in
      seconds += $0
      pause()
    }
  }

  /// - Throws: `Broken` at the first thing that is wrong.
  func run() throws {
    do {
      try create()
      try play()
      if let failure { throw Broken(failure) }
      try end()
      if let failure { throw Broken(failure) }
    } catch {
      Soak.trace("seed \(seed): \(error)\n" + lines.joined(separator: "\n"))
      throw Broken("seed \(seed): \(error)")
    }
  }

  private func create() throws {
    // Processes of one machine would share the connection by which they read an index: here all are one process.
    places = pick(
      kind == .indexed
        ? [[0, 1], [0, 1, 2]] : [[0, 1], [0, 1, 2], [0, 1, 2], [0, 0, 1], [0, 1, 1, 2]])
    let policy = MachinePolicy(seed: random.next(), requestCountMax: 200 + below(700)) { [self] in
      isOver = true
    }
    self.policy = policy
    let scheduler = Scheduler(decide: policy.decide) { [self] actor in
      lives[actor]?.kill()
      count("kills")
    }
    self.scheduler = scheduler
    for number in 0...(places.max() ?? 0) { machines.append(try machine(number, scheduler)) }
    let options = StoreOptions(averageChunkByteCount: 1 << 10, usesSimilarity: chance(50))
    let faults = store.faults
    store.faults = ObjectFaults()
    defer { store.faults = faults }
    guard kind == .maintained else {
      return try Engine.create(in: store, options: options, environment: environment)
    }
    let process = machines[0].disk.process()
    try Engine.create(
      in: store, maintainedFrom: Machine.statePath, options: options,
      environment: machines[0].environment(process))
    process.kill()
  }

  private func machine(_ number: Int, _ scheduler: Scheduler?) throws -> Machine {
    let machine = try Machine(
      number: number, clock: 1_700_000_000_000 + UInt64(below(1_000_000_000)), scheduler: scheduler)
    machine.environment = environment
    // An index serves for as long as less than a quarter of that has come.
    if kind == .indexed { machine.catalogByteLimit = pick([0, 64 << 10]) }
    return machine
  }

  private func play() throws {
    guard let scheduler else { return }
    lives = places.map { _ in nil }
    scheduler.run(places.indices.map { actor in { [self] in live(actor) } })
    self.scheduler = nil
    for life in lives { life?.kill() }
    for machine in machines { machine.rest() }
    count("requests", store.requestCount)
    count("calls on disks", scheduler.stepCount)
    if scheduler.isDeadlocked { throw Broken("every actor waits for another") }
  }

  // MARK: Turns

  /// Lets others go on; some time passes.
  func pause() {
    seconds += 0.01
    policy?.beginRequest()
    scheduler?.waitForTurn()
  }

  private func hook(_ actor: Int) -> SimulatedObjectStore.Hook {
    { [self] (call) throws(BlobStorageError) in
      seconds += Double(below(10)) / 20
      trace(actor, "\(call)")
      policy?.beginRequest()
      scheduler?.waitForTurn()
      showLife(actor)
      do { try checkOrder(call) } catch { fail("machine of actor \(actor), \(call): \(error)") }
    }
  }

  /// As a timer of its own does, beside everything else: also while the process makes another request.
  private func showLife(_ actor: Int) {
    guard let engine = engines[actor], lives[actor]?.isAlive == true, seconds >= signs[actor, default: 0],
      isShowingLife.insert(actor).inserted
    else { return }
    defer { isShowingLife.remove(actor) }
    signs[actor] = seconds + 5
    engine.renewRegistrations()
    count("signs of life")
  }

  /// What must hold before a request about a pack.
  private func checkOrder(_ call: ObjectCall) throws {
    guard let storeID else { return }
    if call.kind == .delete, let number = SharedNames.changeNumber(call.name) {
      let log = CollectionLog(store.copy(), storeID: storeID)
      guard try log.read(after: Collections()).horizon >= number else {
        throw Broken("no entry says that changes up to \(number) may be deleted")
      }
      count("changes deleted")
    }
    guard let name = SharedNames.packName(call.name) else { return }
    func isRemoved(_ name: PackName) throws -> Bool {
      try CollectionLog(store.copy(), storeID: storeID).read(after: Collections()).removed.contains(name)
    }
    switch call.kind {
    case .put where name.sequence > 1:
      let earlier = PackName(writer: name.writer, sequence: name.sequence - 1)
      guard try store.peek(SharedNames.pack(earlier)) != nil || isRemoved(earlier) else {
        throw Broken("pack \(earlier) is not published")
      }
    case .delete:
      guard try isRemoved(name) else { throw Broken("no entry says that the pack is removed") }
    default: break
    }
  }

  /// An actor's life: one process after the other.
  private func live(_ actor: Int) {
    while !isOver {
      let machine = machines[places[actor]]
      let life = Life(
        actor: actor, machine: machine, process: machine.disk.process(),
        client: store.client(beforeCall: hook(actor)),
        share: places[..<actor].filter { $0 == places[actor] }.count,
        shareCount: places.filter { $0 == places[actor] }.count)
      lives[actor] = life
      trace(actor, "begins")
      do {
        try work(life)
      } catch let error as BlobStorageError {
        // The store did not answer when it was opened or closed.
        if life.isAlive, !Self.isExpected(error) { fail("machine \(machine.number): \(error)") }
      } catch { fail("machine \(machine.number): \(error)") }
      life.kill()
      do { try accident(machine) } catch { fail("\(error)") }
      pause()
    }
  }

  private func work(_ life: Life) throws {
    let engine = try life.machine.open(life.process, life.client, waitingPackLimit: below(3))
    storeID = engine.header.storeID
    engines[life.actor] = engine
    defer { engines[life.actor] = nil }
    var actor = MachineActor(self, life, engine)
    try actor.run()
  }

  /// What an engine may say when objects do not come, or another machine was in the way.
  static func isExpected(_ error: BlobStorageError) -> Bool {
    error.code == .io || error.code == .busy || error.code == .fenced
  }

  /// Where a process has ended, the machine may lose power or its folder: then its others end as well.
  private func accident(_ machine: Machine) throws {
    litter()
    guard chance(35), !isOver else { return }
    for life in lives where life?.machine === machine { life?.kill() }
    // The maintainer's folder is not to be lost: no other machine may collect.
    if chance(25), kind != .maintained || machine.number > 0 {
      try machine.loseState()
      count("folders lost")
      trace(machine.number, "machine has lost its folder")
    } else {
      try machine.cutPower(seed: random.next())
      count("power cuts")
      trace(machine.number, "machine has lost power")
    }
  }

  private static let strays = [
    "collections/", "collections/readme", "collections/0000ffff", "packs/", "packs/1-1.pack", "changes/",
    "changes/ffffffff", "writers/", "writers/readme", "writers/00000000000000aa", "acks/00000001/readme",
    "acks/00000001/00000000000000aa", "readme",
  ]

  /// Leaves an object as consoles and other programs do. A maintainer would wait for what looks like a writer.
  private func litter() {
    guard kind.hasConditionalPuts, strayRandom.next() % 4 == 0,
      let name = Self.strays.randomElement(using: &strayRandom),
      let byteCount = [0, 4, 1_000].randomElement(using: &strayRandom)
    else { return }
    store.set(name, [UInt8](repeating: 7, count: byteCount))
    count("stray objects")
  }

  // MARK: The end

  /// All is quiet: what is late has come. A machine that knows nothing looks and collects, and then all look.
  private func end() throws {
    store.settle()
    var faults = ObjectFaults()
    faults.ignoresIfAbsent = !kind.hasConditionalPuts
    store.faults = faults
    // What dead processes left is published, or a collector comes before that.
    let isAdoptedFirst = chance(50) || kind == .maintained
    if isAdoptedFirst { for machine in machines { try adopt(machine) } }
    let new = try machine(machines.count, nil)
    _ = try look(new, "in the end", collects: kind != .maintained)
    if !isAdoptedFirst { for machine in machines { try adopt(machine) } }
    if chance(40) || kind == .maintained { _ = try look(machines[0], "in the end", collects: true) }
    let newest = try look(try machine(machines.count + 1, nil), "at last")
    for machine in machines + [new] {
      let found = try look(machine, "at last", verifies: false)
      if found != newest { throw Broken("machine \(machine.number) sees \(found), and a new one \(newest)") }
    }
    if kind.hasConditionalPuts { try lose() }
  }

  /// Another program deletes a pack.
  private func lose() throws {
    // What a fenced writer published too late does not count, and no machine misses it.
    var packs: [String] = []
    try use(machines[0]) { engine in
      packs = try engine.catalog.packRows().map { SharedNames.pack($0.row.name) }.sorted()
    }
    guard let lost = packs.randomElement(using: &random) else { return }
    trace(-1, "another program deletes \(lost)")
    store.set(lost, nil)
    let options = GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(0))
    func readAgain(_ engine: Engine) throws {
      for (number, content) in contents.enumerated() {
        guard try engine.data("again/\(number)", nil) == content else {
          throw Broken("content \(number) was put again after the loss, and reads as something else")
        }
      }
    }
    // It knows the pack, unless it has lost its folder.
    try use(pick(machines)) { engine in
      for (number, content) in contents.enumerated() {
        _ = try engine.put("again/\(number)", .data(content), PutOptions())
      }
      // It need not have asked for that pack yet.
      guard try !engine.verify().losses.isEmpty else { throw Broken("the loss of \(lost) was not noticed") }
    }
    let new = try machine(machines.count + 2, nil)
    try use(new) { engine in
      try readAgain(engine)
      guard try !engine.collectGarbage(options).obstacles.isEmpty else {
        throw Broken("a collection did not mind the loss of \(lost)")
      }
      _ = try engine.repair(acceptsLosses: true)
    }
    var seen: (versions: [String: Int], machine: Int)?
    for machine in machines + [new] {
      try use(machine) { engine in
        try readAgain(engine)
        let damaged = try engine.verify().damaged
        let obstacles = try engine.collectGarbage(options).obstacles
        guard damaged.isEmpty, obstacles.isEmpty else {
          throw Broken("after the loss of \(lost) was accepted: \(damaged), \(obstacles)")
        }
        let versions = try versions(engine)
        if let seen, seen.versions != versions {
          throw Broken(
            "after the loss of \(lost) was accepted by machine \(new.number), machine \(machine.number) sees "
              + "\(versions), and machine \(seen.machine) \(seen.versions)")
        }
        seen = (versions, machine.number)
      }
    }
    count("packs lost")
  }

  /// Runs a process that does `body` and ends.
  private func use(_ machine: Machine, _ body: (Engine) throws -> Void) throws {
    let process = machine.disk.process()
    defer { process.kill() }
    let engine = try machine.open(process, store)
    try engine.extend()
    try body(engine)
    try engine.close()
  }

  /// How many versions each key has.
  private func versions(_ engine: Engine) throws -> [String: Int] {
    var counts: [String: Int] = [:]
    for entry in try engine.keys("", after: nil, limit: 1_000) {
      counts[entry.key] = try engine.versions(entry.key).count
    }
    return counts
  }

  /// Publishes what ended processes have left on a machine.
  private func adopt(_ machine: Machine) throws {
    let process = machine.disk.process()
    try machine.open(process, store).close()
    process.kill()
  }

  /// Opens a store, checks everything, and returns what can be seen.
  private func look(
    _ machine: Machine, _ moment: String, collects: Bool = false, verifies: Bool = true
  ) throws -> [String: [Int]] {
    let moment = "\(moment), on machine \(machine.number)"
    let life = Life(
      actor: -1 - machine.number, machine: machine, process: machine.disk.process(),
      client: store.client(beforeCall: hook(-1 - machine.number)))
    let actor = MachineActor(self, life, try machine.open(life.process, life.client))
    defer { life.kill() }
    try actor.check(model, moment, readsAll: true)
    let damaged = verifies ? try actor.engine.verify().damaged : []
    if !damaged.isEmpty { throw Broken("\(moment): \(damaged)") }
    try Lab.checkUnsettled(actor.engine, moment)
    if collects {
      do {
        let report = try actor.engine.collectGarbage(
          GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(0)))
        if !report.obstacles.isEmpty { throw Broken("\(moment): \(report.obstacles)") }
        count("packs removed", report.deletedPackCount + report.compactedPackCount)
      } catch let error as BlobStorageError where kind == .maintained && error.code == .busy {
        // Where no writer can be fenced, the collector waits for one that is registered and gone.
      }
      try actor.check(model, moment + " that has collected", readsAll: true)
    }
    let seen = try actor.seen()
    try actor.engine.close()
    return seen
  }

  // MARK: For actors

  /// As messages of gc name them.
  var registeredWriters: [String] {
    store.objects.keys.sorted().compactMap { SharedNames.writerNumber($0).map { Hex.text($0) } }
  }

  func below(_ count: Int) -> Int { Int.random(in: 0..<count, using: &random) }
  func chance(_ percent: Int) -> Bool { below(100) < percent }
  func pick<T>(_ some: [T]) -> T { some[below(some.count)] }
  func count(_ name: String, _ number: Int = 1) { counts[name, default: 0] += number }

  /// All sleep for so long.
  func sleep(seconds: Double) { self.seconds += seconds }

  func trace(_ actor: Int, _ text: @autoclosure () -> String) {
    if Soak.isTraced { lines.append("\(Int(seconds)) \(actor): \(text())") }
  }

  func fail(_ text: String) {
    failure = failure ?? text
    isOver = true
  }
}
