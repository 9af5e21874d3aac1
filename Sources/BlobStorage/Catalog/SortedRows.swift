import Foundation

/// Rows of one table that the database lacks, in byte order of their keys. A removed row has no value.
///
/// Two levels: an array of blocks with a bounded number of rows each. A copy shares its blocks with the original until
/// one of them changes.
package struct SortedRows {
  /// A row. The bytes lie in a ``RowMemory`` that lives at least as long.
  package struct Row {
    package let key: UnsafeRawBufferPointer
    /// Nil if the row was removed.
    package let value: UnsafeRawBufferPointer?

    package init(key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?) {
      self.key = key
      self.value = value
    }
  }

  private static let blockCountMax = 128
  private var blocks: [ContiguousArray<Row>] = []

  package init() {}

  package var isEmpty: Bool { blocks.isEmpty }

  package func row(_ key: UnsafeRawBufferPointer) -> Row? {
    let place = self.place(key)
    return place.isFound ? blocks[place.block][place.index] : nil
  }

  package mutating func set(_ row: Row) {
    let (block, index, isFound) = place(row.key)
    if isFound {
      blocks[block][index] = row
    } else if blocks.isEmpty {
      blocks.append([row])
    } else {
      blocks[block].insert(row, at: index)
      guard blocks[block].count > Self.blockCountMax else { return }
      let half = blocks[block].count / 2
      let upper = ContiguousArray(blocks[block][half...])
      blocks[block].removeSubrange(half...)
      blocks.insert(upper, at: block + 1)
    }
  }

  /// Where the key is, or where it would be inserted.
  private func place(_ key: UnsafeRawBufferPointer) -> (block: Int, index: Int, isFound: Bool) {
    if blocks.isEmpty { return (0, 0, false) }
    // The last block whose first key is not greater, or the first block.
    var (low, high) = (0, blocks.count)
    while low < high {
      let middle = (low + high) / 2
      if Self.order(blocks[middle][0].key, key) <= 0 { low = middle + 1 } else { high = middle }
    }
    let block = max(0, low - 1)
    (low, high) = (0, blocks[block].count)
    while low < high {
      let middle = (low + high) / 2
      let order = Self.order(blocks[block][middle].key, key)
      if order == 0 { return (block, middle, true) }
      if order < 0 { low = middle + 1 } else { high = middle }
    }
    return (block, low, false)
  }

  /// Less than, equal to or greater than 0, as LMDB compares keys.
  package static func order(_ one: UnsafeRawBufferPointer, _ other: UnsafeRawBufferPointer) -> Int {
    let count = min(one.count, other.count)
    if count > 0, let first = one.baseAddress, let second = other.baseAddress {
      let order = memcmp(first, second, count)
      if order != 0 { return Int(order) }
    }
    return one.count - other.count
  }

  /// Walks the rows from a key on.
  package struct Walk {
    private let rows: SortedRows
    private var block: Int
    private var index: Int

    fileprivate init(_ rows: SortedRows, from start: UnsafeRawBufferPointer) {
      self.rows = rows
      (block, index, _) = rows.place(start)
      skipEnd()
    }

    /// The row that the walk has come to; nil at the end.
    package var row: Row? { block < rows.blocks.count ? rows.blocks[block][index] : nil }

    package mutating func advance() {
      index += 1
      skipEnd()
    }

    private mutating func skipEnd() {
      if block < rows.blocks.count, index >= rows.blocks[block].count { (block, index) = (block + 1, 0) }
    }
  }

  package func walk(from start: UnsafeRawBufferPointer) -> Walk { Walk(self, from: start) }
}

/// Memory for the bytes of rows. It is freed as a whole.
package final class RowMemory {
  private static let blockByteCount = 64 << 10
  private var blocks: [UnsafeMutableRawPointer] = []
  private var rest = UnsafeMutableRawBufferPointer(start: nil, count: 0)

  package init() {}

  deinit { for block in blocks { block.deallocate() } }

  /// A copy of the bytes that lives as long as this object.
  package func copy(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
    if bytes.isEmpty { return UnsafeRawBufferPointer(start: nil, count: 0) }
    if rest.count < bytes.count {
      let byteCount = max(bytes.count, Self.blockByteCount)
      let block = UnsafeMutableRawPointer.allocate(byteCount: byteCount, alignment: 8)
      blocks.append(block)
      rest = UnsafeMutableRawBufferPointer(start: block, count: byteCount)
    }
    let place = UnsafeMutableRawBufferPointer(rebasing: rest[..<bytes.count])
    place.copyMemory(from: bytes)
    rest = UnsafeMutableRawBufferPointer(rebasing: rest[bytes.count...])
    return UnsafeRawBufferPointer(place)
  }
}

/// The rows that settling the tails would write, one collection for each table.
final class TailRows: @unchecked Sendable {
  // Unchecked: only the owner of the sole reference changes it, under the lock of ``Tails``.
  private var tables: [SortedRows]
  private let memory: RowMemory

  init() {
    tables = Table.allCases.map { _ in SortedRows() }
    memory = RowMemory()
  }

  /// A copy that can be changed while the original is read.
  init(copying other: TailRows) {
    tables = other.tables
    memory = other.memory
  }

  subscript(_ table: Table) -> SortedRows { tables[table.rawValue] }

  func set(_ table: Table, _ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer?) {
    let key = tables[table.rawValue].row(key)?.key ?? memory.copy(key)
    tables[table.rawValue].set(SortedRows.Row(key: key, value: value.map(memory.copy)))
  }
}
