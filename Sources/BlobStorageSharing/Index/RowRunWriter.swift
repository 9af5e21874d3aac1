import BlobStorage

/// Writes a run: rows in byte order of their keys.
package struct RowRunWriter {
  /// The size at which a block ends.
  private static let blockByteCountTarget = 16 << 10

  /// The unfinished block of a level.
  private struct Level {
    var writer = ByteWriter(capacity: blockByteCountTarget + 4_096)
    var first: [UInt8] = []
    var count = 0
  }

  private var root: IndexRoot
  private let begin: (Int) throws(BlobStorageError) -> any File
  private let end: (Int, any File, Int64) throws(BlobStorageError) -> Void
  private var levels = [Level()]
  private var part: (file: any File, byteCount: Int64)?
  private var filter: RowFilterBuilder

  /// - Parameters:
  ///   - root: describes the index without its parts.
  ///   - keyCount: the approximate number of keys for the filter.
  ///   - begin: creates an empty file for a part.
  ///   - end: receives a finished part's file and length.
  package init(
    _ root: IndexRoot, keyCount: Int,
    begin: @escaping (Int) throws(BlobStorageError) -> any File,
    end: @escaping (Int, any File, Int64) throws(BlobStorageError) -> Void
  ) {
    self.root = root
    self.begin = begin
    self.end = end
    filter = RowFilterBuilder(
      keyCount: keyCount, byteCountMax: Int(IndexRoot.partByteCountMax))
  }

  /// Adds a row, whose key must follow all others.
  package mutating func add(
    _ table: Table, _ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer
  ) throws(BlobStorageError) {
    root.rowCount += 1
    try table.withNumbered(key) { (key) throws(BlobStorageError) in
      if table.isFiltered { filter.insert(key) }
      try add(key, value, level: 0)
    }
  }

  private mutating func add(
    _ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer, level: Int
  ) throws(BlobStorageError) {
    if level == levels.count { levels.append(Level()) }
    if levels[level].count == 0 { levels[level].first = Array(key) }
    levels[level].count += 1
    RunBlock.append(key, value, to: &levels[level].writer)
    if levels[level].writer.bytes.count >= Self.blockByteCountTarget { try endBlock(level) }
  }

  /// Writes a block, and adds its place to the level above.
  private mutating func endBlock(_ level: Int) throws(BlobStorageError) {
    let first = levels[level].first
    let place = try write(level)
    var value = ByteWriter(capacity: RunPlace.byteCount)
    place.encode(into: &value)
    try bridge(first) { (key) throws(BlobStorageError) in
      try bridge(value.bytes) { (value) throws(BlobStorageError) in try add(key, value, level: level + 1) }
    }
  }

  private mutating func write(_ level: Int) throws(BlobStorageError) -> RunPlace {
    levels[level].writer.checksum()
    let bytes = levels[level].writer.bytes
    levels[level] = Level()
    if let known = part, known.byteCount + Int64(bytes.count) > IndexRoot.partByteCountMax { try endPart() }
    if part == nil { part = (try begin(root.partByteCounts.count), 0) }
    guard var now = part else { preconditionFailure("a part was begun") }
    let place = RunPlace(
      part: UInt32(root.partByteCounts.count), offset: UInt64(now.byteCount), byteCount: UInt32(bytes.count))
    try now.file.put(bytes, at: now.byteCount)
    now.byteCount += Int64(bytes.count)
    part = now
    return place
  }

  private mutating func endPart() throws(BlobStorageError) {
    guard let now = part.take() else { return }
    try end(root.partByteCounts.count, now.file, now.byteCount)
    root.partByteCounts.append(now.byteCount)
  }

  /// Writes the remaining blocks and the filter, and returns the complete root. There must be at least one row.
  package mutating func finish() throws(BlobStorageError) -> IndexRoot {
    precondition(root.rowCount > 0, "an index has rows")
    var level = 0
    while level < levels.count - 1 {
      if levels[level].count > 0 { try endBlock(level) }
      level += 1
    }
    // The topmost level has one block.
    root.top = try write(level)
    root.height = UInt8(level)
    try endPart()
    filter.finish()
    root.filterPart = UInt32(root.partByteCounts.count)
    root.filterLineCount = UInt64(filter.lineCount)
    let file = try begin(root.partByteCounts.count)
    try file.put(filter.bytes, at: 0)
    part = (file, Int64(filter.bytes.count))
    try endPart()
    return root
  }
}

/// Builds the filter of a run.
struct RowFilterBuilder {
  private static let bitCountOfKey = 10

  private(set) var bytes: [UInt8]
  let lineCount: Int

  /// - Parameter byteCountMax: the maximum length, for any number of keys.
  init(keyCount: Int, byteCountMax: Int) {
    lineCount = max(
      1, min(keyCount * Self.bitCountOfKey / 8, byteCountMax) / IndexRoot.filterLineByteCount)
    bytes = [UInt8](repeating: 0, count: lineCount * IndexRoot.filterLineByteCount)
  }

  mutating func insert(_ key: UnsafeRawBufferPointer) {
    let (line, bits) = RowFilter.place(key, lineCount: lineCount)
    for bit in bits { bytes[line * IndexRoot.filterLineByteCount + Int(bit / 8)] |= 1 << (bit % 8) }
  }

  /// Writes the checksums.
  mutating func finish() {
    let count = IndexRoot.filterLineByteCount - RunBlock.checksumByteCount
    bytes.withUnsafeMutableBytes { bytes in
      for start in stride(from: 0, to: bytes.count, by: IndexRoot.filterLineByteCount) {
        let checksum = CRC32C.checksum(UnsafeRawBufferPointer(rebasing: bytes[start..<start + count]).bytes)
        bytes.storeBytes(of: checksum.littleEndian, toByteOffset: start + count, as: UInt32.self)
      }
    }
  }
}

extension ReadTransaction {
  /// Calls `body` with the rows of an index, in its order. The catalog must have all rows itself.
  func forEachIndexedRow(
    _ body: (Table, UnsafeRawBufferPointer, UnsafeRawBufferPointer) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    for table in Table.allCases.filter({ $0.isCopied || $0.hasOuterRows }).sorted(by: {
      $0.number < $1.number
    }) {
      try scan(table) { (key, value) throws(BlobStorageError) in
        try body(table, key, value)
        return true
      }
    }
  }

  /// The number of rows whose keys the filter holds.
  func filteredRowCount() throws(BlobStorageError) -> Int {
    var count = 0
    for table in Table.allCases where table.isFiltered { count += try self.count(table) }
    return count
  }
}
