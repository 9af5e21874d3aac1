import Synchronization

/// A cache of the plain bytes of recently read chunks, limited in bytes.
///
/// Evicts at random. An import of many versions reads the same bases in the same order again and again. If they
/// slightly exceed the limit, a cache that evicts the least recently used chunk always misses; random eviction keeps a
/// good part of them. Every operation takes constant time.
package final class ChunkCache: Sendable {
  private struct State: Sendable {
    var chunks: [(digest: BlobDigest, bytes: [UInt8])] = []
    var places: [BlobDigest: Int] = [:]
    var byteCount = 0
    /// The first bytes of the digests of chunks that were requested once, to recognise repeated requests.
    var wanted: Set<UInt64> = []
    /// The same sequence in each process: it need not be unpredictable.
    var random: UInt64 = 0

    mutating func removeAny() {
      // Knuth's linear congruence (TAOCP 3.3.4, table 1, line 26). Its upper bits are good.
      random = random &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      let place = Int(random >> 33) % chunks.count
      let (digest, bytes) = chunks[place]
      byteCount -= bytes.count
      places[digest] = nil
      let last = chunks.removeLast()
      guard place < chunks.count else { return }
      chunks[place] = last
      places[last.digest] = place
    }
  }

  let byteCountMax: Int
  private let state = Mutex(State())

  package init(byteCountMax: Int) { self.byteCountMax = byteCountMax }

  package func bytes(_ digest: BlobDigest) -> [UInt8]? {
    state.withLock { state in state.places[digest].map { state.chunks[$0].bytes } }
  }

  func removeAll() { state.withLock { $0 = State() } }

  private static let wantedCountMax = 1 << 15

  /// Whether the chunk was requested before. A chunk that is requested only once, like a base of one version, is not
  /// worth keeping: fresh memory costs more than decoding the chunk.
  package func isWantedAgain(_ digest: BlobDigest) -> Bool {
    let start = digest.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
    return state.withLock { state in
      if state.wanted.count == Self.wantedCountMax { state.wanted = [] }
      return !state.wanted.insert(start).inserted
    }
  }

  /// Keeps a chunk, unless it would take more than half of the cache.
  package func insert(_ digest: BlobDigest, _ bytes: [UInt8]) {
    guard bytes.count <= byteCountMax / 2 else { return }
    state.withLock { state in
      guard state.places[digest] == nil else { return }
      while state.byteCount + bytes.count > byteCountMax { state.removeAny() }
      state.places[digest] = state.chunks.count
      state.chunks.append((digest, bytes))
      state.byteCount += bytes.count
    }
  }
}
