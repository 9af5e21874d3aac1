import Dispatch
import Foundation
import Synchronization

/// Handles SIGINT and SIGTERM: the first cancels the work, the second ends the process at once.
enum Interruption {
  private static let number = Atomic<Int32>(0)
  private static let queue = DispatchQueue(label: "blobtool.signals")

  /// The most time for a clean end: a write to a reader that has stopped reading cannot be cancelled.
  private static let graceSeconds = 10.0

  /// The received signal, if any.
  static var signal: Int32? {
    let number = number.load(ordering: .acquiring)
    return number == 0 ? nil : number
  }

  /// Calls `cancel` once on a signal, while the caller keeps the result.
  static func begin(_ cancel: @escaping @Sendable () -> Void) -> [any DispatchSourceSignal] {
    [SIGINT, SIGTERM].map { number in
      Foundation.signal(number, SIG_IGN)  // a dispatch source sees a signal before it is ignored
      let source = DispatchSource.makeSignalSource(signal: number, queue: queue)
      source.setEventHandler { arrived(number, cancel) }
      source.resume()
      return source
    }
  }

  /// Throws after a signal, for the tool's own loops.
  static func check() throws {
    if signal != nil { throw CancellationError() }
  }

  private static func arrived(_ arrival: Int32, _ cancel: @Sendable () -> Void) {
    let (isFirst, _) = number.compareExchange(
      expected: 0, desired: arrival, ordering: .acquiringAndReleasing)
    // A store that is not closed loses nothing: the next process that opens it recovers the rest.
    guard isFirst else { _exit(128 + arrival) }
    cancel()
    queue.asyncAfter(deadline: .now() + graceSeconds) { _exit(128 + arrival) }
  }
}
