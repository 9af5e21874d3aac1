#if THREAD_SANITIZER && canImport(Glibc)
  import Glibc

  // On Linux the standard library implements its lock with futex calls in a library without instrumentation. The thread
  // sanitizer does not see what it orders, and would report each use as a race. Sanitizer builds (tools/sanitize) use
  // the system's lock under the same name instead.
  typealias Mutex = VisibleMutex

  /// The used subset of `Synchronization.Mutex`, on a lock that the thread sanitizer knows.
  package struct VisibleMutex<Value: ~Copyable>: ~Copyable, @unchecked Sendable {
    private let lock: UnsafeMutablePointer<pthread_mutex_t>
    private let value: UnsafeMutablePointer<Value>

    package init(_ value: consuming sending Value) {
      lock = .allocate(capacity: 1)
      pthread_mutex_init(lock, nil)
      self.value = .allocate(capacity: 1)
      self.value.initialize(to: value)
    }

    deinit {
      pthread_mutex_destroy(lock)
      lock.deallocate()
      value.deinitialize(count: 1)
      value.deallocate()
    }

    package borrowing func withLock<Result: ~Copyable, Failure: Error>(
      _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
      pthread_mutex_lock(lock)
      defer { pthread_mutex_unlock(lock) }
      return try body(&value.pointee)
    }
  }
#endif
