import BlobStorage
import Synchronization

/// The index of a shared store: rows in byte order of their keys. Blocks of rows are the leaves of a tree. This machine
/// caches the blocks that it uses.
package final class RowIndex: OuterRows {
  /// The places of the rows.
  let place: IndexRoot
  private let onDistrust: @Sendable (IndexRoot) -> Void
  private let parts: [any File]
  private let blocks = Mutex<[RunPlace: RunBlock]>([:])
  private let hasFailed = Atomic<Bool>(false)
  package var isDamaged: Bool { hasFailed.load(ordering: .relaxed) }
  /// The most blocks in memory, of 16 KiB each.
  private static let blockCountMax = 1_024

  /// - Parameters:
  ///   - open: opens a part of known length.
  ///   - distrust: keeps later catalogs from relying on the index.
  package init(
    _ place: IndexRoot, open: @Sendable (PackName, Int64) -> any File,
    distrust: @escaping @Sendable (IndexRoot) -> Void
  ) {
    self.place = place
    onDistrust = distrust
    parts = place.partByteCounts.enumerated().map { open(place.partName($0), $1) }
  }

  deinit { for part in parts { part.close() } }

  package var root: [UInt8] { place.encoded }
  package func distrust() { onDistrust(place) }

  private func part(_ number: UInt32) throws(BlobStorageError) -> any File {
    guard Int(number) < parts.count else { throw damaged("it names a part that it has not.") }
    return parts[Int(number)]
  }

  private func damaged(_ reason: String) -> BlobStorageError {
    hasFailed.store(true, ordering: .relaxed)
    return BlobStorageError(.catalogDamaged, "The store's index cannot be used: \(reason)")
  }

  /// Reads and decodes bytes of a part, and fetches them once more if they are damaged.
  ///
  /// - Throws: `catalogDamaged` if the object is gone or damaged: the catalog must be rebuilt.
  private func read<T>(
    _ place: RunPlace, _ decode: ([UInt8]) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let file = try part(place.part)
    let (start, count) = (Int64(place.offset), Int(place.byteCount))
    do throws(BlobStorageError) {
      do throws(BlobStorageError) { return try decode(try file.bytesThere(at: start, count)) } catch {
        guard error.code == .corrupted, file.dropKept(start..<start + Int64(count)) else { throw error }
      }
      return try decode(try file.bytesThere(at: start, count))
    } catch {
      guard error.code == .packGone || error.code == .corrupted else { throw error }
      throw damaged(error.message)
    }
  }

  private func block(_ place: RunPlace) throws(BlobStorageError) -> RunBlock {
    if let known = blocks.withLock({ $0[place] }) { return known }
    guard place.byteCount <= RunBlock.byteCountMax, place.offset < 1 << 62 else {
      throw damaged("a block is too long.")
    }
    let block = try read(place) { (bytes) throws(BlobStorageError) in try RunBlock(bytes) }
    blocks.withLock { blocks in
      if blocks.count >= Self.blockCountMax { blocks.removeAll(keepingCapacity: true) }
      blocks[place] = block
    }
    return block
  }

  /// Whether there may be a row with this key. Reads one line of the filter.
  func mayHave(_ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool {
    let (line, bits) = RowFilter.place(key, lineCount: Int(place.filterLineCount))
    let linePlace = RunPlace(
      part: place.filterPart, offset: UInt64(line * IndexRoot.filterLineByteCount),
      byteCount: UInt32(IndexRoot.filterLineByteCount))
    return try read(linePlace) { (bytes) throws(BlobStorageError) in
      guard bytes.count == IndexRoot.filterLineByteCount, bytes.withUnsafeBytes(\.endsWithChecksum) else {
        throw BlobStorageError(.corrupted, "A line of its filter does not match its checksum.")
      }
      return bits.allSatisfy { bytes[Int($0 / 8)] & 1 << ($0 % 8) != 0 }
    }
  }

  package func row(
    _ table: Table, _ key: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> (value: UnsafeRawBufferPointer, owner: AnyObject)? {
    try table.withNumbered(key) {
      (key) throws(BlobStorageError) -> (value: UnsafeRawBufferPointer, owner: AnyObject)? in
      if table.isFiltered, try !mayHave(key) { return nil }
      let walk = try Walk(self, from: key)
      guard let row = walk.row, SortedRows.order(row.key, key) == 0 else { return nil }
      return (row.value, walk.leaf)
    }
  }

  package func walk(
    _ table: Table, from start: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> any RowSteps {
    try table.withNumbered(start) { (key) throws(BlobStorageError) in
      Steps(walk: try Walk(self, from: key), table: table.number)
    }
  }

  /// Iterates over the rows of one table.
  private struct Steps: RowSteps {
    var walk: Walk
    let table: UInt8

    var row: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)? {
      guard let row = walk.row, row.key.first == table else { return nil }
      return (UnsafeRawBufferPointer(rebasing: row.key.dropFirst()), row.value)
    }

    mutating func advance() throws(BlobStorageError) { try walk.advance() }
  }

  /// Iterates over the rows from a key on.
  struct Walk {
    private let run: RowIndex
    private var path: [(block: RunBlock, index: Int)] = []

    /// The block of the current row.
    var leaf: RunBlock { path[path.count - 1].block }

    /// The current row; nil at the end. Its bytes live as long as ``leaf``.
    var row: RunBlock.Row? {
      let (block, index) = path[path.count - 1]
      return index < block.count ? block[index] : nil
    }

    init(_ run: RowIndex, from start: UnsafeRawBufferPointer) throws(BlobStorageError) {
      self.run = run
      var block = try run.block(run.place.top)
      for _ in 0..<run.place.height {
        // The last child that does not begin after `start`.
        var index = block.index(notBelow: start)
        if index == block.count || SortedRows.order(block[index].key, start) > 0 { index = max(0, index - 1) }
        path.append((block, index))
        block = try Self.child(block[index], run)
      }
      path.append((block, block.index(notBelow: start)))
      try leaveEnd()
    }

    private static func child(_ row: RunBlock.Row, _ run: RowIndex) throws(BlobStorageError) -> RunBlock {
      guard row.value.count == RunPlace.byteCount else { throw run.damaged("a block names no other.") }
      var reader = ByteReader(row.value)
      let block = try run.block(try RunPlace(&reader))
      // This check ensures that no two rows name one block.
      guard SortedRows.order(block[0].key, row.key) == 0 else {
        throw run.damaged("a block does not begin as another says.")
      }
      return block
    }

    mutating func advance() throws(BlobStorageError) {
      let (block, index) = path[path.count - 1]
      path[path.count - 1].index += 1
      guard index + 1 >= block.count else { return }
      try leaveEnd()
      // A few overlapping blocks could name each other in so many ways that a walk would never end.
      guard index < block.count, let row, SortedRows.order(block[index].key, row.key) >= 0 else { return }
      throw run.damaged("its blocks overlap.")
    }

    /// Moves to the next block at the end of one.
    private mutating func leaveEnd() throws(BlobStorageError) {
      var level = path.count - 1
      while path[level].index >= path[level].block.count {
        guard level > 0 else {
          // Rest at the end.
          path[path.count - 1].index = path[path.count - 1].block.count
          return
        }
        level -= 1
        path[level].index += 1
      }
      while level < path.count - 1 {
        path[level + 1] = (try Self.child(path[level].block[path[level].index], run), 0)
        level += 1
      }
    }
  }
}

extension Table {
  /// Whether lookups often ask for absent rows, so that a filter saves requests.
  var isFiltered: Bool {
    switch self {
    case .chunks, .manifests, .names, .bases: true
    default: false
    }
  }

  /// Whether a catalog that adopts an index copies all rows of the table.
  var isCopied: Bool { self == .meta || self == .packs || self == .packNumbers }
}
