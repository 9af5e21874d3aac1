import BlobStorage
import Logging
import Synchronization

/// Keeps what was logged, for the message of a test that failed.
final class LogRecorder: Sendable {
  private let lines = Mutex<[String]>([])

  /// What was logged last, oldest first.
  var last: String { lines.withLock { $0.suffix(20).joined(separator: "\n") } }

  /// How many of the last lines have that in them.
  func count(of text: String) -> Int { lines.withLock { $0.count { $0.contains(text) } } }

  var logger: Logger { Logger(label: "test") { _ in Handler(recorder: self) } }

  private struct Handler: LogHandler {
    let recorder: LogRecorder
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.debug

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      let text = "\(event.level): \(event.message) \(event.metadata.map { "\($0)" } ?? "")"
      recorder.lines.withLock { lines in
        if lines.count > 200 { lines.removeFirst(100) }
        lines.append(text)
      }
    }
  }
}
