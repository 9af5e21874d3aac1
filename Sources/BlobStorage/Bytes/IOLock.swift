import Foundation

/// A lock whose holder may do I/O on the state that it guards. Use `Mutex` for state without I/O.
///
/// A thread that waits for this lock waits for the holder's system calls. If the holder may wait for the network, use a
/// ``Turn``, which a waiting thread can cancel.
package final class IOLock<State: ~Copyable>: @unchecked Sendable {
  private struct Guarded: ~Copyable {
    var state: State
    /// Without this byte, an empty state would lie at the object's head, and the thread sanitizer would report its
    /// access as a race.
    private let byte: UInt8 = 0

    init(_ state: consuming State) { self.state = state }
  }

  private let lock = NSLock()
  // Unchecked: guarded by `lock`.
  private var guarded: Guarded

  package init(_ state: consuming State) { guarded = Guarded(state) }

  /// The result must not be part of the state.
  package func withLock<T, Failure: Error>(
    _ body: (inout State) throws(Failure) -> T
  ) throws(Failure) -> T {
    lock.lock()
    defer { lock.unlock() }
    return try body(&guarded.state)
  }
}
