#if canImport(Darwin)
  import Darwin
#elseif canImport(Musl)
  import Musl
#else
  import Glibc
#endif

/// A lock with many shared holders or one exclusive one. For short sections on any thread; it does not track its
/// holders.
package final class ReadWriteLock: @unchecked Sendable {
  // Unchecked: only the system's own calls use the lock.
  private let raw: UnsafeMutablePointer<pthread_rwlock_t>

  package init() {
    raw = .allocate(capacity: 1)
    raw.initialize(to: pthread_rwlock_t())
    let code = pthread_rwlock_init(raw, nil)
    precondition(code == 0, "a lock can be made")
  }

  deinit {
    pthread_rwlock_destroy(raw)
    raw.deinitialize(count: 1)
    raw.deallocate()
  }

  package func lockShared() {
    let code = pthread_rwlock_rdlock(raw)
    precondition(code == 0, "a lock can be taken")
  }

  package func unlockShared() { pthread_rwlock_unlock(raw) }

  package func lock() {
    let code = pthread_rwlock_wrlock(raw)
    precondition(code == 0, "a lock can be taken")
  }

  package func unlock() { pthread_rwlock_unlock(raw) }
}
