import Foundation

extension Engine {
  /// Runs `body`, and records what `event` makes of its result, if someone wants to know.
  func measured<T>(
    _ body: () throws(BlobStorageError) -> T, _ event: (T, Duration) -> StoreEvent?
  ) throws(BlobStorageError) -> T {
    guard let metrics else { return try body() }
    let start = ContinuousClock.now
    let result = try body()
    if let event = event(result, .now - start) { metrics.record(event) }
    return result
  }

  func record(_ data: Data?, since start: ContinuousClock.Instant) {
    guard let data, let metrics else { return }
    metrics.record(.read(byteCount: Int64(data.count), duration: .now - start))
  }
}

extension StoreEvent {
  static func put(_ results: [PutResult], _ duration: Duration) -> StoreEvent {
    .put(
      byteCount: results.reduce(0) { $0 + $1.version.byteCount },
      newByteCount: results.reduce(0) { $0 + $1.newByteCount },
      storedByteCount: results.reduce(0) { $0 + $1.storedByteCount }, duration: duration)
  }
}
