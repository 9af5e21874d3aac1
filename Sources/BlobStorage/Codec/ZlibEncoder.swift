import CZlib

/// One reused deflate stream of zlib.
final class ZlibEncoder {
  // zlib keeps a pointer to the stream inside its state, so the stream must not move.
  private let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
  /// The level that the stream was started with; nil before the first use.
  private var level: Int?

  init() { stream.initialize(to: z_stream()) }

  deinit {
    if level != nil { deflateEnd(stream) }
    stream.deallocate()
  }

  static func storedByteCountMax(of plainByteCount: Int) -> Int { Int(compressBound(uLong(plainByteCount))) }

  /// Encodes into `output`, which has room for the worst case. Returns the number of encoded bytes.
  func encode(
    _ plain: UnsafeRawBufferPointer, level: Int, into output: UnsafeMutableRawBufferPointer
  ) throws(BlobStorageError) -> Int {
    try begin(level: level)
    stream.pointee.next_in = UnsafeMutablePointer(
      mutating: plain.baseAddress?.assumingMemoryBound(to: Bytef.self))
    stream.pointee.avail_in = uInt(plain.count)
    stream.pointee.next_out = output.baseAddress?.assumingMemoryBound(to: Bytef.self)
    stream.pointee.avail_out = uInt(output.count)
    guard deflate(stream, Z_FINISH) == Z_STREAM_END else {
      throw BlobStorageError(.io, "zlib cannot encode a chunk of \(plain.count) bytes")
    }
    return output.count - Int(stream.pointee.avail_out)
  }

  private func begin(level: Int) throws(BlobStorageError) {
    if self.level == level, deflateReset(stream) == Z_OK { return }
    if self.level != nil { deflateEnd(stream) }
    self.level = nil
    stream.initialize(to: z_stream())
    let result = deflateInit_(stream, Int32(level), ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size))
    guard result == Z_OK else { throw BlobStorageError(.io, "zlib gets no memory for a stream") }
    self.level = level
  }
}
