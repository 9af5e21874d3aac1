import Foundation

/// Threads for operations that wait for files: a bounded number, so that callers are suspended and not threads made.
///
/// They are its own. Those of Dispatch are few beyond the number of cores, and Swift's tasks run on them too: operations
/// that wait for an engine that does not answer would keep all tasks of the process from running.
final class OperationPool: @unchecked Sendable {
  static let defaultWidth = 16
  /// The one that all stores in folders use. Those that are shared by machines have one each: one that cannot reach its
  /// engine keeps no other waiting.
  static let shared = OperationPool(width: defaultWidth)
  /// For the making and opening of stores that are shared by machines.
  static let opening = OperationPool(width: defaultWidth)

  private let width: Int
  private let condition = NSCondition()
  // Guarded by `condition`.
  private var waiting: [@Sendable () -> Void] = []
  private var head = 0
  private var threadCount = 0
  private var idleCount = 0
  /// A thread that has had nothing to do for so long ends.
  private static let idleSeconds = 5.0

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
    condition.lock()
    defer { condition.unlock() }
    waiting.append(job)
    if waiting.count - head <= idleCount {
      condition.signal()
    } else if threadCount < width {
      threadCount += 1
      let thread = Thread { [self] in work() }
      thread.name = "blob-operation"
      thread.stackSize = 1 << 20
      thread.start()
    }
  }

  private func work() {
    condition.lock()
    while true {
      while let job = nextJob() {
        condition.unlock()
        job()
        condition.lock()
      }
      idleCount += 1
      let isWoken = condition.wait(until: Date(timeIntervalSinceNow: Self.idleSeconds))
      idleCount -= 1
      guard isWoken || head < waiting.count else { break }
    }
    threadCount -= 1
    condition.unlock()
  }

  /// The next job; the lock is held.
  private func nextJob() -> (@Sendable () -> Void)? {
    guard head < waiting.count else { return nil }
    let job = waiting[head]
    head += 1
    if head == waiting.count || head > 1_024 {
      waiting.removeFirst(head)
      head = 0
    }
    return job
  }
}
