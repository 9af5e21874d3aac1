/// A lock for threads that wait for the network while they hold it. A cancelled thread stops waiting for it.
package final class Turn: Sendable {
  private let isTaken = Monitor(false)

  package init() {}

  /// - Parameter isPatient: whether a cancelled task still waits.
  /// - Throws: `cancelled`; then there is nothing to release.
  package func acquire(isPatient: Bool) throws(BlobStorageError) {
    if isPatient {
      isTaken.withLock(when: { !$0 }) { $0 = true }
    } else {
      try isTaken.withLockUnlessCancelled(when: { !$0 }) { $0 = true }
    }
  }

  package func release() {
    isTaken.withLock { $0 = false }
    // All of them: the one that is woken may have been cancelled.
    isTaken.wakeAll()
  }
}
