import Foundation

/// A lock for those who hold it while they wait for a network: who was cancelled waits for it no longer.
package final class Turn: @unchecked Sendable {
  private let condition = NSCondition()
  // Guarded by `condition`.
  private var isTaken = false

  package init() {}

  /// - Parameter isPatient: whether a task that is cancelled waits all the same.
  /// - Throws: `cancelled`; then there is nothing to give back.
  package func take(isPatient: Bool) throws(BlobStorageError) {
    condition.lock()
    defer { condition.unlock() }
    while isTaken {
      if isPatient { condition.wait() } else { try condition.waitUnlessCancelled() }
    }
    isTaken = true
  }

  package func giveBack() {
    condition.lock()
    isTaken = false
    // All of them: the one that is woken may have been cancelled.
    condition.broadcast()
    condition.unlock()
  }
}

extension NSCondition {
  /// Between looks whether the task was cancelled.
  private static let lookSeconds = 0.2

  /// Waits until it is signalled, or a moment has passed.
  ///
  /// - Throws: `cancelled`, if the task that this thread works for was.
  func waitUnlessCancelled() throws(BlobStorageError) {
    guard CancellationFlag.current != nil else {
      wait()
      return
    }
    try CancellationFlag.check()
    _ = wait(until: Date(timeIntervalSinceNow: Self.lookSeconds))
    try CancellationFlag.check()
  }
}
