import BlobStorage
import Dispatch
import Foundation
import Synchronization
import Testing

@Suite("A tally of commits under way")
struct CommitTallyTests {
  private final class Flag: Sendable {
    private let value = Mutex(false)

    var isSet: Bool { value.withLock { $0 } }
    func set() { value.withLock { $0 = true } }
  }

  @Test("does not wait when there are none")
  func none() {
    let tally = CommitTally()
    #expect(tally.waitForBegun(patience: .never))
    tally.begin()
    tally.end()
    #expect(tally.waitForBegun(patience: .never))
  }

  @Test("lets who waits go on when all have ended that had begun")
  func waits() {
    let tally = CommitTally()
    for _ in 0..<2 { tally.begin() }
    let done = Flag()
    let waiting = DispatchSemaphore(value: 0)
    let waited = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      waiting.signal()
      tally.waitForBegun(patience: .never)
      done.set()
      waited.signal()
    }
    waiting.wait()
    // Whether the thread waits already or not, it waits for the second.
    tally.end()
    #expect(!done.isSet)
    tally.end()
    waited.wait()
    #expect(done.isSet)
  }

  @Test("waits no longer than the patience")
  func patience() {
    let tally = CommitTally()
    tally.begin()
    #expect(!tally.waitForBegun(patience: .milliseconds(1)))
    tally.end()
    #expect(tally.waitForBegun(patience: .never))
  }
}
