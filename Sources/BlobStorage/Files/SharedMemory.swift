import CBlobKernels

/// A part of a file as memory that processes share: 64-bit words, each read and written whole.
///
/// Check every word that another process may have stored.
package final class SharedMemory: @unchecked Sendable {
  // Unchecked: the words are only touched by atomic operations.
  private let words: UnsafeMutablePointer<UInt64>
  private let byteCount: Int
  /// For tests: whether the process still lives. Stores of a dead process have no effect.
  private let isAlive: (@Sendable () -> Bool)?
  /// The mapping, if it is another object's.
  private let owner: SharedMemory?

  /// Takes the mapping over.
  init(words: UnsafeMutablePointer<UInt64>, byteCount: Int) {
    self.words = words
    self.byteCount = byteCount
    isAlive = nil
    owner = nil
  }

  /// The same memory, as seen by a process that may die.
  package init(_ other: SharedMemory, whileAlive: @escaping @Sendable () -> Bool) {
    words = other.words
    byteCount = other.byteCount
    isAlive = whileAlive
    owner = other
  }

  deinit { if owner == nil { bs_unmap(words, byteCount) } }

  /// A load acquires and a store releases: the load sees everything that the storing thread did before.
  subscript(_ index: Int) -> UInt64 {
    get { bs_load(words + checked(index)) }
    set { if isAlive?() ?? true { bs_store(words + checked(index), newValue) } }
  }

  /// Stores a word, and orders that before every later load of this thread.
  func storeFirst(_ value: UInt64, at index: Int) {
    if isAlive?() ?? true { bs_store_first(words + checked(index), value) }
  }

  /// Adds to a word; returns the sum.
  @discardableResult
  func add(_ value: UInt64, to index: Int) -> UInt64 {
    guard isAlive?() ?? true else { return self[index] }
    return bs_add(words + checked(index), value)
  }

  private func checked(_ index: Int) -> Int {
    precondition(index >= 0 && (index + 1) * 8 <= byteCount)
    return index
  }
}
