/// Lends encoders and decoders, so that each worker, not each chunk, creates their contexts.
///
/// It never waits: it creates as many as are in use at once, and keeps at most `idleCountMax` returned ones of each
/// kind.
package final class CodecPool: Sendable {
  private let encoders = IOLock<[ChunkEncoder]>([])
  private let decoders = IOLock<[ChunkDecoder]>([])
  private let idleCountMax: Int

  /// An empty pool that keeps up to `idleCountMax` idle encoders, and as many decoders.
  package init(idleCountMax: Int = 16) { self.idleCountMax = idleCountMax }

  /// Releases the idle encoders and decoders.
  func removeAll() {
    encoders.withLock { $0 = [] }
    decoders.withLock { $0 = [] }
  }

  /// Lends an encoder until `body` returns.
  package func withEncoder<Result>(
    _ body: (ChunkEncoder) throws(BlobStorageError) -> Result
  ) throws(BlobStorageError) -> Result {
    let encoder = encoders.withLock { $0.popLast() } ?? ChunkEncoder()
    defer { encoders.withLock { if $0.count < idleCountMax { $0.append(encoder) } } }
    return try body(encoder)
  }

  /// Lends a decoder until `body` returns.
  package func withDecoder<Result>(
    _ body: (ChunkDecoder) throws(BlobStorageError) -> Result
  ) throws(BlobStorageError) -> Result {
    let decoder = decoders.withLock { $0.popLast() } ?? ChunkDecoder()
    defer { decoders.withLock { if $0.count < idleCountMax { $0.append(decoder) } } }
    return try body(decoder)
  }
}
