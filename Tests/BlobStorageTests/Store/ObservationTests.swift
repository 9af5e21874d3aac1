import BlobStorage
import BlobStorageObservation
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

@Suite("Changes as they become visible", .timeLimit(.minutes(2)))
struct ObservationTests {
  private let place: StorePlace
  private let store: BlobStore

  init() async throws {
    place = try StorePlace()
    store = try await place.opened()
  }

  /// What a consumer shows: it loads everything again when it is told to, and applies each change otherwise.
  private final class Shown: Sendable {
    private let state = Mutex((values: [String: BlobVersion.ID](), reloadCount: 0))
    var values: [String: BlobVersion.ID] { state.withLock { $0.values } }
    var reloadCount: Int { state.withLock { $0.reloadCount } }

    func load(_ store: BlobStore, _ prefix: KeyPrefix) async throws {
      var values: [String: BlobVersion.ID] = [:]
      for try await entry in store.keys(prefix: prefix) { values[entry.key] = entry.current.id }
      state.withLock { $0.values = values }
    }

    func apply(_ change: KeyChange, _ store: BlobStore, _ prefix: KeyPrefix) async throws {
      switch change {
      case .set(let version): state.withLock { $0.values[version.key] = version.id }
      case .deleted(let key): state.withLock { $0.values[key] = nil }
      case .reload:
        state.withLock { $0.reloadCount += 1 }
        try await load(store, prefix)
      }
    }
  }

  @Test("are named with the state that the key has by then; others are not")
  func named() async throws {
    try await store.set("before", to: Data([1]))
    try await store.set("a/gone", to: Data([1]))
    let changes = try await store.changes(prefix: "a/")
    let first = try await store.set("a/1", to: Data([2])).version
    try await store.set("b", to: Data([3]))
    try await store.delete("a/gone")
    let second = try await store.set("a/1", to: Data([4])).version
    var seen: Set<KeyChange> = []
    for try await change in changes {
      seen.insert(change)
      if seen.count == 2 { break }
    }
    #expect(seen == [.set(second), .deleted("a/gone")])
    #expect(first != second)
  }

  @Test("of this process arrive although the interval is long, and they end with the task and the store")
  func immediate() async throws {
    let changes = try await store.changes(interval: .seconds(3_600))
    let store = store
    let putting = Task {
      for key in ["a", "b"] {
        try await Task.sleep(for: .milliseconds(50))
        try await store.set(key, to: Data([1]))
      }
    }
    var keys: [String] = []
    for try await change in changes {
      if case .set(let version) = change { keys.append(version.key) }
      if keys.count == 2 { break }
    }
    #expect(keys == ["a", "b"])
    try await putting.value
    let waiting = Task { for try await change in changes { Issue.record("\(change)") } }
    waiting.cancel()
    try await waiting.value
    // They end although nothing else would ever wake them.
    for ending in 0..<2 {
      let changes = try await store.changes(interval: .seconds(Int64.max))
      let watching = Task { for try await change in changes { Issue.record("\(change)") } }
      try await Task.sleep(for: .milliseconds(50))
      if ending == 0 { try await store.reopen() } else { try await store.close() }
      try await watching.value
    }
  }

  @Test("that were not delivered are delivered by the next loop")
  func interrupted() async throws {
    let changes = try await store.changes()
    for key in 0..<10 { try await store.set("\(key)", to: Data([1]), durability: .relaxed) }
    var keys: Set<String> = []
    while keys.count < 10 {
      for try await change in changes {
        if case .set(let version) = change { #expect(keys.insert(version.key).inserted) }
        break
      }
    }
  }

  private final class Counts: Sendable {
    private let state = Mutex<[String: Int]>([:])
    var all: [String: Int] { state.withLock { $0 } }
    func add(_ key: String) { state.withLock { $0[key, default: 0] += 1 } }
  }

  @Test("are shared by loops over the same value, each delivered once")
  func shared() async throws {
    let changes = try await store.changes(interval: .milliseconds(1))
    let seen = Counts()
    var loops: [Task<Void, any Error>] = []
    for _ in 0..<4 {
      loops.append(
        Task {
          for try await change in changes {
            if case .set(let version) = change { seen.add(version.key) }
          }
        })
    }
    for key in 0..<300 { try await store.set("\(key)", to: Data([1]), durability: .relaxed) }
    while seen.all.count < 300 {
      try await Task.sleep(for: .milliseconds(5))
    }
    #expect(seen.all.count == 300 && seen.all.values.allSatisfy { $0 == 1 })
    for loop in loops {
      loop.cancel()
      try await loop.value
    }
  }

  @Test("of another store on the folder arrive, too, whatever its commits do", arguments: 0..<4)
  func others(_ round: Int) async throws {
    var random = SplitMix64.announced()
    let other = try await place.opened()
    let shown = Shown()
    let changes = try await store.changes(prefix: .bytes("k"), interval: .milliseconds(1))
    try await shown.load(store, .bytes("k"))
    let store = store
    let watching = Task {
      for try await change in changes { try await shown.apply(change, store, .bytes("k")) }
    }
    for step in 0..<60 {
      let key = "\(["k", "other"].randomElement(using: &random)!)\(Int.random(in: 0..<9, using: &random))"
      switch Int.random(in: 0..<10, using: &random) {
      case 0: try await other.delete(prefix: .bytes("k"))
      case 1, 2: try await other.delete(key)
      // Without gc and reopening, each change is named by itself.
      case 3 where round % 2 == 0:
        _ = try await other.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      case 4: try await other.trimHistory(of: .all, toArchived: 0)
      case 5:
        try await other.put([
          PutItem(key: key, data: Data("\(step)".utf8)), PutItem(key: "k-many", data: Data()),
        ])
      case 6 where round % 2 == 0: try await other.reopen()
      default: try await other.set(key, to: Data("\(step)".utf8), archivingCurrent: step % 2 == 0)
      }
      if step % 20 == 19 { try await Task.sleep(for: .milliseconds(20)) }
    }
    let expected = Shown()
    try await expected.load(store, .bytes("k"))
    while shown.values != expected.values {
      try await Task.sleep(for: .milliseconds(10))
    }
    #expect(shown.values == expected.values)
    if round % 2 == 1 { #expect(shown.reloadCount == 0) }
    watching.cancel()
    _ = await watching.result
    try await other.close()
  }

  @Test("that a slow consumer has missed are told in bounded memory: it is asked to load again")
  func slow() async throws {
    let changes = try await store.changes()
    for part in 0..<11 {
      let items = (0..<1_000).map { PutItem(key: "\(part) \($0)", data: Data()) }
      try await store.put(items, options: .relaxed)
    }
    var iterator = changes.makeAsyncIterator()
    #expect(try await iterator.next() == .reload)
    let version = try await store.set("last", to: Data([1])).version
    #expect(try await iterator.next() == .set(version))
  }

  @Test("name a key that was put, loaded and deleted between two looks")
  func brief() async throws {
    let changes = try await store.changes()
    try await store.set("k", to: Data([1]))
    let shown = Shown()
    try await shown.load(store, "")
    try await store.delete("k")
    var iterator = changes.makeAsyncIterator()
    // By the second of them, all changes of the first look were delivered.
    for key in ["y", "z"] {
      try await store.set(key, to: Data([2]))
      while shown.values[key] == nil, let change = try await iterator.next() {
        try await shown.apply(change, store, "")
      }
    }
    #expect(shown.values.keys.sorted() == ["y", "z"])
  }

  @Test("whose records gc has removed before they were read are told by a reload")
  func collected() async throws {
    try await store.set("k", to: Data(repeating: 1, count: 1_000))
    let other = try await place.opened()
    try await other.set("k2", to: Data([1]))
    try await other.close()
    let changes = try await store.changes(interval: .milliseconds(1))
    // Its pack comes and goes, and nothing is left that names the keys.
    let last = try await place.opened()
    try await last.delete("k2")
    try await last.set("brief", to: Data([1]))
    try await last.delete("brief")
    try await last.close()
    _ = try await store.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
    let shown = Shown()
    try await shown.load(store, "")
    var iterator = changes.makeAsyncIterator()
    var names: Set<KeyChange> = []
    while !names.contains(.reload), !names.contains(.deleted("k2")), let change = try await iterator.next() {
      names.insert(change)
    }
    #expect(names.contains(.reload) || names.contains(.deleted("k2")))
  }
}
