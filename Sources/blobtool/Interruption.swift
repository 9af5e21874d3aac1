import Dispatch
import Foundation
import Synchronization

/// SIGINT and SIGTERM: the first cancels what is under way, the second ends the process at once.
enum Interruption {
  private static let number = Atomic<Int32>(0)
  private struct Sources: @unchecked Sendable { var list: [any DispatchSourceSignal] = [] }
  private static let sources = Mutex(Sources())
  private static let queue = DispatchQueue(label: "blobtool.signals")

  /// How long the clean end may take: a write to a reader that has stopped reading cannot be called off.
  private static let graceSeconds = 10.0

  /// The signal that has come, if any.
  static var signal: Int32? {
    let number = number.load(ordering: .acquiring)
    return number == 0 ? nil : number
  }

  /// Calls `cancel` once when a signal comes.
  static func begin(_ cancel: @escaping @Sendable () -> Void) {
    for number in [SIGINT, SIGTERM] {
      Foundation.signal(number, SIG_IGN)  // a dispatch source sees a signal before it is ignored
      let source = DispatchSource.makeSignalSource(signal: number, queue: queue)
      source.setEventHandler { arrived(number, cancel) }
      source.resume()
      keep(source)
    }
  }

  private static func keep(_ source: any DispatchSourceSignal) {
    let kept = Sources(list: [source])
    sources.withLock { $0.list += kept.list }
  }

  /// Throws when a signal has come: for loops of the tool's own.
  static func check() throws {
    if signal != nil { throw CancellationError() }
  }

  private static func arrived(_ arrival: Int32, _ cancel: @Sendable () -> Void) {
    let isFirst = number.compareExchange(expected: 0, desired: arrival, ordering: .acquiringAndReleasing).exchanged
    // A store that is not closed loses nothing: the next to open it does the rest.
    guard isFirst else { _exit(128 + arrival) }
    cancel()
    queue.asyncAfter(deadline: .now() + graceSeconds) { _exit(128 + arrival) }
  }
}
