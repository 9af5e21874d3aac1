import BlobStorage

/// Entries of several sources in the order of their keys. A source that cannot be read ends there, and stops no other.
struct StateMerge {
  struct Head {
    var entry: StateEntry
    /// Which source it is of.
    var index: Int

    fileprivate static func precedes(_ one: Head, _ other: Head) -> Bool {
      one.entry.key == other.entry.key ? one.index < other.index : one.entry.key.precedes(other.entry.key)
    }
  }

  private var readers: [StateEntryReader]
  /// A heap: no head comes before the one at half its index.
  private var heads: [Head] = []
  private var last: [UInt8]?
  /// The sources that could not be read to their end, and why.
  private(set) var failures: [(index: Int, error: BlobStorageError)] = []

  init(_ readers: [StateEntryReader]) {
    self.readers = readers
    for index in readers.indices {
      if let entry = next(of: index) { heads.append(Head(entry: entry, index: index)) }
    }
    heads.sort(by: Head.precedes)
  }

  /// The next entry of all sources together; nil behind the last. Of entries with one key, that of the first source counts.
  ///
  /// - Throws: what the reading of any source has thrown.
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

  /// All entries of the next key, by source; none behind the last.
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

  /// Moves the first head behind those that come before it.
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
