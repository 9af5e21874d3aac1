import BlobStorage

/// Holds the entries of a state in memory, for lookups in any order.
///
/// - Complexity: memory: some 15 bytes for each entry, plus the end of its key that differs from the last one.
package struct StateIndex: Sendable {
  private struct Block {
    var first: [UInt8]
    var bytes: [UInt8]
  }

  private static let entryCountOfBlock = 128
  private var blocks: [Block] = []

  /// Reads all entries.
  package init(_ walk: StateWalk) throws(BlobStorageError) {
    var writer = StateEntryWriter()
    var (first, count): ([UInt8], Int) = ([], 0)
    while let entry = try walk.next() {
      if count == 0 { first = entry.key }
      writer.append(entry)
      count += 1
      guard count == Self.entryCountOfBlock else { continue }
      blocks.append(Block(first: first, bytes: writer.bytes))
      (writer, count) = (StateEntryWriter(), 0)
      try CancellationFlag.check()
    }
    if count > 0 { blocks.append(Block(first: first, bytes: writer.bytes)) }
  }

  /// The entry of a key.
  package func entry(_ key: [UInt8]) throws(BlobStorageError) -> StateEntry? {
    try entries(prefix: key, after: nil, limit: 1).first.flatMap { $0.key == key ? $0 : nil }
  }

  /// Up to `limit` entries whose keys begin with `prefix` and come after `place`.
  package func entries(
    prefix: [UInt8], after place: [UInt8]?, limit: Int
  ) throws(BlobStorageError) -> [StateEntry] {
    var found: [StateEntry] = []
    let start = place.map { $0.precedes(prefix) ? prefix : $0 } ?? prefix
    var index = max(0, indexOfBlock(after: start) - 1)
    while found.count < limit, index < blocks.count {
      var reader = StateEntryReader(blocks[index].bytes)
      while found.count < limit, let entry = try reader.next() {
        if entry.key.precedes(prefix) { continue }
        if let place, !place.precedes(entry.key) { continue }
        guard entry.key.starts(with: prefix) else { return found }
        found.append(entry)
      }
      index += 1
    }
    return found
  }

  /// The first block that begins after a key.
  private func indexOfBlock(after key: [UInt8]) -> Int {
    var (low, high) = (0, blocks.count)
    while low < high {
      let middle = (low + high) / 2
      if key.precedes(blocks[middle].first) { high = middle } else { low = middle + 1 }
    }
    return low
  }
}
