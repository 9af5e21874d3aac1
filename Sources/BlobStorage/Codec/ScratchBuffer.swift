/// Reusable memory that only grows.
struct ScratchBuffer: ~Copyable {
  private(set) var bytes = UnsafeMutableRawBufferPointer(start: nil, count: 0)

  deinit { bytes.deallocate() }

  /// Makes room for `byteCount` bytes. The content may be lost.
  mutating func reserve(_ byteCount: Int) {
    guard bytes.count < byteCount else { return }
    bytes.deallocate()
    bytes = .allocate(byteCount: byteCount, alignment: 64)
  }
}
