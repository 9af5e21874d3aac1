import CBlobKernels
import Foundation

/// Measures elapsed time, independent of the time of day. A value, so that tests control it.
package struct PassingTime: Sendable {
  /// Seconds since a fixed moment in the past.
  package var now: @Sendable () -> Double
  /// Waits for that many seconds.
  package var wait: @Sendable (_ seconds: Double) -> Void

  /// Uses these functions.
  package init(now: @escaping @Sendable () -> Double, wait: @escaping @Sendable (Double) -> Void) {
    self.now = now
    self.wait = wait
  }

  /// The system's time. It advances while the machine sleeps.
  package static let system = {
    let start = ContinuousClock.now
    return PassingTime(
      now: { (ContinuousClock.now - start) / .seconds(1) }, wait: { Thread.sleep(forTimeInterval: $0) })
  }()

  /// Runs `attempt` repeatedly until it succeeds. Returns false if it still fails after `seconds`.
  ///
  /// - Parameters:
  ///   - pauseSeconds: the pause after the first failure, and the longest pause. Each pause is twice as long as the
  ///     last.
  ///   - failed: called after each failure. An error that it throws ends the attempts.
  package func retry(
    withinSeconds seconds: Double, pauseSeconds: ClosedRange<Double>,
    failed: () throws(BlobStorageError) -> Void = {}, _ attempt: () throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) -> Bool {
    if try attempt() { return true }
    let end = now() + seconds
    var pause = pauseSeconds.lowerBound
    while true {
      try failed()
      guard now() < end else { return false }
      wait(pause)
      if try attempt() { return true }
      pause = min(2 * pause, pauseSeconds.upperBound)
    }
  }

  /// Milliseconds since a fixed moment in the past, at most a few milliseconds late. Costs no system call.
  static func coarseMilliseconds() -> UInt64 { bs_coarse_milliseconds() }
}
