import BlobStorage
import Dispatch
import Foundation
import Synchronization

/// Frees the disk space of replaced and deleted values in the background.
///
/// It compares the size of the packs with what was live after the last collection, minus what was dropped since. If
/// they take twice as much and a minimum more, it collects garbage: at once for `byteCountMin`, and after a second
/// without changes for `idleByteCountMin`. So the folder takes at most about twice what is live, and each byte of
/// garbage costs about one copied byte. A file beside the store's own keeps the live byte count, so that short-lived
/// programs free space too. The count is an estimate: a wrong one costs one collection.
package final class SpaceKeeper: Sendable {
  private static let byteCountMin: Int64 = 4 << 20
  private static let idleByteCountMin: Int64 = 256 << 10

  private struct State {
    var store: BlockingBlobStore?
    /// Stored bytes that are probably live.
    var liveByteCount: Int64 = 0
    /// Bytes of the packs at the last measurement, and what was put since.
    var diskByteCount: Int64 = 0
    /// Bytes that were dropped since the store was opened.
    var droppedByteCount: Int64 = 0
    var changeCount = 0
    var isWaiting = false
    var isCollecting = false
  }

  private let state = Mutex(State())
  private let queue = DispatchQueue(label: "blob-storage.drop-in.space", qos: .utility)
  private let idleSeconds: Double

  /// - Parameter idleSeconds: the time without changes before it checks again.
  package init(idleSeconds: Double = 1) { self.idleSeconds = idleSeconds }

  /// Begins to watch a store that was just opened, or measures it anew after something else has put much.
  package func begin(_ store: BlockingBlobStore) {
    let live = (try? String(contentsOf: Self.file(store), encoding: .utf8)).flatMap { Int64($0) }
    let disk = Self.packByteCount(store)
    state.withLock { state in
      state.store = store
      state.diskByteCount = disk
      // The file may hold any number.
      state.liveByteCount = min(max(0, live ?? 0), disk)
    }
    changed()
  }

  /// Records that bytes were put.
  package func put(_ byteCount: Int) {
    state.withLock { $0.diskByteCount += Int64(byteCount) }
    changed()
  }

  /// Records that versions were dropped.
  package func dropped(_ versions: some Sequence<BlobVersion>) {
    let byteCount = versions.reduce(Int64(0)) { $0.addingClamped($1.byteCount) }
    guard byteCount > 0 else { return }
    // Versions of a forged store may claim any length, and the sum counts on.
    drop(min(byteCount, state.withLock(\.diskByteCount)))
  }

  /// Records that everything was dropped.
  package func droppedAll() { drop(state.withLock(\.diskByteCount)) }

  /// Collects garbage that is due, before the caller closes the store.
  package func end() {
    let isDue = state.withLock { Self.isDue($0, Self.idleByteCountMin) }
    if isDue { queue.sync { collect(Self.idleByteCountMin) } }
    state.withLock { $0.store = nil }
  }

  /// Lets go of a store that failed. ``begin(_:)`` begins to watch the next one.
  package func release() {
    // It may close outside of the lock.
    _ = state.withLock { state in
      defer { state.store = nil }
      return state.store
    }
  }

  /// Waits for the collections that were begun before: for tests.
  package func waitForCollection() { queue.sync {} }

  private func drop(_ byteCount: Int64) {
    let (store, live) = state.withLock { state in
      state.liveByteCount = max(0, state.liveByteCount - byteCount)
      state.droppedByteCount += byteCount
      return (state.store, state.liveByteCount)
    }
    if let store { Self.write(live, store) }
    changed()
  }

  private func changed() {
    let isDue = state.withLock { state in
      state.changeCount += 1
      let isDue = !state.isCollecting && Self.isDue(state, Self.byteCountMin)
      if isDue { state.isCollecting = true }
      return isDue
    }
    if isDue { queue.async { [self] in collect(Self.byteCountMin) } }
    waitForRest()
  }

  /// Checks again after a time without changes. Does not retain the keeper.
  private func waitForRest() {
    let changeCount = state.withLock { state -> Int? in
      defer { state.isWaiting = true }
      return state.isWaiting ? nil : state.changeCount
    }
    if let changeCount { wait(since: changeCount) }
  }

  private func wait(since changeCount: Int) {
    queue.asyncAfter(deadline: .now() + idleSeconds) { [weak self] in
      guard let self else { return }
      let (isIdle, isDue, now) = state.withLock { state in
        let isIdle = state.changeCount == changeCount
        if isIdle { state.isWaiting = false }
        return (isIdle, Self.isDue(state, Self.idleByteCountMin), state.changeCount)
      }
      guard isIdle else { return wait(since: now) }
      if isDue { collect(Self.idleByteCountMin) }
    }
  }

  private static func isDue(_ state: State, _ byteCountMin: Int64) -> Bool {
    state.store != nil && state.diskByteCount - state.liveByteCount >= state.liveByteCount + byteCountMin
  }

  /// Collects garbage, if a new measurement confirms that it is due.
  private func collect(_ byteCountMin: Int64) {
    defer { state.withLock { $0.isCollecting = false } }
    guard let store = state.withLock({ $0.store }) else { return }
    let disk = Self.packByteCount(store)
    let isDue = state.withLock { state in
      state.diskByteCount = disk
      return Self.isDue(state, byteCountMin)
    }
    guard isDue else { return }
    let (putBefore, droppedBefore) = state.withLock { ($0.diskByteCount, $0.droppedByteCount) }
    do throws(BlobStorageError) {
      _ = try store.collectGarbage(GarbageCollectionOptions(timeout: .seconds(0)))
    } catch {
      // Another process collects. What is live is as unknown as before, so this one tries again.
      if error.code == .busy { return waitForRest() }
      // The store is closed or damaged: a later change tries again.
    }
    let after = Self.packByteCount(store)
    state.withLock { state in
      // Values put and dropped meanwhile may be garbage.
      let changed = state.diskByteCount - putBefore + state.droppedByteCount - droppedBefore
      state.liveByteCount = max(0, after - changed)
      state.diskByteCount = after
    }
    Self.write(state.withLock(\.liveByteCount), store)
  }

  /// The file that keeps the live byte count between runs of programs.
  private static func file(_ store: BlockingBlobStore) -> URL {
    store.folder.appendingPathComponent("drop-in-live")
  }

  private static func write(_ byteCount: Int64, _ store: BlockingBlobStore) {
    // Only advice: without it, the next program that opens the store collects once too often.
    try? Data("\(byteCount)".utf8).write(to: file(store))
  }

  private static func packByteCount(_ store: BlockingBlobStore) -> Int64 {
    let folder = store.folder.path + "/packs"
    let manager = FileManager.default
    let names = (try? manager.contentsOfDirectory(atPath: folder)) ?? []
    return names.reduce(0) { sum, name in
      // A pack that is gone by now takes nothing.
      let size = (try? manager.attributesOfItem(atPath: folder + "/" + name))?[.size] as? NSNumber
      return sum + (size?.int64Value ?? 0)
    }
  }
}
