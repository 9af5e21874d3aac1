import Synchronization

/// Lends encoders and decoders, so that their contexts are made once for each worker and not for each chunk.
///
/// It never waits: there are as many as are lent at the same time, and at most `idleCountMax` of each kind
/// are kept when they come back.
package final class CodecPool: Sendable {
  // An idle codec is reachable only through the pool, and a lent one is not in the pool.
  private struct Idle: @unchecked Sendable {
    var encoders: [ChunkEncoder] = []
    var decoders: [ChunkDecoder] = []
  }

  private struct Lent<Coder>: @unchecked Sendable { let coder: Coder }

  private let idle = Mutex(Idle())
  private let idleCountMax: Int

  /// An empty pool that keeps that many idle encoders, and decoders.
  package init(idleCountMax: Int = 16) { self.idleCountMax = idleCountMax }

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
