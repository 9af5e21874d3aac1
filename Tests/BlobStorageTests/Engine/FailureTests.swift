import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("A store on a disk that fails")
struct FailureTests {
  /// A store on a simulated disk, its catalog on the real one.
  final class Place {
    let disk = SimulatedDisk()
    private var folders: [TemporaryFolder] = []

    init() throws {
      var environment = Engine.Environment()
      environment.files = disk
      try Engine.create(at: "/store", options: StoreOptions(), environment: environment)
    }

    /// Opens it as a new process that has no catalog yet.
    func engine(_ change: (inout Engine.Environment) -> Void = { _ in }) throws -> Engine {
      let folder = try TemporaryFolder()
      folders.append(folder)
      var environment = Engine.Environment()
      environment.files = disk.process()
      environment.catalogFolder = folder.path.appending("catalog")
      change(&environment)
      return try Engine(
        path: "/store", configuration: StoreConfiguration(threadCount: 1), environment: environment)
    }
  }

  @Test("whose sync failed writes nothing more until it is opened anew")
  func poisoned() throws {
    let place = try Place()
    let engine = try place.engine()
    _ = try engine.put("a", [1], PutOptions())
    place.disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(failure { _ = try engine.put("b", [2], PutOptions()) }?.code == .poisoned)
    for options in [PutOptions(), .relaxed] {
      #expect(failure { _ = try engine.put("c", [3], options) }?.code == .poisoned)
    }
    #expect(try engine.data("a", nil) == Data([1]))
    #expect(failure { try engine.close() }?.code == .poisoned)
    let reopened = try place.engine()
    #expect(try reopened.data("a", nil) == Data([1]))
    _ = try reopened.put("c", [3], PutOptions())
    #expect(try reopened.data("c", nil) == Data([3]))
    try reopened.close()
  }

  @Test("does not forget in a rebuild of the catalog what could not be synced")
  func poisonSurvivesRebuild() throws {
    let place = try Place()
    let engine = try place.engine()
    _ = try engine.put("a", [1], PutOptions())
    place.disk.plan(Fault(.synchronize, errno: .ioError))
    #expect(failure { _ = try engine.put("b", [2], PutOptions()) }?.code == .poisoned)
    func poisonedCount() throws -> Int {
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.packRows().filter(\.row.isPoisoned).count
      }
    }
    #expect(try poisonedCount() == 1)
    try engine.catalog.rebuild(because: nil)
    #expect(try poisonedCount() == 1)
  }

  @Test("that is full says so, keeps what it has, and goes on when there is room")
  func noSpace() throws {
    let place = try Place()
    let engine = try place.engine()
    var random = SplitMix64(seed: 3)
    let first = random.bytes(1_000)
    let second = random.bytes(100_000)
    _ = try engine.put("a", first, PutOptions())
    place.disk.limit(byteCount: 20_000)
    #expect(failure { _ = try engine.put("a", second, PutOptions()) }?.code == .noSpace)
    #expect(try engine.data("a", nil) == Data(first))
    place.disk.heal()
    _ = try engine.put("b", second, PutOptions())
    #expect(try engine.data("b", nil) == Data(second))
    try engine.close()
    let reopened = try place.engine()
    #expect(try reopened.data("a", nil) == Data(first))
    #expect(try reopened.data("b", nil) == Data(second))
    try reopened.close()
  }

  enum LongChange: CaseIterable { case put, delete }

  @Test(
    "whose process dies in the middle of a long commit holds all of it or nothing",
    arguments: LongChange.allCases)
  func wholeCommits(_ change: LongChange) throws {
    // Refs or drops that are handed to the system in several parts.
    var random = SplitMix64(seed: 4)
    let keys = (0..<3_000).map { "key-\($0)-\(Data(random.bytes(750)).base64EncodedString())" }
    let items = keys.map { PutItem(key: $0, data: Data()) }
    var outcomes: Set<Int> = []
    var mutation = 0
    repeat {
      let place = try Place()
      let engine = try place.engine()
      _ = try engine.put("before", [1])
      if change == .delete { _ = try engine.put(items, .relaxed) }
      mutation += 1
      place.disk.stop(beforeMutation: place.disk.mutationCount + mutation)
      let error = failure {
        switch change {
        case .put: _ = try engine.put(items, .relaxed)
        case .delete: _ = try engine.delete(keys, .relaxed)
        }
      }
      place.disk.heal()
      place.disk.crash()
      let reopened = try place.engine()
      #expect(try reopened.data("before", nil) == Data([1]))
      let count = try reopened.keys(.bytes("key-"), after: nil, limit: .max).count
      outcomes.insert(count)
      #expect(count == 0 || count == keys.count, "stopped before write \(mutation)")
      try reopened.close()
      if error == nil { break }
    } while mutation < 20
    #expect(mutation > 2)
    #expect(outcomes == [0, keys.count])
  }

  /// A process of its own, because no file of a process can grow meanwhile, and other tests run beside this one.
  @Test(
    "whose catalog cannot grow holds all that it took and nothing of what it refused, whatever is put afterwards"
  )
  func refusedByCatalog() async {
    await #expect(processExitsWith: .success) {
      for hasTable in [false, true] { try Self.putWhereCatalogCannotGrow(hasTable: hasTable) }
    }
  }

  private static func putWhereCatalogCannotGrow(hasTable: Bool) throws {
    let place = try Place()
    let engine = try place.engine()
    _ = try engine.put("before", [1])
    // Without a table of open packs each commit changes the catalog.
    if !hasTable { engine.catalog.live.table = nil }
    let items = (0..<1_500).map { index in
      PutItem(key: "key-\(index)", data: Data(), metadata: [UInt8](repeating: 1, count: 1_000))
    }
    let byteCount = try engine.catalog.allocatedByteCount()
    let error = try withFileLengths(upTo: byteCount) { failure { _ = try engine.put(items, .relaxed) } }
    #expect((error == nil) == hasTable, "table: \(hasTable)")
    let expected = ["before"] + (hasTable ? items.map(\.key).sorted() : [])
    #expect(try engine.keys("", after: nil, limit: .max).map(\.key) == expected)
    _ = try engine.put("after", [2])
    #expect(try engine.keys("", after: nil, limit: .max).map(\.key) == ["after"] + expected)
    try engine.close()
    let reopened = try place.engine()
    #expect(try reopened.keys("", after: nil, limit: .max).map(\.key) == ["after"] + expected)
    try reopened.close()
  }

  /// Fails if what was committed in vain stays in a pack that another thread has ended before the transaction failed. A
  /// process of its own, because no file can grow meanwhile.
  @Test("that is closed beside a commit which its catalog refuses holds nothing of that commit")
  func closedBesideRefused() async {
    await #expect(processExitsWith: .success) { for _ in 0..<4 { try Self.closeBesideRefused() } }
  }

  private static func closeBesideRefused() throws {
    let place = try Place()
    let engine = try place.engine()
    _ = try engine.put("before", [1])
    engine.catalog.live.table = nil
    let items = (0..<1_500).map { index in
      PutItem(key: "key-\(index)", data: Data(), metadata: [UInt8](repeating: 1, count: 1_000))
    }
    let byteCount = try engine.catalog.allocatedByteCount()
    let (begun, ended) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    let isFirst = Atomic<Bool>(true)
    // The commit hands its records to the system. The other thread ends the pack as soon as that is done.
    place.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.kind == .write, isFirst.exchange(false, ordering: .relaxed) else { return }
      Thread.detachNewThread {
        begun.signal()
        _ = failure { try engine.writer.rollOver() }
        ended.signal()
      }
      begun.wait()
    }
    let error = try withFileLengths(upTo: byteCount) {
      let error = failure { _ = try engine.put(items, .relaxed) }
      ended.wait()
      return error
    }
    place.disk.heal()
    _ = failure { try engine.close() }
    let reopened = try place.engine()
    let count = try reopened.keys("", after: nil, limit: .max).count
    guard error != nil, count == 1 else { throw Unexpected("\(count) keys, \(String(describing: error))") }
    try reopened.close()
  }

  /// Has the system refuse this process longer files meanwhile: only for a process of one test. The simulated disk has
  /// none.
  private static func withFileLengths<T>(upTo byteCount: Int64, _ body: () throws -> T) throws -> T {
    #if canImport(Darwin)
      let resource = RLIMIT_FSIZE
    #else
      let resource = __rlimit_resource_t(RLIMIT_FSIZE.rawValue)
    #endif
    var before = rlimit()
    try #require(getrlimit(resource, &before) == 0)
    // Without this the system would end the process.
    let handler = signal(SIGXFSZ, SIG_IGN)
    defer { signal(SIGXFSZ, handler) }
    var during = before
    during.rlim_cur = rlim_t(byteCount)
    try #require(setrlimit(resource, &during) == 0)
    defer { setrlimit(resource, &before) }
    return try body()
  }

  @Test("whose pack ends within a commit holds nothing of it", arguments: 1...3)
  func tornCommit(_ lostCount: Int) throws {
    let place = try Place()
    let engine = try place.engine()
    _ = try engine.put("before", [1], .relaxed)
    _ = try engine.put((0..<3).map { PutItem(key: "key-\($0)", data: Data()) }, .relaxed)
    place.disk.crash()
    let folder = FilePath("/store/packs")
    let path = folder.appending(try #require(place.disk.list(folder).first))
    let file = try place.disk.open(path, .readWrite)
    var offsets: [Int64] = []
    let name = try #require(path.lastComponent.flatMap { PackName(fileName: $0.string) })
    _ = try PackScanner(file: file, name: name, codecs: CodecPool()).scan { offsets.append($0.offset) }
    try file.truncate(to: offsets[offsets.count - lostCount])
    file.close()
    let reopened = try place.engine()
    #expect(try reopened.keys("", after: nil, limit: 10).map(\.key) == ["before"])
    try reopened.close()
  }

  @Test("under a long put says why at the end of it, though another put was told and the disk is sound again")
  func lostUnderStream() throws {
    let place = try Place()
    let engine = try place.engine { environment in
      environment.streamHeadByteCount = 1
      environment.streamBatchByteCount = 100_000
    }
    var random = SplitMix64(seed: 29)
    let disk = place.disk
    let parts = Mutex((0..<12).map { _ in Data(random.bytes(100_000)) })
    let error = failure {
      let content = BlobContent.stream {
        let (part, leftCount) = parts.withLock { ($0.popLast(), $0.count) }
        if part != nil, leftCount == 2 {
          // The threads of the long put write as well.
          disk.plan(Fault(.write, of: .current, errno: .noSpace))
          #expect(failure { _ = try engine.put("other", [1, 2, 3]) }?.code == .noSpace)
          disk.heal()
        }
        return part
      }
      _ = try engine.put("long", content, .relaxed)
    }
    #expect(error?.code == .noSpace)
    #expect(try engine.version("long", nil) == nil)
    #expect(try engine.put("other", [1, 2, 3]).newByteCount > 0)
    try engine.close()
  }

  @Test("that loses power keeps every durable put", arguments: 0..<30)
  func powerCut(_ round: UInt64) throws {
    let place = try Place()
    let engine = try place.engine()
    var random = SplitMix64.announced()
    var durable: [String: [UInt8]] = [:]
    for index in 0..<20 {
      let bytes = random.bytes(Int.random(in: 0...3_000, using: &random))
      let isDurable = Bool.random(using: &random)
      _ = try engine.put("key-\(index)", bytes, isDurable ? PutOptions() : .relaxed)
      if isDurable { durable["key-\(index)"] = bytes }
    }
    let after = place.disk.powerCut(seed: random.next())
    let folder = try TemporaryFolder()
    var environment = Engine.Environment()
    environment.files = after
    environment.catalogFolder = folder.path.appending("catalog")
    let reopened = try Engine(
      path: "/store", configuration: StoreConfiguration(threadCount: 1), environment: environment)
    for (key, bytes) in durable { #expect(try reopened.data(key, nil) == Data(bytes), "\(key)") }
    for entry in try reopened.keys("", after: nil, limit: .max) {
      #expect(try reopened.data(entry.key, nil).map { BlobDigest.of($0) } == entry.current.digest)
    }
    try reopened.close()
  }
}
