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
  }

  /// A row and the beginning of its key, which decides most comparisons alone.
  private struct Place {
    let beginning: UInt128
    let row: Row
  }

  private static let blockCountMax = 128
  private var blocks: [ContiguousArray<Place>] = []
  /// The beginning of each block's first key. They lie side by side, so that the search for a block touches few cache
  /// lines of the processor.
  private var beginnings: [UInt128] = []

  package init() {}

  package var isEmpty: Bool { blocks.isEmpty }

  package func row(_ key: UnsafeRawBufferPointer) -> Row? {
    if blocks.isEmpty { return nil }
    let (block, index, isFound) = place(key, Self.beginning(key))
    return isFound ? blocks[block][index].row : nil
  }

  /// Sets a row whose value outlives this collection. Keeps a new key as the bytes that `kept` returns.
  package mutating func set(
    _ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer?,
    keepingKey kept: (UnsafeRawBufferPointer) -> UnsafeRawBufferPointer
  ) {
    let beginning = Self.beginning(key)
    if blocks.isEmpty {
      blocks.append([Place(beginning: beginning, row: Row(key: kept(key), value: value))])
      beginnings.append(beginning)
      return
    }
    let (block, index, isFound) = place(key, beginning)
    if isFound {
      let known = blocks[block][index].row.key
      blocks[block][index] = Place(beginning: beginning, row: Row(key: known, value: value))
      return
    }
    if index == 0 { beginnings[block] = beginning }
    blocks[block].insert(Place(beginning: beginning, row: Row(key: kept(key), value: value)), at: index)
    guard blocks[block].count > Self.blockCountMax else { return }
    let half = blocks[block].count / 2
    var upper = ContiguousArray<Place>()
    upper.reserveCapacity(Self.blockCountMax + 1)
    upper += blocks[block][half...]
    blocks[block].removeSubrange(half...)
    blocks.insert(upper, at: block + 1)
    beginnings.insert(upper[0].beginning, at: block + 1)
  }

  /// The first 16 bytes as a number, padded with zeros. Where two numbers differ, they are ordered as their keys.
  private static func beginning(_ key: UnsafeRawBufferPointer) -> UInt128 {
    if key.count >= 16 { return UInt128(bigEndian: key.loadUnaligned(as: UInt128.self)) }
    var number: UInt128 = 0
    withUnsafeMutableBytes(of: &number) { $0.copyMemory(from: key) }
    return UInt128(bigEndian: number)
  }

  private static func order(
    _ one: Place, _ key: UnsafeRawBufferPointer, _ beginning: UInt128
  ) -> Int {
    if one.beginning != beginning { return one.beginning < beginning ? -1 : 1 }
    return order(one.row.key, key)
  }

  /// Returns where the key is, or where it would be inserted. At least one block exists.
  private func place(
    _ key: UnsafeRawBufferPointer, _ beginning: UInt128
  ) -> (block: Int, index: Int, isFound: Bool) {
    // The last block whose first key is at most `key`, or the first block.
    var (low, high) = (0, blocks.count)
    while low < high {
      let middle = (low + high) / 2
      let first = beginnings[middle]
      let isBefore =
        first != beginning ? first < beginning : Self.order(blocks[middle][0].row.key, key) <= 0
      if isBefore { low = middle + 1 } else { high = middle }
    }
    let block = max(0, low - 1)
    return blocks[block].withUnsafeBufferPointer { places in
      var (low, high) = (0, places.count)
      while low < high {
        let middle = (low + high) / 2
        let order = Self.order(places[middle], key, beginning)
        if order == 0 { return (block, middle, true) }
        if order < 0 { low = middle + 1 } else { high = middle }
      }
      return (block, low, false)
    }
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

  /// Walks the rows from a key onwards.
  package struct Walk {
    private let rows: SortedRows
    private var block: Int
    private var index: Int

    fileprivate init(_ rows: SortedRows, from start: UnsafeRawBufferPointer) {
      self.rows = rows
      (block, index) = (0, 0)
      guard !rows.isEmpty else { return }
      (block, index, _) = rows.place(start, SortedRows.beginning(start))
      skipEnd()
    }

    /// The current row; nil at the end.
    package var row: Row? { block < rows.blocks.count ? rows.blocks[block][index].row : nil }

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
    let place = next(byteCount: bytes.count)
    place.copyMemory(from: bytes)
    return UnsafeRawBufferPointer(place)
  }

  /// Memory for that many bytes, which lives as long as this object.
  func next(byteCount: Int) -> UnsafeMutableRawBufferPointer {
    if rest.count < byteCount {
      let blockByteCount = max(byteCount, Self.blockByteCount)
      let block = UnsafeMutableRawPointer.allocate(byteCount: blockByteCount, alignment: 8)
      blocks.append(block)
      rest = UnsafeMutableRawBufferPointer(start: block, count: blockByteCount)
    }
    let place = UnsafeMutableRawBufferPointer(rebasing: rest[..<byteCount])
    rest = UnsafeMutableRawBufferPointer(rebasing: rest[byteCount...])
    return place
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

  func row(_ table: Table, _ key: UnsafeRawBufferPointer) -> SortedRows.Row? {
    tables[table.rawValue].row(key)
  }

  /// Sets a row whose value `fill` writes.
  func set(
    _ table: Table, _ key: UnsafeRawBufferPointer, byteCount: Int,
    by fill: (UnsafeMutableRawBufferPointer) -> Void
  ) {
    let value = memory.next(byteCount: byteCount)
    fill(value)
    tables[table.rawValue].set(key, UnsafeRawBufferPointer(value)) { memory.copy($0) }
  }

  /// Marks a row as removed.
  func remove(_ table: Table, _ key: UnsafeRawBufferPointer) {
    tables[table.rawValue].set(key, nil) { memory.copy($0) }
  }
}
