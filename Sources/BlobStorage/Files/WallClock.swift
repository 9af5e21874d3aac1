import CBlobKernels
import Foundation

/// Tells the time of day. A value, so that tests control it.
package struct WallClock: Sendable {
  /// Milliseconds since 1970 in UTC. It may jump, also backwards.
  package var now: @Sendable () -> UInt64

  package init(now: @escaping @Sendable () -> UInt64) { self.now = now }

  package var date: Date { Date(timeIntervalSince1970: Double(now()) / 1_000) }

  package static let system = WallClock(now: { bs_milliseconds_since_1970() })
}
