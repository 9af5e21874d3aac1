import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Foundation
import SystemPackage
import Testing

/// Machines on one simulated object store, all in this process and on one thread.
struct SharedMachines {
  let store: SimulatedObjectStore
  let temporary: TemporaryFolder

  /// - Parameter store: one that has a store in it, or nil for an empty one.
  init(_ store: SimulatedObjectStore? = nil) throws {
    temporary = try TemporaryFolder()
    self.store = store ?? SimulatedObjectStore()
    if store == nil { try Engine.create(in: self.store, options: StoreOptions()) }
  }

  /// - Parameters:
  ///   - objects: another way to the store than the usual.
  ///   - silence: seconds without a word after which a writer looks whether it was fenced.
  ///   - daysAhead: how far its clock is ahead.
  ///   - catalogLimit: bytes of what it keeps of the catalog.
  ///   - time: how much time passes. Tails that are a second old are settled.
  ///   - bootIdentity: another than before after a power cut.
  func engine(
    _ machine: String, _ objects: (any ObjectStore)? = nil, silence: Double = 30, weaknesses: Weaknesses = [],
    keptChangeCount: UInt32 = 1 << 16, fencePatience: Double = 0, daysAhead: UInt64 = 0,
    catalogLimit: Int64 = 1 << 30, time: PassingTime = .system,
    bootIdentity: String? = nil
  ) throws -> Engine {
    var environment = Engine.Environment()
    environment.bootIdentity = bootIdentity
    environment.time = time
    environment.clock = WallClock { WallClock.system.now() + daysAhead * 24 * 60 * 60 * 1_000 }
    environment.worksInline = true
    environment.weaknesses = weaknesses
    var remote = Engine.Remote(
      objects: objects ?? store,
      configuration: RemoteConfiguration(catalogByteLimit: catalogLimit, interval: .zero),
      silenceSecondsMax: silence)
    remote.keptChangeCount = keptChangeCount
    remote.fencePatienceSeconds = fencePatience
    return try Engine(
      path: temporary.path.appending(machine).string,
      configuration: StoreConfiguration(cacheByteLimit: 0, threadCount: 1), environment: environment,
      remote: remote)
  }

  /// The objects below a prefix, except end marks of writers that have left.
  func names(_ prefix: String) -> [String] {
    let ends = endNames
    return store.objects.keys.filter { $0.hasPrefix(prefix) && !ends.contains($0) }.sorted()
  }

  /// The end marks.
  var endNames: [String] {
    store.objects.filter { $0.key.hasPrefix("packs/") && $0.value.count == Fence.endByteCount }.keys.sorted()
  }

  /// Everything is there on a machine that knows nothing, and nothing else.
  func check(_ expected: [String: [UInt8]], _ moment: String, verifies: Bool = true) throws {
    let engine = try engine("check \(UUID().uuidString)")
    let keys = try engine.keys("", after: nil, limit: 1_000).map(\.key)
    #expect(keys == expected.keys.sorted(), "\(moment)")
    for (key, bytes) in expected { #expect(try engine.data(key, nil) == Data(bytes), "\(moment): \(key)") }
    if verifies {
      let report = try engine.verify()
      #expect(report.damaged.isEmpty, "\(moment): \(report.damaged)")
    }
    try engine.close()
  }

  /// What of `expected` cannot be read on a machine that knows nothing.
  func lost(of expected: [String: [UInt8]]) throws -> [String] {
    let engine = try engine("check \(UUID().uuidString)")
    return expected.keys.sorted().filter { key in
      guard let found = try? engine.data(key, nil) else { return true }
      return found != expected[key].map { Data($0) }
    }
  }

  /// Kills a collection at each of its requests, in a copy of the store. Daily at some of them; each takes a while.
  ///
  /// The next collection, on that machine or another, finishes it: nothing is in its way, everything can be read, and
  /// the packs take fewer than `byteCountMax` bytes.
  func collectKilledAtEachRequest(
    _ options: GarbageCollectionOptions, _ expected: [String: [UInt8]], byteCountMax: Int
  ) throws {
    let isWhole = ProcessInfo.processInfo.environment["BLOB_STORAGE_SOAK_SECONDS"] != nil
    for number in stride(from: 1, through: 1_000, by: isWhole ? 1 : 9) {
      let copy = try SharedMachines(store.copy())
      let count = CallCount()
      let client = copy.store.client { (_) throws(BlobStorageError) in
        if count.next() >= number { throw BlobStorageError.simulatedStop }
      }
      var isKilled = false
      do {
        let dying = try copy.engine("two", client)
        _ = try dying.collectGarbage(options)
        try dying.close()
      } catch let error as BlobStorageError {
        isKilled = true
        #expect(error.code == .simulatedStop, "request \(number): \(error)")
      }
      isKilled = isKilled || count.value >= number
      try copy.check(expected, "killed at request \(number)", verifies: false)
      let next = try copy.engine(number % 2 == 0 ? "two" : "three")
      let report = try next.collectGarbage(options)
      #expect(report.obstacles == [], "request \(number)")
      try next.close()
      try copy.check(expected, "after another collection, killed at request \(number)")
      let left = copy.store.objects.filter { $0.key.hasPrefix("packs/") && $0.value.count > Fence.byteCount }
      #expect(left.values.reduce(0) { $0 + $1.count } < byteCountMax, "killed at request \(number)")
      if !isKilled {
        #expect(number > 40)
        return
      }
    }
  }

  /// Collects all that can be collected, and fences writers that do not answer at once.
  static let everything = GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(0))
}

/// Does something the first time that it is asked to.
final class Once: Sendable {
  private let count = CallCount()

  var isDone: Bool { count.value > 0 }

  func run(_ body: () throws -> Void) {
    guard count.next() == 1 else { return }
    #expect(throws: Never.self) { try body() }
  }
}
