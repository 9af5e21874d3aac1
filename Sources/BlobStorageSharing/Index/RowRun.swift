import BlobStorage
import Synchronization

/// The rows of an index, in byte order of their keys. Blocks of rows are the leaves of a tree.
final class RowRun: Sendable {
  let root: IndexRoot
  private let parts: [any File]
  private let blocks = Mutex<[RunPlace: RunBlock]>([:])
  private let hasFailed = Atomic<Bool>(false)
  /// Whether a read found damage, or an object that is gone.
  var isDamaged: Bool { hasFailed.load(ordering: .relaxed) }
  /// The most blocks in memory, of 16 KiB each.
  private static let blockCountMax = 1_024

  init(_ root: IndexRoot, _ open: (PackName, Int64) -> any File) {
    self.root = root
    parts = root.partByteCounts.enumerated().map { open(root.partName($0), $1) }
  }

  deinit { for part in parts { part.close() } }

  private func part(_ number: UInt32) throws(BlobStorageError) -> any File {
    guard Int(number) < parts.count else { throw damaged("it names a part that it has not.") }
    return parts[Int(number)]
  }

  private func damaged(_ reason: String) -> BlobStorageError {
    hasFailed.store(true, ordering: .relaxed)
    return BlobStorageError(.catalogDamaged, "The store's index cannot be used: \(reason)")
  }

  /// Reads and decodes bytes of a part, and fetches them once more if they are damaged. If the object is gone or
  /// damaged, throws `catalogDamaged`: the catalog must be rebuilt.
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

  /// Whether the run may have a row with this key. Reads one line of the filter.
  func mayHave(_ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool {
    let (line, bits) = RowFilter.place(key, lineCount: Int(root.filterLineCount))
    let place = RunPlace(
      part: root.filterPart, offset: UInt64(line * IndexRoot.filterLineByteCount),
      byteCount: UInt32(IndexRoot.filterLineByteCount))
    return try read(place) { (bytes) throws(BlobStorageError) in
      guard bytes.count == IndexRoot.filterLineByteCount, bytes.withUnsafeBytes(\.endsWithChecksum) else {
        throw BlobStorageError(.corrupted, "A line of its filter does not match its checksum.")
      }
      return bits.allSatisfy { bytes[Int($0 / 8)] & 1 << ($0 % 8) != 0 }
    }
  }

  /// Finds the row with this key, and the block that owns its bytes; nil if there is none.
  func row(_ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> (row: RunBlock.Row, block: RunBlock)? {
    let walk = try Walk(self, from: key)
    guard let row = walk.row, SortedRows.order(row.key, key) == 0 else { return nil }
    return (row, walk.leaf)
  }

  /// Iterates over the rows from a key on.
  struct Walk {
    private let run: RowRun
    private var path: [(block: RunBlock, index: Int)] = []

    /// The block of the current row.
    var leaf: RunBlock { path[path.count - 1].block }

    /// The current row; nil at the end. Its bytes live as long as ``leaf``.
    var row: RunBlock.Row? {
      let (block, index) = path[path.count - 1]
      return index < block.count ? block[index] : nil
    }

    init(_ run: RowRun, from start: UnsafeRawBufferPointer) throws(BlobStorageError) {
      self.run = run
      var block = try run.block(run.root.top)
      for _ in 0..<run.root.height {
        // The last child that does not begin after `start`.
        var index = block.index(notBelow: start)
        if index == block.count || SortedRows.order(block[index].key, start) > 0 { index = max(0, index - 1) }
        path.append((block, index))
        block = try Self.child(block[index], run)
      }
      path.append((block, block.index(notBelow: start)))
      try leaveEnd()
    }

    private static func child(_ row: RunBlock.Row, _ run: RowRun) throws(BlobStorageError) -> RunBlock {
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
      path[path.count - 1].index += 1
      try leaveEnd()
    }

    /// Moves to the next block at the end of one.
    private mutating func leaveEnd() throws(BlobStorageError) {
      var level = path.count - 1
      while path[level].index >= path[level].block.count {
        guard level > 0 else { return restAtEnd() }
        level -= 1
        path[level].index += 1
      }
      while level < path.count - 1 {
        path[level + 1] = (try Self.child(path[level].block[path[level].index], run), 0)
        level += 1
      }
    }

    private mutating func restAtEnd() {
      let last = path.count - 1
      path[last].index = path[last].block.count
    }
  }
}
