import BlobStorage
import Foundation
import Synchronization

/// Keeps values in memory, up to a number of bytes. Drops the least recently used half at once.
///
/// It has two generations: a value that is used moves to the young one. When that is full it becomes the old one, and
/// the former old one is dropped. Each value is kept with its version, so that it is never returned for a later one.
final class MemoryTier: Sendable {
  private struct Kept: Sendable {
    var version: BlobVersion.ID
    var data: Data
  }

  private struct State: Sendable {
    /// By the keys' bytes.
    var young: [[UInt8]: Kept] = [:]
    var old: [[UInt8]: Kept] = [:]
    var youngByteCount = 0
  }

  private let generationByteCountMax: Int
  private let state = Mutex(State())

  init(byteCountMax: Int) { generationByteCountMax = byteCountMax / 2 }

  /// The bytes of that version of the key, if they are in memory.
  func data(_ key: String, _ version: BlobVersion.ID) -> Data? {
    let key = Array(key.utf8)
    return state.withLock { state in
      if let kept = state.young[key] { return kept.version == version ? kept.data : nil }
      guard let kept = state.old.removeValue(forKey: key), kept.version == version else { return nil }
      Self.insert(key, kept, &state, generationByteCountMax)
      return kept.data
    }
  }

  func insert(_ key: String, _ version: BlobVersion.ID, _ data: Data) {
    guard data.count <= generationByteCountMax else { return }
    state.withLock {
      Self.insert(Array(key.utf8), Kept(version: version, data: data), &$0, generationByteCountMax)
    }
  }

  /// Forgets everything.
  func removeAll() { state.withLock { $0 = State() } }

  private static func insert(_ key: [UInt8], _ kept: Kept, _ state: inout State, _ byteCountMax: Int) {
    state.old[key] = nil
    if let before = state.young.removeValue(forKey: key) { state.youngByteCount -= before.data.count }
    if state.youngByteCount + kept.data.count > byteCountMax {
      state.old = state.young
      state.young = [:]
      state.youngByteCount = 0
    }
    state.young[key] = kept
    state.youngByteCount += kept.data.count
  }
}
