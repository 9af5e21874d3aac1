import Dispatch
import Synchronization

/// How many commits are under way: a sync waits a moment for those, and is theirs as well.
///
/// Without that, commits that take turns find the sync of the first begun, and each needs one of its own.
package final class CommitTally: Sendable {
  private struct State: Sendable {
    var begunCount = 0
    var endedCount = 0
    /// Who waits, and for how many to have ended.
    var waiter: (endedCount: Int, turn: DispatchSemaphore)?
  }

  private let state = Mutex(State())

  package init() {}

  package func begin() { state.withLock { $0.begunCount += 1 } }

  package func end() {
    state.withLock { state in
      state.endedCount += 1
      guard let waiter = state.waiter, state.endedCount >= waiter.endedCount else { return }
      state.waiter = nil
      waiter.turn.signal()
    }
  }

  /// Waits until as many commits have ended as had begun by now, for one thread at a time.
  ///
  /// - Parameter patience: longer than commits take, and too short to notice: another process may be in the middle of a
  ///   long one.
  /// - Returns: false when it took longer.
  @discardableResult
  package func waitForBegun(patience: DispatchTimeInterval = .milliseconds(2)) -> Bool {
    let turn = DispatchSemaphore(value: 0)
    let waits = state.withLock { state in
      guard state.endedCount < state.begunCount else { return false }
      state.waiter = (state.begunCount, turn)
      return true
    }
    guard waits else { return true }
    if turn.wait(timeout: .now() + patience) == .success { return true }
    state.withLock { $0.waiter = nil }
    return false
  }
}
