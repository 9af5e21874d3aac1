import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("The tails of a store that machines share")
struct RemoteTailTests {
  private static let noTime = PassingTime(now: { 0 }, wait: { _ in })

  @Test("show small puts to all processes of a machine, before the catalog has them and without a request")
  func processes() throws {
    let machines = try SharedMachines()
    var one: Engine? = try machines.engine("one", time: Self.noTime)
    let other = try machines.engine("one", time: Self.noTime)
    _ = try one?.put("first", [0], .relaxed)
    let requestCount = machines.store.requestCount
    for number: UInt8 in 1...50 {
      _ = try one?.put("k", [number], .relaxed)
      #expect(try other.data("k", nil) == Data([number]))
      #expect(try one?.data("k", nil) == Data([number]))
    }
    #expect(machines.store.requestCount == requestCount)
    #expect(other.catalog.tails.size.recordCount > 100)
    _ = try one?.delete(["first"], .relaxed)
    #expect(try other.keys("", after: nil, limit: 10).map(\.key) == ["k"])
    // It dies without a word. What it published counts here, and on all machines once another process has opened the store.
    one = nil
    #expect(try other.data("k", nil) == Data([50]))
    try other.close()
    try machines.engine("one").close()
    try machines.check(["k": [50]], "after a death")
  }

  @Test("lose what can never be published, and nothing else: a fence has taken the name of its pack")
  func fenced() throws {
    let machines = try SharedMachines()
    let other = try machines.engine("one", time: Self.noTime)
    _ = try other.put("other", [1], .relaxed)
    let one = try machines.engine("one", time: Self.noTime)
    _ = try one.put("k", [2], .relaxed)
    let name = try #require(try one.backend.localPackNames().live.first { $0.writer == one.writer.writerID })
    // What its publisher does first.
    _ = try one.backend.setAsidePack(name)
    #expect(try other.version("k", nil) == nil)
    #expect(try other.data("other", nil) == Data([1]))
    _ = try other.put("next", [3], .relaxed)
    try other.catalog.settle()
    let late = try machines.engine("one", time: Self.noTime)
    #expect(try late.keys("", after: nil, limit: 10).map(\.key) == ["next", "other"])
    try late.close()
    try other.close()
    try machines.check(["next": [3], "other": [1]], "without what was not published")
  }

  /// Fails if what a failed beginning leaves keeps later packs of its writer from being published.
  @Test("go on after each failure of the catalog's lock", arguments: 1...12)
  func failures(_ failing: Int) throws {
    let place = try RemotePlace()
    let count = CallCount()
    let isCounted = Atomic(false)
    var environment = Engine.Environment()
    environment.worksInline = true
    environment.catalogFiles = HookedFiles { (call, path) throws(BlobStorageError) in
      guard call == "lock", path.lastComponent?.string == "lock", isCounted.load(ordering: .relaxed),
        count.next() == failing
      else { return }
      throw .systemCall("lock", path: path, errno: Errno.noSpace.rawValue)
    }
    let engine = try Engine(
      path: place.statePath("one"), configuration: StoreConfiguration(), environment: environment,
      remote: Engine.Remote(
        objects: place.objects, configuration: RemoteConfiguration(interval: .zero)))
    isCounted.store(true, ordering: .relaxed)
    var expected: [String] = []
    for number in 0..<6 {
      let error = failure { _ = try engine.put("\(number)", [UInt8(number)], .relaxed) }
      #expect(error == nil || error?.code == .noSpace, "\(String(describing: error))")
      if error == nil { expected.append("\(number)") }
      if number % 2 == 1 { _ = failure { try engine.synchronize() } }
    }
    #expect(expected.count >= 5)
    try engine.synchronize()
    try engine.close()
    #expect(count.value > failing)
    #expect(try place.engine("two").keys("", after: nil, limit: 10).map(\.key) == expected)
  }

  @Test("come before the rows of an index, also where they remove some")
  func index() throws {
    let machines = try SharedMachines()
    func key(_ number: Int) -> String { "key \(10 + number)" }
    let one = try machines.engine("one", catalogLimit: 0)
    _ = try one.put((0..<30).map { PutItem(key: key($0), data: Data([UInt8($0)])) }, PutOptions())
    #expect(try one.collectGarbage(SharedMachines.everything).obstacles == [])
    try one.close()
    let engine = try machines.engine(
      "fresh", weaknesses: .publishesOverOuterRows, catalogLimit: 0, time: Self.noTime)
    #expect(try engine.catalog.indexRoot() != nil)
    var expected = Dictionary(uniqueKeysWithValues: (0..<30).map { (key($0), [UInt8($0)]) })
    _ = try engine.delete([key(0), key(7), key(29)], .relaxed)
    for gone in [0, 7, 29] { expected[key(gone)] = nil }
    for added in ["a", "key 155", "z"] { expected[added] = Array(added.utf8) }
    expected[key(3)] = [103]
    for name in ["a", "key 155", "z", key(3)] { _ = try engine.put(name, expected[name] ?? [], .relaxed) }
    _ = try engine.put(key(4), [104], PutOptions(durability: .relaxed, replacement: .archiveCurrent))
    expected[key(4)] = [104]
    for isSettled in [false, true] {
      if isSettled { try engine.catalog.settle() }
      #expect(engine.catalog.tails.size.recordCount == 0 || !isSettled)
      #expect(engine.catalog.tails.size.recordCount > 10 || isSettled)
      #expect(try engine.keys("", after: nil, limit: 100).map(\.key) == expected.keys.sorted())
      #expect(try engine.keys(.bytes("key 1"), after: key(3), limit: 2).map(\.key) == [key(4), key(5)])
      for (name, bytes) in expected { #expect(try engine.data(name, nil) == Data(bytes), "\(name)") }
      #expect(try engine.version(key(7), nil) == nil)
      #expect(try engine.versions(key(4)).count == 2)
    }
    try engine.close()
    // Looking up rows of an index can fail, so usually a commit does that itself.
    let usual = try machines.engine("fresh", catalogLimit: 0, time: Self.noTime)
    expected["z"] = [26]
    _ = try usual.put("z", [26], .relaxed)
    #expect(try usual.data("z", nil) == Data([26]))
    #expect(try usual.catalog.indexRoot() != nil && usual.catalog.tails.size.recordCount == 0)
    try usual.close()
    try machines.check(expected, "at the end")
  }

  /// A commit must not count on a pack that is condemned after it has taken its view, unless it is published before its
  /// machine acknowledges that.
  @Test("count on nothing that another machine collects, whatever threads put meanwhile")
  func collections() throws {
    var random = SplitMix64.announced()
    let place = try RemotePlace(StoreOptions(averageChunkByteCount: 1_024))
    let (roundCount, itemCount, threadCount) = (6, 30, 3)
    let contents = (0..<roundCount * itemCount).map { _ in Data(random.bytes(1_000)) }
    let seed = random.next()
    let (one, two) = (try place.engine("one"), try place.engine("two"))
    // Contents before this are in packs of the other machine.
    let thereCount = Atomic(0)
    let isCollecting = Atomic(true)
    let removedCount = Atomic(0)
    let failures = Mutex<[String]>([])
    /// Puts each content once, at some moment of a collection of what it may share.
    @Sendable func put(_ thread: Int) throws {
      var random = SplitMix64(seed: seed &+ UInt64(thread))
      for number in stride(from: thread, to: contents.count, by: threadCount) {
        while thereCount.load(ordering: .acquiring) <= number, isCollecting.load(ordering: .acquiring) {
          Thread.sleep(forTimeInterval: 0.001)
        }
        Thread.sleep(forTimeInterval: Double.random(in: 0..<0.02, using: &random))
        _ = try one.put("\(number)", .data(contents[number]), .relaxed)
      }
    }
    @Sendable func collect() throws {
      defer { isCollecting.store(false, ordering: .releasing) }
      let options = GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(100))
      for round in 0..<roundCount {
        let numbers = round * itemCount..<(round + 1) * itemCount
        _ = try two.put(numbers.map { PutItem(key: "of two \($0)", data: contents[$0]) }, PutOptions())
        try one.extend()
        thereCount.store(numbers.upperBound, ordering: .releasing)
        _ = try two.delete(numbers.map { "of two \($0)" }, .durable)
        let report = try two.collectGarbage(options)
        removedCount.add(report.deletedPackCount + report.compactedPackCount, ordering: .relaxed)
      }
    }
    let threads = DispatchGroup()
    for role in 0..<threadCount + 2 {
      threads.enter()
      Thread.detachNewThread {
        do {
          switch role {
          case 0: try collect()
          case 1:
            while isCollecting.load(ordering: .acquiring) {
              one.runPeriodicWork()
              // It makes a pack each time, and gc takes longer the more there are.
              Thread.sleep(forTimeInterval: 0.05)
            }
          default: try put(role - 2)
          }
        } catch { failures.withLock { $0.append("\(error)") } }
        threads.leave()
      }
    }
    threads.wait()
    #expect(failures.withLock { $0 } == [])
    #expect(removedCount.load(ordering: .relaxed) > 0)
    try one.synchronize()
    for engine in [one, two, try place.engine("three")] {
      try engine.extend()
      for (number, content) in contents.enumerated() { #expect(try engine.data("\(number)", nil) == content) }
      #expect(try engine.verify().damaged == [])
      try engine.close()
    }
  }
}
