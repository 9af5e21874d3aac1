import Dispatch
import Synchronization

/// Threads for operations that wait for files: a bounded number, so that callers are suspended and not threads made.
final class OperationPool: Sendable {
  static let defaultWidth = 16
  /// The one that all stores in folders use. Those that are shared by machines have one each: one that cannot reach its
  /// engine keeps no other waiting.
  static let shared = OperationPool(width: defaultWidth)
  /// For the making and opening of stores that are shared by machines.
  static let opening = OperationPool(width: defaultWidth)

  private struct State: Sendable {
    var runningCount = 0
    var waiting: [@Sendable () -> Void] = []
    var head = 0
  }

  private let width: Int
  private let state = Mutex(State())
  private let queue = DispatchQueue(label: "blob-storage.operations", attributes: .concurrent)

  init(width: Int) { self.width = width }

  /// Runs `body` on a thread of the pool while the caller's task is suspended.
  func run<T: Sendable>(
    _ body: @escaping @Sendable () throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    // A continuation forgets the error's type: a result carries it across.
    let cancellation = CancellationFlag()
    let result: Result<T, BlobStorageError> = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        submit {
          let result: Result<T, BlobStorageError> = CancellationFlag.$current.withValue(cancellation) {
            do throws(BlobStorageError) { return .success(try body()) } catch { return .failure(error) }
          }
          continuation.resume(returning: result)
        }
      }
    } onCancel: {
      cancellation.cancel()
    }
    return try result.get()
  }

  /// Runs `job` when a thread is free; in the order of submission.
  func submit(_ job: @escaping @Sendable () -> Void) {
    let starts = state.withLock { state in
      guard state.runningCount < width else {
        state.waiting.append(job)
        return false
      }
      state.runningCount += 1
      return true
    }
    if starts { queue.async { self.work(job) } }
  }

  private func work(_ first: @Sendable () -> Void) {
    first()
    while let next = nextJob() { next() }
  }

  private func nextJob() -> (@Sendable () -> Void)? {
    state.withLock { state in
      guard state.head < state.waiting.count else {
        state.waiting = []
        state.head = 0
        state.runningCount -= 1
        return nil
      }
      defer { state.head += 1 }
      return state.waiting[state.head]
    }
  }
}
