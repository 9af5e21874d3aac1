import Synchronization

/// The packs that this process has open for reading: the most recent few, because descriptors are scarce.
///
/// A pack that gc has removed can be read on here until it is forgotten.
package final class PackFiles: Sendable {
  private struct State: Sendable {
    var files: [PackName: (file: any File, lastUse: UInt64)] = [:]
    var clock: UInt64 = 0
  }

  private let backend: any Backend
  private let countMax: Int
  private let state = Mutex(State())

  package init(backend: any Backend, countMax: Int = 64) {
    self.backend = backend
    self.countMax = countMax
  }

  /// The opened pack; nil if it no longer exists.
  package func file(_ name: PackName) throws(BlobStorageError) -> (any File)? {
    let known = state.withLock { state -> (any File)? in
      guard let file = state.files[name]?.file else { return nil }
      state.clock += 1
      state.files[name]?.lastUse = state.clock
      return file
    }
    if let known { return known }
    guard let opened = try backend.openPack(name) else { return nil }
    return state.withLock { state in
      state.clock += 1
      // Another thread may have opened it meanwhile: one is enough, and this one closes.
      let file = state.files[name]?.file ?? opened
      state.files[name] = (file, state.clock)
      // A file closes when the last read that uses it has ended.
      if state.files.count > countMax,
        let oldest = state.files.min(by: { $0.value.lastUse < $1.value.lastUse })
      {
        state.files[oldest.key] = nil
      }
      return file
    }
  }

  /// Forgets the packs that have no name any more.
  package func forgetRemoved() throws(BlobStorageError) {
    let files = state.withLock { $0.files.mapValues(\.file) }
    for (name, file) in files where try file.status().linkCount == 0 {
      state.withLock { $0.files[name] = nil }
    }
  }

  /// Forgets these packs: they are opened again.
  package func forget(_ names: Set<PackName>) {
    state.withLock { state in
      for name in names { state.files[name] = nil }
    }
  }

  /// Forgets packs, so that the space of removed ones is given back.
  package func forget(where isGone: (PackName) throws(BlobStorageError) -> Bool) throws(BlobStorageError) {
    let names = state.withLock { Array($0.files.keys) }
    for name in names where try isGone(name) {
      state.withLock { $0.files[name] = nil }
    }
  }
}
