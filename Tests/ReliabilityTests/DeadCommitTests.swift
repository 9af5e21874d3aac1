import BlobStorage
import BlobStorageTestSupport
import Dispatch
import Foundation
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

  private func die(_ lab: Lab) throws {
    let process = lab.disk.process()
    let engine = try lab.open(process)
    _ = try engine.put("before", .data(noise(2, 300)), PutOptions())
    lab.disk.beforeMutations { (call) throws(BlobStorageError) in
      if call.process == process.number, call.step == .publish { throw .simulatedStop }
    }
    _ = try? engine.put("k", .data(noise(3, 300)), PutOptions(durability: .relaxed))
    lab.disk.beforeMutations(nil)
    #expect(!process.isAlive)
  }
}
