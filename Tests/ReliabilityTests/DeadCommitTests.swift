import BlobStorage
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import Testing

/// A process that dies between writing a commit and publishing it.
@Suite("A commit whose process died before it was published", .serialized)
struct DeadCommitTests {
  /// Otherwise a successor would find nothing, go on, and the change would come to pass after its own.
  @Test("is decided before the next process reads, although others are at work")
  func decided() throws {
    let lab = try Lab()
    try lab.session { _ in }
    let other = try lab.open()
    _ = try other.put("other", .data(noise(1, 300)), PutOptions())
    try die(lab)
    // Another process holds the catalog's lock while the successor opens the store.
    let (isHeld, isOpened, isDone) = (
      DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0)
    )
    Thread.detachNewThread {
      try? other.catalog.write { (_) throws(BlobStorageError) in
        isHeld.signal()
        _ = isOpened.wait(timeout: .now() + 0.5)
      }
      isDone.signal()
    }
    isHeld.wait()
    let successor = try lab.open()
    let found = try successor.versions("k").count
    isOpened.signal()
    isDone.wait()
    let third = try lab.open()
    for engine in [successor, third, other] {
      let count = try engine.versions("k").count
      #expect(count == found)
    }
    for engine in [successor, third, other] { try engine.close() }
  }

  /// Fails if recovery applies a part of a commit in a transaction of its own.
  @Test("is seen whole or not at all while the next process recovers it")
  func recoveredWhole() throws {
    let lab = try Lab()
    try lab.session { _ in }
    let watch = Mutex<Engine?>(nil)
    let counts = Mutex<Set<Int>>([])
    var environment = lab.environment(lab.disk.process())
    let time = lab.clock.now
    // Applying a ref asks for the time, and so may the look at the keys.
    environment.clock = WallClock(now: {
      guard let other = watch.withLock({ $0.take() }) else { return time }
      if let keys = try? other.keys(.bytes("k"), after: nil, limit: 9) {
        counts.withLock { _ = $0.insert(keys.count) }
      }
      watch.withLock { $0 = other }
      return time
    })
    let other = try Engine(
      path: Lab.storePath, configuration: StoreConfiguration(threadCount: 1), environment: environment)
    _ = try other.put("other", .data(noise(1, 300)), PutOptions())
    try die(lab) { engine in
      _ = try engine.put(
        (0..<5).map { PutItem(key: "k\($0)", data: noise(UInt64($0), 300)) },
        PutOptions(durability: .relaxed))
    }
    watch.withLock { $0 = other }
    environment = lab.environment(lab.disk.process())
    environment.recordCountOfBatch = 2
    let successor = try Engine(
      path: Lab.storePath, configuration: StoreConfiguration(threadCount: 1), environment: environment)
    watch.withLock { $0 = nil }
    let seen = counts.withLock { $0 }
    #expect(seen.contains(0) && seen.isSubset(of: [0, 5]))
    let found = try other.keys(.bytes("k"), after: nil, limit: 9).count
    #expect(found == 5)
    for engine in [successor, other] { try engine.close() }
  }

  private func die(
    _ lab: Lab,
    _ change: (Engine) throws -> Void = { engine in
      _ = try engine.put("k", .data(noise(3, 300)), PutOptions(durability: .relaxed))
    }
  ) throws {
    let process = lab.disk.process()
    let engine = try lab.open(process)
    _ = try engine.put("before", .data(noise(2, 300)), PutOptions())
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      if call.process == process.number, call.step == .publish { throw .simulatedStop }
    }
    try? change(engine)
    lab.disk.beforeMutations(nil)
    #expect(!process.isAlive)
  }
}
