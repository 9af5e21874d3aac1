import Synchronization

/// Holds the live table once it is open, for all parts that need the slots of living writers.
package final class LiveHolder: Sendable {
  private let state = Mutex<LiveTable?>(nil)

  package init() {}

  package var table: LiveTable? {
    get { state.withLock { $0 } }
    set {
      // The old table is unmapped outside the lock.
      _ = state.withLock { state in
        defer { state = newValue }
        return state
      }
    }
  }

  /// The slot of a pack; nil if it has none.
  func entry(_ pack: PackName) -> LiveTable.Entry? {
    let entries = table?.entries().filter { $0.pack == pack } ?? []
    return entries.first(where: \.isValid) ?? entries.first
  }

  func close() { state.withLock { $0.take() }?.close() }
}
