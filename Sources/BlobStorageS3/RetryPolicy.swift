/// How often and how late a request is sent again: full jitter over a doubling time, so that clients that were refused
/// together do not come back together.
package struct RetryPolicy: Sendable {
  /// Attempts, the first one included.
  package var attemptCountMax: Int
  /// Attempts while no request has ever been answered: a mistyped endpoint is reported soon.
  package var firstContactCountMax: Int
  /// The longest pause after the first attempt; it doubles with each.
  package var pauseBase: Duration
  package var pauseMax: Duration
  /// The longest pause that a server may ask for by `Retry-After`.
  package var pauseAskedMax: Duration

  package init(
    attemptCountMax: Int = 10, firstContactCountMax: Int = 4, pauseBase: Duration = .milliseconds(200),
    pauseMax: Duration = .seconds(15), pauseAskedMax: Duration = .seconds(60)
  ) {
    self.attemptCountMax = attemptCountMax
    self.firstContactCountMax = firstContactCountMax
    self.pauseBase = pauseBase
    self.pauseMax = pauseMax
    self.pauseAskedMax = pauseAskedMax
  }

  /// The pause before attempt number `attempt` + 1.
  ///
  /// - Parameter chance: In 0 ..< 1.
  package func pause(after attempt: Int, asked: Duration?, chance: Double) -> Duration {
    let doubled = pauseBase * (1 << min(max(attempt - 1, 0), 20))
    return max(min(doubled, pauseMax) * chance, min(asked ?? .zero, pauseAskedMax))
  }
}

/// Time and chance as values, so that tests decide them.
package struct S3Surroundings: Sendable {
  /// Seconds since 1970.
  package var now: @Sendable () -> Int64
  package var sleep: @Sendable (Duration) -> Void
  /// In 0 ..< 1.
  package var chance: @Sendable () -> Double

  package init(
    now: @escaping @Sendable () -> Int64, sleep: @escaping @Sendable (Duration) -> Void,
    chance: @escaping @Sendable () -> Double
  ) {
    self.now = now
    self.sleep = sleep
    self.chance = chance
  }
}
