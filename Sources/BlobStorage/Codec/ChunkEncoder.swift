/// Encodes plain bytes by a codec, if that saves enough.
///
/// It reuses its codec contexts and its output buffer for every chunk. Make one for each worker, or borrow one from a
/// ``CodecPool``. Two threads must not use it at once.
package final class ChunkEncoder {
  private lazy var zstd = ZstdEncoder()
  private lazy var zlib = ZlibEncoder()
  private var output = GrowingBuffer()

  /// Creates no contexts: the first use of each codec does.
  package init() {}

  /// Chunks with fewer bytes stay plain, untried.
  package static let plainByteCountMin = 128
  /// The smallest number of bytes that encoding must save.
  package static let savedByteCountMin = 32

  /// Whether encoding saves enough to be worth a decoding on each read: at least 32 bytes and a 128th.
  ///
  /// Decoding costs 2 µs for an icon of 1.5 KB and 70 µs for 70 KB of a photograph: 1 to 1.7 GB/s. For a set of
  /// photographs as a whole, that is 0.06 ms for each MB. If an eighth had to be saved, photographs would take 0.3 %
  /// more, icons 0.5 %, sources 0.8 % and jars 3.9 %. If 128 bytes had to be saved, sources would still take 0.5 %
  /// more.
  package static func pays(plainByteCount: Int, storedByteCount: Int) -> Bool {
    let saved = plainByteCount - storedByteCount
    return saved >= savedByteCountMin && saved * 128 >= plainByteCount
  }

  /// Calls `body` with the stored form of `plain` and its codec.
  ///
  /// If encoding saves too little, the codec is `.none`, the bytes are `plain` itself, and no base is used. The bytes
  /// are valid until `body` returns.
  ///
  /// - Parameters:
  ///   - plain: At most ``BlobLimits/chunkByteCountMax`` bytes.
  ///   - base: The plain bytes of a similar chunk, only for a codec that takes them. A chunk with a base is not probed:
  ///     even a near-copy of noise shrinks.
  ///   - hint: What the beginning of its blob suggests about the chunk.
  /// - Throws: `io` if a codec cannot allocate memory, and the errors of `body`.
  package func withEncoded<Result>(
    _ plain: RawSpan, by choice: CodecChoice, base: [UInt8]? = nil,
    hint: CompressibilityHint = .unknown,
    _ body: (CodecKind, UnsafeRawBufferPointer) throws(BlobStorageError) -> Result
  ) throws(BlobStorageError) -> Result {
    precondition(
      plain.byteCount <= BlobLimits.chunkByteCountMax, "a chunk has at most chunkByteCountMax bytes")
    precondition(base == nil || choice.kind.takesBase, "this codec takes no base")
    return try plain.withUnsafeBytes { (plain) throws(BlobStorageError) in
      guard choice.kind != .none, plain.count >= Self.plainByteCountMin else { return try body(.none, plain) }
      if base == nil, try isNoise(plain, hint: hint) { return try body(.none, plain) }

      let stored = try encode(plain, by: choice, base: base)
      guard Self.pays(plainByteCount: plain.count, storedByteCount: stored.count) else {
        return try body(.none, plain)
      }
      return try body(choice.kind, stored)
    }
  }

  private func encode(
    _ plain: UnsafeRawBufferPointer, by choice: CodecChoice, base: [UInt8]?
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    let count: Int
    switch choice.kind {
    case .none:
      return plain
    case .zstd:
      count = try zstd.encode(
        plain, level: choice.level, base: base,
        into: emptied(ZstdEncoder.storedByteCountMax(of: plain.count)))
    case .zlib:
      count = try zlib.encode(
        plain, level: choice.level, into: emptied(ZlibEncoder.storedByteCountMax(of: plain.count)))
    }
    return UnsafeRawBufferPointer(rebasing: output.bytes[..<count])
  }

  /// Makes room for `byteCount` bytes at the start of the output buffer.
  private func emptied(_ byteCount: Int) -> UnsafeMutableRawBufferPointer {
    output.removeAll(keepingAtMost: .max)
    return output.add(byteCount: byteCount)
  }

  /// Detects noise without the cost of a full encoding.
  private func isNoise(
    _ plain: UnsafeRawBufferPointer, hint: CompressibilityHint
  ) throws(BlobStorageError) -> Bool {
    switch CompressibilityProbe.verdict(on: plain.bytes, hint: hint) {
    case .noise: return true
    case .encode: return false
    case .doubtful:
      let count = try zstd.encode(
        plain, level: CompressibilityProbe.trialLevel, base: nil,
        into: emptied(ZstdEncoder.storedByteCountMax(of: plain.count)))
      return count >= plain.count
    }
  }
}
