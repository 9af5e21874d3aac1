/// A lock for threads that wait for the network while they hold it. A cancelled thread stops waiting.
package final class Turn: Sendable {
  private let isTaken = Monitor(false)

  package init() {}

  /// - Throws: `cancelled`; then the caller does not hold the lock.
  package func acquire() throws(BlobStorageError) {
    try isTaken.withLockUnlessCancelled(when: { !$0 }) { $0 = true }
  }

  /// Runs `body` with the lock. Waits even if the thread is cancelled.
  package func withPatience<T, Failure: Error>(_ body: () throws(Failure) -> T) throws(Failure) -> T {
    isTaken.withLock(when: { !$0 }) { $0 = true }
    defer { release() }
    return try body()
  }

  package func release() {
    isTaken.withLock { $0 = false }
    // Wake all of them: a single woken thread may be cancelled.
    isTaken.wakeAll()
  }
}
