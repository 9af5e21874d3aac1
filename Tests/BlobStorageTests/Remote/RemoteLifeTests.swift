import BlobStorage
import BlobStorageSharing
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import SystemPackage
import Testing

@Suite("Signs of life in a store that machines share")
struct RemoteLifeTests {
  // MARK: Threads

  private func engine(_ place: RemotePlace, _ machine: String) throws -> Engine {
    try Engine(
      path: place.statePath(machine), configuration: StoreConfiguration(threadCount: 1),
      remote: Engine.Remote(
        objects: place.objects, configuration: RemoteConfiguration(interval: .milliseconds(10))))
  }

  @Test("come while an upload takes long")
  func upload() throws {
    let place = try RemotePlace()
    let engine = try engine(place, "one")
    let held = HeldRequest(place.objects, "put", SharedNames.packs)
    _ = try engine.put("a", Array("value".utf8), PutOptions())
    #expect(held.outcome == .success)
    try engine.close()
    #expect(place.objects.names.filter { $0.hasPrefix(SharedNames.writers) } == [])
  }

  @Test("come from a collector that works long")
  func collector() throws {
    let place = try RemotePlace()
    let writer = try engine(place, "one")
    _ = try writer.put("a", Array("value".utf8), PutOptions())
    _ = try writer.delete(["a"], .durable)
    try writer.close()
    let collecting = try engine(place, "two")
    // Nothing but the collector is registered.
    let held = HeldRequest(place.objects, "list", SharedNames.acks)
    _ = try collecting.collectGarbage(SharedMachines.everything)
    #expect(held.outcome == .success)
    try collecting.close()
    #expect(place.objects.names.filter { $0.hasPrefix(SharedNames.writers) } == [])
  }

  @Test("do not need periodic work that ever begins")
  func longest() throws {
    let place = try RemotePlace()
    let engine = try Engine(
      path: place.statePath("one"), configuration: StoreConfiguration(threadCount: 1),
      remote: Engine.Remote(
        objects: place.objects, configuration: RemoteConfiguration(interval: .seconds(Int64.max))))
    _ = try engine.put("a", Array("value".utf8), PutOptions())
    try engine.close()
    #expect(place.objects.names.filter { $0.hasPrefix(SharedNames.writers) } == [])
  }

  // MARK: A clock

  /// Machines on one thread, whose uploads take time: a 64th of the usual sizes at a 64th of 1 Mbit/s.
  private final class Course: Sendable {
    static let bitsPerSecond = 1_000_000.0 / 64
    static let packByteCount: Int64 = 1 << 20

    let store: SimulatedObjectStore
    private let temporary: TemporaryFolder
    private let seconds = Mutex(0.0)
    private struct Event: Sendable {
      var due: Double
      let period: Double
      let run: @Sendable () -> Void
      var isRunning = false
    }
    private let events = Mutex<[Event]>([])

    init() throws {
      store = SimulatedObjectStore()
      temporary = try TemporaryFolder()
      try Engine.create(in: store, options: StoreOptions())
    }

    func engine(_ machine: String) throws -> Engine {
      var environment = Engine.Environment()
      environment.worksInline = true
      environment.packByteCountTarget = Self.packByteCount
      environment.time = PassingTime(
        now: { [self] in seconds.withLock { $0 } }, wait: { [self] in pass($0) })
      return try Engine(
        path: temporary.path.appending(machine).string,
        configuration: StoreConfiguration(cacheByteLimit: 0, threadCount: 1), environment: environment,
        remote: Engine.Remote(
          objects: SlowObjects(course: self), configuration: RemoteConfiguration(interval: .seconds(60))))
    }

    func every(_ period: Double, _ run: @escaping @Sendable () -> Void) {
      events.withLock { $0.append(Event(due: seconds.withLock { $0 } + period, period: period, run: run)) }
    }

    /// Time passes, and what is due happens at its moment, unless it still happens.
    func pass(_ duration: Double) {
      let end = seconds.withLock { $0 } + duration
      while let (index, due) = next(before: end) {
        seconds.withLock { $0 = max($0, due) }
        let run = events.withLock { events in
          events[index].isRunning = true
          return events[index].run
        }
        run()
        let now = seconds.withLock { $0 }
        events.withLock { events in
          events[index].isRunning = false
          while events[index].due <= now { events[index].due += events[index].period }
        }
      }
      seconds.withLock { $0 = max($0, end) }
    }

    private func next(before end: Double) -> (Int, Double)? {
      events.withLock { events in
        events.indices.filter { !events[$0].isRunning && events[$0].due <= end }
          .min { events[$0].due < events[$1].due }.map { ($0, events[$0].due) }
      }
    }
  }

  private struct SlowObjects: ObjectStore {
    let course: Course

    func put(
      _ name: String, _ content: ObjectContent, ifAbsent: Bool
    ) throws(BlobStorageError) -> ObjectPutOutcome {
      // Small objects take no time: nothing happens within another event.
      if name.hasPrefix(SharedNames.packs) {
        course.pass(Double(content.byteCount) * 8 / Course.bitsPerSecond)
      }
      return try course.store.put(name, content, ifAbsent: ifAbsent)
    }
    func get(_ name: String, _ range: Range<Int64>) throws(BlobStorageError) -> [UInt8]? {
      try course.store.get(name, range)
    }
    func tail(
      _ name: String, byteCount: Int
    ) throws(BlobStorageError) -> (bytes: [UInt8], byteCount: Int64)? {
      try course.store.tail(name, byteCount: byteCount)
    }
    func list(_ prefix: String, after name: String?) throws(BlobStorageError) -> ObjectPage {
      try course.store.list(prefix, after: name)
    }
    func delete(_ name: String) throws(BlobStorageError) { try course.store.delete(name) }
  }

  /// Puts something that a collection removes.
  private func leaveGarbage(_ engine: Engine, _ random: inout SplitMix64) throws {
    _ = try engine.put("garbage", random.bytes(10_000), PutOptions())
    _ = try engine.delete(["garbage"], .durable)
  }

  @Test("keep an import at 1 Mbit/s alive beside a collection each hour", arguments: [true, false])
  func slowImport(_ showsLife: Bool) throws {
    var random = SplitMix64.announced()
    let course = try Course()
    let (importing, collecting) = (try course.engine("importer"), try course.engine("collector"))
    try leaveGarbage(collecting, &random)
    if showsLife { course.every(60) { importing.renewRegistrations() } }
    let codes = Mutex<[BlobStorageError.Code]>([])
    course.every(3_600) {
      do throws(BlobStorageError) { _ = try collecting.collectGarbage(GarbageCollectionOptions()) } catch {
        codes.withLock { $0.append(error.code) }
      }
    }
    let bytes = random.bytes(12 << 20)
    guard showsLife else {
      // The test would notice.
      #expect(failure { _ = try importing.put("a", bytes, PutOptions()) }?.code == .fenced)
      return
    }
    _ = try importing.put("a", bytes, PutOptions())
    // The collection waited for the import.
    #expect(codes.withLock { $0 }.isEmpty == false)
    #expect(codes.withLock { $0 }.allSatisfy { $0 == .busy })
    try importing.close()
    let report = try collecting.collectGarbage(GarbageCollectionOptions())
    #expect(report.obstacles == [] && report.deletedPackCount > 0)
    #expect(try course.engine("reader").data("a", nil) == Data(bytes))
  }

  @Test("keep a collection alive that takes longer than the time to the next", arguments: [true, false])
  func longCollection(_ showsLife: Bool) throws {
    var random = SplitMix64.announced()
    let course = try Course()
    let (one, two) = (try course.engine("one"), try course.engine("two"))
    // Half a pack is copied, which takes minutes.
    let kept = random.bytes(600_000)
    _ = try one.put(
      [PutItem(key: "kept", data: Data(kept)), PutItem(key: "gone", data: Data(random.bytes(400_000)))],
      PutOptions())
    _ = try one.delete(["gone"], .durable)
    if showsLife { course.every(60) { one.renewRegistrations() } }
    let second = Mutex<[String]>([])
    course.every(200) {
      guard second.withLock({ $0.isEmpty }) else { return }
      do throws(BlobStorageError) {
        _ = try two.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
        second.withLock { $0.append("collected") }
      } catch { second.withLock { $0.append("\(error.code.rawValue): \(error.message)") } }
    }
    if showsLife {
      let report = try one.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0))
      #expect(report.compactedPackCount == 1 && report.obstacles == [])
      #expect(second.withLock { $0 }.first?.hasPrefix("busy: ") == true)
      #expect(second.withLock { $0 }.first?.contains("is collecting garbage") == true)
    } else {
      // One that shows no life is taken for dead.
      #expect(
        failure { _ = try one.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0)) }?.code
          == .busy)
      #expect(second.withLock { $0 } == ["collected"])
    }
    #expect(try course.engine("reader").data("kept", nil) == Data(kept))
  }
}

/// Holds one request up until two signs of life have come after it, or for as long as a failing test may take.
private final class HeldRequest: Sendable {
  private let result = Mutex<DispatchTimeoutResult?>(nil)
  private let isHeld = Atomic<Bool>(false)
  private let signs = DispatchSemaphore(value: 0)

  var outcome: DispatchTimeoutResult? { result.withLock { $0 } }

  init(_ objects: MemoryObjectStore, _ request: String, _ prefix: String) {
    objects.beforeRequests { [weak self] kind, name in
      guard let self else { return }
      if kind == "put", name.hasPrefix(SharedNames.writers), isHeld.load(ordering: .relaxed) {
        signs.signal()
      }
      guard kind == request, name.hasPrefix(prefix), !isHeld.exchange(true, ordering: .relaxed) else {
        return
      }
      let end = DispatchTime.now() + 300
      var last = DispatchTimeoutResult.success
      for _ in 0..<2 where last == .success { last = signs.wait(timeout: end) }
      result.withLock { [last] in $0 = last }
    }
  }
}
