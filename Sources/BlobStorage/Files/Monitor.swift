import Foundation

/// A value that one thread at a time uses, and whose changes other threads can wait for.
///
/// After a change, call ``wakeAll()`` or ``wakeOne()`` to wake the waiting threads.
package final class Monitor<State: Sendable>: @unchecked Sendable {
  // No `NSCondition`: it waits until a time of day, and for an hour longer when the clock is set back by an hour.
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  // Unchecked: guarded by `mutex`.
  private var state: State

  package init(_ state: State) {
    self.state = state
    pthread_mutex_init(mutex, nil)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    #if !canImport(Darwin)
      pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    #endif
    pthread_cond_init(condition, &attributes)
    pthread_condattr_destroy(&attributes)
  }

  deinit {
    pthread_cond_destroy(condition)
    pthread_mutex_destroy(mutex)
    condition.deallocate()
    mutex.deallocate()
  }

  /// Runs `body` while no other thread uses the value.
  package func withLock<T>(_ body: (inout State) -> T) -> T {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return body(&state)
  }

  /// Waits until `isReady`, or for at most `seconds`, and then runs `body`.
  package func withLock<T>(
    when isReady: (State) -> Bool, withinSeconds seconds: Double? = nil, _ body: (inout State) -> T
  ) -> T {
    let end = seconds.map { PassingTime.system.now() + $0 }
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while !isReady(state) {
      guard let end else {
        pthread_cond_wait(condition, mutex)
        continue
      }
      let secondsLeft = end - PassingTime.system.now()
      guard secondsLeft > 0 else { break }
      wait(seconds: secondsLeft)
    }
    return body(&state)
  }

  /// Waits until `isReady` and then runs `body`, unless this thread's task is cancelled.
  ///
  /// - Throws: the error of `body`, or `cancelled`: then `body` did not run.
  package func withLockUnlessCancelled<T>(
    when isReady: (State) -> Bool, _ body: (inout State) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while !isReady(state) {
      if CancellationFlag.current == nil {
        pthread_cond_wait(condition, mutex)
        continue
      }
      try CancellationFlag.check()
      // Cancelling a task wakes no thread, so a waiting thread polls.
      wait(seconds: 0.2)
      try CancellationFlag.check()
    }
    return try body(&state)
  }

  /// Waits to be woken, or for at most `seconds`. The caller holds the lock.
  private func wait(seconds: Double) {
    let nanoseconds = Int64(min(seconds, 1e9) * 1e9)
    #if canImport(Darwin)
      var length = timespec(
        tv_sec: time_t(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
      pthread_cond_timedwait_relative_np(condition, mutex, &length)
    #else
      var end = timespec()
      clock_gettime(CLOCK_MONOTONIC, &end)
      let sum = nanoseconds + Int64(end.tv_nsec)
      end.tv_sec += time_t(sum / 1_000_000_000)
      end.tv_nsec = Int(sum % 1_000_000_000)
      pthread_cond_timedwait(condition, mutex, &end)
    #endif
  }

  /// Wakes all waiting threads.
  package func wakeAll() { pthread_cond_broadcast(condition) }

  /// Wakes one waiting thread. Use it only if all of them wait for the same condition.
  package func wakeOne() { pthread_cond_signal(condition) }
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
