import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import BlobStorageTransfer
import Foundation
import Synchronization
import Testing

@Suite("A pack that another program deleted")
struct RemoteLossTests {
  private let machines: SharedMachines

  init() throws { machines = try SharedMachines() }

  /// Runs a process of its own, as a command does, and returns the packs that it published.
  private func command(_ machine: String, _ body: (Engine) throws -> Void) throws -> [String] {
    let before = Set(machines.names("packs/"))
    let engine = try machines.engine(machine)
    try body(engine)
    try engine.close()
    return machines.names("packs/").filter { !before.contains($0) }
  }

  private func missing(_ object: String) throws -> String {
    "Pack \(try #require(SharedNames.packName(object))) is missing: run repair."
  }

  // MARK: Noticing

  @Test("is missed by machines that never saw it, though it was the only one of its writer")
  func only() throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(20_000)
    _ = try command("one") { _ = try $0.put("kept", bytes, PutOptions()) }
    let drop = try command("two") { _ = try $0.delete(["kept"], .durable) }
    #expect(drop.count == 1)
    machines.store.set(drop[0], nil)
    let fresh = try machines.engine("three")
    // The delete is undone, and that is noticed.
    #expect(try fresh.data("kept", nil) == Data(bytes))
    let name = try #require(SharedNames.packName(drop[0]))
    #expect(try fresh.verify().damaged.map(\.pack) == ["\(name)"])
    #expect(
      try fresh.collectGarbage(SharedMachines.everything).obstacles.map(\.message) == [try missing(drop[0])])
    #expect(machines.names("collections/") == [])
  }

  @Test("is missed though its writer was killed, and another process ended the registration")
  func killed() throws {
    var dying: Engine? = try machines.engine("one")
    _ = try dying?.put("kept", Array("text".utf8), PutOptions())
    dying = nil
    #expect(machines.names("writers/").count == 1)
    try machines.engine("one").close()
    #expect(machines.names("writers/") == [])
    let pack = machines.names("packs/")
    machines.store.set(pack[0], nil)
    let fresh = try machines.engine("two")
    #expect(try fresh.verify().damaged.count == 1)
    #expect(
      try fresh.collectGarbage(SharedMachines.everything).obstacles.map(\.message) == [try missing(pack[0])])
  }

  @Test(
    "is missed while its writer lives, and a collector's fence does not take its name",
    arguments: [true, false])
  func living(_ isFenced: Bool) throws {
    var random = SplitMix64.announced()
    let living = try machines.engine("one")
    _ = try living.put("kept", Array("text".utf8), PutOptions())
    living.renewRegistrations()
    let pack = machines.names("packs/")
    _ = try command("two") { (engine) throws in
      for key in ["a", "gone"] { _ = try engine.put(key, random.bytes(20_000), PutOptions()) }
      _ = try engine.delete(["gone"], .durable)
      // The first collection fences the silent writer when the pack is there, and the second misses it.
      if isFenced {
        let report = try engine.collectGarbage(SharedMachines.everything)
        #expect(report.obstacles == [])
      }
      machines.store.set(pack[0], nil)
      #expect(try engine.verify().damaged.isEmpty == false)
      let report = try engine.collectGarbage(SharedMachines.everything)
      #expect(report.obstacles.map(\.message) == [try missing(pack[0])])
    }
    #expect(try machines.engine("three").verify().damaged.count == 1)
  }

  @Test("is told apart from the packs of a writer that were all removed: its end mark goes with the last")
  func ends() throws {
    var random = SplitMix64.announced()
    _ = try command("one") { _ = try $0.put("gone", random.bytes(20_000), PutOptions()) }
    #expect(machines.endNames.count == 1)
    _ = try command("two") { (engine) throws in
      _ = try engine.delete(["gone"], .durable)
      for _ in 0..<2 {
        #expect(try engine.collectGarbage(SharedMachines.everything).obstacles == [])
      }
    }
    #expect(machines.names("packs/") == [] && machines.endNames == [])
    try machines.check([:], "when all is removed")
  }

  // MARK: Not relying on it

  @Test(
    "is not relied on by a machine that knows it: the same bytes are stored again, and read everywhere",
    arguments: [false, true])
  func putAgain(_ isStream: Bool) throws {
    var random = SplitMix64.announced()
    // Long enough for a stream.
    let (bytes, more) = (random.bytes(1 << 20), random.bytes(1 << 20))
    let living = try machines.engine("one")
    _ = try living.put("a", bytes, PutOptions())
    let pack = machines.names("packs/")
    _ = try command("two") { (engine) throws in #expect(try engine.data("a", nil) == Data(bytes)) }
    let object = machines.store.peek(pack[0])
    machines.store.set(pack[0], nil)
    _ = try command("two") { (engine) throws in
      let content = Mutex(isStream ? [Data(bytes), Data(more)] : [])
      let stream = BlobContent.stream { content.withLock { $0.isEmpty ? nil : $0.removeFirst() } }
      _ = try engine.put("b", isStream ? stream : .data(Data(bytes)), PutOptions())
      #expect(try engine.losses().lostPacks.map { "packs/\($0).pack" } == pack)
    }
    let fresh = try machines.engine("three")
    #expect(try fresh.data("b", nil) == Data(bytes + (isStream ? more : [])))
    // Nothing is lost when another program brings the pack back.
    machines.store.set(pack[0], object)
    _ = try command("two") { (engine) throws in
      #expect(try engine.losses().isEmpty)
      #expect(try engine.data("a", nil) == Data(bytes))
    }
  }

  @Test("would be missing elsewhere if a put did not look whether it is there")
  func reliesWithoutAsking() throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(20_000)
    let living = try machines.engine("one")
    _ = try living.put("a", bytes, PutOptions())
    _ = try command("two") { (engine) throws in #expect(try engine.data("a", nil) == Data(bytes)) }
    machines.store.set(machines.names("packs/")[0], nil)
    let careless = try machines.engine("two", weaknesses: .reliesWithoutAsking)
    #expect(try careless.put("b", bytes, PutOptions()).newByteCount == 0)
    #expect(throws: BlobStorageError.self) { try machines.engine("three").data("b", nil) }
  }

  @Test("is no reason to miss what was stored again meanwhile, also where that counts as older")
  func storedAgain() throws {
    var random = SplitMix64.announced()
    // Of several chunks, so that there is a manifest.
    let (bytes, short) = (random.bytes(500_000), random.bytes(5_000))
    let pack = try putAhead([("a", bytes), ("short", short)])
    // It knows the pack, and has cached nothing of it.
    let reader = try machines.engine("two")
    machines.store.set(pack, nil)
    _ = try command("three") { (engine) throws in
      _ = try engine.put("b", bytes, PutOptions())
      _ = try engine.put("short again", short, PutOptions())
    }
    try reader.extend()
    #expect(try reader.data("b", nil) == Data(bytes))
    #expect(try reader.data("short again", nil) == Data(short))
    #expect(try machines.engine("four").data("b", nil) == Data(bytes))
  }

  @Test("is looked for once by a process that counts on it")
  func lookedForOnce() throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(20_000)
    let living = try machines.engine("one")
    _ = try living.put("a", bytes, PutOptions())
    let pack = try #require(machines.names("packs/").first)
    _ = try command("two") { _ in }
    _ = try command("two") { (engine) throws in
      let before = machines.store.counts[.tail, default: 0]
      for key in ["b", "c", "d"] {
        #expect(try engine.put(key, bytes, PutOptions()).newByteCount == 0)
      }
      #expect(machines.store.counts[.tail] == before + 1)
      // A process that runs for long looks again.
      engine.runPeriodicWork()
      machines.store.set(pack, nil)
      #expect(try engine.put("e", bytes, PutOptions()).newByteCount == 20_000)
    }
  }

  @Test(
    "or cut is not relied on: the same bytes are stored again, and read everywhere", arguments: [false, true])
  func cut(_ isListed: Bool) throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(20_000)
    let living = try machines.engine("one")
    _ = try living.put("a", bytes, PutOptions())
    let pack = try #require(machines.names("packs/").first)
    _ = try command("two") { (engine) throws in #expect(try engine.data("a", nil) == Data(bytes)) }
    let object = try #require(machines.store.peek(pack))
    machines.store.set(pack, Array(object.prefix(1_000)))
    let name = try #require(SharedNames.packName(pack))
    _ = try command("two") { (engine) throws in
      if isListed { _ = try #require(engine.backend as? RemoteBackend).publishedPacks() }
      #expect(try engine.put("b", bytes, PutOptions()).newByteCount == 20_000)
      // Its row stays as it is: another program may bring the pack back.
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        try CatalogBuilder.condemnUncounted(engine.backend, in: transaction)
      }
      #expect(try engine.catalog.packRow(name)?.state == .live)
    }
    #expect(try machines.engine("three").data("b", nil) == Data(bytes))
  }

  /// Cuts a pack, or the only one, so that its footer and most of its records are gone.
  private func cutPack(_ pack: String? = nil) throws {
    let pack = try #require(pack ?? machines.names("packs/").first)
    machines.store.set(pack, Array(try #require(machines.store.peek(pack)).prefix(1_000)))
  }

  @Test("or cut keeps no version from being duplicated by a machine that can read it", arguments: ["a", "b"])
  func versionInCut(_ source: String) throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(20_000)
    let pack = try command("one") { _ = try $0.put("a", bytes, PutOptions()) }.first
    _ = try command("one") { _ = try $0.put("b", bytes, PutOptions()) }
    try cutPack(pack)
    _ = try command("one") { (engine) throws in
      #expect(try VersionChanges(engine).put(nil, of: source, as: "c", PutOptions())?.newByteCount == 20_000)
    }
    #expect(try machines.engine("three").data("c", nil) == Data(bytes))
  }

  @Test("or cut gets its versions again from the next copy, and the copy after that sends nothing")
  func copiedAgain() throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(20_000)
    let other = try SharedMachines()
    let source = try other.engine("source")
    _ = try source.put("a", bytes, PutOptions())
    _ = try command("one") { (engine) throws in
      #expect(try runCopy(source, to: engine).newVersionCount == 1)
    }
    try cutPack()
    for count in [1, 0] {
      _ = try command("one") { (engine) throws in
        #expect(try runCopy(source, to: engine).newVersionCount == count)
      }
    }
    #expect(try machines.engine("three").data("a", nil) == Data(bytes))
  }

  @Test("is missed by a machine that a change tells of it, each time until it is back")
  func named() throws {
    let reader = try machines.engine("two")
    let living = try machines.engine("one")
    _ = try living.put("a", Array("text".utf8), PutOptions())
    let pack = try #require(machines.names("packs/").first)
    let object = machines.store.peek(pack)
    machines.store.set(pack, nil)
    for _ in 0..<2 { #expect(try reader.extend().missing == [try #require(SharedNames.packName(pack))]) }
    #expect(try !reader.losses().isEmpty)
    machines.store.set(pack, object)
    #expect(try reader.extend().missing == [])
    #expect(try reader.losses().isEmpty)
    #expect(try reader.data("a", nil) == Data("text".utf8))
  }

  @Test("is not taken for lost because one listing lacked it")
  func lackedOnce() throws {
    let living = try machines.engine("one")
    _ = try living.put("a", Array("text".utf8), PutOptions())
    let pack = machines.names("packs/")
    let two = try machines.engine("two")
    let object = machines.store.peek(pack[0])
    let listings = CallCount()
    let store = machines.store
    store.setHook { call in
      guard call.kind == .list, call.name == SharedNames.packs else { return }
      store.set(pack[0], listings.next() == 1 ? nil : object)
    }
    #expect(try #require(two.publishedPacks).run(isFull: true).missing == [])
    store.setHook(nil)
    #expect(listings.value == 2)
    #expect(try two.losses().isEmpty)
  }

  @Test("can be entries of the log, which a machine that knows them puts right", arguments: [1, 2, 3, 4, 0])
  func log(_ lost: Int) throws {
    var random = SplitMix64.announced()
    let old = try machines.engine("one")
    for round in 0..<2 {
      for key in ["a", "b"] { _ = try old.put("\(key)\(round)", random.bytes(20_000), PutOptions()) }
      _ = try old.delete(["a\(round)"], .durable)
      try #expect(old.collectGarbage(SharedMachines.everything).obstacles == [])
    }
    let entries = machines.names("collections/")
    #expect(entries.count == 4)
    // 0: all of them.
    for (index, name) in entries.enumerated() where lost == 0 || lost == index + 1 {
      machines.store.set(name, nil)
    }
    #expect(throws: BlobStorageError.self) { try old.verify() }
    let fresh =
      lost == 0 || lost == 4 ? nil : #expect(throws: BlobStorageError.self) { try machines.engine("two") }
    if let fresh { #expect(fresh.code == .corrupted && fresh.message.contains("repair")) }
    _ = try old.repair()
    #expect(try old.verify().damaged == [])
    let three = try machines.engine("three")
    #expect(try three.verify().damaged == [])
    #expect(try three.keys("", after: nil, limit: 10).map(\.key) == ["b0", "b1"])
    _ = try three.put("c", random.bytes(20_000), PutOptions())
    _ = try three.delete(["b0"], .durable)
    try #expect(three.collectGarbage(SharedMachines.everything).obstacles == [])
    #expect(try old.verify().damaged == [])
  }

  // MARK: Accepting the loss

  @Test("hid versions, which every machine shows again once the loss is accepted")
  func hidden() throws {
    var random = SplitMix64.announced()
    let (old, new) = (random.bytes(20_000), random.bytes(20_000))
    _ = try command("one") { (engine) throws in
      for key in ["deleted", "replaced"] { _ = try engine.put(key, old, PutOptions()) }
    }
    let packs = try command("one") { (engine) throws in
      _ = try engine.put("replaced", new, PutOptions())
      _ = try engine.delete(["deleted"], .durable)
    }
    _ = try command("two") { (engine) throws in #expect(try engine.data("replaced", nil) == Data(new)) }
    for pack in packs { machines.store.set(pack, nil) }
    _ = try command("three") { (engine) throws in _ = try engine.repair(acceptsLosses: true) }
    for machine in ["one", "two", "three", "four"] {
      _ = try command(machine) { (engine) throws in
        for key in ["deleted", "replaced"] {
          #expect(try engine.data(key, nil) == Data(old), "\(key) on machine \(machine)")
        }
        #expect(try engine.verify().damaged == [])
      }
    }
  }

  /// A machine whose clock is days ahead puts what is then collected.
  ///
  /// - Returns: the pack.
  private func putAhead(_ contents: [(String, [UInt8])]) throws -> String {
    let before = Set(machines.names("packs/"))
    let far = try machines.engine("one", daysAhead: 3)
    for (key, bytes) in contents { _ = try far.put(key, bytes, PutOptions(durability: .relaxed)) }
    try far.close()
    let packs = machines.names("packs/").filter { !before.contains($0) }
    #expect(packs.count == 1)
    return packs[0]
  }

  @Test("was the younger one of two with the same refs: those that are left count")
  func copies() throws {
    var random = SplitMix64.announced()
    let (bytes, more) = (random.bytes(20_000), random.bytes(20_000))
    // The content is elsewhere, so that the loss takes nothing but refs.
    _ = try command("two") { _ = try $0.put("content", bytes, PutOptions()) }
    let pack = try putAhead([("kept", bytes), ("later", bytes), ("gone", more)])
    _ = try command("two") { _ = try $0.delete(["gone"], .durable) }
    // Killed when the copies are published and their originals are not removed yet; the next collection, before it copies.
    let before = machines.names("packs/")
    for name in [SharedNames.collection(2), SharedNames.collections] {
      let client = machines.store.client { (call) throws(BlobStorageError) in
        if call.kind == .put, call.name.hasPrefix(name) { throw .simulatedStop }
      }
      #expect(throws: BlobStorageError.self) {
        _ = try machines.engine("two", client).collectGarbage(SharedMachines.everything)
      }
    }
    #expect(machines.names("packs/").count == before.count + 1)
    machines.store.set(pack, nil)
    _ = try command("three") { _ = try $0.repair(acceptsLosses: true) }
    _ = try command("two") { (engine) throws in
      _ = try engine.delete(["later"], .durable)
      #expect(try engine.collectGarbage(SharedMachines.everything).obstacles == [])
    }
    try machines.check(["content": bytes, "kept": bytes], "when the copies were copied")
  }

  @Test("had copies of what a machine put whose clock was days ahead")
  func ahead() throws {
    var random = SplitMix64.announced()
    let (bytes, more) = (random.bytes(20_000), random.bytes(20_000))
    let pack = try putAhead([("kept", bytes), ("gone", more)])
    _ = try command("two") { (engine) throws in
      _ = try engine.delete(["gone"], .durable)
      #expect(try engine.collectGarbage(SharedMachines.everything).obstacles == [])
    }
    #expect(!machines.names("packs/").contains(pack))
    try machines.check(["kept": bytes], "when the pack has gone")
  }

  @Test("no longer stops collections once one machine has accepted its loss, also if it comes back later")
  func accepted() throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(20_000)
    let packs = try command("one") { (engine) throws in
      _ = try engine.put("kept", bytes, PutOptions())
      _ = try engine.put("lost", random.bytes(20_000), PutOptions())
    }
    for machine in ["two", "four"] {
      _ = try command(machine) { (engine) throws in #expect(try engine.data("lost", nil) != nil) }
    }
    let object = machines.store.peek(packs[1])
    machines.store.set(packs[1], nil)
    _ = try command("two") { (engine) throws in
      let obstacle = try missing(packs[1])
      #expect(try engine.collectGarbage(SharedMachines.everything).obstacles.map(\.message) == [obstacle])
      #expect(try engine.repair().dropped == [])
      #expect(machines.names("collections/") == [])
      let report = try engine.repair(acceptsLosses: true)
      #expect(report.dropped.map(\.key) == ["lost"])
      #expect(report.losses.lostPacks.map { "packs/\($0).pack" } == [packs[1]])
    }
    for machine in ["two", "three", "four"] {
      _ = try command(machine) { (engine) throws in
        #expect(try engine.losses().isEmpty)
        #expect(try engine.keys("", after: nil, limit: 10).map(\.key) == ["kept"])
        #expect(try engine.verify().damaged == [])
        #expect(try engine.collectGarbage(SharedMachines.everything).obstacles == [])
      }
    }
    machines.store.set(packs[1], object)
    _ = try command("three") { (engine) throws in
      #expect(try engine.keys("", after: nil, limit: 10).map(\.key) == ["kept"])
      #expect(try engine.collectGarbage(SharedMachines.everything).obstacles == [])
    }
    #expect(machines.store.peek(packs[1]) == nil)
    try machines.check(["kept": bytes], "after the loss was accepted")
  }

  @Test("or replaced by other bytes no longer stops collections once that is accepted")
  func replaced() throws {
    var random = SplitMix64.announced()
    let bytes = random.bytes(20_000)
    _ = try command("one") { _ = try $0.put("kept", bytes, PutOptions()) }
    let name = SharedNames.pack(PackName(writer: 5, sequence: 1))
    machines.store.set(name, random.bytes(500))
    _ = try command("two") { (engine) throws in
      #expect(try engine.collectGarbage(SharedMachines.everything).obstacles.count == 1)
      _ = try engine.repair(acceptsLosses: true)
    }
    for machine in ["two", "three"] {
      _ = try command(machine) { (engine) throws in
        #expect(try engine.collectGarbage(SharedMachines.everything).obstacles == [])
      }
    }
    #expect(machines.store.peek(name) == nil)
    try machines.check(["kept": bytes], "after the loss was accepted")
  }

  @Test(
    "or cut is damaged for a machine that never read it whole, until it is back", arguments: [false, true])
  func cutBefore(_ isRebuilt: Bool) throws {
    var random = SplitMix64.announced()
    let packs = try command("one") { (engine) throws in
      for key in ["kept", "gone"] { _ = try engine.put(key, random.bytes(20_000), PutOptions()) }
      _ = try engine.delete(["gone"], .durable)
    }
    let object = machines.store.peek(packs[0])
    try cutPack()
    _ = try command("two") { (engine) throws in
      if isRebuilt { try engine.catalog.rebuild(because: nil) }
      #expect(try engine.losses().damagedPacks.map { "packs/\($0).pack" } == [packs[0]])
      #expect(try engine.collectGarbage(SharedMachines.everything).obstacles.map(\.code) == [.damagedPack])
    }
    #expect(machines.names("collections/") == [])
    machines.store.set(packs[0], object)
    _ = try command("two") { (engine) throws in
      #expect(try engine.collectGarbage(SharedMachines.everything).obstacles == [])
    }
  }

  @Test("or cut stops collections of a machine that has read it whole, until its loss is accepted")
  func cutSince() throws {
    var random = SplitMix64.announced()
    let packs = try command("one") { (engine) throws in
      for key in ["lost", "gone"] { _ = try engine.put(key, random.bytes(20_000), PutOptions()) }
      _ = try engine.delete(["gone"], .durable)
    }
    _ = try command("two") { (engine) throws in
      var options = SharedMachines.everything
      options.isDryRun = true
      #expect(try engine.collectGarbage(options).obstacles == [])
    }
    try cutPack()
    _ = try command("two") { (engine) throws in
      #expect(try engine.collectGarbage(SharedMachines.everything).obstacles.map(\.code) == [.damagedPack])
      #expect(machines.names("collections/") == [])
      #expect(try engine.repair(acceptsLosses: true).dropped.map(\.key) == ["lost"])
    }
    for machine in ["two", "three"] {
      _ = try command(machine) { (engine) throws in
        #expect(try engine.collectGarbage(SharedMachines.everything).obstacles == [])
      }
    }
    #expect(machines.store.peek(packs[0]) == nil)
    try machines.check([:], "after the loss was accepted")
  }

  @Test(
    "of the end of the log and the packs since: a bucket that was brought back from a copy keeps what it has")
  func broughtBack() throws {
    let machines = try SharedMachines()
    var random = SplitMix64.announced()
    var expected: [String: [UInt8]] = [:]
    func put(_ keys: [String]) throws {
      let engine = try machines.engine("one")
      for key in keys {
        let bytes = random.bytes(2_000)
        _ = try engine.put(key, bytes, PutOptions(durability: .relaxed))
        expected[key] = bytes
      }
      try engine.close()
    }
    func command<T>(_ machine: String, _ body: (Engine) throws -> T) throws -> T {
      let engine = try machines.engine(machine)
      let result = try body(engine)
      try engine.close()
      return result
    }
    func collect(_ machine: String) throws -> [GarbageObstacle] {
      try command(machine) { try $0.collectGarbage(SharedMachines.everything).obstacles }
    }
    try put(["a", "b", "c"])
    try put(["a", "d"])
    let copy = machines.store.objects
    var then = expected
    try command("one") { (engine) throws in _ = try engine.delete(expected.keys.sorted(), .durable) }
    for _ in 0..<4 { #expect(try collect("collector") == []) }
    #expect(machines.names("packs/") == [])
    // It knows the log, and no pack.
    #expect(try collect("late") == [])
    for name in machines.store.objects.keys where copy[name] == nil { machines.store.set(name, nil) }
    for (name, bytes) in copy { machines.store.set(name, bytes) }
    try machines.check(then, "brought back")
    func refused(_ body: () throws -> Void, _ moment: String) throws {
      let error = #expect(throws: BlobStorageError.self, "\(moment)") { try body() }
      #expect(error?.code == .corrupted, "\(moment): \(error?.message ?? "")")
      try machines.check(then, "\(moment)")
    }
    try refused({ _ = try collect("late") }, "a collection")
    #expect(try collect("one") != [])
    try machines.check(then, "a collection by one that knows lost packs")
    try command("late") { (engine) throws in
      // Its answers are of what comes after.
      #expect(try engine.keys("", after: nil, limit: 9).isEmpty)
      try engine.extend()
      #expect(try engine.losses().lacksLog)
      #expect(try engine.losses().summary != nil)
      try refused({ _ = try engine.verify() }, "verify")
      try refused({ _ = try engine.repair() }, "repair")
      try refused({ _ = try engine.repair(acceptsLosses: true) }, "repair that accepts losses")
    }
    // The log gets as long again, with other entries.
    let numbers = { machines.store.objects.keys.compactMap { SharedNames.collectionNumber($0) }.max() ?? 0 }
    for round in 0..<2 {
      try command("new") { (engine) throws in
        let bytes = random.bytes(3_000)
        _ = try engine.put("a", bytes, PutOptions())
        then["a"] = bytes
      }
      #expect(try collect("new") == [], "round \(round)")
    }
    #expect(numbers() == 4)
    try refused({ _ = try collect("late") }, "a collection by one that knows another log")
    try command("late") { (engine) throws in
      try refused({ _ = try engine.repair(acceptsLosses: true) }, "repair by one that knows another log")
    }
    #expect(try collect("new") == [])
    try machines.check(then, "in the end")
  }

  @Test(
    "is found without a look for it where a bucket was brought back from a copy",
    arguments: [["c", "d", "e", "f"], ["c"]])
  func olderCopy(_ since: [String]) throws {
    let machines = try SharedMachines()
    func put(_ machine: String, _ keys: [String]) throws {
      for key in keys {
        let engine = try machines.engine(machine)
        _ = try engine.put(key, Array(key.utf8), PutOptions())
        try engine.close()
      }
    }
    try put("one", ["a", "b"])
    let copy = machines.store.objects
    try put("one", since)
    for name in machines.store.objects.keys where copy[name] == nil { machines.store.set(name, nil) }
    for (name, bytes) in copy { machines.store.set(name, bytes) }
    try put("two", ["new 1", "new 2"])
    let engine = try machines.engine("one")
    #expect(try engine.losses().lostPacks.count == since.count)
    #expect(try engine.data("new 1", nil) == Data("new 1".utf8))
    #expect(try engine.data("new 2", nil) == Data("new 2".utf8))
    try engine.close()
  }
}
