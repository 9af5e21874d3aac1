/// A lock for threads that wait for the network while they hold it. A cancelled thread stops waiting for it.
package final class Turn: Sendable {
  private let isTaken = Monitor(false)

  package init() {}

  /// - Throws: `cancelled`; then there is nothing to release.
  package func acquire() throws(BlobStorageError) {
    try isTaken.withLockUnlessCancelled(when: { !$0 }) { $0 = true }
  }

  /// Runs `body` with the lock. A cancelled thread waits for it too.
  package func withPatience<T, Failure: Error>(_ body: () throws(Failure) -> T) throws(Failure) -> T {
    isTaken.withLock(when: { !$0 }) { $0 = true }
    defer { release() }
    return try body()
  }

  package func release() {
    isTaken.withLock { $0 = false }
    // All of them: the one that is woken may have been cancelled.
    isTaken.wakeAll()
  }
}
