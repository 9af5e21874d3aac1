import Foundation
import Synchronization

/// A bounded number of threads for operations that wait for files. Callers are suspended instead of creating threads.
///
/// The threads are its own. Dispatch has few beyond the number of cores, and Swift's tasks run on those too. Operations
/// that wait for an unresponsive object store would block all tasks of the process there.
///
/// A thread that another process holds up lends its place to another thread (``lendPlace()``), so that other operations
/// go on.
package final class OperationPool: Sendable {
  package static let defaultWidth = 16
  /// At most so many places are lent.
  package static let lentCountMax = 112
  /// Opens stores in folders.
  package static let opening = OperationPool()
  /// Creates and opens stores in buckets, which may not answer.
  package static let openingRemotes = OperationPool()

  /// The pool whose thread runs the current work.
  @TaskLocal package static var current: OperationPool?

  private typealias Job = @Sendable () -> Void

  private struct State: Sendable {
    var waiting = Fifo<Job>()
    var threadCount = 0
    var idleCount = 0
    /// How many threads have lent their places.
    var lentCount = 0

    /// Adds a thread if a job needs one and there is a place for it.
    mutating func addThread(_ width: Int) -> Bool {
      guard waiting.count > idleCount, threadCount < width + min(lentCount, OperationPool.lentCountMax) else {
        return false
      }
      threadCount += 1
      return true
    }
  }

  /// Defers an operation that would only wait. Returns false if the operation can begin.
  ///
  /// - Parameter resume: to be called once, with the error if the operation must fail.
  package typealias Deferral = @Sendable (_ resume: @escaping @Sendable (BlobStorageError?) -> Void) -> Bool

  private let width: Int
  private let state = Monitor(State())
  private let idleSeconds: Double

  /// - Parameter idleSeconds: idle seconds after which a thread ends.
  package init(width: Int = defaultWidth, idleSeconds: Double = 5) {
    self.width = width
    self.idleSeconds = idleSeconds
  }

  /// Runs `body` on a thread of its own, for work that must wait for no other.
  package static func onOwnThread<T: Sendable>(
    mustRun: Bool = false, _ body: @escaping @Sendable () throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    try await OperationPool(width: 1, idleSeconds: 0).run(mustRun: mustRun, body)
  }

  /// Runs `body` on a thread of the pool while the caller's task is suspended.
  ///
  /// If the task is cancelled while the call waits for a thread, the call throws `cancelled` at once. If the task was
  /// cancelled before, `body` runs and may throw `cancelled` itself.
  ///
  /// - Parameters:
  ///   - mustRun: whether `body` runs in any case.
  ///   - isDeferred: asked before `body` begins, on a thread of the pool.
  package func run<T: Sendable>(
    mustRun: Bool = false, unless isDeferred: @escaping Deferral = { _ in false },
    _ body: @escaping @Sendable () throws(BlobStorageError) -> T
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
    let start: @Sendable () -> Void = {
      guard let continuation = waiting.withLock({ $0.take() }) else { return }
      let result = CancellationFlag.$current.withValue(cancellation) { Result(catching: body) }
      continuation.resume(returning: result)
    }
    let result: Result<T, BlobStorageError> = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        waiting.withLock { $0 = continuation }
        abandon()
        submit(start, unless: isDeferred) { error in
          waiting.withLock { $0.take() }?.resume(returning: .failure(error))
        }
      }
    } onCancel: {
      cancellation.cancel()
      abandon()
    }
    return try result.get()
  }

  private func submit(
    _ start: @escaping @Sendable () -> Void, unless isDeferred: @escaping Deferral,
    _ fail: @escaping @Sendable (BlobStorageError) -> Void
  ) {
    submit { [self] in
      let isLater = isDeferred { [self] error in
        if let error { fail(error) } else { submit(start, unless: isDeferred, fail) }
      }
      if !isLater { start() }
    }
  }

  /// Runs `job` when a thread is free. Jobs begin in the order of submission.
  package func submit(_ job: @escaping @Sendable () -> Void) {
    let needsThread = state.withLock { state in
      state.waiting.append(job)
      return state.addThread(width)
    }
    if needsThread { startThread() } else { state.wakeOne() }
  }

  /// Lets another thread take the place of one that waits for another process.
  package func lendPlace() {
    let needsThread = state.withLock { state in
      state.lentCount += 1
      return state.addThread(width)
    }
    if needsThread { startThread() }
  }

  /// Ends a loan. If no place is free, a thread that ends its job makes one.
  package func takePlaceBack() { state.withLock { $0.lentCount -= 1 } }

  private func startThread() {
    Thread.start(named: "blob-operation") { [self] in Self.$current.withValue(self) { work() } }
  }

  private func work() {
    while let job = nextJob() { job() }
  }

  /// The next job; nil for a thread that ends.
  private func nextJob() -> Job? {
    enum Next { case job(Job), wait, end }
    let next = state.withLock { state -> Next in
      if state.threadCount > width + min(state.lentCount, Self.lentCountMax) {
        state.threadCount -= 1
        return .end
      }
      if let job = state.waiting.popFirst() { return .job(job) }
      state.idleCount += 1
      return .wait
    }
    switch next {
    case .job(let job): return job
    case .end: return nil
    case .wait: break
    }
    return state.withLock(when: { !$0.waiting.isEmpty }, withinSeconds: idleSeconds) { state in
      state.idleCount -= 1
      let job = state.waiting.popFirst()
      if job == nil { state.threadCount -= 1 }
      return job
    }
  }
}
