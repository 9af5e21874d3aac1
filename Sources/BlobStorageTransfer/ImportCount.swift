import BlobStorage
import Foundation
import SystemPackage

/// Counts the files of an import, so that the progress can show how much is left.
///
/// A separate thread walks the same paths, and the import does not wait for it. A short import is not counted.
final class ImportCount: Sendable {
  struct Total {
    var fileCount = 0
    var byteCount: Int64 = 0
  }

  private struct State {
    var isStopped = false
    var hasEnded = false
    var total: Total?
  }

  static let delaySeconds = 1.0

  private let state = Monitor(State())

  /// - Parameter delaySeconds: the time before counting begins.
  init(_ paths: [FilePath], _ options: ImportOptions, store: FileIdentity?, delaySeconds: Double) {
    Thread.start(named: "blob-import-count") { [self] in
      let isStopped = state.withLock(when: \.isStopped, withinSeconds: delaySeconds) { $0.isStopped }
      let walk = ImportWalk(paths, options, store: store) { self.state.withLock { $0.isStopped } }
      let total = isStopped ? nil : count(walk)
      state.withLock { ($0.hasEnded, $0.total) = (true, total) }
      state.wakeAll()
    }
  }

  /// Nil until it is known.
  var total: Total? { state.withLock { $0.total } }

  /// Stops counting and waits for its thread.
  func stop() {
    state.withLock { $0.isStopped = true }
    state.wakeAll()
    state.withLock(when: \.hasEnded) { _ in }
  }

  /// The totals; nil if counting was stopped or failed. The import itself reports errors.
  private func count(_ walk: consuming ImportWalk) -> Total? {
    var total = Total()
    do throws(BlobStorageError) {
      while let item = try walk.next() {
        guard case .source(let source) = item else { continue }
        total.fileCount += 1
        total.byteCount = total.byteCount.addingClamped(source.status.byteCount)
      }
    } catch { return nil }
    return state.withLock { $0.isStopped ? nil : total }
  }
}
