import BlobStorage
import Foundation

/// Prefetches values in order on its own threads.
final class FetchAhead<Value: Sendable>: Sendable {
  private struct State: Sendable {
    var nextIndex = 0
    var takenCount = 0
    var isStopped = false
    var values: [Int: Result<Value, BlobStorageError>] = [:]
  }

  private let state = Monitor(State())
  private let count: Int
  private let windowCount = 32
  private let fetch: @Sendable (Int) -> Result<Value, BlobStorageError>
  private let hasThreads: Bool

  /// - Parameter width: concurrent fetches. With 0, the waiting thread fetches each value itself.
  init(
    count: Int, width: Int, _ fetch: @escaping @Sendable (Int) throws(BlobStorageError) -> Value
  ) {
    self.count = count
    self.fetch = { index in Result { () throws(BlobStorageError) in try fetch(index) } }
    let width = count > 1 ? min(width, count) : 0
    hasThreads = width > 0
    for _ in 0..<width { Thread.start(named: "blob-fetch") { [self] in work() } }
  }

  /// Waits for the value at `index`, and drops it from the window. Call it in order, once for each index.
  ///
  /// - Throws: the error of the fetch, or `cancelled`.
  func waitForValue(_ index: Int) throws(BlobStorageError) -> Value {
    guard hasThreads else { return try fetch(index).get() }
    let value = try state.withLockUnlessCancelled(when: { $0.values[index] != nil }) { state in
      state.takenCount = index + 1
      return state.values.removeValue(forKey: index)
    }
    state.wakeAll()
    guard let value else { throw BlobStorageError(.io, "A prefetched value is gone.") }
    return try value.get()
  }

  /// Stops fetching.
  func stop() {
    state.withLock { $0.isStopped = true }
    state.wakeAll()
  }

  private func work() {
    while let index = nextIndex() {
      let value = fetch(index)
      state.withLock { $0.values[index] = value }
      state.wakeAll()
    }
  }

  /// Waits for room in the window. Returns the next index to fetch, or nil at the end.
  private func nextIndex() -> Int? {
    state.withLock(
      when: { $0.isStopped || $0.nextIndex >= count || $0.nextIndex < $0.takenCount + windowCount }
    ) { state in
      guard !state.isStopped, state.nextIndex < count else { return nil }
      defer { state.nextIndex += 1 }
      return state.nextIndex
    }
  }
}
