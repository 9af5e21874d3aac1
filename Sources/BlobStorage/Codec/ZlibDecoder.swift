import CZlib

/// One reused inflate stream of zlib.
final class ZlibDecoder {
  // zlib keeps a pointer to the stream inside its state, so the stream must not move.
  private let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
  private let isBegun: Bool

  init() {
    stream.initialize(to: z_stream())
    isBegun = inflateInit_(stream, ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size)) == Z_OK
  }

  deinit {
    if isBegun { inflateEnd(stream) }
    stream.deallocate()
  }

  /// Decodes exactly one stream into `plain`.
  func decode(
    _ stored: RawSpan, into plain: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) {
    guard isBegun, inflateReset(stream) == Z_OK else {
      throw BlobStorageError(.io, "zlib gets no memory for a stream")
    }
    stream.pointee.next_out = plain.baseAddress?.assumingMemoryBound(to: Bytef.self)
    stream.pointee.avail_out = uInt(plain.count)
    let result = stored.withUnsafeBytes { stored in
      stream.pointee.next_in = UnsafeMutablePointer(
        mutating: stored.baseAddress?.assumingMemoryBound(to: Bytef.self))
      stream.pointee.avail_in = uInt(stored.count)
      return inflate(stream, Z_FINISH)
    }
    guard result == Z_STREAM_END else {
      throw .undecodable(.zlib, "the stream is damaged, or longer than the \(plain.count) bytes recorded")
    }
    guard stream.pointee.avail_out == 0 else {
      throw .undecodable(.zlib, "fewer bytes than the \(plain.count) recorded")
    }
    guard stream.pointee.avail_in == 0 else { throw .undecodable(.zlib, "bytes after the stream") }
  }
}
