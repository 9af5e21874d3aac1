import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage

/// Writers, readers and collectors as processes of their own on one store, with a model beside it. A seed decides all:
/// which process goes on at each call, which is paused or killed, what the clock says, what each does, and when the power
/// fails.
final class Simulation: @unchecked Sendable {
  // Unchecked: one actor runs at a time.
  private enum Role { case writer, reader, collector }

  let seed: UInt64
  private let lab: Lab
  private let weaknesses: Weaknesses
  private var random: SplitMix64
  private var contents: [Data] = []
  private var roles: [Role] = []
  private var processes: [SimulatedProcess?] = []
  private var isOver = false
  private var failure: String?
  /// Whether calls fail in this era: then an error is an answer.
  private var isFaulty = false
  /// What has happened, in order: equal for equal seeds.
  private(set) var trace: UInt64 = 0xcbf2_9ce4_8422_2325
  private(set) var counts: [String: Int] = [:]
  /// The calls of the last era, and what it left without a sync.
  private var lines: [String] = []

  init(seed: UInt64, weaknesses: Weaknesses = []) throws {
    self.seed = seed
    self.weaknesses = weaknesses
    random = SplitMix64(seed: seed)
    var options = Lab.options
    options.usesSimilarity = Bool.random(using: &random)
    lab = try Lab(options, seed: random.next())
    lab.weaknesses = weaknesses
    lab.packByteCountTarget = [3_000, 12_000, 64 << 10].randomElement(using: &random) ?? 12_000
    // Few contents, so that writers meet on the same chunks again and again.
    for number in 0..<8 { contents.append(noise(UInt64(number), .random(in: 100...5_000, using: &random))) }
    for number in 0..<4 { contents.append(prose(UInt64(number), .random(in: 100...5_000, using: &random))) }
    for _ in 0..<4 {
      let (first, second) = (pick(contents), pick(contents))
      contents.append(first + second.prefix(.random(in: 0...second.count, using: &random)))
    }
  }

  /// Plays some eras, each of which ends with a power cut, with the death of all, or in peace.
  ///
  /// - Throws: `Broken` at the first thing that is wrong.
  func run(eras: Int) throws {
    for era in 1...eras {
      do { try play(isLast: era == eras) } catch {
        Soak.trace(
          "seed \(seed), era \(era): \(error)\n\(lab.model.describe())\n" + lines.joined(separator: "\n"))
        throw Broken("era \(era) of seed \(seed): \(error)")
      }
    }
  }

  // MARK: One era

  private func play(isLast: Bool) throws {
    roles = [.writer, .writer] + [Role.writer, .reader, .collector].shuffled(using: &random)
    roles.append(contentsOf: [.reader, .collector].prefix(.random(in: 0...2, using: &random)))
    roles.shuffle(using: &random)
    processes = roles.map { _ in nil }
    isOver = false
    try planFaults()
    let ending = Int.random(in: 0..<10, using: &random)
    let isPeaceful = ending >= 8
    let policy = Policy(
      seed: random.next(), callCountMax: isPeaceful ? .max : .random(in: 200...2_500, using: &random)
    ) { [self] in isOver = true }
    let scheduler = Scheduler(decide: policy.decide) { [self] actor in
      processes[actor]?.kill()
      count("kills")
    }
    lab.scheduler = scheduler
    scheduler.run(roles.indices.map { actor in { [self] in live(actor) } })
    lab.scheduler = nil
    lines = lab.disk.calls.map(\.description)
    lines += lab.disk.pendingChanges.map { "not synced: \($0.number) \($0.description)" }
    for line in lines { hash(line) }
    count("calls", scheduler.stepCount)
    if let failure { throw Broken(failure) }
    if scheduler.isDeadlocked { throw Broken("every actor waits for another") }
    let isPowerCut = ending < 6
    if isPowerCut {
      let cut = random.next()
      try lab.loseData { $0.powerCut(seed: cut) }
      count("power cuts")
    } else {
      lab.restart()
    }
    try check(afterPowerCut: isPowerCut, isLast: isLast)
  }

  /// In some eras calls fail here and there, or the disk is nearly full.
  private func planFaults() throws {
    isFaulty = chance(40)
    guard isFaulty else { return }
    count("eras with failing calls")
    if chance(25) {
      let byteCount = try lab.disk.allocatedByteCount(below: FilePath(Lab.storePath))
      lab.disk.limit(byteCount: Int(byteCount) + .random(in: 0...40_000, using: &random))
    }
    for _ in 0..<Int.random(in: 1...8, using: &random) {
      let kind = pick([
        CallKind.write, .write, .write, .synchronize, .synchronize, .synchronize, .syncDirectory, .read,
        .open,
        .create, .rename, .remove, .truncate, .allocate, .list, .status, .statusOfPath,
      ])
      let isFull = [.write, .create, .allocate, .syncDirectory].contains(kind) && chance(50)
      lab.disk.plan(
        Fault(
          kind, count: .random(in: 1...(kind == .read ? 600 : 120), using: &random),
          errno: isFull ? .noSpace : .ioError, landingByteCount: .random(in: 0...3_000, using: &random)))
    }
  }

  /// Whether this is the answer to a call that failed.
  fileprivate func isOfFault(_ error: any Error) -> Bool {
    guard isFaulty, let error = error as? BlobStorageError else { return false }
    return [.io, .noSpace, .poisoned].contains(error.code) || error.isUnreadable
  }

  private func check(afterPowerCut: Bool, isLast: Bool) throws {
    lab.weaknesses = []
    defer { lab.weaknesses = weaknesses }
    if isLast || Int.random(in: 0..<3, using: &random) == 0 {
      try lab.checkInvariants(afterPowerCut: afterPowerCut)
      return
    }
    try lab.session { engine in
      try lab.adopt(engine, afterPowerCut: afterPowerCut)
      try lab.checkSound(engine, "at the era's end")
    }
  }

  /// An actor's life: one process after the other, until the era is over.
  private func live(_ actor: Int) {
    var lifeCount = 0
    while !isOver {
      lifeCount += 1
      let process = lab.disk.process()
      processes[actor] = process
      do {
        let engine = try lab.open(process)
        if roles[actor] == .writer, lifeCount > 1 { try settle(actor, engine) }
        try work(actor, engine)
        try engine.close()
        return
      } catch {
        // Whatever a dead process says.
        guard process.isAlive else { continue }
        guard isOfFault(error) else {
          fail("actor \(actor), \(roles[actor]): \(error)")
          return
        }
        count("ended by a failing call")
        process.kill()
      }
    }
  }

  private func work(_ actor: Int, _ engine: Engine) throws {
    switch roles[actor] {
    case .writer: for _ in 0..<Int.random(in: 2...7, using: &random) { try write(actor, engine) }
    case .reader: try read(engine)
    case .collector: for _ in 0..<Int.random(in: 1...3, using: &random) { try collect(engine) }
    }
  }

  // MARK: Writers

  private func keys(of actor: Int) -> [String] { (0..<3).map { "w\(actor)-\($0)" } }

  private func write(_ actor: Int, _ engine: Engine) throws {
    jumpClock()
    let keys = keys(of: actor)
    let key = pick(keys)
    let durability: Durability = Bool.random(using: &random) ? .durable : .relaxed
    count("changes")
    do {
      switch Int.random(in: 0..<100, using: &random) {
      case 0..<50:
        try lab.put(
          engine, [(key, pick(contents))], archives: chance(30), durability: durability, streamed: chance(35))
      case 50..<62:
        let some = keys.shuffled(using: &random).prefix(.random(in: 2...3, using: &random))
        try lab.put(engine, some.map { ($0, pick(contents)) }, archives: chance(30), durability: durability)
      case 62..<72:
        try lab.keep(engine, key, upTo: .random(in: 0...1, using: &random), durability: durability)
      case 72..<82: try lab.delete(engine, [key], durability: durability)
      case 82..<86: try lab.delete(engine, keys, durability: durability)
      case 86..<93:
        try lab.put(engine, [(Model.sharedKey, pick(contents))], archives: true, durability: durability)
      default:
        let found = try lab.observed(engine, keys: Set(keys))
        let expected = lab.model.state.filter { keys.contains($0.key) }
        if found != expected { throw Broken("1: a writer found \(found), expected \(expected)") }
      }
    } catch let error as BlobStorageError where error.code == .busy {
      count("busy")
    } catch  where isOfFault(error) && chance(50) {
      // Goes on with what it has, which knows by now whether the change is there.
      count("failed changes")
      try settle(actor, engine)
    }
  }

  /// A process that was killed left something open: its successor sees what came of it.
  private func settle(_ actor: Int, _ engine: Engine) throws {
    let keys = Set(keys(of: actor))
    let found = try lab.observed(engine, keys: keys)
    if !lab.model.settle(keys, found: found) {
      throw Broken("1: after its predecessor's death, a writer found \(found) of \(lab.model.describe(keys))")
    }
  }

  // MARK: Readers

  private func read(_ engine: Engine) throws {
    var held: [(blob: OpenBlob, number: Int)] = []
    for _ in 0..<Int.random(in: 3...12, using: &random) {
      count("reads")
      let known = Set(lab.model.changes.flatMap(\.keys)).sorted()
      guard !known.isEmpty else { continue }
      let key = pick(known)
      switch Int.random(in: 0..<10, using: &random) {
      case 0..<5: try readCurrent(engine, key)
      case 5..<7:
        guard let version = try engine.version(key, nil), let number = Lab.number(version.metadata) else {
          break
        }
        do {
          if let blob = try engine.openBlob(key, version.id) { held.append((blob, number)) }
        } catch {
          guard error.code == .busy else { throw error }
          count("busy")
        }
      case 7..<9:
        guard let (blob, number) = held.randomElement(using: &random), let data = lab.contents[number] else {
          break
        }
        let end = Int64(data.count)
        let start = Int64.random(in: 0...end, using: &random)
        guard Data(try blob.read(start..<end)) == data.dropFirst(Int(start)) else {
          throw Broken("2: an open blob reads as other bytes")
        }
      default:
        let report = try engine.verify()
        if !report.damaged.isEmpty, !isFaulty { throw Broken("3: \(report.damaged)") }
      }
    }
    for (blob, _) in held { blob.close() }
  }

  private func readCurrent(_ engine: Engine, _ key: String) throws {
    let start = lab.model.tick()
    guard let version = try engine.version(key, nil) else {
      if !lab.model.mayBeAbsent(key, since: start) { throw Broken("1: a reader does not find key \(key)") }
      return
    }
    guard let number = Lab.number(version.metadata), let expected = lab.contents[number] else {
      throw Broken("1: a reader found a version that no process put under \(key)")
    }
    if !lab.model.mayBeCurrent(number, of: key, since: start) {
      throw Broken("1: a reader found version \(number) of key \(key), which cannot be the current one")
    }
    guard let data = try engine.data(key, version.id) else {
      if lab.model.mayBeHidden(.init(key: key, number: number)) { return }
      throw Broken("2: version \(number) of key \(key) is not there")
    }
    if data != expected { throw Broken("2: version \(number) of key \(key) reads as other bytes") }
  }

  // MARK: Collectors

  private func collect(_ engine: Engine) throws {
    do {
      if chance(12) {
        try engine.catalog.rebuild(because: nil)
        count("rebuilds")
        return
      }
      if chance(8) {
        let report = try engine.repair(waitSeconds: 0)
        if !report.damaged.isEmpty || !report.unreadable.isEmpty, !isFaulty {
          throw Broken("3: a repair found \(report)")
        }
        count("repairs")
        return
      }
      let share = pick([0, 0.1, 0.5])
      let report = try engine.collectGarbage(
        GarbageCollectionOptions(
          isDryRun: chance(5), minimumGarbageShare: share, timeout: .seconds(0), recompresses: chance(3)))
      if !report.obstacles.isEmpty, !isFaulty { throw Broken("4: obstacles \(report.obstacles)") }
      count("collections")
      count("packs removed", report.deletedPackCount + report.compactedPackCount)
    } catch let error as BlobStorageError where error.code == .busy {
      count("busy")
    }
  }

  // MARK: Chance

  private func jumpClock() {
    guard chance(30) else { return }
    lab.clock.set(
      UInt64(1_700_000_000_000 + Int64.random(in: -9_000_000_000...9_000_000_000, using: &random)))
  }

  private func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

  private func pick<T>(_ some: [T]) -> T { some[Int.random(in: 0..<some.count, using: &random)] }

  private func count(_ name: String, _ number: Int = 1) { counts[name, default: 0] += number }

  private func fail(_ text: String) {
    failure = failure ?? text
    isOver = true
  }

  /// FNV-1a.
  private func hash(_ text: String) {
    for byte in text.utf8 { trace = (trace ^ UInt64(byte)) &* 0x100_0000_01b3 }
  }
}

/// Decides which actor goes on: mostly the one that runs already, sometimes another. Pauses some for long, kills some.
private final class Policy: @unchecked Sendable {
  // Unchecked: called under the scheduler's lock.
  private var random: SplitMix64
  private let callCountMax: Int
  private let percentSwitched: Int
  private let killsOneOf: Int
  private var pausedUntil: [Int: Int] = [:]
  private var isOver = false
  private let over: () -> Void

  init(seed: UInt64, callCountMax: Int, over: @escaping () -> Void) {
    random = SplitMix64(seed: seed)
    self.callCountMax = callCountMax
    self.over = over
    percentSwitched = [1, 4, 15, 50].randomElement(using: &random) ?? 15
    killsOneOf = [300, 1_200, 100_000].randomElement(using: &random) ?? 1_200
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
    if let current = situation.current, Int.random(in: 0..<120, using: &random) == 0 {
      pausedUntil[current] = situation.stepCount + Int.random(in: 30...900, using: &random)
    }
    let ready = situation.ready.filter { pausedUntil[$0, default: 0] <= situation.stepCount }
    if let current = situation.current, ready.contains(current),
      Int.random(in: 0..<100, using: &random) >= percentSwitched
    {
      return .run(current)
    }
    let some = ready.isEmpty ? situation.ready : ready
    return .run(some[Int.random(in: 0..<some.count, using: &random)])
  }
}
