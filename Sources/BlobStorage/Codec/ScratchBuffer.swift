/// Memory that is used again and only ever grows.
struct ScratchBuffer: ~Copyable {
  private(set) var bytes = UnsafeMutableRawBufferPointer(start: nil, count: 0)

  deinit { bytes.deallocate() }

  /// Makes room for that many bytes; what was in it may be lost.
  mutating func reserve(_ byteCount: Int) {
    guard bytes.count < byteCount else { return }
    bytes.deallocate()
    bytes = .allocate(byteCount: byteCount, alignment: 64)
  }
}
