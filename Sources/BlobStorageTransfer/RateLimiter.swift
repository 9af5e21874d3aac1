import BlobStorage

/// Limits how many bytes a loop moves in a second, by making its thread wait. A token bucket, for use by one thread.
package final class RateLimiter {
  /// Unused bytes of this much time may pass at once.
  private static let burstSeconds = 0.25
  /// The longest single wait, so that a cancelled task continues soon.
  private static let pauseSecondsMax = 0.1

  private let bytesPerSecond: Double
  private let time: PassingTime
  /// The time at which all passed bytes are within the rate.
  private var settled: Double

  /// - Parameter bytesPerSecond: nil for no limit.
  /// - Throws: `invalidArgument` for a rate below 1.
  package init(bytesPerSecond: Int64?, time: PassingTime = .system) throws(BlobStorageError) {
    guard bytesPerSecond ?? 1 > 0 else {
      throw BlobStorageError(.invalidArgument, "A rate is at least one byte a second.")
    }
    self.bytesPerSecond = bytesPerSecond.map(Double.init) ?? .infinity
    self.time = time
    settled = time.now()
  }

  /// Waits until the passed bytes are within the rate, or until the task is cancelled. The caller checks for
  /// cancellation.
  package func pace(_ byteCount: Int64) {
    settled = max(settled, time.now() - Self.burstSeconds) + Double(byteCount) / bytesPerSecond
    while CancellationFlag.current?.isCancelled != true {
      let rest = settled - time.now()
      if rest <= 0 { return }
      time.wait(min(rest, Self.pauseSecondsMax))
    }
  }
}
