import CBlobKernels

/// Tells the time of day; a value, so that tests decide what time it is.
package struct WallClock: Sendable {
  /// Milliseconds since 1970 in UTC. It may jump, also backwards.
  package var now: @Sendable () -> UInt64

  /// A clock that tells what `now` says.
  package init(now: @escaping @Sendable () -> UInt64) { self.now = now }

  /// The system's clock.
  package static let system = WallClock(now: { bs_milliseconds_since_1970() })
}
