import Dispatch
import Foundation
import Synchronization

/// A fixed number of threads for computing: hashing, encoding, decoding. Work in the pool must never wait for other
/// work of the same pool. `orderedMap` avoids that: the waiting thread runs jobs itself.
package final class WorkPool: Sendable {
  private struct State: Sendable {
    var jobs = Fifo<Job>()
    var isClosed = false
  }

  private final class Job: Sendable {
    /// Nil once the job runs: the job may stay in the queue, but releases its captures.
    private let body: Mutex<(@Sendable () -> Void)?>

    init(_ body: @escaping @Sendable () -> Void) { self.body = Mutex(body) }

    /// Runs the job unless another thread has begun it.
    func run() {
      if let body = body.withLock({ $0.take() }) { body() }
    }
  }

  private let state = Mutex(State())
  private let available = DispatchSemaphore(value: 0)
  package let width: Int

  /// Starts `width` threads, which end with ``close()``. Without threads, the waiting caller runs the work.
  package init(width: Int) {
    self.width = width
    for index in 0..<width { Thread.start(named: "blob-work-\(index)") { [self] in work() } }
  }

  /// Ends the threads once the queue is empty.
  package func close() {
    state.withLock { $0.isClosed = true }
    for _ in 0..<width { available.signal() }
  }

  /// Runs `body` once: on a pool thread, or on the thread that calls the returned closure first.
  package func run(_ body: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
    let job = Job(body)
    // Without threads, none would remove it from the queue, and its captures may retain this pool.
    if width > 0 {
      state.withLock { $0.jobs.append(job) }
      available.signal()
    }
    return { job.run() }
  }

  private func work() {
    while true {
      available.wait()
      let (job, isClosed) = state.withLock { state -> (Job?, Bool) in
        (state.jobs.popFirst(), state.isClosed)
      }
      if let job { job.run() } else if isClosed { return }
    }
  }

  /// Transforms the inputs from `next` on the pool's threads. Passes the outputs to `consume` in input order, on the
  /// caller's thread. Bounds memory: at most `inFlightMax` inputs are under way.
  ///
  /// After the first error it takes no more inputs, and waits for those under way.
  package func orderedMap<Input: Sendable, Output: Sendable>(
    inFlightMax: Int, next: () throws(BlobStorageError) -> Input?,
    transform: @escaping @Sendable (Input) throws(BlobStorageError) -> Output,
    consume: (Output) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var underWay = Fifo<(slot: Slot<Output>, lendHand: @Sendable () -> Void)>()
    func firstOutput() -> Result<Output, BlobStorageError>? {
      guard let (slot, lendHand) = underWay.popFirst() else { return nil }
      lendHand()
      return slot.wait()
    }
    defer { while firstOutput() != nil {} }
    while let input = try next() {
      let slot = Slot<Output>()
      let lendHand = run {
        slot.fulfil(Result { () throws(BlobStorageError) in try transform(input) })
      }
      underWay.append((slot, lendHand))
      if underWay.count >= inFlightMax, let output = firstOutput() { try consume(output.get()) }
    }
    while let output = firstOutput() { try consume(output.get()) }
  }

  /// The place for one output.
  private final class Slot<Output: Sendable>: Sendable {
    private let result = Mutex<Result<Output, BlobStorageError>?>(nil)
    private let done = DispatchSemaphore(value: 0)

    func fulfil(_ value: Result<Output, BlobStorageError>) {
      result.withLock { $0 = value }
      done.signal()
    }

    func wait() -> Result<Output, BlobStorageError> {
      done.wait()
      return result.withLock { result in
        defer { result = nil }
        return result ?? .failure(BlobStorageError(.io, "A piece of work ended without a result."))
      }
    }
  }
}
