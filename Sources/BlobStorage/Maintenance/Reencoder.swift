/// Encodes chunks once more, as hard as their codec can: what came fast becomes small later.
///
/// zstd needs 20 to 50 times as long at level 19 as at level 3. Decoding takes no longer.
struct Reencoder: Sendable {
  /// A chunk as a pack has it.
  struct Chunk: Sendable {
    var record: ChunkRecord
    var stored: [UInt8]
  }

  private let choice: CodecChoice
  private let codecs: CodecPool
  private let chunks: ChunkSource

  /// Nil for a store that encodes nothing.
  init?(_ engine: Engine) throws(BlobStorageError) {
    guard engine.codec.kind != .none else { return nil }
    choice = try CodecChoice(engine.codec.kind, level: .max)
    codecs = engine.codecs
    chunks = engine.chunks
  }

  /// The chunk in fewer bytes; itself where that cannot be, and where it is encoded against another.
  func encoded(_ chunk: Chunk) throws(BlobStorageError) -> Chunk {
    guard chunk.record.baseKind == .none else { return chunk }
    let plain: [UInt8]
    do throws(BlobStorageError) {
      plain = try chunks.decoded(chunk.stored.span.bytes, chunk.record, base: nil)
    } catch {
      // Copied as it is, for verify to find.
      guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error }
      return chunk
    }
    let bytes = plain.span.bytes
    guard Digest.of(bytes, by: chunk.record.digest.algorithm) == chunk.record.digest else { return chunk }
    return try codecs.withEncoder { (encoder) throws(BlobStorageError) in
      try encoder.withEncoded(bytes, by: choice, hint: CompressibilityHint(beginning: bytes)) {
        (kind, stored) in
        guard kind != .none, stored.count < chunk.stored.count else { return chunk }
        var record = chunk.record
        record.codecNumber = kind.rawValue
        return Chunk(record: record, stored: Array(stored))
      }
    }
  }
}
