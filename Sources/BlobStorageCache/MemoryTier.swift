import BlobStorage
import Foundation
import Synchronization

/// Keeps values in memory, up to a number of bytes. Drops the least recently used half at once.
///
/// It has two generations: a value that is used moves to the young one. When that is full it becomes the old one, and
/// the former old one is dropped. Each value is kept with its version, so that a reader who looks the version up never
/// gets a value for a later one. A change of this process replaces or forgets the value before it returns, so that a
/// reader who looks nothing up misses only changes of other processes. Keys are bytes, with the cache's prefix.
package final class MemoryTier: Sendable {
  /// A value with its version.
  package struct Kept: Sendable {
    package var version: BlobVersion
    package var data: Data

    package init(version: BlobVersion, data: Data) {
      self.version = version
      self.data = data
    }
  }

  private struct State: Sendable {
    var young: [[UInt8]: Kept] = [:]
    var old: [[UInt8]: Kept] = [:]
    var youngByteCount = 0
    /// Counts the changes of keys, by a hash: a reader keeps nothing that it looked up before a change.
    var changeCounts = [UInt32](repeating: 0, count: 256)

    mutating func insert(_ key: [UInt8], _ kept: Kept, _ byteCountMax: Int) {
      remove(key)
      let added = MemoryTier.byteCount(key, kept)
      guard added <= byteCountMax else { return }
      if youngByteCount + added > byteCountMax {
        old = young
        young = [:]
        youngByteCount = 0
      }
      young[key] = kept
      youngByteCount += added
    }

    mutating func remove(_ key: [UInt8]) {
      old[key] = nil
      if let before = young.removeValue(forKey: key) { youngByteCount -= MemoryTier.byteCount(key, before) }
    }
  }

  private let generationByteCountMax: Int
  private let state = Mutex(State())

  package init(byteCountMax: Int) { generationByteCountMax = byteCountMax / 2 }

  /// What a value takes: many empty ones take memory, too.
  private static func byteCount(_ key: [UInt8], _ kept: Kept) -> Int {
    2 * key.count + kept.data.count + kept.version.metadata.count + 256
  }

  private static func slot(_ key: [UInt8]) -> Int { key.hashValue & 255 }

  /// The value of a key, if it is in memory. It then counts as used.
  package func value(_ key: [UInt8]) -> Kept? {
    state.withLock { state in
      if let kept = state.young[key] { return kept }
      guard let kept = state.old[key] else { return nil }
      state.insert(key, kept, generationByteCountMax)
      return kept
    }
  }

  /// The bytes of that version of the key, if they are in memory.
  package func data(_ key: [UInt8], _ version: BlobVersion.ID) -> Data? {
    guard let kept = value(key), kept.version.id == version else { return nil }
    return kept.data
  }

  /// To be read before a version is looked up, for ``insert(_:_:ifNoChangeSince:)``.
  package func changeCount(_ key: [UInt8]) -> UInt32 { state.withLock { $0.changeCounts[Self.slot(key)] } }

  /// Keeps a value that was read, unless this process has changed the key since.
  package func insert(_ key: [UInt8], _ kept: Kept, ifNoChangeSince changeCount: UInt32) {
    state.withLock { state in
      guard state.changeCounts[Self.slot(key)] == changeCount else { return }
      state.insert(key, kept, generationByteCountMax)
    }
  }

  /// Keeps a value that was just stored, unless a later one is kept.
  package func replace(_ key: [UInt8], _ kept: Kept) {
    state.withLock { state in
      state.changeCounts[Self.slot(key)] &+= 1
      if let known = state.young[key] ?? state.old[key], Self.isLater(known, kept) { return }
      state.insert(key, kept, generationByteCountMax)
    }
  }

  private static func isLater(_ one: Kept, _ other: Kept) -> Bool {
    let (one, other) = (one.version.id.stamp, other.version.id.stamp)
    return (one.time, one.writer) > (other.time, other.writer)
  }

  /// Forgets the values of keys that were changed.
  package func forget(_ keys: some Sequence<[UInt8]>) {
    state.withLock { state in
      for key in keys {
        state.changeCounts[Self.slot(key)] &+= 1
        state.remove(key)
      }
    }
  }

  package func removeAll() {
    state.withLock { state in
      let counts = state.changeCounts.map { $0 &+ 1 }
      state = State()
      state.changeCounts = counts
    }
  }
}

extension CacheCore {
  /// The value of a key in memory, without a lookup: only changes by this process are sure to show. Counts as a use.
  func valueInMemory(_ key: String) -> MemoryTier.Kept? {
    let whole = prefix + key
    guard let kept = memory.value(Array(whole.utf8)), !isExpired(kept.version) else { return nil }
    use(whole)
    return counted(kept)
  }
}
