import BlobStorage

/// Merges the entries of several sources in key order. An unreadable source ends at its error, and the others continue.
struct StateMerge {
  struct Head {
    var entry: StateEntry
    /// The index of its source.
    var index: Int

    fileprivate static func precedes(_ one: Head, _ other: Head) -> Bool {
      one.entry.key == other.entry.key ? one.index < other.index : one.entry.key.precedes(other.entry.key)
    }
  }

  private var readers: [StateEntryReader]
  /// A heap: no head comes before its parent.
  private var heads: [Head] = []
  private var last: [UInt8]?
  /// The sources that could not be read to their end, with the errors.
  private(set) var failures: [(index: Int, error: BlobStorageError)] = []

  init(_ readers: [StateEntryReader]) {
    self.readers = readers
    for index in readers.indices {
      if let entry = next(of: index) { heads.append(Head(entry: entry, index: index)) }
    }
    heads.sort(by: Head.precedes)
  }

  /// The next entry of all sources together; nil after the last. Among entries with one key, the first source's counts.
  ///
  /// - Throws: the first error of any source.
  mutating func next() throws(BlobStorageError) -> StateEntry? {
    while true {
      let head = removeFirst()
      if let failure = failures.first { throw failure.error }
      guard let head else { return nil }
      if last == head.entry.key { continue }
      last = head.entry.key
      if head.entry.content != .removed { return head.entry }
    }
  }

  /// All entries of the next key, by source; empty after the last.
  mutating func nextGroup() -> [Head] {
    guard let first = removeFirst() else { return [] }
    var group = [first]
    while let next = heads.first, next.entry.key == first.entry.key, let head = removeFirst() {
      group.append(head)
    }
    return group
  }

  private mutating func next(of index: Int) -> StateEntry? {
    do throws(BlobStorageError) { return try readers[index].next() } catch {
      failures.append((index, error))
      return nil
    }
  }

  private mutating func removeFirst() -> Head? {
    guard let head = heads.first else { return nil }
    if let entry = next(of: head.index) {
      heads[0].entry = entry
    } else {
      let end = heads.removeLast()
      if !heads.isEmpty { heads[0] = end }
    }
    sink()
    return head
  }

  /// Moves the first head down the heap to its place.
  private mutating func sink() {
    var index = 0
    while true {
      var least = index
      for child in [2 * index + 1, 2 * index + 2] where child < heads.count {
        if Head.precedes(heads[child], heads[least]) { least = child }
      }
      if least == index { return }
      heads.swapAt(index, least)
      index = least
    }
  }
}
