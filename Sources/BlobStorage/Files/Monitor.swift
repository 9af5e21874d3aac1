import Foundation

/// A value that one thread at a time uses, and whose changes other threads can wait for.
///
/// After a change, call ``wakeAll()`` or ``wakeOne()`` to wake the waiting threads.
package final class Monitor<State: Sendable>: @unchecked Sendable {
  private let condition = NSCondition()
  // Unchecked: guarded by `condition`.
  private var state: State

  package init(_ state: State) { self.state = state }

  /// Runs `body` while no other thread uses the value.
  package func withLock<T>(_ body: (inout State) -> T) -> T {
    condition.lock()
    defer { condition.unlock() }
    return body(&state)
  }

  /// Waits until `isReady`, or for at most `seconds`, and then runs `body`.
  package func withLock<T>(
    when isReady: (State) -> Bool, withinSeconds seconds: Double? = nil, _ body: (inout State) -> T
  ) -> T {
    let end = seconds.map { Date(timeIntervalSinceNow: $0) }
    condition.lock()
    defer { condition.unlock() }
    while !isReady(state) {
      guard let end else {
        condition.wait()
        continue
      }
      if !condition.wait(until: end) { break }
    }
    return body(&state)
  }

  /// Waits until `isReady` and then runs `body`, unless this thread's task is cancelled.
  ///
  /// - Throws: the error of `body`, or `cancelled`: then `body` did not run.
  package func withLockUnlessCancelled<T>(
    when isReady: (State) -> Bool, _ body: (inout State) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    condition.lock()
    defer { condition.unlock() }
    while !isReady(state) {
      if CancellationFlag.current == nil {
        condition.wait()
        continue
      }
      try CancellationFlag.check()
      // Cancelling a task wakes no thread, so a waiting thread polls.
      _ = condition.wait(until: Date(timeIntervalSinceNow: 0.2))
      try CancellationFlag.check()
    }
    return try body(&state)
  }

  /// Wakes all waiting threads.
  package func wakeAll() { condition.broadcast() }

  /// Wakes one waiting thread. Use it only if all of them wait for the same condition.
  package func wakeOne() { condition.signal() }
}

extension Thread {
  /// Starts a thread that runs `body` and ends.
  package static func start(named name: String, _ body: @escaping @Sendable () -> Void) {
    let thread = Thread(block: body)
    thread.name = name
    thread.stackSize = 1 << 20
    thread.start()
  }
}
