import CBlobKernels

/// Maps a part of a file as memory shared by processes: 64-bit words, each loaded and stored atomically.
///
/// Check every word that another process may have stored.
package final class SharedMemory: @unchecked Sendable {
  // Unchecked: only atomic operations access the words.
  private let words: UnsafeMutablePointer<UInt64>
  private let byteCount: Int
  #if DEBUG || WEAKNESSES
    private let process: (any Process)?
  #else
    private var process: (any Process)? { nil }
  #endif
  /// The object that owns the mapping, if it is not this one.
  private let owner: SharedMemory?

  /// For tests: intercepts a process's access to the shared memory, so that the process can die at each word. Release
  /// builds ignore it, like ``Weaknesses``.
  package protocol Process: Sendable {
    /// Called before each load.
    func willLoad(_ index: Int)
    /// Calls `store`, unless the process is dead.
    func store(_ value: UInt64, at index: Int, _ store: () -> Void)
  }

  /// Takes ownership of the mapping.
  init(words: UnsafeMutablePointer<UInt64>, byteCount: Int) {
    self.words = words
    self.byteCount = byteCount
    #if DEBUG || WEAKNESSES
      process = nil
    #endif
    owner = nil
  }

  /// The same memory, accessed through `process`.
  package init(_ other: SharedMemory, of process: any Process) {
    words = other.words
    byteCount = other.byteCount
    #if DEBUG || WEAKNESSES
      self.process = process
    #endif
    owner = other
  }

  deinit { if owner == nil { bs_unmap(words, byteCount) } }

  /// A load sees everything that the storing thread did before its store.
  package subscript(_ index: Int) -> UInt64 {
    get {
      process?.willLoad(index)
      return bs_load(words + checked(index))
    }
    set { stored(newValue, at: index) { bs_store(words + checked(index), newValue) } }
  }

  /// Stores a word before every later load of this thread.
  func storeFirst(_ value: UInt64, at index: Int) {
    stored(value, at: index) { bs_store_first(words + checked(index), value) }
  }

  /// Adds to a word; returns the sum.
  @discardableResult
  func add(_ value: UInt64, to index: Int) -> UInt64 {
    var sum: UInt64 = 0
    stored(value, at: index) { sum = bs_add(words + checked(index), value) }
    return sum
  }

  private func stored(_ value: UInt64, at index: Int, _ store: () -> Void) {
    if let process { process.store(value, at: index, store) } else { store() }
  }

  private func checked(_ index: Int) -> Int {
    precondition(index >= 0 && (index + 1) * 8 <= byteCount)
    return index
  }
}
