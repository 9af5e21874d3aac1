import BlobStorage
import Dispatch
import Synchronization

/// Runs jobs of one key in the order of submission, and those of different keys side by side.
///
/// Compares keys by their UTF-8 bytes: `String` equates composed and decomposed letters, the store does not. A job may
/// wait for jobs of other keys, as long as fewer than `workerCountMax` jobs wait at a time. A held lane runs no further
/// jobs, and takes no thread, until its hold is released.
final class Lanes: Sendable {
  typealias Job = @Sendable () -> Void
  typealias Key = [UInt8]

  /// The originals have a queue for each key, and Dispatch runs up to 255 queues side by side on Linux.
  private static let workerCountMax = 200

  private struct Lane {
    var waiting = Fifo<Job>()
    var isRunning = false
    var isHeld = false

    var isReady: Bool { !isRunning && !isHeld && !waiting.isEmpty }
    var isOver: Bool { !isRunning && !isHeld && waiting.isEmpty }
  }

  private struct State {
    var lanes: [Key: Lane] = [:]
    /// Lanes that are ready, each once.
    var ready = Fifo<Key>()
    var workerCount = 0

    /// Changes a lane, and lists it if it has become ready.
    ///
    /// - Returns: whether to start a worker for it.
    mutating func change(_ key: Key, _ body: @Sendable (inout Lane) -> Void) -> Bool {
      let wasReady = lanes[key]?.isReady ?? false
      // In place: a copy of the lane would copy all waiting jobs.
      body(&lanes[key, default: Lane()])
      let isReady = lanes[key]?.isReady ?? false
      if lanes[key]?.isOver ?? false { lanes[key] = nil }
      guard isReady, !wasReady else { return false }
      ready.append(key)
      guard workerCount < Lanes.workerCountMax else { return false }
      workerCount += 1
      return true
    }
  }

  private let state = Mutex(State())

  /// Puts a job at the end of its key's lane.
  func submit(_ key: String, _ job: @escaping Job) {
    change(Array(key.utf8)) { $0.waiting.append(job) }
  }

  /// Holds the lane of the running job: the jobs behind it wait until the hold is released.
  func hold(_ key: String) -> Hold {
    let key = Array(key.utf8)
    change(key) { $0.isHeld = true }
    return Hold { [self] in change(key) { $0.isHeld = false } }
  }

  private func change(_ key: Key, _ body: @Sendable (inout Lane) -> Void) {
    let startsWorker = state.withLock { $0.change(key, body) }
    // A serial queue has a thread of its own even when the program blocks all threads of the concurrent ones.
    if startsWorker { DispatchQueue(label: "blob-storage.drop-in").async { self.work() } }
  }

  private func work() {
    while let (key, job) = next() {
      job()
      // This worker continues, with this lane or another.
      state.withLock { state in
        state.workerCount -= 1
        if !state.change(key, { $0.isRunning = false }) { state.workerCount += 1 }
      }
    }
  }

  private func next() -> (Key, Job)? {
    state.withLock { state in
      guard let key = state.ready.popFirst(), let job = state.lanes[key]?.waiting.popFirst() else {
        state.workerCount -= 1
        return nil
      }
      state.lanes[key]?.isRunning = true
      return (key, job)
    }
  }
}

/// Keeps the jobs of a key waiting until it is released, or is gone.
final class Hold: Sendable {
  private let end: Mutex<(@Sendable () -> Void)?>

  init(_ end: @escaping @Sendable () -> Void) { self.end = Mutex(end) }

  deinit { release() }

  func release() { end.withLock { $0.take() }?() }
}

/// Carries a caller's closure or value to another thread.
///
/// Unchecked: the originals take plain closures, and programs written for them would not compile with `@Sendable` ones.
/// As with the originals, the caller must know what a closure may touch.
struct Handed<Value>: @unchecked Sendable {
  let value: Value

  init(_ value: Value) { self.value = value }
}
