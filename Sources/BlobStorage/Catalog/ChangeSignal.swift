import Synchronization

/// Wakes tasks that wait for commits of this process.
package final class ChangeSignal: Sendable {
  private enum Wait {
    case begun
    case suspended(CheckedContinuation<Void, Never>)
    case woken
  }

  private struct State {
    var waits: [UInt64: Wait] = [:]
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
    let suspended = state.withLock { state in
      var suspended: [CheckedContinuation<Void, Never>] = []
      for (id, wait) in state.waits {
        if case .suspended(let continuation) = wait { suspended.append(continuation) }
        state.waits[id] = .woken
      }
      return suspended
    }
    for continuation in suspended { continuation.resume() }
  }

  /// Waits for a commit after the first `count`, for the end of `limit`, or for the task to be cancelled.
  package func wait(after count: UInt64, atMost limit: Duration) async {
    let id = state.withLock { state in
      state.nextID += 1
      state.waits[state.nextID] = .begun
      return state.nextID
    }
    waitCount.add(1, ordering: .sequentiallyConsistent)
    let timer = Task {
      do { try await Task.sleep(for: limit) } catch { return }
      self.wake(id)
    }
    if self.count == count {
      await withTaskCancellationHandler {
        await withCheckedContinuation { continuation in
          let isSuspended = state.withLock { state in
            guard case .begun = state.waits[id] else { return false }
            state.waits[id] = .suspended(continuation)
            return true
          }
          if !isSuspended { continuation.resume() }
        }
      } onCancel: {
        wake(id)
      }
    }
    timer.cancel()
    waitCount.subtract(1, ordering: .sequentiallyConsistent)
    state.withLock { _ = $0.waits.removeValue(forKey: id) }
  }

  private func wake(_ id: UInt64) {
    let suspended = state.withLock { state -> CheckedContinuation<Void, Never>? in
      guard let wait = state.waits[id] else { return nil }
      state.waits[id] = .woken
      if case .suspended(let continuation) = wait { return continuation }
      return nil
    }
    suspended?.resume()
  }
}
