import CBlobKernels
import Foundation

/// Tells how much time passes, whatever time of day it is; a value, so that tests have it pass as they like.
package struct PassingTime: Sendable {
  /// Seconds since some moment in the past.
  package var now: @Sendable () -> Double
  /// Waits for that many seconds.
  package var wait: @Sendable (_ seconds: Double) -> Void

  /// Time that passes as these say.
  package init(now: @escaping @Sendable () -> Double, wait: @escaping @Sendable (Double) -> Void) {
    self.now = now
    self.wait = wait
  }

  /// The system's; it goes on while the machine sleeps.
  package static let system = {
    let start = ContinuousClock.now
    return PassingTime(
      now: { (ContinuousClock.now - start) / .seconds(1) }, wait: { Thread.sleep(forTimeInterval: $0) })
  }()

  /// Runs `attempt` again and again until it succeeds. Returns false if it did not for so long.
  ///
  /// - Parameters:
  ///   - pauseSeconds: how long to wait after the first failure, and at most. Each wait is twice as long as the last.
  ///   - failed: called after each failure. What it throws ends the attempts.
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

  /// Milliseconds since some moment in the past, a few milliseconds late at most. Costs no system call.
  static func coarseMilliseconds() -> UInt64 { bs_coarse_milliseconds() }
}
