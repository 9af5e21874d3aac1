import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Synchronization

/// One process on one machine of a simulation: an engine, and what it was told so far.
struct MachineActor {
  private let simulation: MachineSimulation
  private let life: MachineSimulation.Life
  let engine: Engine
  private var work = MachineModel.Work()

  private static let keyCount = 6

  init(_ simulation: MachineSimulation, _ life: MachineSimulation.Life, _ engine: Engine) {
    self.simulation = simulation
    self.life = life
    self.engine = engine
  }

  /// Works until it closes, is killed, or cannot write.
  mutating func run() throws {
    while !simulation.isOver, life.isAlive {
      do { try step() } catch let error as BlobStorageError {
        guard life.isAlive else { return }
        trace("failed: \(error.code)")
        simulation.count("\(error.code.rawValue)")
        guard MachineSimulation.isExpected(error) else { throw error }
        if error.code == .fenced { break }
      }
      if simulation.chance(4) { break }
    }
    guard life.isAlive, simulation.chance(75) else { return }
    trace("close")
    try engine.close()
    simulation.model.finish(&work)
    simulation.count("closed")
  }

  private mutating func step() throws {
    simulation.count("steps")
    switch simulation.below(100) {
    case 0..<40: try put()
    case 40..<46: try putTogether()
    case 46..<55: try drop(keeping: nil)
    case 55..<60: try drop(keeping: simulation.below(2))
    case 60..<71: try extendCatalog()
    case 71..<80:
      trace("periodic work")
      engine.runPeriodicWork()
    case 80..<83:
      trace("synchronize")
      try engine.synchronize()
      simulation.model.finish(&work)
    case 83..<86: try readSlowly()
    case 86..<88: try other()
    default: try collect()
    }
  }

  private mutating func other() throws {
    switch simulation.below(4) {
    case 0:
      trace("rebuild")
      try engine.catalog.rebuild(because: nil)
    case 1:
      trace("sleep")
      simulation.sleep(seconds: 86_400)
    case 2:
      let day = Int64(86_400_000)
      let jump = Int64.random(in: -30 * day...30 * day, using: &simulation.random)
      life.machine.clock.set(UInt64(1_700_000_000_000 + jump))
      simulation.count("clocks set")
    default:
      trace("verify")
      let report = try engine.verify()
      if !report.damaged.isEmpty { throw Broken("machine \(life.machine.number) found \(report.damaged)") }
      simulation.count("verifications")
    }
  }

  private func trace(_ text: @autoclosure () -> String) {
    simulation.trace(life.actor, "machine \(life.machine.number) " + text())
  }

  // MARK: Writing

  /// Two processes of one machine have keys of their own: what the one has not published, the other sees.
  private var randomKey: String {
    "key/\(simulation.below(Self.keyCount) / life.shareCount * life.shareCount + life.share)"
  }
  private var randomDurability: Durability { simulation.chance(70) ? .durable : .relaxed }

  private mutating func put() throws {
    let (key, content) = (randomKey, simulation.pick(simulation.contents))
    let number = simulation.model.add(content)
    let options = PutOptions(
      durability: randomDurability, replacement: simulation.chance(40) ? .archiveCurrent : .replaceCurrent,
      metadata: Array("\(number)".utf8))
    let isStream = simulation.chance(40)
    trace(
      "put \(number) as \(key), \(options.durability), \(options.replacement), \(isStream ? "stream" : "")")
    let source: BlobContent = isStream ? .stream(slowParts(of: content)) : .data(content)
    let (engine, change) = (engine, try begin([key]))
    let result = try attempt(change) { () throws(BlobStorageError) in try engine.put(key, source, options) }
    try end(change, [(MachineModel.Name(key, result.version.id), number)], options.durability)
  }

  /// Several keys at once, as an import does.
  private mutating func putTogether() throws {
    let keys = Set((0..<4).map { _ in randomKey }).sorted()
    let numbers = keys.map { _ in simulation.model.add(simulation.pick(simulation.contents)) }
    let items = zip(keys, numbers).map { key, number in
      PutItem(
        key: key, data: simulation.model.contents[number] ?? Data(), metadata: Array("\(number)".utf8))
    }
    let options = PutOptions(
      durability: randomDurability, replacement: simulation.chance(40) ? .archiveCurrent : .replaceCurrent)
    trace("put \(numbers) as \(keys), \(options.durability), \(options.replacement)")
    let (engine, change) = (engine, try begin(Set(keys)))
    let results = try attempt(change) { () throws(BlobStorageError) in try engine.put(items, options) }
    let added = zip(results, numbers).map {
      (MachineModel.Name($0.version.key, $0.version.id), $1)
    }
    try end(change, added, options.durability)
  }

  private mutating func drop(keeping count: Int?) throws {
    let keys = simulation.chance(70) ? [randomKey] : [randomKey, randomKey]
    let durability = randomDurability
    trace("drop \(keys) but \(count.map { "\($0) archived" } ?? "none"), \(durability)")
    let (engine, change) = (engine, try begin(Set(keys)))
    try attempt(change) { () throws(BlobStorageError) in
      if let count {
        _ = try engine.keep(upTo: count, keys: keys, durability)
      } else {
        _ = try engine.delete(keys, durability)
      }
    }
    try end(change, [], durability)
  }

  /// The bytes in parts, read one after the other. Between them other actors may go on for long, and periodic work may
  /// run.
  private func slowParts(of content: Data) -> @Sendable () -> Data? {
    let rest = Mutex(content)
    let (simulation, life, engine) = (simulation, life, engine)
    return {
      if life.isAlive, simulation.chance(15) { engine.runPeriodicWork() }
      if simulation.chance(20) {
        for _ in 0..<simulation.below(30) where life.isAlive { simulation.pause() }
      }
      return rest.withLock { rest in
        let part = rest.prefix(2_500)
        rest = rest.dropFirst(2_500)
        return part.isEmpty ? nil : Data(part)
      }
    }
  }

  // MARK: What changes hide

  private struct Change {
    let number: Int
    let doubted: Set<MachineModel.Name>
    let before: Set<MachineModel.Name>
    let state: State?
    let keys: Set<String>
  }

  /// A mark of the catalog's state. It changes whenever something that a writer has looked up may be gone.
  private struct State: Equatable {
    var generation: String?
    var epoch: UInt64
  }

  private func state() throws(BlobStorageError) -> State {
    let engine = engine
    return State(
      generation: engine.catalog.generation,
      epoch: try engine.catalog.read { (transaction) throws(BlobStorageError) in try transaction.epoch() })
  }

  private func visible(_ keys: Set<String>) throws(BlobStorageError) -> Set<MachineModel.Name> {
    var names: Set<MachineModel.Name> = []
    for key in keys.sorted() {
      for version in try engine.versions(key) { names.insert(MachineModel.Name(key, version.id)) }
    }
    return names
  }

  private func begin(_ keys: Set<String>) throws -> Change {
    let before = try visible(keys)
    let state = try state()
    let (number, known) = simulation.model.begin(keys, before)
    return Change(number: number, doubted: known, before: before, state: state, keys: keys)
  }

  private func attempt<T>(
    _ change: Change, _ body: () throws(BlobStorageError) -> T
  ) throws -> T {
    do throws(BlobStorageError) { return try body() } catch {
      // What a dead process has not seen may come to pass when its packs are found.
      _ = try? settle(change, isAlive: life.isAlive)
      throw error
    }
  }

  private mutating func end(
    _ change: Change, _ added: [(name: MachineModel.Name, number: Int)], _ durability: Durability
  ) throws {
    work.added += added.map { ($0.name, $0.number, change.number) }
    work.hidden += try settle(change, isAlive: true)
    if durability == .durable { simulation.model.finish(&work) }
  }

  /// Finds out which versions a change has hidden, and which it has not.
  private func settle(_ change: Change, isAlive: Bool) throws -> [MachineModel.Name] {
    let isSame = try state() == change.state
    let added = simulation.model.end(change.number, isWild: !isSame)
    simulation.model.doubt(added)
    let after = try visible(change.keys)
    for name in added where isSame || after.contains(name) { simulation.model.trust(name) }
    var hidden: [MachineModel.Name] = []
    for name in change.doubted {
      if change.before.contains(name), !after.contains(name) {
        // Another machine may have hidden it, if it was caught up meanwhile: which is as good.
        hidden.append(name)
      } else if after.contains(name) ? isAlive : isSame {
        simulation.model.trust(name)
      }
    }
    return isSame ? hidden : []
  }

  // MARK: Reading

  private mutating func extendCatalog() throws {
    trace("extend")
    let before = simulation.model
    let wasTorn = life.machine.isTorn
    try engine.extend()
    if life.shareCount > 1, wasTorn || life.machine.isTorn { return }
    try check(before, "when it had caught up", readsAll: simulation.chance(30))
  }

  /// What can be seen, as numbers of the model's contents, newest first.
  func seen() throws -> [String: [Int]] {
    var seen: [String: [Int]] = [:]
    for entry in try engine.keys("", after: nil, limit: 1_000) {
      seen[entry.key] = try engine.versions(entry.key).map {
        Int(String(decoding: $0.metadata, as: UTF8.self)) ?? 0
      }
    }
    return seen
  }

  /// The engine shows all of `expected`, unless another actor has begun to hide it since, and nothing of what was hidden.
  func check(_ expected: MachineModel, _ moment: String, readsAll: Bool) throws {
    let moment = "machine \(life.machine.number), \(moment)"
    for name in expected.hidden where try engine.version(name.key, name.id) != nil {
      throw Broken("\(moment): \(name) was dropped, and is there")
    }
    for (name, number) in expected.reported where expected.isSure(name) {
      if try engine.version(name.key, name.id) == nil, simulation.model.isSure(name) {
        throw Broken("\(moment): \(name), of content \(number), is not there")
      }
    }
    for entry in try engine.keys("", after: nil, limit: 1_000) {
      for version in try engine.versions(entry.key) where readsAll || simulation.chance(20) {
        try read(MachineModel.Name(entry.key, version.id), version, moment)
      }
    }
    simulation.count("checks")
  }

  private func read(_ name: MachineModel.Name, _ version: BlobVersion, _ moment: String) throws {
    guard let number = Int(String(decoding: version.metadata, as: UTF8.self)),
      let content = simulation.model.contents[number]
    else { throw Broken("\(moment): \(name) was put by no machine") }
    let found: Data?
    do { found = try engine.data(name.key, name.id) } catch {
      guard life.isAlive, !MachineSimulation.isExpected(error) else { throw error }
      // What another process of the machine could not publish is seen until the catalog is rebuilt without it.
      if life.shareCount > 1, !simulation.model.isSure(name) { return }
      throw Broken("\(moment): \(name), of content \(number), cannot be read: \(error)")
    }
    if found == content { return }
    // It may have been dropped and collected.
    guard found != nil || simulation.model.isSure(name) else { return }
    throw Broken("\(moment): \(name), of content \(number), \(found == nil ? "is gone" : "has other bytes")")
  }

  /// Reads a blob in two parts, between which anything can happen.
  private mutating func readSlowly() throws {
    let key = randomKey
    guard let version = try engine.version(key, nil) else { return }
    let name = MachineModel.Name(key, version.id)
    trace("read \(name) slowly")
    guard let number = Int(String(decoding: version.metadata, as: UTF8.self)),
      let content = simulation.model.contents[number]
    else { throw Broken("\(name) was put by no machine") }
    let middle = Int64(content.count / 2)
    do {
      guard let blob = try engine.openBlob(key, version.id) else { return }
      defer { blob.close() }
      let first = try blob.read(0..<middle)
      for _ in 0..<simulation.below(60) where life.isAlive { simulation.pause() }
      let second = try blob.read(middle..<Int64(content.count))
      if Data(first) + Data(second) != content { simulation.fail("\(name) has other bytes") }
    } catch {
      guard life.isAlive, !MachineSimulation.isExpected(error) else { throw error }
      // Readers hold nothing: what was dropped may be collected while it is read.
      guard simulation.model.isSure(name) else { return }
      throw Broken("\(name), of content \(number), could not be read to its end: \(error)")
    }
    simulation.count("slow reads")
  }

  // MARK: Collecting

  private mutating func collect() throws {
    var options = GarbageCollectionOptions(
      isDryRun: simulation.chance(5), minimumGarbageShare: simulation.pick([0, 0.25, 0.6]),
      timeout: simulation.pick([.zero, .zero, .milliseconds(200), .seconds(3)]),
      recompresses: simulation.chance(25))
    if simulation.chance(10),
      let writer = simulation.registeredWriters.randomElement(using: &simulation.random)
    {
      options.fencedWriters = [writer]
      simulation.count("forced fences")
    }
    trace("collect \(options.minimumGarbageShare), \(options.timeout.seconds) s, \(options.recompresses)")
    do throws(BlobStorageError) {
      let report = try engine.collectGarbage(options)
      // It has published what was written here first.
      if !options.isDryRun { simulation.model.finish(&work) }
      simulation.count("collections")
      simulation.count("packs removed", report.deletedPackCount + report.compactedPackCount)
      simulation.count("packs recompressed", report.recompressedPackCount)
      if !report.obstacles.isEmpty {
        trace("obstacles \(report.obstacles)")
        simulation.count("obstacles")
      }
    } catch {
      // Only one machine may, of some stores.
      guard error.code == .invalidArgument else { throw error }
    }
  }
}
