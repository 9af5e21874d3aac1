import BlobStorage
import Foundation
import Synchronization
import Testing

@Suite("A lock with many shared holders", .timeLimit(.minutes(3)))
struct ReadWriteLockTests {
  @Test("is held exclusively in the end, though threads hold it shared without a gap")
  func noGap() throws {
    let lock = ReadWriteLock()
    let isDone = Atomic<Bool>(false)
    let entryCount = Atomic<Int>(0)
    let read: @Sendable () -> Void = {
      while !isDone.load(ordering: .relaxed) {
        lock.lockShared()
        let own = entryCount.add(1, ordering: .relaxed).newValue
        // Another thread comes before this one goes, unless it pauses.
        var turnCount = 0
        while turnCount < 10_000, entryCount.load(ordering: .relaxed) == own { turnCount += 1 }
        lock.unlockShared()
      }
    }
    try together([
      read, read, read, read,
      {
        let isHeld = try ending { () -> Bool in
          lock.lock()
          lock.unlock()
          return true
        }
        isDone.store(true, ordering: .relaxed)
        #expect(isHeld == true)
      },
    ])
  }

  @Test("is held again by a thread that holds it shared, while another waits to hold it exclusively")
  func nested() throws {
    let lock = ReadWriteLock()
    let isHeld = Atomic<Bool>(false)
    let count = try ending { () -> Int in
      lock.lockShared()
      defer { lock.unlockShared() }
      Thread.detachNewThread {
        lock.lock()
        isHeld.store(true, ordering: .relaxed)
        lock.unlock()
      }
      var count = 0
      while count < 1_000 {
        lock.lockShared()
        count += 1
        lock.unlockShared()
      }
      let isHeldTooEarly = isHeld.load(ordering: .relaxed)
      #expect(!isHeldTooEarly)
      return count
    }
    #expect(count == 1_000)
  }
}
