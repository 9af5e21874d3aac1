/// Decodes stored bytes into plain bytes.
///
/// It reuses its codec contexts for every chunk. Make one for each worker, or borrow one from a ``CodecPool``. Two
/// threads must not use it at once.
package final class ChunkDecoder {
  private lazy var zstd = ZstdDecoder()
  private lazy var zlib = ZlibDecoder()

  /// Creates no contexts: the first use of each codec does.
  package init() {}

  /// Decodes `stored` into `plain`.
  ///
  /// For any `stored`, writes nothing outside `plain`, and allocates no memory by a length found in it. A wrong base,
  /// or damage that the codec misses, may yield wrong bytes without an error: the caller compares the digest.
  ///
  /// - Parameters:
  ///   - stored: At most ``BlobLimits/recordPayloadByteCountMax`` bytes.
  ///   - base: The plain bytes of the base that the chunk was encoded against.
  ///   - plain: Exactly as long as the chunk. After an error its content is undefined.
  /// - Throws: `corrupted` unless all of `stored` is an encoding of `plain.count` bytes, `io` if a codec cannot
  ///   allocate memory.
  package func decode(
    _ stored: RawSpan, by kind: CodecKind, base: [UInt8]? = nil,
    into plain: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) {
    precondition(plain.count <= BlobLimits.chunkByteCountMax, "a chunk has at most chunkByteCountMax bytes")
    precondition(
      stored.byteCount <= BlobLimits.recordPayloadByteCountMax, "a payload has at most that many bytes")
    guard base == nil || kind.takesBase else { throw .undecodable(kind, "it names a base, but takes none") }
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

  /// Decodes the beginning of the zstd encoding `stored` into `plain`.
  ///
  /// Allocates a window of at most ``BlobLimits/frameByteCountMax`` bytes for any `stored`.
  ///
  /// - Throws: `corrupted` if `stored` is no zstd encoding, needs a longer window, or ends before `plain` is full; `io`
  ///   if zstd cannot allocate memory.
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
