import BlobStorage
import Foundation
import Logging

/// Renews the registrations of a process's writers, including its collector, on its own thread.
///
/// So neither an upload nor a long read delays renewals. The thread starts with the first registration.
final class LifeSigns: Sendable {
  private struct State: Sendable {
    var writers: [Reference] = []
    var isRunning = false
    var isClosed = false
  }

  private struct Reference: Sendable { weak var writer: SharedWriter? }

  /// A collector waits for three times as long.
  private static let intervalSecondsMax = 60.0

  private let state = Monitor(State())
  private let intervalSeconds: Double
  private let hasThread: Bool
  private let logger: Logger

  /// - Parameter intervalSeconds: the interval of the store's periodic work; 0 for none.
  init(intervalSeconds: Double, hasThread: Bool, _ logger: Logger) {
    let most = Self.intervalSecondsMax
    self.intervalSeconds = intervalSeconds > 0 ? min(intervalSeconds, most) : most
    self.hasThread = hasThread
    self.logger = logger
  }

  /// Renews this writer's registration from now on.
  func add(_ writer: SharedWriter) {
    let begins = state.withLock { state in
      state.writers.removeAll { $0.writer == nil }
      if state.writers.contains(where: { $0.writer === writer }) { return false }
      state.writers.append(Reference(writer: writer))
      guard hasThread, !state.isRunning, !state.isClosed else { return false }
      state.isRunning = true
      return true
    }
    if begins { Thread.start(named: "blob-life") { [self] in run() } }
  }

  func renewAll() {
    for writer in state.withLock({ $0.writers.compactMap(\.writer) }) {
      do throws(BlobStorageError) { try writer.renewRegistration() } catch {
        logger.warning("A registration was not renewed.", metadata: ["reason": "\(error.message)"])
      }
    }
  }

  /// Ends the thread.
  func close() {
    state.withLock { $0.isClosed = true }
    state.wakeAll()
  }

  private func run() {
    while true {
      let ends = state.withLock(when: { $0.isClosed }, withinSeconds: intervalSeconds) { state in
        // Ends with its writers if the store was never closed.
        state.isRunning = !state.isClosed && state.writers.contains { $0.writer != nil }
        return !state.isRunning
      }
      if ends { return }
      renewAll()
    }
  }
}
