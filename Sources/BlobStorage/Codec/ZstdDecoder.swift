import CZstd

/// One reused decompression context of libzstd.
///
/// Whole frames are decoded in one step into the caller's buffer. So libzstd allocates no window, whatever size a frame
/// claims to need.
final class ZstdDecoder {
  private let context: OpaquePointer?

  init() { context = ZSTD_createDCtx() }

  deinit { ZSTD_freeDCtx(context) }

  /// Decodes exactly one frame into `plain`.
  func decode(
    _ stored: RawSpan, base: [UInt8]?, into plain: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) {
    guard let context else { throw BlobStorageError(.io, "zstd gets no memory for a context") }
    let count = try stored.withUnsafeBytes { (stored) throws(BlobStorageError) in
      try checkIsOneFrame(stored)
      try check(ZSTD_DCtx_reset(context, ZSTD_reset_session_and_parameters))
      return try bridge(base ?? []) { (bytes) throws(BlobStorageError) in
        if base != nil { try check(ZSTD_DCtx_refPrefix(context, bytes.baseAddress, bytes.count)) }
        return try check(
          ZSTD_decompressDCtx(context, plain.baseAddress, plain.count, stored.baseAddress, stored.count))
      }
    }
    guard count == plain.count else {
      throw .undecodable(.zstd, "\(count) bytes where \(plain.count) are recorded")
    }
  }

  /// The window size that a frame requests; 0 if it names none, or if the bytes are too short. RFC 8878, 3.1.1.1.
  static func windowByteCount(_ stored: RawSpan) -> Int {
    stored.withUnsafeBytes { stored in
      let isSingleSegment = stored.count < 6 || stored[4] & 0x20 != 0
      return isSingleSegment ? 0 : (8 + Int(stored[5] & 7)) << (7 + Int(stored[5] >> 3))
    }
  }

  /// log2 of the largest window to allocate.
  private static let windowLogMax = Int32(BlobLimits.frameByteCountMax.trailingZeroBitCount)

  /// Decodes the beginning of exactly one frame into `plain`.
  func decodeBeginning(_ stored: RawSpan, into plain: UnsafeMutableRawBufferPointer) throws(BlobStorageError)
  {
    guard let context else { throw BlobStorageError(.io, "zstd gets no memory for a context") }
    try stored.withUnsafeBytes { (stored) throws(BlobStorageError) in
      try checkIsOneFrame(stored)
      try check(ZSTD_DCtx_reset(context, ZSTD_reset_session_and_parameters))
      try check(ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, Self.windowLogMax))
      var input = ZSTD_inBuffer(src: stored.baseAddress, size: stored.count, pos: 0)
      var output = ZSTD_outBuffer(dst: plain.baseAddress, size: plain.count, pos: 0)
      while output.pos < output.size {
        let before = (input.pos, output.pos)
        try check(ZSTD_decompressStream(context, &output, &input))
        guard (input.pos, output.pos) != before else {
          throw .undecodable(.zstd, "it ends before its \(plain.count)th byte")
        }
      }
    }
  }

  /// Accepts exactly one frame. libzstd would also accept several frames, skippable frames and, depending on its build,
  /// formats older than RFC 8878.
  private func checkIsOneFrame(_ stored: UnsafeRawBufferPointer) throws(BlobStorageError) {
    guard stored.starts(with: [0x28, 0xB5, 0x2F, 0xFD]) else {
      throw .undecodable(.zstd, "not a zstd frame")
    }
    let frameByteCount = try check(ZSTD_findFrameCompressedSize(stored.baseAddress, stored.count))
    guard frameByteCount == stored.count else { throw .undecodable(.zstd, "bytes after the frame") }
  }

  @discardableResult
  private func check(_ result: Int) throws(BlobStorageError) -> Int {
    guard ZSTD_isError(result) == 0 else {
      throw .undecodable(.zstd, String(cString: ZSTD_getErrorName(result)))
    }
    return result
  }
}
