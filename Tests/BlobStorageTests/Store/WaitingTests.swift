import BlobStorage
import BlobStorageObservation
import BlobStorageReports
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import SystemPackage
import Testing

/// Each test ends only if what it asks for meanwhile is answered before what it holds up goes on.
@Suite("Beside changes that are held up", .timeLimit(.minutes(2)))
struct WaitingTests {
  private let place: StorePlace
  private let large: Data

  init() throws {
    place = try StorePlace()
    var random = SplitMix64.announced()
    large = random.noise(200_000)
  }

  /// Stops threads inside a call.
  private final class Gate: Sendable {
    private let state = Monitor((isShut: false, waitingCount: 0))

    func shut() { state.withLock { $0.isShut = true } }
    func open() {
      state.withLock { $0.isShut = false }
      state.wakeAll()
    }
    func pass() {
      let waits = state.withLock { state in
        if state.isShut { state.waitingCount += 1 }
        return state.isShut
      }
      guard waits else { return }
      state.wakeAll()
      state.withLock(when: { !$0.isShut }) { _ in }
    }
    func await(_ count: Int) async {
      while state.withLock({ $0.waitingCount }) < count { await Task.yield() }
    }
  }

  private func open(
    _ change: (inout Engine.Environment) -> Void = { _ in }
  ) throws -> BlobStore {
    var environment = Engine.Environment()
    environment.bootIdentity = "boot"
    // A test that fails ends with its time limit.
    environment.stripePatienceSeconds = 3_600
    change(&environment)
    return try BlobStore.open(at: place.path, StoreConfiguration(threadCount: 2), in: environment)
  }

  /// A store whose threads stop at the gate when they lock a key.
  private func open(_ gate: Gate) throws -> BlobStore {
    try open { environment in
      environment.catalogFiles = HookedFiles { (call, _) in if call == "lock bytes" { gate.pass() } }
    }
  }

  /// Puts what ``read(_:)`` expects.
  private func fill(_ store: BlobStore) async throws {
    try await store.set("large", to: large)
    try await store.set("small", to: Data([1]), archivingCurrent: true)
  }

  /// All kinds of reads.
  private func read(_ store: BlobStore) async throws {
    #expect(try await store.data(forKey: "large") == large)
    #expect(try await store.data(forKey: "small") == Data([1]))
    #expect(try await store.data(forKey: "large", in: 10..<150_000) == large[10..<150_000])
    let isWhole = try await store.withReader(forKey: "large") { reader in
      var found = Data()
      for try await part in reader.chunks() { found += part }
      try await reader.stream { _ in }
      let read = try await Data(reader.read(0..<200_000))
      return found == large && read == large
    }
    #expect(isWhole == true)
    #expect(try await store.currentVersion(of: "large")?.byteCount == 200_000)
    #expect(try await store.keys(prefix: "small", limit: 10).contains { $0.key == "small" })
    let history = try await store.history(of: "small")
    #expect(try await history.data(at: 0) == Data([1]))
    history.close()
    #expect(try await store.statistics().keyCount >= 2)
    #expect(try await store.losses().isEmpty)
    _ = try await store.changes(prefix: .bytes("x"))
    #expect(try store.blocking.data(forKey: "large") == large)
  }

  /// Puts that take all threads of changes, and more; each value is one byte.
  private func putting(_ store: BlobStore, _ key: String, _ count: Int) -> [Task<PutResult, any Error>] {
    (0..<count).map { number in
      Task {
        try await store.put(
          .data(Data([UInt8(truncatingIfNeeded: number)])), forKey: key,
          options: PutOptions(replacement: .archiveCurrent))
      }
    }
  }

  private func stripes(_ key: String) -> [Range<Int64>] { LiveTable.stripes([Array(key.utf8)]) }

  /// Another process's locks, which it holds until `body` returns.
  private func holding<T>(
    _ stripes: [Range<Int64>], _ body: () async throws -> T
  ) async throws -> T {
    let table = try #require(
      try LiveTable.open(
        in: FilePath(place.catalogFolder.path), SystemFiles(), MediumIdentity(boot: "boot", mount: ""),
        isAlone: false))
    let (isHeld, held) = AsyncStream<Void>.makeStream()
    let end = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      do {
        try table.locked(stripes) { () throws(BlobStorageError) in
          held.finish()
          end.wait()
        }
      } catch { Issue.record("\(error)") }
      table.close()
    }
    for await _ in isHeld {}
    defer { end.signal() }
    return try await body()
  }

  /// Fails if puts of one key that wait for a stopped process take the threads of reads, or of other changes.
  @Test("of a key in a stopped process, reads and changes of all other keys go on")
  func stoppedProcess() async throws {
    let gate = Gate()
    let store = try open(gate)
    let beside = try StorePlace()
    let other = try await beside.opened()
    try await fill(store)
    for key in ["l", "m", "n"] { try #require(stripes(key) != stripes("k")) }
    let puts = try await holding(stripes("k")) {
      gate.shut()
      let puts = putting(store, "k", 2_000)
      await gate.await(1)
      gate.open()
      for round in 0..<3 {
        try await read(store)
        for task in putting(store, "l", 40) { _ = try await task.value }
        try await store.put([
          PutItem(key: "m", data: Data([1])), PutItem(key: "n", data: Data([UInt8(round)])),
        ])
        #expect(try await store.delete("l"))
        try await store.put(.stream { nil }, forKey: "m")
        _ = try await store.put(.data(large), holding: "hold \(round)")
        try await store.synchronize()
        _ = try await store.collectGarbage()
        for task in putting(other, "k", 40) { _ = try await task.value }
      }
      #expect(try await store.versions(of: "k").isEmpty)
      // A task that is cancelled waits no longer.
      for task in puts.suffix(500) { task.cancel() }
      for task in puts.suffix(500) {
        let error = await #expect(throws: BlobStorageError.self) { try await task.value }
        #expect(error?.code == .cancelled)
      }
      return puts.prefix(1_500)
    }
    for task in puts { _ = try await task.value }
    #expect(try await store.versions(of: "k").count >= 1_500)
    try await store.close()
    try await other.close()
  }

  /// Fails if changes wait one after the other as long as the first.
  @Test("of a key in a process that stays stopped, all puts say so, and what comes later can be put")
  func staysStopped() async throws {
    let store = try open { $0.stripePatienceSeconds = 0.2 }
    try await fill(store)
    try await holding(stripes("k")) {
      for task in putting(store, "k", 300) {
        let error = await #expect(throws: BlobStorageError.self) { try await task.value }
        #expect(error?.code == .busy)
      }
      try await read(store)
    }
    _ = try await store.set("k", to: Data([1]))
    #expect(try await store.versions(of: "k").count == 1)
    try await store.close()
  }

  /// A store that is closed meanwhile waits for none of them.
  @Test("of a key in a stopped process, the store can be closed and opened again")
  func closedMeanwhile() async throws {
    let store = try open()
    try await fill(store)
    try await holding(stripes("k")) {
      let puts = putting(store, "k", 100)
      try await store.reopen()
      try await read(store)
      try await store.close()
      for task in puts {
        let error = await #expect(throws: BlobStorageError.self) { try await task.value }
        #expect(error?.code == .closed)
      }
    }
  }

  /// Fails if a change that must be alone in its process waits for one that another process holds up.
  @Test("of a key in a stopped process, a change that needs the catalog goes on")
  func needsCatalog() async throws {
    let gate = Gate()
    let store = try open(gate)
    try await fill(store)
    try await holding(stripes("k")) {
      gate.shut()
      let puts = putting(store, "k", 20)
      await gate.await(1)
      gate.open()
      let isDone = try await store.work { (engine) throws(BlobStorageError) in
        try engine.catalog.inCommitTurn([Array("l".utf8)], publishes: true, isAlone: true) {
          () throws(BlobStorageError) in true
        }
      }
      #expect(isDone)
      try await store.close()
      for task in puts { _ = await task.result }
    }
  }

  @Test("that a disk does not take, reads go on", arguments: ["write", "synchronize"])
  func slowDisk(_ call: String) async throws {
    let gate = Gate()
    let store = try open { environment in
      environment.files = HookedFiles { (made, path) in
        if made == call, path.string.contains("/packs/") { gate.pass() }
      }
    }
    try await fill(store)
    gate.shut()
    let puts = (0..<60).map { number in
      Task { try await store.set("k\(number)", to: large + [UInt8(number)]) }
    }
    await gate.await(1)
    try await read(store)
    gate.open()
    for task in puts { _ = try await task.value }
    try await store.close()
  }

  /// Fails if gc, imports, streams and the like take the threads of gets and puts.
  @Test("by a closure of the program, reads and changes go on")
  func longWork() async throws {
    let store = try open()
    try await fill(store)
    let gate = Gate()
    gate.shut()
    let streams = (0..<40).map { number in
      Task {
        try await store.put(
          .stream {
            gate.pass()
            return nil
          }, forKey: "s\(number)")
      }
    }
    await gate.await(OperationPool.defaultWidth)
    #expect(try await store.data(forKey: "large") == large)
    #expect(try await store.versions(of: "small").count == 1)
    for task in putting(store, "k", 40) { _ = try await task.value }
    gate.open()
    for task in streams { _ = try await task.value }
    try await store.close()
  }

  /// A process of its own, which is stopped while it has the lock of a key.
  @Test("of a key in a process that the system has stopped, a get and a put of another key are answered")
  func stoppedBySystem() async throws {
    let store = try open()
    try await fill(store)
    let stripe = try #require(stripes("k").first)
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    let script = """
      import fcntl, os, signal, sys
      table = open(sys.argv[1], "r+b")
      fcntl.lockf(table, fcntl.LOCK_EX, int(sys.argv[3]), int(sys.argv[2]))
      print("held", flush=True)
      os.kill(os.getpid(), signal.SIGSTOP)
      """
    process.arguments = [
      "python3", "-c", script, place.catalogFolder.appending(path: "live").path, "\(stripe.lowerBound)",
      "\(stripe.count)",
    ]
    let output = Pipe()
    process.standardOutput = output
    try process.run()
    defer { kill(process.processIdentifier, SIGKILL) }
    try #require(try output.fileHandleForReading.read(upToCount: 5) == Data("held\n".utf8))
    let puts = putting(store, "k", 200)
    try await read(store)
    for task in putting(store, "l", 40) { _ = try await task.value }
    #expect(try await store.versions(of: "k").isEmpty)
    kill(process.processIdentifier, SIGCONT)
    for task in puts { _ = try await task.value }
    #expect(try await store.versions(of: "k").count == 200)
    try await store.close()
  }
}
