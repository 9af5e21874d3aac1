import Synchronization

/// Lends encoders and decoders, so that each worker, not each chunk, creates their contexts.
///
/// It never waits: it creates as many as are in use at once, and keeps at most `idleCountMax` returned ones of each
/// kind.
package final class CodecPool: Sendable {
  // Sharing is safe: an idle codec is reachable only through the pool, and a lent one is not in the pool.
  private struct Idle: @unchecked Sendable {
    var encoders: [ChunkEncoder] = []
    var decoders: [ChunkDecoder] = []
  }

  private struct Lent<Coder>: @unchecked Sendable { let coder: Coder }

  private let idle = Mutex(Idle())
  private let idleCountMax: Int

  /// An empty pool that keeps up to `idleCountMax` idle encoders, and as many decoders.
  package init(idleCountMax: Int = 16) { self.idleCountMax = idleCountMax }

  /// Releases the idle encoders and decoders.
  func removeAll() { idle.withLock { $0 = Idle() } }

  /// Lends an encoder until `body` returns.
  package func withEncoder<Result>(
    _ body: (ChunkEncoder) throws(BlobStorageError) -> Result
  ) throws(BlobStorageError) -> Result {
    let lent = Lent(coder: idle.withLock { Lent(coder: $0.encoders.popLast()) }.coder ?? ChunkEncoder())
    defer {
      idle.withLock { if $0.encoders.count < idleCountMax { $0.encoders.append(lent.coder) } }
    }
    return try body(lent.coder)
  }

  /// Lends a decoder until `body` returns.
  package func withDecoder<Result>(
    _ body: (ChunkDecoder) throws(BlobStorageError) -> Result
  ) throws(BlobStorageError) -> Result {
    let lent = Lent(coder: idle.withLock { Lent(coder: $0.decoders.popLast()) }.coder ?? ChunkDecoder())
    defer {
      idle.withLock { if $0.decoders.count < idleCountMax { $0.decoders.append(lent.coder) } }
    }
    return try body(lent.coder)
  }
}
