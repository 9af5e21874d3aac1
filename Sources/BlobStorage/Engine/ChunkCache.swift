import Synchronization

/// Plain bytes of chunks that were read not long ago, up to a number of bytes.
///
/// Two generations: what is used moves to the young one, and when that is full it becomes the old one and the old
/// one is dropped. Every operation is constant time, and recent use protects.
package final class ChunkCache: Sendable {
  private struct State: Sendable {
    var young: [Digest: [UInt8]] = [:]
    var old: [Digest: [UInt8]] = [:]
    var youngByteCount = 0
  }

  private let generationByteCountMax: Int
  private let state = Mutex(State())

  package init(byteCountMax: Int) { generationByteCountMax = byteCountMax / 2 }

  package func bytes(_ digest: Digest) -> [UInt8]? {
    state.withLock { state in
      if let bytes = state.young[digest] { return bytes }
      guard let bytes = state.old.removeValue(forKey: digest) else { return nil }
      insert(digest, bytes, &state)
      return bytes
    }
  }

  package func insert(_ digest: Digest, _ bytes: [UInt8]) {
    guard bytes.count <= generationByteCountMax else { return }
    state.withLock { state in
      guard state.young[digest] == nil else { return }
      insert(digest, bytes, &state)
    }
  }

  private func insert(_ digest: Digest, _ bytes: [UInt8], _ state: inout State) {
    if state.youngByteCount + bytes.count > generationByteCountMax {
      state.old = state.young
      state.young = [:]
      state.youngByteCount = 0
    }
    state.young[digest] = bytes
    state.youngByteCount += bytes.count
  }
}
