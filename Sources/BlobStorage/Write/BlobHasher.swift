import Dispatch
import Synchronization

/// Computes the digest of a blob whose bytes arrive in batches. It hashes them in order on a thread of the pool,
/// because the thread that reads and cuts is busy.
struct BlobHasher {
  /// Batches that may wait before ``update(_:)`` blocks. They stay in memory, as do those in the pipeline.
  private static let waitingCountMax = 2

  private let work: Work
  private let pool: WorkPool
  /// Runs the work on the calling thread unless a thread of the pool has begun it.
  private var lendHand: @Sendable () -> Void = {}

  init(_ algorithm: BlobDigest.Algorithm, on pool: WorkPool) {
    work = Work(algorithm)
    self.pool = pool
  }

  /// Adds the next batch.
  mutating func update(_ batch: Cutter.Batch) {
    let (starts, waitingCount) = work.add(batch)
    if starts { lendHand = pool.run { [work] in work.run() } }
    if waitingCount > Self.waitingCountMax { wait() }
  }

  /// The digest of all bytes so far.
  func finalize() -> BlobDigest {
    wait()
    return work.stream.withLock { $0.finalize() }
  }

  private func wait() {
    lendHand()
    work.running.wait()
  }

  /// Holds the batches to hash. One thread at a time hashes them.
  private final class Work: Sendable {
    private struct State: Sendable {
      var waiting: [Cutter.Batch] = []
      var isRunning = false
    }

    private let state = Mutex(State())
    let stream: IOLock<DigestStream>
    let running = DispatchGroup()

    init(_ algorithm: BlobDigest.Algorithm) {
      stream = IOLock(DigestStream(algorithm))
    }

    /// Returns whether the caller must start a run, and how many batches wait.
    func add(_ batch: Cutter.Batch) -> (starts: Bool, waitingCount: Int) {
      state.withLock { state in
        state.waiting.append(batch)
        if state.isRunning { return (false, state.waiting.count) }
        state.isRunning = true
        running.enter()
        return (true, state.waiting.count)
      }
    }

    func run() {
      while let batches = removeWaiting() {
        stream.withLock { stream in
          for batch in batches { stream.update(batch.bytes.span.bytes) }
        }
      }
      running.leave()
    }

    /// Removes and returns the waiting batches. Returns nil if there are none: the next added batch then starts a run.
    private func removeWaiting() -> [Cutter.Batch]? {
      state.withLock { state in
        if state.waiting.isEmpty {
          state.isRunning = false
          return nil
        }
        defer { state.waiting = [] }
        return state.waiting
      }
    }
  }
}
