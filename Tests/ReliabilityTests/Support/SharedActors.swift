import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport

/// One process that writes to a shared store, until it closes, dies or is fenced.
struct SharedWriter {
  private let simulation: SharedSimulation
  private let client: SimulatedClient
  private let machine: Int
  private let writer: UInt64
  private var member: Membership
  private var picture = SharedPicture()
  private var own: [PackName: [SharedRecord]] = [:]
  private var passedEpoch: UInt32 = 0
  private var nextSequence: UInt32 = 1
  /// A put that streams in: its chunk is found or appended, its ref is not yet.
  private var stream: (record: SharedRecord, epoch: UInt32)?

  private var storeID: [UInt8] { simulation.storeID }
  private var weaknesses: Weaknesses { simulation.weaknesses }

  init(_ simulation: SharedSimulation, _ client: SimulatedClient, machine: Int) {
    self.simulation = simulation
    self.client = client
    self.machine = machine
    writer = simulation.random.next()
    member = Membership(client, storeID: simulation.storeID, writer: writer, machine: "m\(machine)")
  }

  mutating func run() throws {
    try adopt()
    try join()
    simulation.spools[machine] = .init(writer: writer)
    for _ in 0..<5 + simulation.below(25) {
      switch simulation.below(100) {
      case 0..<30: put()
      case 30..<38: beginStream()
      case 38..<46: endStream()
      case 46..<62: drop()
      case 62..<66: roll()
      case 66..<76: try publish()
      case 76..<92: try interval()
      default: try catchUp()
      }
    }
    endStream()
    try publish()
    try member.leave()
    simulation.count("closed")
  }

  private mutating func join() throws {
    if weaknesses.contains(.registersAfterListing) {
      try catchUp()
      try member.signLife(picture.collections)
      return
    }
    (member, picture.collections) = try Membership.join(
      client, storeID: storeID, writer: writer, machine: "m\(machine)")
    passedEpoch = picture.collections.epoch
    try catchUp()
  }

  /// What the process before has left is published under its name, if it is waited for still.
  private func adopt() throws {
    guard var spool = simulation.spools[machine] else { return }
    if try Membership.registration(of: spool.writer, client, storeID: storeID) != nil {
      while let (name, records, _) = spool.packs.first {
        let bytes = SharedRecord.encode(records, name)
        guard try Publication.publish(name, .bytes(bytes), client, storeID: storeID) == .published else {
          simulation.count("set aside")
          break
        }
        spool.packs.removeFirst()
        simulation.spools[machine] = spool
        simulation.count("adopted")
      }
      try client.delete(SharedNames.writer(spool.writer))
    }
    simulation.spools[machine] = nil
  }

  private mutating func catchUp() throws {
    let earlier = simulation.oracle
    var next = picture
    try next.catchUp(client, storeID: storeID, weaknesses: weaknesses)
    picture = next
    try simulation.oracle.check(picture, since: earlier, "when machine \(machine) had caught up")
  }

  // MARK: Records

  /// What may be counted on: what is published and not condemned, and this writer's own packs in their order.
  private func usable() -> Set<SharedRecord> {
    let condemned = weaknesses.contains(.pardonsSharedPacks) ? [] : picture.collections.condemned
    let removed = picture.collections.removed
    return picture.records { condemned.contains($0) || removed.contains($0) }
      .union(own.lazy.filter { !condemned.contains($0.key) && !removed.contains($0.key) }.flatMap(\.value))
  }

  private mutating func append(_ record: SharedRecord) {
    if simulation.spools[machine]?.packs.last.map(\.isTried) ?? true { roll() }
    guard let count = simulation.spools[machine]?.packs.count else { return }
    simulation.spools[machine]?.packs[count - 1].records.append(record)
    own[PackName(writer: writer, sequence: nextSequence - 1), default: []].append(record)
    simulation.oracle.begin(record)
  }

  /// Begins the next pack.
  private mutating func roll() {
    if let last = simulation.spools[machine]?.packs.last, last.records.isEmpty, !last.isTried { return }
    let name = PackName(writer: writer, sequence: nextSequence)
    nextSequence += 1
    simulation.spools[machine]?.packs.append((name, [], false))
  }

  /// Appends a chunk that is not there, against a base if there is one.
  private mutating func store(_ chunk: UInt32) {
    let usable = usable()
    if SharedPicture.chunks(usable).contains(chunk) { return simulation.count("shared") }
    let base = UInt32(1 + simulation.below(SharedSimulation.chunkCount))
    let hasBase = base != chunk && simulation.chance(50) && usable.contains(.chunk(base, base: 0))
    append(.chunk(chunk, base: hasBase ? base : 0))
  }

  private mutating func ref(to chunk: UInt32) -> SharedRecord {
    simulation.lastVersion += 1
    return .ref(version: simulation.lastVersion, chunk: chunk)
  }

  private mutating func put() {
    let chunk = UInt32(1 + simulation.below(SharedSimulation.chunkCount))
    store(chunk)
    append(ref(to: chunk))
  }

  private mutating func beginStream() {
    guard stream == nil else { return }
    let chunk = UInt32(1 + simulation.below(SharedSimulation.chunkCount))
    store(chunk)
    stream = (ref(to: chunk), picture.collections.epoch)
  }

  private mutating func endStream() {
    guard let (record, _) = stream else { return }
    append(record)
    stream = nil
  }

  private mutating func drop() {
    guard let version = picture.versions.keys.sorted().randomElement(using: &simulation.random) else {
      return
    }
    append(.drop(version: version))
  }

  // MARK: Publishing

  private mutating func publish() throws {
    while let spool = simulation.spools[machine], !spool.packs.isEmpty {
      let index = weaknesses.contains(.acceptsGaps) ? spool.packs.count - 1 : 0
      simulation.spools[machine]?.packs[index].isTried = true
      let (name, records, _) = spool.packs[index]
      let bytes = SharedRecord.encode(records, name)
      let outcome = try Publication.publish(
        name, .bytes(bytes), client, storeID: storeID, weaknesses: weaknesses)
      guard outcome == .published else {
        simulation.spools[machine] = nil
        throw BlobStorageError(.fenced, "fenced")
      }
      try simulation.checkPublished(name, bytes)
      for record in records { simulation.oracle.report(record) }
      simulation.spools[machine]?.packs.remove(at: index)
      simulation.count("published")
    }
  }

  private mutating func interval() throws {
    if simulation.chance(50) { try member.signLife(picture.collections) }
    let log = CollectionLog(client, storeID: storeID)
    picture.collections = try log.read(after: picture.collections)
    let epoch = picture.collections.epoch
    guard picture.collections.isStanding, epoch > passedEpoch else { return }
    // A put that began before may count on what is condemned now.
    if let stream, stream.epoch < epoch { return }
    try publish()
    try member.pass(epoch)
    passedEpoch = epoch
    simulation.count("passed")
  }
}

/// One collection, of packs chosen by chance: garbage or not, they must go without a loss.
struct SharedCollector {
  private let simulation: SharedSimulation
  private let objects: any ObjectStore
  private let choosesAll: Bool
  private let id: UInt64
  private var picture = SharedPicture()

  private var storeID: [UInt8] { simulation.storeID }
  private var weaknesses: Weaknesses { simulation.weaknesses }

  init(_ simulation: SharedSimulation, _ objects: any ObjectStore, choosesAll: Bool = false) {
    self.simulation = simulation
    self.objects = objects
    self.choosesAll = choosesAll
    id = simulation.random.next()
  }

  mutating func run() throws {
    let member: Membership
    (member, picture.collections) = try Membership.join(objects, storeID: storeID, writer: id, machine: "c")
    try picture.catchUp(objects, storeID: storeID, weaknesses: weaknesses)
    guard picture.missing.isEmpty else { throw Broken("\(picture.missing) are missing") }
    let percent = choosesAll ? 100 : 30 + simulation.below(80)
    let chosen = picture.packs.keys.sorted().filter { _ in simulation.chance(percent) }
    let log = CollectionLog(objects, storeID: storeID)
    guard let mine = try log.condemn(chosen, after: picture.collections, by: id) else {
      return try member.leave()
    }
    simulation.count("condemned")
    let fenced = try waitForAll(mine)
    if !weaknesses.contains(.removesByOldListing) {
      try picture.catchUp(objects, storeID: storeID, weaknesses: weaknesses)
      if picture.collections != mine { return try member.leave() }
      guard picture.missing.isEmpty else { throw Broken("\(picture.missing) are missing") }
    }
    try copy(mine.condemned)
    if !weaknesses.contains(.deletesWithoutEntry) {
      guard try log.remove(mine.condemned.sorted(), after: mine, by: id) != nil else {
        return try member.leave()
      }
    }
    simulation.count("removed", mine.condemned.count)
    for name in mine.condemned.sorted() { try objects.delete(SharedNames.pack(name)) }
    for writer in fenced { try objects.delete(SharedNames.writer(writer)) }
    try Membership.removeAcks(before: mine.epoch + 1, objects)
    try member.leave()
    simulation.count("collections")
  }

  /// Until each writer has passed, has left, or is fenced. Returns the fenced.
  private func waitForAll(_ mine: Collections) throws -> [UInt64] {
    if weaknesses.contains(.removesBeforeAllPassed) { return [] }
    let there = Set(try Membership.writers(objects)).subtracting([id])
    var waited = there
    for _ in 0..<1 + simulation.below(simulation.chance(50) ? 8 : 120) {
      waited.subtract(try Membership.passed(mine.epoch, objects))
      if waited.isEmpty { return [] }
      // Who has left has published everything.
      waited.formIntersection(try Membership.writers(objects))
      if waited.isEmpty { return [] }
    }
    guard simulation.canFence else { throw BlobStorageError(.busy, "a writer has not passed") }
    for writer in waited.sorted() {
      let outcome = try Fencing.fence(
        writer, removed: mine.removed, by: id, objects, storeID: storeID, weaknesses: weaknesses)
      guard case .fenced = outcome else { throw BlobStorageError(.busy, "a writer goes on") }
      simulation.count("fenced writers")
    }
    return waited.sorted()
  }

  /// Publishes what is live in condemned packs and nowhere else.
  private func copy(_ condemned: Set<PackName>) throws {
    let others = picture.records { condemned.contains($0) }
    let going = picture.records { !condemned.contains($0) }
    let versions = picture.versions
    var live = Set(versions.values)
    for case .chunk(let chunk, let base) in going.union(others) where live.contains(chunk) {
      live.insert(base)
    }
    var refsElsewhere: Set<UInt32> = []
    for case .ref(let version, _) in others { refsElsewhere.insert(version) }
    var kept: [SharedRecord] = []
    for record in going.subtracting(others) {
      switch record {
      case .chunk(let chunk, _): if live.contains(chunk) { kept.append(record) }
      case .ref(let version, _): if versions[version] != nil { kept.append(record) }
      // What hides a version goes with the last copy of its ref.
      case .drop(let version): if refsElsewhere.contains(version) { kept.append(record) }
      }
    }
    let middle = kept.count / 2
    for (index, part) in [kept[..<middle], kept[middle...]].enumerated() {
      let name = PackName(writer: id, sequence: UInt32(index + 1))
      let bytes = SharedRecord.encode(part.sorted { "\($0)" < "\($1)" }, name)
      let outcome = try Publication.publish(
        name, .bytes(bytes), objects, storeID: storeID, weaknesses: weaknesses)
      guard outcome == .published else { throw BlobStorageError(.fenced, "a collector was fenced") }
    }
  }
}
