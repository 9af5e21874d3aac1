import Synchronization

#if canImport(Darwin)
  import Darwin
#elseif canImport(Musl)
  import Musl
#else
  import Glibc
#endif

/// A lock with many shared holders or one exclusive one. For short sections on any thread; it does not track its
/// holders.
///
/// A shared holder may take it again, so the system's lock must prefer shared holders. A steady stream of them would
/// keep an exclusive one waiting. So that one now and then asks new shared holders to pause, never for long: the holder
/// that it waits for may be the pausing thread, or may wait for it.
package final class ReadWriteLock: @unchecked Sendable {
  // Unchecked: only the system's own calls use the lock.
  private let raw: UnsafeMutablePointer<pthread_rwlock_t>
  /// How many threads ask new shared holders to pause.
  private let askingCount = Atomic<Int>(0)
  private static let pauseMicroseconds: UInt32 = 100
  /// How many pauses a shared holder makes at most, and an exclusive one asks for.
  private static let pauseCountMax = 200

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
    var pauseCount = 0
    while pauseCount < Self.pauseCountMax, askingCount.load(ordering: .relaxed) > 0 {
      usleep(Self.pauseMicroseconds)
      pauseCount += 1
    }
    let code = pthread_rwlock_rdlock(raw)
    precondition(code == 0, "a lock can be taken")
  }

  package func unlockShared() { pthread_rwlock_unlock(raw) }

  package func lock() {
    while true {
      askingCount.add(1, ordering: .relaxed)
      let isLocked = tryLock(Self.pauseCountMax)
      askingCount.subtract(1, ordering: .relaxed)
      // Shared holders that wait for each other go on meanwhile.
      if isLocked || tryLock(10 * Self.pauseCountMax) { return }
    }
  }

  private func tryLock(_ countMax: Int) -> Bool {
    for _ in 0..<countMax {
      let code = pthread_rwlock_trywrlock(raw)
      if code == 0 { return true }
      precondition(code == EBUSY, "a lock can be taken")
      usleep(Self.pauseMicroseconds)
    }
    return false
  }

  package func unlock() { pthread_rwlock_unlock(raw) }
}
