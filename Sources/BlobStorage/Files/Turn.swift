/// A lock for those who hold it while they wait for a network: who was cancelled waits for it no longer.
package final class Turn: Sendable {
  private let isTaken = Monitor(false)

  package init() {}

  /// - Parameter isPatient: whether a task that is cancelled waits all the same.
  /// - Throws: `cancelled`; then there is nothing to give back.
  package func take(isPatient: Bool) throws(BlobStorageError) {
    if isPatient {
      isTaken.withLock(when: { !$0 }) { $0 = true }
    } else {
      try isTaken.withLockUnlessCancelled(when: { !$0 }) { $0 = true }
    }
  }

  package func giveBack() {
    isTaken.withLock { $0 = false }
    // All of them: the one that is woken may have been cancelled.
    isTaken.wakeAll()
  }
}
