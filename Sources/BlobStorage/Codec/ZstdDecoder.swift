import CZstd

/// One reused decompression context of libzstd.
///
/// Frames are decoded in one step straight into the caller's buffer, so that no window is ever allocated,
/// whatever size a frame claims to need.
final class ZstdDecoder {
  private let context: OpaquePointer?

  init() { context = ZSTD_createDCtx() }

  deinit { ZSTD_freeDCtx(context) }

  /// Fills `plain` from exactly one frame.
  func decode(
    _ stored: RawSpan, base: EncodingBase, into plain: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) {
    guard let context else { throw BlobStorageError(.io, "zstd gets no memory for a context") }
    // libzstd would also take several frames in a row, frames to be skipped, and, where it is built so, the
    // formats before RFC 8878.
    let count = try stored.withUnsafeBytes { (stored) throws(BlobStorageError) in
      guard stored.starts(with: [0x28, 0xB5, 0x2F, 0xFD]) else {
        throw .undecodable(.zstd, "not a zstd frame")
      }
      let frameByteCount = try check(ZSTD_findFrameCompressedSize(stored.baseAddress, stored.count))
      guard frameByteCount == stored.count else { throw .undecodable(.zstd, "bytes after the frame") }

      try check(ZSTD_DCtx_reset(context, ZSTD_reset_session_and_parameters))
      return try base.withUnsafeBytes { (bytes) throws(BlobStorageError) in
        switch base {
        case .none: break
        case .prefix: try check(ZSTD_DCtx_refPrefix(context, bytes.baseAddress, bytes.count))
        }
        return try check(
          ZSTD_decompressDCtx(context, plain.baseAddress, plain.count, stored.baseAddress, stored.count))
      }
    }
    guard count == plain.count else {
      throw .undecodable(.zstd, "\(count) bytes where \(plain.count) are recorded")
    }
  }

  @discardableResult
  private func check(_ result: Int) throws(BlobStorageError) -> Int {
    guard ZSTD_isError(result) == 0 else {
      throw .undecodable(.zstd, String(cString: ZSTD_getErrorName(result)))
    }
    return result
  }
}
