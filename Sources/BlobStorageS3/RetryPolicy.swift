/// Decides when to retry a request. Uses full jitter over a doubling pause, so that clients that were refused together
/// do not retry together.
package struct RetryPolicy: Sendable {
  /// The most attempts, including the first.
  package var attemptCountMax: Int
  /// The most attempts if the server has never responded, and the last attempt was refused or found no host. So a
  /// mistyped endpoint is reported soon.
  let firstContactCountMax = 4
  /// The longest pause after the first attempt. It doubles with each attempt.
  private static let pauseBase = Duration.milliseconds(200)
  private static let pauseMax = Duration.seconds(15)
  /// The longest pause that a server may request with `Retry-After`.
  private static let pauseAskedMax = Duration.seconds(60)

  package init(attemptCountMax: Int = 10) { self.attemptCountMax = attemptCountMax }

  /// The pause before attempt `attempt` + 1.
  ///
  /// - Parameter chance: A random number in 0 ..< 1.
  package func pause(after attempt: Int, asked: Duration?, chance: Double) -> Duration {
    let doubled = Self.pauseBase * (1 << min(max(attempt - 1, 0), 20))
    return max(min(doubled, Self.pauseMax) * chance, min(asked ?? .zero, Self.pauseAskedMax))
  }
}

/// Supplies time and random numbers, so that tests control them.
package struct S3Surroundings: Sendable {
  /// Seconds since 1970.
  package var now: @Sendable () -> Int64
  package var sleep: @Sendable (Duration) -> Void
  /// A random number in 0 ..< 1.
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
