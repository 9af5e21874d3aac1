/// Runs the syncs of packs for one open store: one at a time for each pack, and none once one has failed.
///
/// The system reports a failed sync once to each open file, but not to files that are opened later. So a later sync can
/// succeed although the bytes of the failed one are lost. All sessions of an engine share one value, because gc may
/// sync a pack that a put relies on.
package final class PackSyncs: Sendable {
  private struct Pack: Sendable {
    var isRunning = false
    var hasFailed = false
  }

  /// Packs that a thread syncs, and packs whose sync has failed. No thread syncs while it holds the lock.
  private let packs = Monitor<[PackName: Pack]>([:])

  package init() {}

  /// Runs a sync of a pack while no other thread syncs that pack.
  ///
  /// - Parameter sync: throws `poisoned` if the sync failed. Other errors do not mark the pack as failed.
  /// - Returns: nil if another sync of the pack has failed. This one then proves nothing, and may not have run.
  func run<T>(
    _ name: PackName, _ sync: () throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T? {
    if begin(name) {
      end(name, hasFailed: true)
      return nil
    }
    do throws(BlobStorageError) {
      let value = try sync()
      return end(name, hasFailed: false) ? nil : value
    } catch {
      end(name, hasFailed: error.code == .poisoned)
      throw error
    }
  }

  /// Marks the pack as failed after a sync that ran outside ``run(_:_:)``.
  func markFailed(_ name: PackName) { packs.withLock { $0[name, default: Pack()].hasFailed = true } }

  /// Waits until no other thread syncs the pack. Returns whether a sync of it has failed.
  private func begin(_ name: PackName) -> Bool {
    packs.withLock(when: { $0[name]?.isRunning != true }) { packs in
      packs[name, default: Pack()].isRunning = true
      return packs[name]?.hasFailed == true
    }
  }

  /// Returns whether this sync or another one of the pack has failed. Forgets the pack if none has.
  @discardableResult
  private func end(_ name: PackName, hasFailed: Bool) -> Bool {
    let isLost = packs.withLock { packs in
      let isLost = hasFailed || packs[name]?.hasFailed == true
      packs[name] = isLost ? Pack(hasFailed: true) : nil
      return isLost
    }
    packs.wakeAll()
    return isLost
  }
}
