import BlobStorage
import Dispatch
import Foundation
import Synchronization
import Testing

@Suite("A pool of threads for operations", .timeLimit(.minutes(1)))
struct OperationPoolTests {
  /// How many jobs run at once.
  private struct Counts { var running = 0, most = 0, done = 0, returned = 0 }

  @Test("lends the place of a thread that is held up, and has no more threads afterwards")
  func lending() async {
    let pool = OperationPool(width: 2)
    let release = DispatchSemaphore(value: 0)
    let counts = Monitor(Counts())
    /// Waits on a thread of its own.
    func wait(until isReached: @escaping @Sendable (Counts) -> Bool) async -> Counts {
      await withCheckedContinuation { (end: CheckedContinuation<Counts, Never>) in
        Thread.start(named: "waiting") { end.resume(returning: counts.withLock(when: isReached) { $0 }) }
      }
    }
    // More than the pool has threads: each lends its place.
    for _ in 0..<10 {
      await withCheckedContinuation { begun in
        pool.submit {
          OperationPool.current?.lendPlace()
          begun.resume()
          release.wait()
          OperationPool.current?.takePlaceBack()
          counts.withLock { $0.returned += 1 }
          counts.wakeAll()
        }
      }
    }
    for _ in 0..<10 { release.signal() }
    _ = await wait { $0.returned == 10 }
    for _ in 0..<200 {
      pool.submit {
        counts.withLock { counts in
          counts.running += 1
          counts.most = max(counts.most, counts.running)
        }
        // Long enough for another job to begin.
        counts.withLock(when: { $0.running > 2 }, withinSeconds: 0.001) { _ in }
        counts.withLock { counts in
          counts.running -= 1
          counts.done += 1
        }
        counts.wakeAll()
      }
    }
    #expect(await wait { $0.done == 200 }.most <= 2)
  }

  /// Defers operations until it is open.
  private final class Door: Sendable {
    typealias Resume = @Sendable (BlobStorageError?) -> Void
    private let state = Mutex((isOpen: false, kept: [Resume]()))

    var keptCount: Int { state.withLock { $0.kept.count } }

    func isDeferred(_ resume: @escaping Resume) -> Bool {
      state.withLock { state in
        if !state.isOpen { state.kept.append(resume) }
        return !state.isOpen
      }
    }

    func open() {
      let kept = state.withLock { state in
        state.isOpen = true
        return state.kept
      }
      for resume in kept { resume(nil) }
    }
  }

  @Test("defers an operation until it can begin, without a thread")
  func deferring() async throws {
    let (pool, door) = (OperationPool(width: 1), Door())
    let deferral: OperationPool.Deferral = { door.isDeferred($0) }
    let deferred = (0..<3).map { number in
      Task { try await pool.run(unless: deferral) { () throws(BlobStorageError) in number } }
    }
    while door.keptCount < 3 { await Task.yield() }
    // The only thread is free.
    #expect(try await pool.run { () throws(BlobStorageError) in 7 } == 7)
    // One was called off, and what resumes it then does nothing.
    deferred[0].cancel()
    let error = await #expect(throws: BlobStorageError.self) { try await deferred[0].value }
    #expect(error?.code == .cancelled)
    door.open()
    for number in 1..<3 { #expect(try await deferred[number].value == number) }
  }

  @Test("fails an operation that was deferred for too long")
  func failing() async {
    let pool = OperationPool(width: 1)
    let deferral: OperationPool.Deferral = { resume in
      resume(BlobStorageError(.busy, "planned"))
      return true
    }
    let error = await #expect(throws: BlobStorageError.self) {
      try await pool.run(unless: deferral) { () throws(BlobStorageError) in }
    }
    #expect(error?.message == "planned")
  }
}
