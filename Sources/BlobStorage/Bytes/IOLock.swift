import Foundation

/// A lock whose holder may do I/O, around the state that the I/O belongs to. For state alone there is `Mutex`.
///
/// A thread that waits for it waits for the holder's calls to the system. One that waits for the network takes a ``Turn``,
/// so that it can be cancelled.
package final class IOLock<State: ~Copyable>: @unchecked Sendable {
  private struct Guarded: ~Copyable {
    var state: State
    /// An empty state would lie at the object's head. The thread sanitizer takes an access there for a race.
    private let byte: UInt8 = 0

    init(_ state: consuming State) { self.state = state }
  }

  private let lock = NSLock()
  // Unchecked: guarded by `lock`.
  private var guarded: Guarded

  package init(_ state: consuming State) { guarded = Guarded(state) }

  /// The result may be anything that is not part of the state.
  package func withLock<T, Failure: Error>(
    _ body: (inout State) throws(Failure) -> T
  ) throws(Failure) -> T {
    lock.lock()
    defer { lock.unlock() }
    return try body(&guarded.state)
  }
}
