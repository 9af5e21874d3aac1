import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import BlobStorageTransfer
import BlobStorageTrees
import Foundation
import SystemPackage
import Testing

@Suite("Retention by time")
struct RetentionTests {
  private static let utc = TimeZone(identifier: "UTC") ?? .current

  private func policy(_ change: (inout RetentionPolicy) -> Void) -> RetentionPolicy {
    var policy = RetentionPolicy()
    policy.timeZone = Self.utc
    change(&policy)
    return policy
  }

  private func date(_ text: String) throws -> Date { try Date(text, strategy: .iso8601) }

  @Test("keeps the youngest of each period that has one, and names the rules")
  func periods() throws {
    let dates = try [
      "2026-03-02T12:00:00Z", "2026-03-02T08:00:00Z", "2026-03-01T23:59:59Z", "2026-03-01T00:00:00Z",
      "2026-02-28T10:00:00Z", "2026-02-01T10:00:00Z", "2025-12-31T10:00:00Z",
    ].map(date)
    func kept(_ change: (inout RetentionPolicy) -> Void) -> [Int] {
      policy(change).reasons(for: dates, now: dates[0]).enumerated().filter { !$0.element.isEmpty }.map(
        \.offset)
    }
    #expect(kept { $0.last = 2 } == [0, 1])
    #expect(kept { $0.daily = 3 } == [0, 2, 4])
    // The first of March 2026 is a Sunday.
    #expect(kept { $0.weekly = 2 } == [0, 2])
    #expect(kept { $0.monthly = 10 } == [0, 4, 6])
    #expect(kept { $0.yearly = 10 } == [0, 6])
    #expect(kept { $0.hourly = 2 } == [0, 1])
    #expect(kept { $0.within = .seconds(86_400) } == [0, 1, 2])
    let reasons = policy {
      $0.last = 1
      $0.yearly = 1
    }.reasons(for: dates, now: dates[0])
    #expect(reasons[0] == ["last", "yearly"] && reasons[1] == [])
    #expect(policy { $0.last = 0 }.isEmpty == false && RetentionPolicy().isEmpty)
  }

  /// A tree that changes. After each retention, every remaining state has all its versions, and no imported file has an
  /// archived version that no state has.
  @Test("drops what no remaining state has, and nothing else", arguments: 1...3)
  func model(_ seed: UInt64) async throws {
    var random = SplitMix64(seed: seed)
    let place = try StorePlace()
    let store = try await place.opened()
    let tree = place.temporary.path.string + "/tree"
    try FileManager.default.createDirectory(atPath: tree, withIntermediateDirectories: true)
    try await store.set("other", to: Data("1".utf8), archivingCurrent: true)
    try await store.set("other", to: Data("2".utf8), archivingCurrent: true)
    var contents: [TreeState.ID: [String: Data]] = [:]
    for _ in 0..<12 {
      for _ in 0..<random.below(6) {
        let path = "\(tree)/f\(random.below(8))"
        if random.below(4) == 0 {
          try? FileManager.default.removeItem(atPath: path)
        } else {
          try random.noise(random.below(300)).write(to: URL(filePath: path))
        }
      }
      let report = try await store.importFiles([tree], options: ImportOptions(prefix: "t/"))
      let state = try #require(report.state)
      var files: [String: Data] = [:]
      for name in try FileManager.default.contentsOfDirectory(atPath: tree) {
        files["t/" + name] = try Data(contentsOf: URL(filePath: "\(tree)/\(name)"))
      }
      contents[state.id] = files
      guard random.below(3) == 0 else { continue }
      let states = try await store.states().count
      let plan = try await store.keep(policy { $0.last = 4 }, of: .prefix("t/"), isDryRun: true)
      let done = try await store.keep(policy { $0.last = 4 }, of: .prefix("t/"))
      #expect(plan.droppedVersionCount == done.droppedVersionCount && plan.decisions == done.decisions)
      #expect(done.droppedStateCount == max(0, states - 4))
      _ = try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      try await check(store, contents)
    }
    #expect(try await store.versions(of: "other").count == 2)
    try await store.trimHistory(of: .all, toArchived: 0)
    try await check(store, contents)
    try await store.close()
  }

  private func check(_ store: BlobStore, _ contents: [TreeState.ID: [String: Data]]) async throws {
    var needed: Set<BlobVersion.ID> = []
    for state in try await store.states() {
      let expected = try #require(contents[state.id])
      for (key, data) in expected {
        let version = try #require(try await store.version(of: key, in: state))
        needed.insert(version.id)
        #expect(try await store.data(for: version.digest) == data)
      }
      #expect(try await store.version(of: "t/none", in: state) == nil)
    }
    for try await entry in store.keys(prefix: "t/") { #expect(entry.versionCount == 1) }
    // Nothing is kept that no state has.
    let engine = store.engine
    let kept = try engine.internalVersions(InternalKey.Purpose.replaced.prefix, includesArchived: true)
    let unneeded = kept.count { !needed.contains(BlobVersion.ID($0.stamp)) }
    #expect(unneeded == 0)
  }

  /// Imports `count` changes of one file, each a state.
  private func importStates(_ count: Int, _ prefix: String, _ place: StorePlace, _ store: BlobStore)
    async throws
    -> [TreeState]
  {
    let tree = place.temporary.path.string + "/tree-" + prefix
    try FileManager.default.createDirectory(atPath: tree, withIntermediateDirectories: true)
    var states: [TreeState] = []
    for number in 0..<count {
      try Data("\(prefix) \(number)".utf8).write(to: URL(filePath: tree + "/a"))
      let options = ImportOptions(prefix: prefix + "/", stateName: "\(prefix)\(number)")
      states.append(try #require(try await store.importFiles([tree], options: options).state))
    }
    return states
  }

  private func replacedCount(_ store: BlobStore, _ key: String) throws -> Int {
    try store.engine.internalVersions(
      InternalKey.Purpose.replaced.key(Array(key.utf8)), includesArchived: true
    ).count
  }

  @Test("names a state that cannot be read, drops nothing that it may need, and goes on with the others")
  func unreadable() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let damaged = try await importStates(4, "t", place, store)
    _ = try await importStates(4, "u", place, store)
    // The last one has entries that are none.
    let key = InternalKey.Purpose.state.key(Array(damaged[3].id.description.utf8))
    let record = try #require(try store.engine.internalVersions(key).first)
    try store.engine.putInternal(key, .data(Data([9, 9, 9])), metadata: record.row.metadata)
    let plan = try await store.keep(policy { $0.last = 1 }, of: .all, isDryRun: true)
    let report = try await store.keep(policy { $0.last = 1 }, of: .all)
    #expect(plan.decisions == report.decisions && plan.unreadable == report.unreadable)
    #expect(report.unreadable.map(\.name) == ["t3"])
    // It takes no other's place.
    #expect(try await Set(store.states().map(\.name)) == ["t2", "t3", "u3"])
    #expect(try replacedCount(store, "t/a") == 3)
    #expect(try replacedCount(store, "u/a") == 0)
    let found = try await store.findInStates { _ in true }
    #expect(found.unreadable.map(\.name) == ["t3"])
    #expect(found.versions.map { $0.states.map(\.name) } == [["t2"], ["u3"]])
    // One of a later build: what its keys begin with is not known.
    _ = try await importStates(2, "v", place, store)
    let number = "00000000000000ff"
    try store.engine.putInternal(
      InternalKey.Purpose.state.key(Array(number.utf8)), .data(Data()), metadata: Array("STA9".utf8))
    let later = try await store.keep(policy { $0.last = 1 }, of: .all)
    #expect(Set(later.unreadable.map(\.text)) == [number, "t3"])
    #expect(try replacedCount(store, "v/a") == 1)
    #expect(try await store.unreadableStates().map(\.id.description) == [number])
    // The rules drop it like any other, when a younger one is there.
    try store.engine.dropInternal([InternalKey.Purpose.state.key(Array(number.utf8))])
    _ = try await importStates(1, "t", place, store)
    let last = try await store.keep(policy { $0.last = 1 }, of: .all)
    #expect(last.unreadable == [])
    #expect(try await Set(store.states().map(\.name)) == ["t0", "u3", "v1"])
    #expect(try replacedCount(store, "t/a") == 0 && replacedCount(store, "v/a") == 0)
    try await store.close()
  }

  @Test("drops a state in a bucket that others build on, and the others stay readable")
  func inBucket() async throws {
    let place = try RemotePlace()
    let store = try await BlobStore.open(
      place.objects, state: place.statePath("one"), remote: RemoteConfiguration(interval: .zero))
    let tree = place.temporary.path.string + "/tree"
    try FileManager.default.createDirectory(atPath: tree, withIntermediateDirectories: true)
    try Data("same".utf8).write(to: URL(filePath: tree + "/same"))
    for number in 0..<3 {
      try Data("\(number)".utf8).write(to: URL(filePath: tree + "/a"))
      let options = ImportOptions(prefix: "t/", stateName: "t\(number)")
      _ = try await store.importFiles([tree], options: options)
    }
    #expect(try await store.keep(policy { $0.last = 1 }, of: .all).droppedStateCount == 2)
    let state = try #require(try await store.states().first)
    #expect(try await store.states().count == 1)
    #expect(try await store.version(of: "t/same", in: state) != nil)
    try await store.close()
  }

  @Test("a hold protects a key, a prefix or a state until it is released")
  func holds() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let tree = place.temporary.path.string + "/tree"
    try FileManager.default.createDirectory(atPath: tree, withIntermediateDirectories: true)
    try Data("one".utf8).write(to: URL(filePath: tree + "/a"))
    let first = try #require(try await store.importFiles([tree], options: ImportOptions(prefix: "t/")).state)
    try Data("other".utf8).write(to: URL(filePath: tree + "/a"))
    _ = try await store.importFiles([tree], options: ImportOptions(prefix: "t/"))
    for key in ["k", "p/1", "p/2", "free"] {
      try await store.set(key, to: Data("1".utf8))
      try await store.set(key, to: Data("2".utf8), archivingCurrent: true)
    }
    try await store.hold(.key("k"), as: "of a key")
    try await store.hold(.prefix("p/"), as: "of a prefix")
    try await store.hold(.state(first), as: "of a state")
    #expect(try await store.treeHolds().map(\.name) == ["of a key", "of a prefix", "of a state"])
    await expectHeld("of a key") { _ = try await store.delete("k") }
    await expectHeld("of a key") { _ = try await store.keep(upTo: 0, of: "k") }
    await expectHeld("of a key") { _ = try await store.deleteAllKeys() }
    await expectHeld("of a key") { _ = try await store.rename("k", to: "l") }
    await expectHeld("of a key") { _ = try await store.apply([.delete("free"), .delete("k")]) }
    await expectHeld("of a prefix") { _ = try await store.delete(prefix: .bytes("p/2")) }
    await expectHeld("of a prefix") { _ = try await store.delete(["free", "p/1"]) }
    let old = try #require(try await store.versions(of: "p/1").last)
    await expectHeld("of a prefix") { _ = try await store.delete(version: old.id, of: "p/1") }
    await expectHeld("of a state") { _ = try await store.delete("t/a") }
    // A key that came later is not the state's.
    try await store.set("t/new", to: Data())
    #expect(try await store.delete("t/new"))
    #expect(try await store.currentVersion(of: "free") != nil)
    try await store.trimHistory(of: .all, toArchived: 0)
    #expect(try await store.versions(of: "k").count == 2)
    #expect(try await store.versions(of: "free").count == 1)
    let report = try await store.keep(policy { $0.last = 1 }, of: .all)
    #expect(report.droppedStateCount == 0)
    #expect(report.decisions.contains { $0.state == first && $0.reasons == ["hold “of a state”"] })
    await #expect(throws: BlobStorageError.self) { try await store.hold(.key("free"), as: "of a key") }
    for name in ["of a key", "of a prefix", "of a state"] { #expect(try await store.releaseHold(name)) }
    #expect(try await store.releaseHold("of a key") == false)
    #expect(try await store.keep(policy { $0.last = 1 }, of: .all).droppedStateCount == 1)
    #expect(try await store.states().count == 1)
    #expect(try await store.deleteAllKeys() == 5)
    #expect(try await store.states().isEmpty)
    try await store.close()
  }

  @Test("a hold on a state counts in the commit that drops the state, also if others build on it")
  func heldMeanwhile() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let states = try await importStates(2, "t", place, store)
    let file = StateFile(store.engine)
    try await store.hold(.state(states[0]), as: "a")
    try file.drop([states[0]])
    #expect(try await Set(store.states().map(\.id)) == Set(states.map(\.id)))
    #expect(try await store.releaseHold("a"))
    try await store.hold(.state(states[1]), as: "b")
    try file.drop(states)
    #expect(try await store.states().map(\.id) == [states[1].id])
    #expect(try await store.version(of: "t/a", in: states[1]) != nil)
    #expect(try await store.releaseHold("b"))
    try file.drop(states)
    #expect(try await store.states().isEmpty)
    try await store.close()
  }

  @Test("of holds of one name that are made at once, one is made, and the others are refused")
  func sameHold() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    for round in 0..<10 {
      let madeCount = await withTaskGroup(of: Bool.self) { group in
        for index in 0..<8 {
          group.addTask {
            do { try await store.hold(.key("k\(index)"), as: "\(round)") } catch { return false }
            return true
          }
        }
        return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
      }
      #expect(madeCount == 1)
    }
    try await store.close()
  }

  @Test("a hold keeps what puts, imports without a state and copies would drop")
  func heldBesideChanges() async throws {
    let (place, other) = (try StorePlace(), try StorePlace())
    let (store, source) = (try await place.opened(), try await other.opened())
    for store in [store, source] {
      try await store.set("k", to: Data("1".utf8))
      try await store.set("free", to: Data("1".utf8))
    }
    try await store.hold(.prefix(.bytes("k")), as: "mine")
    #expect(try await store.namesOfHolds(on: ["k", "free", "none"]) == ["mine", nil, nil])
    try await store.set("k", to: Data("2".utf8))
    try await store.set("free", to: Data("2".utf8))
    _ = try await store.apply([.put(PutItem(key: "k", data: Data("3".utf8)))])
    #expect(try await store.versions(of: "k").count == 3)
    #expect(try await store.versions(of: "free").count == 1)
    let file = place.temporary.path.string + "/k"
    try Data("4".utf8).write(to: URL(filePath: file))
    _ = try await store.importFiles([file], options: ImportOptions(recordsState: false))
    #expect(try await store.versions(of: "k").count == 4)
    // A mirror drops neither the key nor its versions.
    _ = try await source.delete("k")
    _ = try await source.copy(to: store, options: CopyOptions(isMirror: true, isForced: true))
    #expect(try await store.versions(of: "k").count == 4)
    #expect(try await store.versions(of: "free").count == 1)
    #expect(try await store.releaseHold("mine"))
    _ = try await source.copy(to: store, options: CopyOptions(isMirror: true, isForced: true))
    #expect(try await store.versions(of: "k").count == 0)
    try await store.close()
    try await source.close()
  }

  @Test("a hold that a copy brings does not end a hold of that name in the target", arguments: [false, true])
  func copiedHold(isMirror: Bool) async throws {
    let (place, other) = (try StorePlace(), try StorePlace())
    let (source, target) = (try await place.opened(), try await other.opened())
    for store in [source, target] {
      for key in ["x", "y"] { try await store.set(key, to: Data()) }
    }
    try await target.hold(.key("x"), as: "one")
    try await source.hold(.key("y"), as: "one")
    _ = try await source.copy(to: target, options: CopyOptions(isMirror: isMirror, isForced: isMirror))
    #expect(try await target.namesOfHolds(on: ["x", "y"]) == ["one", "one"])
    #expect(try await target.treeHolds().map(\.target).sorted() == ["x", "y"])
    #expect(try await target.releaseHold("one"))
    #expect(try await target.namesOfHolds(on: ["x", "y"]) == [nil, nil])
    try await source.close()
    try await target.close()
  }

  @Test("a copy brings back what a state has, and a mirror drops states")
  func copies() async throws {
    let (place, other) = (try StorePlace(), try StorePlace())
    let (source, target) = (try await place.opened(), try await other.opened())
    let states = try await importStates(3, "t", place, source)
    _ = try await source.copy(to: target)
    #expect(try await target.delete("t/a"))
    for state in states {
      await #expect(throws: BlobStorageError.self) { try await target.version(of: "t/a", in: state) }
    }
    _ = try await source.copy(to: target)
    func check() async throws {
      for (number, state) in states.enumerated() {
        let version = try #require(try await target.version(of: "t/a", in: state))
        #expect(try await target.data(for: version.digest) == Data("t \(number)".utf8))
        #expect(try await target.versions(of: "t/a").contains(version) == (number == 2))
      }
    }
    try await check()
    _ = try await target.keep(policy { $0.last = 3 }, of: .all)
    try await check()
    let restored = try await target.restore("t/a", from: states[0])
    #expect(restored != nil)
    // The source forgets what it has dropped.
    _ = try await source.keep(policy { $0.last = 1 }, of: .all)
    _ = try await source.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    try await target.hold(.state(states[1]), as: "mine")
    _ = try await source.copy(to: target, options: CopyOptions(isMirror: true))
    #expect(try await target.states().map(\.name) == ["t1", "t2"])
    #expect(try await target.version(of: "t/a", in: states[1]) != nil)
    #expect(try await target.releaseHold("mine"))
    _ = try await source.copy(to: target, options: CopyOptions(isMirror: true))
    #expect(try await target.states().map(\.name) == ["t2"])
    #expect(try replacedCount(target, "t/a") == 0)
    #expect(try await target.version(of: "t/a", in: states[2]) != nil)
    try await source.close()
    try await target.close()
  }

  @Test("a copy of a prefix leaves what a state of the target has of it", arguments: [false, true])
  func prefixCopies(isMirror: Bool) async throws {
    let (place, other) = (try StorePlace(), try StorePlace())
    let (source, target) = (try await place.opened(), try await other.opened())
    let states = try await importStates(1, "t", place, source)
    _ = try await source.copy(to: target)
    let tree = place.temporary.path.string + "/tree-t"
    try Data("changed".utf8).write(to: URL(filePath: tree + "/a"))
    _ = try await source.importFiles([tree], options: ImportOptions(prefix: "t/"))
    _ = try await source.copy(
      to: target, options: CopyOptions(prefix: "t/", isMirror: isMirror, isForced: isMirror))
    #expect(try await target.data(forKey: "t/a") == Data("changed".utf8))
    #expect(try await target.versions(of: "t/a").count == 1)
    let version = try #require(try await target.version(of: "t/a", in: states[0]))
    #expect(try await target.data(for: version.digest) == Data("t 0".utf8))
    try await source.close()
    try await target.close()
  }

  @Test("a copy of a prefix leaves what a state of the target has of it, also if that had been dropped there")
  func prefixCopiesAfterReturn() async throws {
    let (place, other) = (try StorePlace(), try StorePlace())
    let (source, target) = (try await place.opened(), try await other.opened())
    let states = try await importStates(1, "t", place, source)
    _ = try await source.copy(to: target)
    _ = try await target.delete("t/a")
    // The version comes back under another ID.
    _ = try await source.copy(to: target)
    let tree = place.temporary.path.string + "/tree-t"
    try Data("changed".utf8).write(to: URL(filePath: tree + "/a"))
    _ = try await source.importFiles([tree], options: ImportOptions(prefix: "t/"))
    _ = try await source.copy(to: target, options: CopyOptions(prefix: "t/"))
    #expect(try await target.versions(of: "t/a").count == 1)
    let version = try #require(try await target.version(of: "t/a", in: states[0]))
    #expect(try await target.data(for: version.digest) == Data("t 0".utf8))
    try await source.close()
    try await target.close()
  }

  @Test("a copy leaves what a held state of the target builds on")
  func heldStateInTarget() async throws {
    let (place, other) = (try StorePlace(), try StorePlace())
    let (source, target) = (try await place.opened(), try await other.opened())
    let states = try await importStates(2, "t", place, source)
    _ = try await source.copy(to: target)
    try await target.hold(.state(states[1]), as: "mine")
    _ = try await source.keep(policy { $0.last = 0 }, of: .all)
    for isMirror in [false, true] {
      _ = try await source.copy(to: target, options: CopyOptions(isMirror: isMirror, isForced: isMirror))
      #expect(try await target.states().map(\.name) == ["t1"])
      #expect(try await target.version(of: "t/a", in: states[1]) != nil)
    }
    #expect(try await target.releaseHold("mine"))
    _ = try await source.copy(to: target)
    #expect(try await target.states().isEmpty)
    #expect(try target.engine.internalVersions(InternalKey.Purpose.link.prefix).isEmpty)
    try await source.close()
    try await target.close()
  }

  @Test("names a state whose record is that of another, and goes on with the others")
  func forged() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let states = try await importStates(2, "t", place, store)
    let key = InternalKey.Purpose.state.key(Array(states[1].id.description.utf8))
    let record = try #require(try store.engine.internalVersions(key).first)
    let number = "00000000000000ff"
    try store.engine.putInternal(
      InternalKey.Purpose.state.key(Array(number.utf8)), .data(Data()), metadata: record.row.metadata)
    let report = try await store.keep(policy { $0.last = 1 }, of: .all)
    #expect(report.unreadable.map(\.text) == [number])
    #expect(try await store.states().map(\.name) == ["t1"])
    try await store.close()
  }

  @Test("drops no version while an import is under way, which may have found any of them")
  func besideImport() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    for text in ["1", "2"] { try await store.set("k", to: Data(text.utf8), archivingCurrent: true) }
    let rules = policy { $0.last = 0 }
    for scope in [KeyScope.all, .prefix(.bytes("k")), .key("k")] {
      let lock = try StatesLock.shared(store.engine.folder)
      #expect(try await store.keep(rules, of: scope).droppedVersionCount == 0)
      withExtendedLifetime(lock) {}
    }
    #expect(try await store.versions(of: "k").count == 2)
    #expect(try await store.keep(rules, of: .key("k")).droppedVersionCount == 1)
    // Attributes of a file that the import has yet to store.
    let prefix = InternalKey.Purpose.attributes.prefix
    try store.engine.putInternal(prefix + [1], .data(Data()))
    do {
      let lock = try StatesLock.shared(store.engine.folder)
      try await store.deleteAllKeys()
      withExtendedLifetime(lock) {}
    }
    #expect(try store.engine.internalVersions(prefix).count == 1)
    try await store.deleteAllKeys()
    #expect(try store.engine.internalVersions(prefix).isEmpty)
    try await store.close()
  }

  @Test("drops no version while a pack is lost: a state that comes back with it has all that it had")
  func lostPack() async throws {
    let place = try StorePlace()
    let tree = place.temporary.path.string + "/tree"
    let packs = place.path + "/packs"
    try FileManager.default.createDirectory(atPath: tree, withIntermediateDirectories: true)
    func importTree(_ changed: [String: String], _ store: BlobStore) async throws -> TreeState {
      for (name, text) in changed {
        try Data(text.utf8).write(to: URL(filePath: "\(tree)/\(name)"))
      }
      return try #require(try await store.importFiles([tree], options: ImportOptions(prefix: "t/")).state)
    }
    let first = try await place.opened()
    _ = try await importTree(["a": "a1", "b": "b1"], first)
    try await first.close()
    let before = Set(try FileManager.default.contentsOfDirectory(atPath: packs))
    let second = try await place.opened()
    let state = try await importTree(["a": "a2"], second)
    try await second.close()
    let lost = try #require(
      try FileManager.default.contentsOfDirectory(atPath: packs).first { !before.contains($0) })
    try FileManager.default.moveItem(atPath: "\(packs)/\(lost)", toPath: "\(place.path)-lost")
    try place.removeCatalog()
    let third = try await place.opened()
    #expect(try await third.states().count == 1)
    _ = try await importTree(["a": "a3", "b": "b3"], third)
    for isDryRun in [true, false] {
      let report = try await third.keep(policy { $0.last = 1 }, of: .all, isDryRun: isDryRun)
      #expect(report.droppedStateCount == 1 && report.droppedVersionCount == 0)
    }
    try await third.close()
    try FileManager.default.moveItem(atPath: "\(place.path)-lost", toPath: "\(packs)/\(lost)")
    let last = try await place.opened()
    for (key, text) in [("t/a", "a2"), ("t/b", "b1")] {
      let version = try #require(try await last.version(of: key, in: state))
      #expect(try await last.data(for: version.digest) == Data(text.utf8))
    }
    // Nothing is lost any more.
    #expect(try await last.keep(policy { $0.last = 1 }, of: .all).droppedVersionCount > 0)
    try await last.close()
  }

  @Test("a hold says how long its prefix may be")
  func longHold() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let key = String(repeating: "k", count: 1_100)
    try await store.set(key, to: Data("1".utf8))
    for target in [HoldTarget.key(key), .prefix(.bytes(key))] {
      let error = await #expect(throws: BlobStorageError.self) { try await store.hold(target, as: "long") }
      #expect(error?.code == .limitExceeded && error?.message.contains("a prefix of at most 999") == true)
    }
    try await store.hold(.prefix(.bytes(String(key.prefix(999)))), as: "long")
    await expectHeld("long") { _ = try await store.delete(key) }
  }

  @Test("refuses rules that would drop everything, and the empty prefix")
  func refused() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    _ = try await importStates(2, "t", place, store)
    let cases: [(KeyScope, RetentionPolicy)] = [
      (.all, RetentionPolicy()), (.all, policy { $0.daily = -1 }), (.prefix(""), policy { $0.last = 1 }),
      (.all, policy { $0.within = .seconds(-1) }),
    ]
    for (scope, rules) in cases {
      let error = await #expect(throws: BlobStorageError.self) { try await store.keep(rules, of: scope) }
      #expect(error?.code == .invalidArgument)
    }
    #expect(try await store.states().count == 2)
    try await store.close()
  }

  @Test("drops a state again that others build on and that a copy has brought back")
  func droppedAgain() async throws {
    let (place, other) = (try StorePlace(), try StorePlace())
    let (source, target) = (try await place.opened(), try await other.opened())
    let states = try await importStates(3, "t", place, source)
    for _ in 0..<2 {
      _ = try await source.copy(to: target)
      #expect(try await target.states().count == 3)
      #expect(try await target.keep(policy { $0.last = 1 }, of: .all).droppedStateCount == 2)
      #expect(try await target.states().map(\.name) == ["t2"])
      #expect(try await target.version(of: "t/a", in: states[2]) != nil)
    }
    try await source.close()
    try await target.close()
  }

  @Test("drops extended attributes that are stored apart once no version and no folder of a state has them")
  func attributes() async throws {
    let place = try StorePlace()
    let store = try await place.opened()
    let tree = place.temporary.path.string + "/tree"
    try FileManager.default.createDirectory(atPath: tree + "/d", withIntermediateDirectories: true)
    try Data("one".utf8).write(to: URL(filePath: tree + "/a"))
    func value(_ digit: Int) -> String { String(repeating: "\(digit)", count: 3_000) }
    func setAttribute(_ name: String, _ digit: Int) throws {
      _ = try run(["setfattr", "-n", "user.long", "-v", value(digit), "\(tree)/\(name)"])
    }
    func count() throws -> Int {
      try store.engine.internalVersions(InternalKey.Purpose.attributes.prefix).count
    }
    func keep(_ last: Int) async throws { _ = try await store.keep(policy { $0.last = last }, of: .all) }
    let options = ImportOptions(prefix: "t/")
    try setAttribute("a", 1)
    try setAttribute("d", 2)
    _ = try await store.importFiles([tree], options: options)
    try await keep(5)
    #expect(try count() == 2)
    try setAttribute("a", 3)
    _ = try await store.importFiles([tree], options: options)
    #expect(try count() == 3)
    do {
      let lock = try StatesLock.shared(store.engine.folder)
      try await keep(1)
      withExtendedLifetime(lock) {}
    }
    #expect(try count() == 3)
    try await keep(1)
    #expect(try count() == 2)
    _ = try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    let out = place.temporary.path.string + "/out"
    _ = try await store.exportFiles(to: out, options: ExportOptions(prefix: "t/", stripped: "t/"))
    for (name, digit) in [("a", 3), ("d", 2)] {
      let command = ["getfattr", "-n", "user.long", "--only-values", "--absolute-names"]
      let found = try run(command + ["\(out)/\(name)"])
      #expect(found == value(digit))
    }
    _ = try run(["setfattr", "-x", "user.long", "\(tree)/d"])
    _ = try await store.importFiles([tree], options: options)
    try await keep(1)
    #expect(try count() == 1)
    _ = try await store.delete("t/a")
    try await keep(1)
    #expect(try count() == 0)
    try await store.close()
  }

  @Test("a copy leaves extended attributes that another key of the target has", arguments: [false, true])
  func attributesInTarget(isMirror: Bool) async throws {
    let (place, other) = (try StorePlace(), try StorePlace())
    let (source, target) = (try await place.opened(), try await other.opened())
    let (file, out) = (place.temporary.path.string + "/a", place.temporary.path.string + "/out")
    try Data("one".utf8).write(to: URL(filePath: file))
    let value = String(repeating: "1", count: 3_000)
    _ = try run(["setfattr", "-n", "user.long", "-v", value, file])
    _ = try await source.importFiles([file])
    _ = try await source.copy(to: target)
    #expect(try await target.rename("a", to: "mine"))
    try await target.hold(.key("mine"), as: "hold")
    _ = try await source.delete("a")
    _ = try await source.keep(policy { $0.last = 0 }, of: .all)
    _ = try await source.copy(to: target, options: CopyOptions(isMirror: isMirror, isForced: isMirror))
    #expect(try target.engine.internalVersions(InternalKey.Purpose.attributes.prefix).count == 1)
    _ = try await target.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    #expect(
      try await target.exportFiles(to: out, options: ExportOptions(prefix: .bytes("mine"))).damaged.isEmpty)
    let command = ["getfattr", "-n", "user.long", "--only-values", "--absolute-names"]
    #expect(try run(command + ["\(out)/mine"]) == value)
    try await source.close()
    try await target.close()
  }

  private func run(_ arguments: [String]) throws -> String {
    let (process, pipe) = (Process(), Pipe())
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = arguments
    process.standardOutput = pipe
    try process.run()
    let output = try pipe.fileHandleForReading.readToEnd() ?? Data()
    process.waitUntilExit()
    #expect(process.terminationStatus == 0, "\(arguments)")
    return String(decoding: output, as: UTF8.self)
  }

  private func expectHeld(_ name: String, _ body: () async throws -> Void) async {
    do {
      try await body()
      Issue.record("“\(name)” did not hold")
    } catch {
      let error = error as? BlobStorageError
      #expect(
        error?.code == .held && error?.message.contains("“\(name)”") == true, "\(String(describing: error))")
    }
  }
}
