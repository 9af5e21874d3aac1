import BlobStorage
import Dispatch
import Synchronization

/// Runs jobs of one key one after another in the order of submission, and those of different keys side by
/// side.
///
/// Keys are compared by their UTF-8 bytes: `String` takes composed and decomposed letters for equal, the
/// store does not. A job may wait for jobs of other keys, as long as fewer than `workerCountMax` do at a
/// time.
final class Lanes: Sendable {
  typealias Job = @Sendable () -> Void
  typealias Key = [UInt8]

  private static let workerCountMax = 32

  private struct State {
    /// The jobs that wait in each lane; a lane is here as long as it has a job, a running one included.
    var waiting: [Key: Fifo<Job>] = [:]
    /// Lanes with jobs of which none runs.
    var ready = Fifo<Key>()
    var workerCount = 0
  }

  private let state = Mutex(State())

  /// Puts a job at the end of its key's lane.
  func submit(_ key: String, _ job: @escaping Job) {
    let key = Array(key.utf8)
    let startsWorker = state.withLock { state in
      let isNew = state.waiting[key] == nil
      state.waiting[key, default: Fifo()].append(job)
      guard isNew else { return false }
      state.ready.append(key)
      guard state.workerCount < Self.workerCountMax else { return false }
      state.workerCount += 1
      return true
    }
    // A serial queue has a thread of its own even when the program blocks all threads of the concurrent ones.
    if startsWorker { DispatchQueue(label: "blob-storage.drop-in").async { self.work() } }
  }

  private func work() {
    while let (key, job) = next() {
      job()
      finish(key)
    }
  }

  private func next() -> (Key, Job)? {
    state.withLock { state in
      guard let key = state.ready.popFirst(), let job = state.waiting[key]?.popFirst() else {
        state.workerCount -= 1
        return nil
      }
      return (key, job)
    }
  }

  private func finish(_ key: Key) {
    state.withLock { state in
      if state.waiting[key]?.isEmpty == false { state.ready.append(key) } else { state.waiting[key] = nil }
    }
  }
}

/// First in, first out.
struct Fifo<Element> {
  private var elements: [Element?] = []
  private var head = 0

  var isEmpty: Bool { head == elements.count }

  mutating func append(_ element: Element) { elements.append(element) }

  mutating func popFirst() -> Element? {
    guard head < elements.count else { return nil }
    defer {
      elements[head] = nil
      head += 1
      if head == elements.count || head > 1_024 {
        elements.removeFirst(head)
        head = 0
      }
    }
    return elements[head]
  }
}
