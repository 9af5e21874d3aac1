import Synchronization

/// Wakes tasks that wait for commits of this process.
package final class ChangeSignal: Sendable {
  private struct State {
    /// The streams of waiting tasks. A task wakes when its stream ends.
    var waits: [UInt64: AsyncStream<Void>.Continuation] = [:]
    var nextID: UInt64 = 0
  }

  private let state = Mutex(State())
  private let commits = Atomic<UInt64>(0)
  /// The number of waiting tasks. While it is 0, a commit takes no lock.
  private let waitCount = Atomic<Int>(0)

  /// The number of commits so far.
  package var count: UInt64 { commits.load(ordering: .sequentiallyConsistent) }

  func send() {
    commits.add(1, ordering: .sequentiallyConsistent)
    guard waitCount.load(ordering: .sequentiallyConsistent) > 0 else { return }
    for wait in state.withLock({ Array($0.waits.values) }) { wait.finish() }
  }

  /// Waits for a commit after the first `count`, for the end of `limit`, or for the task to be cancelled.
  package func wait(after count: UInt64, atMost limit: Duration) async {
    let (stream, wait) = AsyncStream<Void>.makeStream()
    let id = state.withLock { state in
      state.nextID += 1
      state.waits[state.nextID] = wait
      return state.nextID
    }
    waitCount.add(1, ordering: .sequentiallyConsistent)
    let timer = Task {
      do { try await Task.sleep(for: limit) } catch {}
      wait.finish()
    }
    if self.count == count { for await _ in stream {} }
    timer.cancel()
    waitCount.subtract(1, ordering: .sequentiallyConsistent)
    state.withLock { _ = $0.waits.removeValue(forKey: id) }
  }
}
