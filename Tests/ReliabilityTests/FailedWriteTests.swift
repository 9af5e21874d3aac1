import BlobStorage
import BlobStorageTestSupport
import Foundation
import Synchronization
import SystemPackage
import Testing

/// A write that fails may have landed: what it wrote is cut off, and the cutting off may be lost in a power cut.
@Suite("A put whose write failed after all of it had landed")
struct FailedWriteTests {
  @Test(
    "does not come back after a power cut, nor take the place of the next",
    arguments: [Durability.durable, .relaxed])
  func staysAway(before durability: Durability) throws {
    let lab = try Lab()
    let engine = try lab.open()
    _ = try engine.put("k", .data(noise(1, 500)), PutOptions(durability: durability))
    lab.disk.plan(Fault(.write, errno: .ioError, landingByteCount: 1 << 20))
    #expect(throws: BlobStorageError.self) { try engine.put("k", .data(noise(2, 500)), PutOptions()) }
    _ = try engine.put("k", .data(noise(3, 500)), PutOptions())
    // All stays that was written, and no file is as short as it was made.
    let kept = lab.disk.pendingChanges.filter { !$0.description.hasPrefix("make node") }.map(\.number)
    let after = try lab.afterPowerCut { disk in disk.powerCut(keeping: kept.map { ($0, .whole) }) }
    try after.session { engine in
      let data = try engine.data("k", nil)
      #expect(data == noise(3, 500))
      #expect(try engine.versions("k").count == 1)
    }
    try engine.close()
  }

  /// Fails if closing does not wait until it is known whether the records are cut off.
  @Test(
    "is cut off before the store is closed, and closing fails where it cannot be", arguments: [false, true])
  func closedMeanwhile(_ staysUncut: Bool) throws {
    let lab = try Lab()
    let engine = try lab.open()
    _ = try engine.put("k", .data(noise(1, 500)), PutOptions())
    lab.disk.plan(Fault(.write, errno: .ioError, landingByteCount: 1 << 20))
    let (held, goOn, failed, closed) = (
      DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0),
      DispatchSemaphore(value: 0)
    )
    let isFirst = Mutex(true)
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.kind == .truncate, call.detail.contains("/packs/"),
        isFirst.withLock({ $0.exchange(false) })
      else { return }
      held.signal()
      goOn.wait()
      if staysUncut { throw .systemCall("truncate", path: "pack", errno: Errno.ioError.rawValue) }
    }
    Thread.detachNewThread {
      #expect(throws: BlobStorageError.self) { try engine.put("k", .data(noise(2, 500)), PutOptions()) }
      failed.signal()
    }
    held.wait()
    let outcome = Mutex<Result<Void, any Error>?>(nil)
    Thread.detachNewThread {
      let result = Result { try engine.close() }
      outcome.withLock { $0 = result }
      closed.signal()
    }
    // One that does not wait ends soon.
    #expect(closed.wait(timeout: .now() + 0.1) == .timedOut)
    goOn.signal()
    for semaphore in [failed, closed] { semaphore.wait() }
    lab.disk.heal()
    let result = try #require(outcome.withLock { $0 })
    if staysUncut {
      let error = #expect(throws: BlobStorageError.self) { try result.get() }
      #expect(error?.code == .poisoned)
    } else {
      try result.get()
      let kept = lab.disk.pendingChanges.map { ($0.number, PowerCutFate.whole) }
      let after = try lab.afterPowerCut { $0.powerCut(keeping: kept) }
      try after.session { engine in
        let data = try engine.data("k", nil)
        #expect(data == noise(1, 500))
        #expect(try engine.versions("k").count == 1)
      }
    }
  }

  /// Fails if the packs that were given up keep their slots until the store is opened again.
  @Test("takes a slot of an open pack only until none is left")
  func slots() throws {
    let lab = try Lab()
    let engine = try lab.open()
    let table = try #require(engine.catalog.live.table)
    for number in 0..<LiveTable.slotCount {
      // It begins a pack.
      let data = noise(UInt64(number), 100)
      let record = ChunkRecord(
        digest: BlobDigest.of(Array(data)), plainByteCount: data.count, codecNumber: 0)
      _ = try engine.writer.append(.chunk(record), payload: data.bytes)
      lab.disk.plan(Fault(.write, errno: .ioError))
      #expect(throws: BlobStorageError.self) { try engine.put("k", .data(noise(1_000, 500)), .relaxed) }
    }
    #expect(table.entries().count == LiveTable.slotCount)
    _ = try engine.put("k", .data(noise(1_001, 500)), .relaxed)
    #expect(table.entries().isEmpty)
    try engine.writer.rollOver()
    _ = try engine.put("l", .data(noise(1_002, 500)), .relaxed)
    #expect(table.entries().count == 1)
    try engine.close()
    try lab.session { engine in
      let (keys, damaged) = (
        try engine.keys("", after: nil, limit: 9).map(\.key), try engine.verify().damaged
      )
      #expect(keys == ["k", "l"] && damaged == [])
    }
  }

  /// Fails if a later put counts on a chunk of the lost pack: another process may have collected it.
  @Test(
    "loses its pack, and no later put counts on what other threads had handed to the system in it",
    arguments: [false, true])
  func pendingInLostPack(_ collects: Bool) throws {
    let lab = try Lab()
    lab.packByteCountTarget = 8 << 20
    let (engine, beside) = (try lab.open(), try lab.open())
    let shared = noise(9, 400)
    // The second makes the first leave the buffer.
    for data in [shared, noise(10, 1 << 20)] {
      let record = ChunkRecord(digest: BlobDigest.of(Array(data)), plainByteCount: data.count, codecNumber: 0)
      let added = try engine.writer.append(.chunk(record), payload: data.bytes)
      #expect(added > data.count)
    }
    let isFirst = Mutex(true)
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      guard call.kind == .write, call.detail.contains("/packs/"), isFirst.withLock({ $0.exchange(false) })
      else { return }
      throw .systemCall("write to", path: "pack", errno: Errno.ioError.rawValue)
    }
    #expect(throws: BlobStorageError.self) { try engine.put("a", .data(noise(1, 500)), .relaxed) }
    #expect(!engine.writer.hasPendingChunk(BlobDigest.of(Array(shared))))
    if collects {
      let report = try beside.collectGarbage(
        GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(0)))
      #expect(report.obstacles.isEmpty && report.freedByteCount > 1_000_000)
    }
    let result = try engine.put("b", .data(shared), .relaxed)
    #expect(result.newByteCount == 400)
    func check(_ engine: Engine) throws {
      let (data, keys) = (try engine.data("b", nil), try engine.keys("", after: nil, limit: 9).map(\.key))
      #expect(data == shared && keys == ["b"])
    }
    for engine in [engine, beside] { try check(engine) }
    try engine.close()
    try beside.close()
    try lab.session(check)
    try lab.forgetCatalog()
    try lab.session { engine in
      try check(engine)
      let damaged = try engine.verify().damaged
      #expect(damaged == [])
    }
  }
}
