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

  /// Milliseconds since some moment in the past, a few milliseconds late at most. Costs no system call.
  static func coarseMilliseconds() -> UInt64 { bs_coarse_milliseconds() }
}
