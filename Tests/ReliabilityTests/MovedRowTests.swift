import BlobStorage
import BlobStorageTestSupport
import Dispatch
import Foundation
import Synchronization
import Testing

/// A chunk that is stored twice: the row that says where it lies moves to the younger copy when that is committed.
@Suite("A chunk that moves while garbage is collected")
struct MovedRowTests {
  @Test("stays, though it was marked where it lay before")
  func moves() throws {
    let lab = try Lab()
    let data = noise(1, 1_400_000)
    let (elder, younger, collector) = (try lab.open(), try lab.open(), try lab.open())
    // The elder's pack is begun first, so that the other's copies count.
    try lab.put(elder, [("elder", noise(2, 100))])
    lab.clock.set(lab.clock.now + 1_000)
    let reached = DispatchSemaphore(value: 0)
    let goOn = DispatchSemaphore(value: 0)
    let ended = DispatchSemaphore(value: 0)
    let partCount = Mutex(0)
    let thread = Thread {
      _ = try? younger.put(
        "younger",
        .stream({
          let number = partCount.withLock { count in
            count += 1
            return count
          }
          if number == 2 {
            // The first MiB has been stored and is not committed.
            reached.signal()
            goOn.wait()
          }
          return number == 1 ? data.prefix(1 << 20) : number == 2 ? data.dropFirst(1 << 20) : nil
        }), PutOptions())
      try? younger.close()
      ended.signal()
    }
    thread.start()
    reached.wait()
    _ = try elder.put("same", .data(data), PutOptions())
    try elder.close()
    let hasGoneOn = Mutex(false)
    let handler: ProgressHandler = { progress in
      // Marked, and nothing condemned yet.
      guard progress.phase == "rebasing", !hasGoneOn.withLock({ $0 }) else { return }
      hasGoneOn.withLock { $0 = true }
      goOn.signal()
      ended.wait()
    }
    _ = try collector.collectGarbage(GarbageCollectionOptions(minimumGarbageShare: 0), progress: handler)
    #expect(hasGoneOn.withLock { $0 })
    for key in ["same", "younger"] {
      let read = try collector.data(key, nil)
      #expect(read == data, "\(key)")
    }
    try collector.close()
  }
}
