/// Bytes that are only added to, in memory that is used again.
struct GrowingBuffer: ~Copyable {
  private var memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)
  private(set) var count = 0

  deinit { memory.deallocate() }

  var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: memory[..<count]) }

  /// Adds bytes that the caller fills before it does anything else with the buffer.
  mutating func add(byteCount: Int) -> UnsafeMutableRawBufferPointer {
    let end = count + byteCount
    if end > memory.count {
      let larger = UnsafeMutableRawBufferPointer.allocate(
        byteCount: max(end, 2 * memory.count), alignment: 64)
      larger.copyMemory(from: bytes)
      memory.deallocate()
      memory = larger
    }
    let added = UnsafeMutableRawBufferPointer(rebasing: memory[count..<end])
    count = end
    return added
  }

  /// Takes the last bytes away again.
  mutating func removeLast(_ byteCount: Int) { count -= byteCount }

  /// Forgets the bytes, and keeps the memory unless there is more of it than that.
  mutating func removeAll(keepingAtMost byteCountMax: Int) {
    count = 0
    guard memory.count > byteCountMax else { return }
    memory.deallocate()
    memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)
  }
}
