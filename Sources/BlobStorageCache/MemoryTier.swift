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

    mutating func insert(_ key: [UInt8], _ kept: Kept, _ byteCountMax: Int) {
      old[key] = nil
      if let before = young.removeValue(forKey: key) {
        youngByteCount -= MemoryTier.byteCount(key, before.data)
      }
      let added = MemoryTier.byteCount(key, kept.data)
      if youngByteCount + added > byteCountMax {
        old = young
        young = [:]
        youngByteCount = 0
      }
      young[key] = kept
      youngByteCount += added
    }
  }

  private let generationByteCountMax: Int
  private let state = Mutex(State())

  init(byteCountMax: Int) { generationByteCountMax = byteCountMax / 2 }

  /// What a value takes: many empty ones take memory, too.
  private static func byteCount(_ key: [UInt8], _ data: Data) -> Int { key.count + data.count + 128 }

  /// The bytes of that version of the key, if they are in memory.
  func data(_ key: String, _ version: BlobVersion.ID) -> Data? {
    let key = Array(key.utf8)
    return state.withLock { state in
      if let kept = state.young[key] { return kept.version == version ? kept.data : nil }
      guard let kept = state.old.removeValue(forKey: key), kept.version == version else { return nil }
      state.insert(key, kept, generationByteCountMax)
      return kept.data
    }
  }

  func insert(_ key: String, _ version: BlobVersion.ID, _ data: Data) {
    let key = Array(key.utf8)
    guard Self.byteCount(key, data) <= generationByteCountMax else { return }
    state.withLock { $0.insert(key, Kept(version: version, data: data), generationByteCountMax) }
  }

  func removeAll() { state.withLock { $0 = State() } }
}
