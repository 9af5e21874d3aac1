import Foundation

/// Values that threads of its own fetch in order, some ahead of whoever takes them.
final class FetchAhead<Value: Sendable>: @unchecked Sendable {
  private let condition = NSCondition()
  private let count: Int
  private let windowCount: Int
  private let fetch: @Sendable (Int) -> Result<Value, BlobStorageError>
  private let hasThreads: Bool
  // Guarded by `condition`.
  private var nextIndex = 0
  private var takenCount = 0
  private var isStopped = false
  private var values: [Int: Result<Value, BlobStorageError>] = [:]

  /// - Parameter width: how many are fetched at once; 0 to fetch each when it is taken, on that thread.
  init(
    count: Int, width: Int, windowCount: Int = 32,
    _ fetch: @escaping @Sendable (Int) throws(BlobStorageError) -> Value
  ) {
    self.count = count
    self.windowCount = windowCount
    self.fetch = { index in
      do throws(BlobStorageError) { return .success(try fetch(index)) } catch { return .failure(error) }
    }
    let width = count > 1 ? min(width, count) : 0
    hasThreads = width > 0
    for _ in 0..<width {
      let thread = Thread { [self] in work() }
      thread.stackSize = 1 << 20
      thread.start()
    }
  }

  /// The value of that index; they are taken in order, each once.
  ///
  /// - Throws: what fetching it did, or `cancelled`.
  func take(_ index: Int) throws(BlobStorageError) -> Value {
    guard hasThreads else { return try fetch(index).get() }
    condition.lock()
    defer { condition.unlock() }
    while values[index] == nil { try condition.waitUnlessCancelled() }
    takenCount = index + 1
    condition.broadcast()
    guard let value = values.removeValue(forKey: index) else {
      throw BlobStorageError(.io, "What was fetched ahead is gone.")
    }
    return try value.get()
  }

  /// Fetches no more.
  func stop() {
    condition.lock()
    isStopped = true
    condition.broadcast()
    condition.unlock()
  }

  private func work() {
    condition.lock()
    defer { condition.unlock() }
    while true {
      while !isStopped, nextIndex < count, nextIndex >= takenCount + windowCount { condition.wait() }
      guard !isStopped, nextIndex < count else { return }
      let index = nextIndex
      nextIndex += 1
      condition.unlock()
      let value = fetch(index)
      condition.lock()
      values[index] = value
      condition.broadcast()
    }
  }
}
