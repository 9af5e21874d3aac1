/// The syncs of packs by one open store: one at a time for each pack, and none once one has failed.
///
/// The system reports the failure of a sync once to each open file, and to none that is opened later. So a sync that
/// begins after another has failed can succeed without the bytes that the other has lost. All sessions of an engine
/// share one value: a collection may sync what a put relies on.
package final class PackSyncs: Sendable {
  private struct Pack: Sendable {
    var isRunning = false
    var hasFailed = false
  }

  /// Packs that a thread syncs, and packs whose sync has failed. No sync runs while a thread has the value.
  private let packs = Monitor<[PackName: Pack]>([:])

  package init() {}

  /// Runs a sync of a pack beside no other one.
  ///
  /// - Parameter sync: throws `poisoned` when the sync has failed; other errors say nothing about it.
  /// - Returns: nil when another sync of the pack has failed: then this one proves nothing, and may not have been run.
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

  /// Waits until no other thread syncs the pack; says whether a sync of it has failed.
  private func begin(_ name: PackName) -> Bool {
    packs.withLock(when: { $0[name]?.isRunning != true }) { packs in
      packs[name, default: Pack()].isRunning = true
      return packs[name]?.hasFailed == true
    }
  }

  /// Says whether a sync of the pack has failed, this one or another. Forgets the pack if none has.
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
