import BlobStorage
import Foundation
import Synchronization

/// A time of day that stands still until a test moves it.
public final class TestClock: Sendable {
  private let time: Mutex<Date>

  public init(_ start: Date = Date()) { time = Mutex(start) }

  /// The time that it shows.
  public var now: Date {
    get { time.withLock { $0 } }
    set { time.withLock { $0 = newValue } }
  }

  /// Moves it forward; backwards by a negative duration.
  public func advance(by duration: Duration) {
    time.withLock { $0.addTimeInterval(duration / .seconds(1)) }
  }
}
