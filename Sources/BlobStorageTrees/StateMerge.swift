import BlobStorage

/// Entries of several sources in the order of their keys. Of entries with one key, that of the first source counts.
struct StateMerge {
  private struct Head {
    var entry: StateEntry
    /// Which source it is of.
    var index: Int

    static func precedes(_ one: Head, _ other: Head) -> Bool {
      for (left, right) in zip(one.entry.key, other.entry.key) where left != right { return left < right }
      return one.entry.key.count != other.entry.key.count
        ? one.entry.key.count < other.entry.key.count : one.index < other.index
    }
  }

  private var readers: [StateEntryReader]
  /// A heap: no head comes before the one at half its index.
  private var heads: [Head] = []
  private var last: [UInt8]?
  private let keepsRemoved: Bool

  /// - Parameter keepsRemoved: whether keys that are removed are entries as well.
  init(_ readers: [StateEntryReader], keepsRemoved: Bool = false) throws(BlobStorageError) {
    self.readers = readers
    self.keepsRemoved = keepsRemoved
    for index in readers.indices {
      if let entry = try self.readers[index].next() { heads.append(Head(entry: entry, index: index)) }
    }
    heads.sort(by: Head.precedes)
  }

  /// The next entry; nil behind the last.
  mutating func next() throws(BlobStorageError) -> StateEntry? {
    while let head = heads.first {
      if let entry = try readers[head.index].next() {
        heads[0].entry = entry
      } else {
        let end = heads.removeLast()
        if !heads.isEmpty { heads[0] = end }
      }
      sink()
      if last == head.entry.key { continue }
      last = head.entry.key
      if keepsRemoved || head.entry.content != .removed { return head.entry }
    }
    return nil
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
