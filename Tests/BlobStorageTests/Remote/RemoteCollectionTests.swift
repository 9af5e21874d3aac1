import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import Testing

@Suite("Collecting on a store that machines share")
struct RemoteCollectionTests {
  /// Machines on one simulated object store.
  private struct Machines {
    let store = SimulatedObjectStore()
    let temporary: TemporaryFolder

    init() throws {
      temporary = try TemporaryFolder()
      try Engine.create(in: store, options: StoreOptions())
    }

    func engine(_ machine: String, _ objects: (any ObjectStore)? = nil) throws -> Engine {
      var environment = Engine.Environment()
      environment.worksInline = true
      return try Engine(
        path: temporary.path.appending(machine).string,
        configuration: StoreConfiguration(cacheByteCountMax: 0, threadCount: 1), environment: environment,
        remote: Engine.Remote(
          objects: objects ?? store, configuration: RemoteConfiguration(intervalSeconds: 0)))
    }

    var packCount: Int { store.objects.keys.count { $0.hasPrefix("packs/") } }

    /// Everything is there, on a machine that knows nothing, and nothing is damaged.
    func check(_ expected: [String: [UInt8]], _ moment: String) throws {
      let engine = try engine("check \(UUID().uuidString)")
      let report = try engine.verify()
      #expect(report.damaged.isEmpty, "\(moment): \(report.damaged)")
      let keys = try engine.keys("", after: nil, limit: 1_000).map(\.key)
      #expect(keys == expected.keys.sorted(), "\(moment)")
      for (key, bytes) in expected { #expect(try engine.data(key, nil) == Data(bytes), "\(moment): \(key)") }
      try engine.close()
    }
  }

  private static let everything = CollectionOptions(garbageShareMin: 0, waitSeconds: 0)

  @Test("takes away what nobody needs, beside a machine that puts it again")
  func besidePuts() throws {
    var random = SplitMix64.announced()
    let machines = try Machines()
    let contents = (0..<4).map { _ in random.bytes(40_000) }
    let one = try machines.engine("one")
    let two = try machines.engine("two")
    var expected: [String: [UInt8]] = [:]
    for (index, bytes) in contents.enumerated() {
      _ = try one.put("\(index)", bytes, PutOptions())
      expected["\(index)"] = bytes
    }
    _ = try two.put("other", contents[0] + contents[1], PutOptions())
    expected["other"] = contents[0] + contents[1]
    for key in ["1", "2"] {
      _ = try one.delete([key], .durable)
      expected[key] = nil
    }
    let isFirst = Atomic<Bool>(true)
    let report = try one.collectGarbage(Self.everything) { progress in
      guard progress.phase == "waiting", isFirst.exchange(false, ordering: .relaxed) else { return }
      #expect(throws: Never.self) {
        // It has not seen the condemnation yet, then passes it, then puts once more what is condemned.
        _ = try two.put("before", contents[1], PutOptions())
        try two.catchUp()
        try two.passCollections()
        _ = try two.put("after", contents[2], PutOptions())
      }
    }
    expected["before"] = contents[1]
    expected["after"] = contents[2]
    #expect(!isFirst.load(ordering: .relaxed))
    #expect(report.obstacles == [])
    #expect(report.deletedPackCount + report.compactedPackCount > 0)
    try machines.check(expected, "after the collection")
    for engine in [one, two] {
      try engine.catchUp()
      for (key, bytes) in expected { #expect(try engine.data(key, nil) == Data(bytes)) }
    }
    try one.close()
    try two.close()
    #expect(machines.store.objects.keys.filter { $0.hasPrefix("writers/") } == [])
  }

  @Test("fences a machine that sleeps, which then reports no success")
  func sleeper() throws {
    var random = SplitMix64.announced()
    let machines = try Machines()
    let bytes = random.bytes(40_000)
    let one = try machines.engine("one")
    let sleeper = try machines.engine("two")
    _ = try one.put("gone", bytes, PutOptions())
    _ = try sleeper.put("kept", Array("reported".utf8), PutOptions())
    try sleeper.catchUp()
    _ = try sleeper.put("late", bytes, .relaxed)
    _ = try one.delete(["gone"], .durable)
    _ = try one.collectGarbage(Self.everything)
    let error = #expect(throws: BlobStorageError.self) { try sleeper.synchronize() }
    #expect(error?.code == .fenced)
    try one.close()
    try machines.check(["kept": Array("reported".utf8)], "after the sleeper was fenced")
    let next = try machines.engine("two")
    _ = try next.put("late", bytes, PutOptions())
    try machines.check(["kept": Array("reported".utf8), "late": bytes], "when it was done again")
  }

  @Test("killed at each request leaves a valid store, and another machine goes on")
  func killed() throws {
    var random = SplitMix64.announced()
    let contents = (0..<3).map { _ in random.bytes(30_000) }
    for number in stride(from: 1, through: 200, by: 3) {
      let machines = try Machines()
      var expected: [String: [UInt8]] = [:]
      let one = try machines.engine("one")
      for (index, bytes) in contents.enumerated() {
        _ = try one.put("\(index)", bytes, PutOptions())
        _ = try one.put("\(index) and more", bytes + bytes.prefix(5_000), PutOptions())
        expected["\(index)"] = bytes
        expected["\(index) and more"] = bytes + bytes.prefix(5_000)
      }
      _ = try one.delete(["0", "0 and more", "1"], .durable)
      for key in ["0", "0 and more", "1"] { expected[key] = nil }
      try one.close()
      let count = Atomic<Int>(0)
      let client = machines.store.client { (_) throws(BlobStorageError) in
        if count.add(1, ordering: .relaxed).newValue >= number { throw BlobStorageError.simulatedStop }
      }
      var isKilled = true
      do {
        let dying = try machines.engine("two", client)
        _ = try dying.collectGarbage(Self.everything)
        isKilled = false
      } catch let error as BlobStorageError {
        #expect(error.code == .simulatedStop, "request \(number): \(error)")
      }
      try machines.check(expected, "killed at request \(number)")
      let next = try machines.engine("three")
      let report = try next.collectGarbage(Self.everything)
      #expect(report.obstacles == [], "request \(number)")
      try next.close()
      try machines.check(expected, "after another collection, killed at request \(number)")
      if !isKilled { break }
    }
  }
}
