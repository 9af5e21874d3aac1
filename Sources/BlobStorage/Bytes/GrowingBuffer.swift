/// An append buffer in reusable memory.
struct GrowingBuffer: ~Copyable {
  private var memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)
  private(set) var count = 0

  deinit { memory.deallocate() }

  var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: memory[..<count]) }

  /// Adds bytes. The caller fills them before any other call.
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

  mutating func removeLast(_ byteCount: Int) { count -= byteCount }

  /// Removes all bytes. Keeps the memory unless it is larger than `byteCountMax`.
  mutating func removeAll(keepingAtMost byteCountMax: Int) {
    count = 0
    guard memory.count > byteCountMax else { return }
    memory.deallocate()
    memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)
  }
}
