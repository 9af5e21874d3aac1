import Synchronization

/// The table of open packs, once it is open, for all who ask about packs of living writers.
package final class LiveHolder: Sendable {
  private let state = Mutex<LiveTable?>(nil)

  package init() {}

  package var table: LiveTable? {
    get { state.withLock { $0 } }
    set { state.withLock { $0 = newValue } }
  }

  /// Up to where the records of a pack are visible; nil if no slot says so.
  func published(_ pack: PackName) -> Int64? {
    table?.entries().first { $0.pack == pack && $0.isPossible }?.published
  }

  func close() { state.withLock { $0.take() }?.close() }
}
