/// Reuses buffers: a new one costs a page fault for each of its pages.
///
/// It keeps as many buffers as were ever in use at once.
final class BufferPool: Sendable {
  private let free = IOLock<[UnsafeMutableRawBufferPointer]>([])

  deinit { free.withLock { for buffer in $0 { buffer.deallocate() } } }

  /// Calls `body` with a buffer of that length and undefined content.
  func withBuffer<T>(
    byteCount: Int, _ body: (UnsafeMutableRawBufferPointer) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    var buffer = free.withLock { $0.popLast() }
    if let small = buffer, small.count < byteCount {
      small.deallocate()
      buffer = nil
    }
    let whole = buffer ?? .allocate(byteCount: byteCount, alignment: 64)
    defer { free.withLock { $0.append(whole) } }
    return try body(UnsafeMutableRawBufferPointer(rebasing: whole[..<byteCount]))
  }
}
