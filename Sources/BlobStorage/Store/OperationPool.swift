import Foundation
import Synchronization

/// A bounded number of threads for operations that wait for files. Callers are suspended instead of creating threads.
///
/// The threads are its own. Dispatch has few beyond the number of cores, and Swift's tasks run on those too. Operations
/// that wait for an unresponsive object store would block all tasks of the process there.
final class OperationPool: Sendable {
  static let defaultWidth = 16
  /// The pool of all stores in folders. Each store in a bucket has its own, so that an unreachable object store delays
  /// no other.
  static let shared = OperationPool(width: defaultWidth)
  /// Creates and opens stores in buckets.
  static let opening = OperationPool(width: defaultWidth)
  /// Changes caches. Each change may wait for room that another process makes, and no read may wait for them.
  static let changingCaches = OperationPool(width: defaultWidth)

  private typealias Job = @Sendable () -> Void

  private struct State: Sendable {
    var waiting = Fifo<Job>()
    var threadCount = 0
    var idleCount = 0
  }

  private let width: Int
  private let state = Monitor(State())
  private let idleSeconds: Double

  /// - Parameter idleSeconds: idle seconds after which a thread ends.
  init(width: Int, idleSeconds: Double = 5) {
    self.width = width
    self.idleSeconds = idleSeconds
  }

  /// Runs `body` on a thread of the pool while the caller's task is suspended.
  ///
  /// If the task is cancelled while the call waits for a thread, the call throws `cancelled` at once. If the task was
  /// cancelled before, `body` runs and may throw `cancelled` itself.
  ///
  /// - Parameter mustRun: whether `body` runs in any case.
  func run<T: Sendable>(
    mustRun: Bool = false, _ body: @escaping @Sendable () throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    // A continuation does not keep the error's type, so a result carries it.
    let cancellation = CancellationFlag()
    // The call while it waits for a thread. Its beginning or its cancellation resumes it, whichever comes first.
    let waiting = Mutex<CheckedContinuation<Result<T, BlobStorageError>, Never>?>(nil)
    let mustRun = mustRun || Task.isCancelled
    let abandon: @Sendable () -> Void = {
      guard cancellation.isCancelled, !mustRun else { return }
      waiting.withLock { $0.take() }?.resume(returning: .failure(CancellationFlag.cancelled))
    }
    let result: Result<T, BlobStorageError> = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        waiting.withLock { $0 = continuation }
        abandon()
        submit {
          guard let continuation = waiting.withLock({ $0.take() }) else { return }
          let result = CancellationFlag.$current.withValue(cancellation) { Result(catching: body) }
          continuation.resume(returning: result)
        }
      }
    } onCancel: {
      cancellation.cancel()
      abandon()
    }
    return try result.get()
  }

  /// Runs `job` when a thread is free. Jobs begin in the order of submission.
  func submit(_ job: @escaping @Sendable () -> Void) {
    let needsThread = state.withLock { state in
      state.waiting.append(job)
      guard state.waiting.count > state.idleCount, state.threadCount < width else { return false }
      state.threadCount += 1
      return true
    }
    if needsThread { Thread.start(named: "blob-operation") { [self] in work() } } else { state.wakeOne() }
  }

  private func work() {
    while let job = nextJob() { job() }
  }

  /// The next job; nil for a thread that ends.
  private func nextJob() -> Job? {
    let job = state.withLock { state -> Job? in
      let job = state.waiting.popFirst()
      if job == nil { state.idleCount += 1 }
      return job
    }
    if let job { return job }
    return state.withLock(when: { !$0.waiting.isEmpty }, withinSeconds: idleSeconds) { state in
      state.idleCount -= 1
      let job = state.waiting.popFirst()
      if job == nil { state.threadCount -= 1 }
      return job
    }
  }
}
