import Synchronization

/// The syncs of packs by one open store: one at a time for each pack, and none once one has failed.
///
/// The system reports the failure of a sync once to each open file, and to none that is opened later. So a sync that
/// begins after another has failed can succeed without the bytes that the other has lost. All sessions of an engine
/// share one value: a collection may sync what a put relies on.
package final class PackSyncs: Sendable {
  private final class Pack: Sendable {
    let turn = Mutex<Void>(())
    let hasFailed = Atomic<Bool>(false)
  }

  private let packs = Mutex<[PackName: (pack: Pack, userCount: Int)]>([:])

  package init() {}

  /// Runs a sync of a pack beside no other one.
  ///
  /// - Parameter sync: throws `poisoned` when the sync has failed; other errors say nothing about it.
  /// - Returns: nil when another sync of the pack has failed: then this one proves nothing, and may not have been run.
  func run<T>(
    _ name: PackName, _ sync: () throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T? {
    let pack = enter(name)
    let result: Result<T?, BlobStorageError> = pack.turn.withLock { _ in
      if pack.hasFailed.load(ordering: .acquiring) { return .success(nil) }
      do throws(BlobStorageError) {
        let value = try sync()
        return .success(pack.hasFailed.load(ordering: .acquiring) ? nil : value)
      } catch {
        if error.code == .poisoned { pack.hasFailed.store(true, ordering: .releasing) }
        return .failure(error)
      }
    }
    leave(name)
    return try result.get()
  }

  /// Notes that a sync has failed which did not wait for its turn.
  func noteFailure(_ name: PackName) {
    packs.withLock { packs in
      let known = packs[name] ?? (Pack(), 0)
      known.pack.hasFailed.store(true, ordering: .releasing)
      packs[name] = known
    }
  }

  private func enter(_ name: PackName) -> Pack {
    packs.withLock { packs in
      let pack = packs[name]?.pack ?? Pack()
      packs[name] = (pack, (packs[name]?.userCount ?? 0) + 1)
      return pack
    }
  }

  /// Forgets a pack that no thread syncs, unless a sync of it has failed.
  private func leave(_ name: PackName) {
    packs.withLock { packs in
      guard let (pack, userCount) = packs[name] else { return }
      packs[name] = (pack, userCount - 1)
      if userCount == 1, !pack.hasFailed.load(ordering: .acquiring) { packs[name] = nil }
    }
  }
}
