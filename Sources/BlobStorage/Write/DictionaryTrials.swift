import Synchronization

/// Whether the dictionary is worth trying for what is put just now. One that does nothing for many small blobs in a row
/// is tried for few of those that follow, so that it costs them little.
final class DictionaryTrials: Sendable {
  private struct State {
    var score = 16
    var skippedCount = 0
  }

  private static let scoreMax = 32
  /// One success in five is enough.
  private static let scoreOfSuccess = 4
  private static let skippedCountMax = 16

  private let state = Mutex(State())

  /// Whether to try it for the next blob.
  func isDue() -> Bool {
    state.withLock { state in
      if state.score > 0 { return true }
      state.skippedCount += 1
      guard state.skippedCount == Self.skippedCountMax else { return false }
      state.skippedCount = 0
      return true
    }
  }

  func adjustScore(isSuccess: Bool) {
    state.withLock { state in
      state.score =
        isSuccess ? min(state.score + Self.scoreOfSuccess, Self.scoreMax) : max(state.score - 1, 0)
    }
  }
}
