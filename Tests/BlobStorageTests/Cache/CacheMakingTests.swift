import BlobStorage
import BlobStorageCache
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A cache that makes values")
struct CacheMakingTests {
  private let temporary: TemporaryFolder
  private var path: String { temporary.path.appending("cache").string }
  private let limits = CacheLimits(byteLimit: 64 << 20)

  init() throws { temporary = try TemporaryFolder() }

  private func opened() async throws -> BlobCache { try await BlobCache.open(at: path, limits: limits) }

  /// What happened, in order.
  private final class Events: Sendable {
    private let list = Mutex<[String]>([])
    var all: [String] { list.withLock { $0 } }
    func add(_ event: String) { list.withLock { $0.append(event) } }
  }

  private func waitForWaiters(_ count: Int, of cache: BlobCache) async {
    while cache.waiterCount != count { await Task.yield() }
  }

  @Test("lets a cancelled caller go at once, and cancels what nobody waits for")
  func cancelled() async throws {
    let cache = try await opened()
    let (begun, mayEnd, ended) = (Gate(), Gate(), Gate())
    let events = Events()
    let caller = Task {
      try await cache.value(Data.self, forKey: "k") {
        begun.open()
        await mayEnd.wait()
        events.add(Task.isCancelled ? "cancelled" : "not cancelled")
        ended.open()
        return Data("late".utf8)
      }
    }
    await begun.wait()
    caller.cancel()
    // `make` has not ended, and does not until the caller has returned.
    await #expect(throws: CancellationError.self) { try await caller.value }
    #expect(events.all == [])
    // A later caller does not wait for what was cancelled.
    #expect(try await cache.value(Data.self, forKey: "k") { Data("second".utf8) } == Data("second".utf8))
    mayEnd.open()
    await ended.wait()
    #expect(events.all == ["cancelled"])
    await cache.waitForStoring()
    #expect(try await cache.data(forKey: "k") == Data("second".utf8))
    try await cache.close()
  }

  @Test("makes nothing for a caller that was cancelled before")
  func cancelledBefore() async throws {
    let cache = try await opened()
    try await cache.set("there", forKey: "old")
    let events = Events()
    for key in ["new", "old"] {
      let gate = Gate()
      let caller = Task {
        await gate.wait()
        return try await cache.value(String.self, forKey: key) {
          events.add("made")
          return "made"
        }
      }
      caller.cancel()
      gate.open()
      await #expect(throws: CancellationError.self) { try await caller.value }
    }
    #expect(events.all == [])
    try await cache.close()
  }

  @Test("continues for those who stay, and stops with the last of them")
  func lastWaiter() async throws {
    let cache = try await opened()
    let (begun, ended) = (Gate(), Gate())
    let events = Events()
    let make: @Sendable () async throws -> String = {
      events.add("begun")
      begun.open()
      do { try await Task.sleep(for: .seconds(3_600)) } catch { events.add("cancelled") }
      ended.open()
      return "never"
    }
    let callers = (0..<3).map { _ in Task { try await cache.value(String.self, forKey: "k", make: make) } }
    await begun.wait()
    await waitForWaiters(3, of: cache)
    for caller in callers.dropLast() {
      caller.cancel()
      await #expect(throws: CancellationError.self) { try await caller.value }
    }
    #expect(events.all == ["begun"])
    #expect(cache.waiterCount == 1)
    callers[2].cancel()
    await #expect(throws: CancellationError.self) { try await callers[2].value }
    await ended.wait()
    #expect(events.all == ["begun", "cancelled"])
    #expect(cache.waiterCount == 0)
    #expect(try await cache.data(forKey: "k") == nil)
    try await cache.close()
  }

  @Test("makes and stores a value without a caller, if one has asked for that")
  func kept() async throws {
    let cache = try await opened()
    let (begun, mayEnd) = (Gate(), Gate())
    let caller = Task {
      try await cache.value(Data.self, forKey: "k", keepsMaking: true) {
        begun.open()
        await mayEnd.wait()
        try Task.checkCancellation()
        return Data("kept".utf8)
      }
    }
    await begun.wait()
    caller.cancel()
    await #expect(throws: CancellationError.self) { try await caller.value }
    mayEnd.open()
    // Joins the same making, or finds what it has stored.
    #expect(try await cache.value(Data.self, forKey: "k") { Data("again".utf8) } == Data("kept".utf8))
    await cache.waitForStoring()
    #expect(try await cache.data(forKey: "k") == Data("kept".utf8))
    try await cache.close()
  }

  @Test("returns what was made before it is stored, and reads it until then")
  func returnsFirst() async throws {
    let cache = try await opened()
    try await cache.set("there", forKey: "other")
    let lock = try SystemFiles().open(temporary.path.appending("cache/cache.lock"), .openOrCreate)
    #expect(try lock.lock(.exclusive, wait: false))
    // Longer than what the open pack has left, so that storing waits for room, which needs the lock.
    var random = SplitMix64(seed: 1)
    let value = random.noise(2 << 20)
    let made = try await cache.value(Data.self, forKey: "k") { value }
    #expect(made == value)
    #expect(try await cache.data(forKey: "k") == value)
    #expect(try await cache.data(forKeys: ["k", "other"]).map { $0?.count } == [value.count, 7])
    #expect(try await cache.contains(key: "k"))
    #expect(cache.cachedData(forKey: "k") == value)
    #expect(try await cache.store.currentVersion(of: "k") == nil, "it is not stored yet")
    // Nobody makes it twice meanwhile.
    #expect(try await cache.value(Data.self, forKey: "k") { Data() } == value)
    lock.close()
    // Closing waits for it.
    try await cache.close()
    let again = try await opened()
    #expect(try await again.data(forKey: "k") == value)
    try await again.close()
  }

  @Test("returns what was made if it cannot be converted or stored")
  func unstorable() async throws {
    let log = LogRecorder()
    let cache = try await BlobCache.open(
      at: path, limits: limits,
      configuration: CacheConfiguration(store: StoreConfiguration(logger: log.logger)))
    struct Unwritable: Error {}
    let format = BlobFormat<Int> { _ in
      throw Unwritable()
    } decode: {
      $0.count
    }
    #expect(try await cache.value(forKey: "k", as: format) { 7 } == 7)
    #expect(try await cache.data(forKey: "k") == nil)
    #expect(log.count(of: "could not be stored") == 1)
    try await cache.close()
  }

  /// A value that several threads share.
  private final class Shared<Value: Sendable>: Sendable {
    private let state: Mutex<Value>
    init(_ value: Value) { state = Mutex(value) }
    var value: Value {
      get { state.withLock { $0 } }
      set { state.withLock { $0 = newValue } }
    }
  }

  private final class Misses: StoreMetrics {
    let count = Shared(0)
    func record(_ event: StoreEvent) { if event == .cacheMiss { count.value += 1 } }
  }

  @Test("counts a lookup that fails as a miss, and reports it")
  func failedLookup() async throws {
    var random = SplitMix64(seed: 2)
    let value = random.noise(300_000)
    let first = try await opened()
    try await first.set(value, forKey: "k")
    try await first.close()
    let fails = Shared(false)
    var environment = Engine.Environment()
    environment.files = HookedFiles { (call, path) throws(BlobStorageError) in
      guard fails.value, call == "open", path.extension == "pack" else { return }
      throw BlobStorageError(.io, "Planned: cannot open \(path).", path: path.string)
    }
    let (log, misses) = (LogRecorder(), Misses())
    let store = try BlobStore.open(
      at: path, StoreConfiguration(logger: log.logger, metrics: misses), in: environment)
    let cache = try await store.cache(limits: limits, configuration: CacheConfiguration(memoryByteLimit: 0))
    fails.value = true
    await #expect(throws: BlobStorageError.self) { try await cache.data(forKey: "k") }
    let before = misses.count.value
    #expect(try await cache.value(Data.self, forKey: "k") { Data("made".utf8) } == Data("made".utf8))
    #expect(misses.count.value > before)
    #expect(log.count(of: "could not be read") > 0)
    fails.value = false
    try await cache.close()
  }

  @Test("refuses invalid keys and a closed cache before it makes anything")
  func misuse() async throws {
    let cache = try await opened()
    let events = Events()
    func code(_ key: String) async -> BlobStorageError.Code? {
      let error = await #expect(throws: BlobStorageError.self) {
        try await cache.value(String.self, forKey: key) {
          events.add("made")
          return "made"
        }
      }
      return error?.code
    }
    #expect(await code("") == .invalidArgument)
    #expect(await code("a\0b") == .invalidArgument)
    try await cache.close()
    #expect(await code("k") == .closed)
    #expect(events.all == [])
  }

  @Test("says that a value needs itself, directly, by another key, and by another cache on the folder")
  func circles() async throws {
    let cache = try await opened()
    let other = try await opened()
    func refusal(_ body: @escaping @Sendable () async throws -> String) async -> BlobStorageError? {
      await #expect(throws: BlobStorageError.self) { try await body() }
    }
    let own = await refusal {
      try await cache.value(forKey: "own") { try await cache.value(forKey: "own") { "never" } }
    }
    #expect(own?.code == .invalidArgument)
    #expect(own?.key == "own")
    #expect(own?.message.contains("needs itself") == true)
    let type = await refusal {
      try await cache.value(forKey: "t") { String(try await cache.value(Int.self, forKey: "t") { 1 }) }
    }
    #expect(type?.code == .invalidArgument)
    let two = await refusal {
      try await cache.value(forKey: "a") {
        try await cache.value(forKey: "b") { try await cache.value(forKey: "a") { "never" } }
      }
    }
    #expect(two?.key == "a")
    let across = await refusal {
      try await cache.value(forKey: "c") {
        try await other.value(forKey: "d") { try await other.value(forKey: "c") { "never" } }
      }
    }
    #expect(across?.key == "c")
    // What ends is no circle.
    let chain = try await cache.value(forKey: "1") {
      try await cache.value(forKey: "2") { try await other.value(forKey: "3") { "made" } }
    }
    #expect(chain == "made")
    try await other.close()
    try await cache.close()
  }

  @Test("finds a circle of values that different tasks make")
  func crossing() async throws {
    let cache = try await opened()
    let (first, second) = (Gate(), Gate())
    let tasks = [("a", "b", first, second), ("b", "a", second, first)].map { key, needed, own, others in
      Task {
        try await cache.value(String.self, forKey: key) {
          own.open()
          await others.wait()
          return try await cache.value(String.self, forKey: needed) { "never" }
        }
      }
    }
    // One of them is refused, and the other gets its error.
    for task in tasks {
      let error = await #expect(throws: BlobStorageError.self) { try await task.value }
      #expect(error?.code == .invalidArgument)
    }
    #expect(cache.waiterCount == 0)
    try await cache.close()
  }

  @Test("lets a task that outlives its making ask for the key again")
  func afterwards() async throws {
    let cache = try await opened()
    let mayAsk = Gate()
    let later = Shared<Task<String, any Error>?>(nil)
    _ = try await cache.value(String.self, forKey: "k") {
      later.value = Task {
        await mayAsk.wait()
        return try await cache.value(forKey: "k") { "again" }
      }
      return "made"
    }
    await cache.waitForStoring()
    try await cache.remove("k")
    mayAsk.open()
    #expect(try await later.value?.value == "again")
    try await cache.close()
  }

  @Test("does not share one making between values of different types")
  func types() async throws {
    let cache = try await opened()
    let (begun, mayEnd) = (Gate(), Gate())
    let text = Task {
      try await cache.value(String.self, forKey: "k") {
        begun.open()
        await mayEnd.wait()
        return "text"
      }
    }
    await begun.wait()
    #expect(try await cache.value(Int.self, forKey: "k") { 7 } == 7)
    mayEnd.open()
    #expect(try await text.value == "text")
    try await cache.close()
  }

  // MARK: Prefetching

  @Test("prefetches what is missing, so many at a time, and goes on after a failure")
  func prefetched() async throws {
    let cache = try await opened()
    try await cache.set(Data("old".utf8), forKey: "k3")
    let atOnce = Mutex((now: 0, most: 0))
    let keys = (0..<20).map { "k\($0)" }
    let count = try await cache.prefetch(keys, maximumConcurrency: 3) { key in
      atOnce.withLock { $0 = ($0.now + 1, max($0.most, $0.now + 1)) }
      for _ in 0..<10 { await Task.yield() }
      atOnce.withLock { $0.now -= 1 }
      if key == "k5" { throw CocoaError(.fileReadUnknown) }
      return Data(key.utf8)
    }
    #expect(count == 19)
    #expect(atOnce.withLock { $0.most } <= 3)
    let expected = keys.map { $0 == "k3" ? Data("old".utf8) : $0 == "k5" ? nil : Data($0.utf8) }
    #expect(try await cache.data(forKeys: keys) == expected)
    try await cache.close()
  }

  @Test("stops prefetching at once when its task is cancelled")
  func prefetchCancelled() async throws {
    let cache = try await opened()
    let (begun, mayEnd) = (Gate(), Gate())
    let events = Events()
    let prefetch = Task {
      try await cache.prefetch((0..<10).map { "k\($0)" }, maximumConcurrency: 1) { key in
        events.add(key)
        begun.open()
        await mayEnd.wait()
        return Data(key.utf8)
      }
    }
    await begun.wait()
    prefetch.cancel()
    await #expect(throws: CancellationError.self) { try await prefetch.value }
    mayEnd.open()
    #expect(events.all == ["k0"])
    try await cache.close()
  }
}
