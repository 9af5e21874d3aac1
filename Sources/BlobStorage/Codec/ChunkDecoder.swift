/// Stored bytes → plain bytes.
///
/// It owns its codec contexts and uses them again for every chunk: make one for each worker, or borrow one
/// from a ``CodecPool``. It must not be used by two threads at once.
package final class ChunkDecoder {
  private lazy var zstd = ZstdDecoder()
  private lazy var zlib = ZlibDecoder()

  /// A decoder without contexts: each is made when first needed.
  package init() {}

  /// Fills `plain` with the bytes that `stored` is the encoding of.
  ///
  /// Whatever `stored` holds, nothing outside `plain` is written, and no memory is taken by a length in it.
  /// A wrong base, or damage that a codec does not see, may give wrong bytes without an error: the caller
  /// compares the digest.
  ///
  /// - Parameters:
  ///   - stored: At most ``BlobLimits/recordPayloadByteCountMax`` bytes.
  ///   - base: What the chunk was encoded against.
  ///   - plain: Exactly as long as the chunk; its content after an error is undefined.
  /// - Throws: `corrupted` unless `stored` is, from its first byte to its last, an encoding of `plain.count`
  ///   bytes.
  package func decode(
    _ stored: RawSpan, by kind: CodecKind, base: EncodingBase = .none,
    into plain: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) {
    precondition(plain.count <= BlobLimits.chunkByteCountMax, "a chunk has at most chunkByteCountMax bytes")
    precondition(
      stored.byteCount <= BlobLimits.recordPayloadByteCountMax, "a payload has at most that many bytes")
    guard base.isNone || kind.takesBase else { throw .undecodable(kind, "it names a base, but takes none") }
    // An encoder never encodes nothing, and zlib refuses an empty output.
    guard kind == .none || plain.isEmpty == false else { throw .undecodable(kind, "an empty chunk") }
    switch kind {
    case .none:
      guard stored.byteCount == plain.count else {
        throw .undecodable(kind, "\(stored.byteCount) bytes where \(plain.count) are recorded")
      }
      stored.withUnsafeBytes { plain.copyMemory(from: $0) }
    case .zstd: try zstd.decode(stored, base: base, into: plain)
    case .zlib: try zlib.decode(stored, into: plain)
    }
  }

  /// Fills `plain` with the first of the bytes that `stored` is the zstd encoding of.
  ///
  /// Allocates a window of at most ``BlobLimits/frameByteCountMax`` bytes, whatever `stored` holds.
  ///
  /// - Throws: `corrupted` if `stored` is no such encoding, or ends before `plain` is full.
  package func decodeBeginning(
    _ stored: RawSpan, into plain: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) {
    try zstd.decodeBeginning(stored, into: plain)
  }
}

extension BlobStorageError {
  static func undecodable(_ kind: CodecKind, _ reason: String) -> Self {
    BlobStorageError(.corrupted, "a chunk stored by codec \(kind.name) cannot be decoded: \(reason)")
  }
}
