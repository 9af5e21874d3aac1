import CLMDB

/// The catalog's tables. Catalog.md says what each contains.
package enum Table: Int, CaseIterable, Sendable {
  case meta, packs, packNumbers, chunks, chunkBases, manifests, names, versions, masks, features, bases
  case blobs, cacheKeys, cacheOrder, packGarbage
  /// Keys of outer rows that were removed.
  case removed

  var name: String { "\(self)" }
}

/// Reads the catalog: a snapshot, or a view, which is a snapshot with the rows that tails add. It must not leave its
/// closure.
///
/// Every value is guarded by 16 bits of CRC32C over key and value. A checksum mismatch throws `catalogDamaged`.
package class ReadTransaction {
  final let handle: OpaquePointer
  final let database: Database
  /// The rows that tails add.
  final let rows: TailRows?
  /// The owners of the outer rows that were lent last.
  private final var lent: [AnyObject] = []
  private static let lentCountMax = 256

  init(_ handle: OpaquePointer, of database: Database, rows: TailRows? = nil) {
    self.handle = handle
    self.database = database
    self.rows = rows
  }

  /// The number of the snapshot or change.
  final var id: Int { mdb_txn_id(handle) }

  /// The algorithm of all digests in the catalog.
  package final var algorithm: BlobDigest.Algorithm { database.algorithm }

  /// The value of an outer row under `key`; nil if the row does not exist or was removed. The value stays valid until
  /// outer rows of 128 other owners have been lent.
  fileprivate final func outerValue(
    _ table: Table, _ key: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
    guard table.hasOuterRows, let outer = database.outerRows else { return nil }
    if try isRemoved(table, key) { return nil }
    guard let (value, owner) = try outer.row(table, key) else { return nil }
    if lent.last !== owner {
      if lent.count == Self.lentCountMax { lent.removeFirst(Self.lentCountMax / 2) }
      lent.append(owner)
    }
    return value
  }
}

extension ReadTransaction {
  /// The same snapshot with the rows that tails add.
  func with(_ rows: TailRows) -> ReadTransaction { ReadTransaction(handle, of: database, rows: rows) }

  func number(of table: Table) -> MDB_dbi { database.tables[table.rawValue] }

  /// The value under `key`, borrowed until the next change in this transaction, or nil.
  package func value(_ table: Table, _ key: UnsafeRawBufferPointer) throws(BlobStorageError)
    -> UnsafeRawBufferPointer?
  {
    if let rows, let row = rows.row(table, key) { return row.value }
    if let value = try snapshotValue(table, key) { return value }
    return try outerValue(table, key)
  }

  /// Whether an outer row was removed.
  func isRemoved(_ table: Table, _ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool {
    try table.withNumbered(key) { (key) throws(BlobStorageError) in
      try snapshotValue(.removed, key) != nil
    }
  }

  /// The value under `key` in the database alone, without the rows of tails and outer rows.
  private func snapshotValue(
    _ table: Table, _ key: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
    if let keyByteCount = table.packedKeyByteCount {
      return try withHandle(table) { (handle) throws(BlobStorageError) in
        let cursor = PackedCursor(handle: handle, table: table, keyByteCount: keyByteCount)
        guard let row = try cursor.row(key) else { return nil }
        return try Self.guarded(table, key, cursor.value(row))
      }
    }
    var keyValue = MDB_val(mv_size: key.count, mv_data: UnsafeMutableRawPointer(mutating: key.baseAddress))
    var found = MDB_val()
    let code = mdb_get(handle, number(of: table), &keyValue, &found)
    if code == MDB_NOTFOUND { return nil }
    try Database.check(code, "read")
    return try Self.guarded(
      table, key, UnsafeRawBufferPointer(start: found.mv_data, count: found.mv_size))
  }

  /// Calls `body` with an LMDB cursor, and closes the cursor afterwards.
  func withHandle<T>(
    _ table: Table, _ body: (OpaquePointer) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    var cursor: OpaquePointer?
    try Database.check(mdb_cursor_open(handle, number(of: table), &cursor), "read")
    guard let cursor else { throw Database.failure(Database.outOfMemory, "read") }
    defer { mdb_cursor_close(cursor) }
    return try body(cursor)
  }

  package func value(_ table: Table, _ key: [UInt8]) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
    try bridge(key) { (bytes) throws(BlobStorageError) in try value(table, bytes) }
  }

  /// The value under a key of fixed length, which consists of big-endian numbers.
  func value(
    _ table: Table, fixed key: some BitwiseCopyable
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
    try withUnsafeBytes(of: key) { (bytes) throws(BlobStorageError) in try value(table, bytes) }
  }

  /// The number under `key`; nil if there is none.
  func number<T: FixedWidthInteger>(_ table: Table, _ key: UnsafeRawBufferPointer) throws(BlobStorageError)
    -> T?
  {
    guard let value = try value(table, key) else { return nil }
    var reader = ByteReader(value)
    return try reader.integer()
  }

  /// Calls `body` with the values whose key is a digest after `last`, in the order of digests, until it returns false.
  func scanDigests(
    _ table: Table, after last: BlobDigest?, ownOnly: Bool = false,
    _ body: (BlobDigest, UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let start = last?.withUnsafeBytes { Array($0) } ?? []
    try scan(table, from: start, ownOnly: ownOnly) { (key, value) throws(BlobStorageError) in
      if last != nil, key.elementsEqual(start) { return true }
      guard key.count == BlobDigest.byteCount else {
        throw BlobStorageError(.catalogDamaged, "A key of the catalog's table \(table) is not a digest.")
      }
      return try body(BlobDigest(algorithm: algorithm, bytes: key), value)
    }
  }

  /// The number of a table's rows in the database and in tails, without outer rows.
  package func count(_ table: Table) throws(BlobStorageError) -> Int {
    var statistics = MDB_stat()
    try Database.check(mdb_stat(handle, number(of: table), &statistics), "inspect")
    guard let rows else { return statistics.ms_entries }
    var count = statistics.ms_entries
    let start = UnsafeRawBufferPointer(start: nil, count: 0)
    var walk = rows[table].walk(from: start)
    while let row = walk.row {
      let isThere = try snapshotValue(table, row.key) != nil
      count += (row.value != nil ? 1 : 0) - (isThere ? 1 : 0)
      walk.advance()
    }
    return count
  }

  /// Calls `body` with the values whose keys are at least `start`, in byte order, until it returns false.
  ///
  /// - Parameter ownOnly: whether to leave out outer rows.
  package func scan(
    _ table: Table, from start: [UInt8] = [], ownOnly: Bool = false,
    _ body: (_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    try bridge(start) { (start) throws(BlobStorageError) in
      try scan(table, from: start, ownOnly: ownOnly, body)
    }
  }

  func scan(
    _ table: Table, from start: UnsafeRawBufferPointer, ownOnly: Bool = false,
    _ body: (_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    if !ownOnly, table.hasOuterRows, let outer = database.outerRows {
      return try merge(table, outer, from: start, body)
    }
    try withHandle(table) { (handle) throws(BlobStorageError) in
      var own = try OwnSteps(handle, table, from: start)
      var walk: SortedRows.Walk?
      if let added = rows?[table], !added.isEmpty { walk = added.walk(from: start) }
      while true {
        if let row = walk?.row {
          let order = own.row.map { SortedRows.order(row.key, $0.key) } ?? -1
          if order <= 0 {
            walk?.advance()
            if let value = row.value, try !body(row.key, value) { return }
            // The tail's row replaces the one in the database.
            if order == 0 { try own.advance() }
            continue
          }
        }
        guard let row = own.row, let value = row.value, try body(row.key, value) else { return }
        try own.advance()
      }
    }
  }

  /// Merges the rows of a table from tails, from the database and from outer rows. Calls `body` with them in byte order
  /// of their keys, until it returns false.
  private func merge(
    _ table: Table, _ outer: any OuterRows, from start: UnsafeRawBufferPointer,
    _ body: (_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    // Among rows with the same key the first source has priority. A row without a value was removed.
    try withHandle(table) { (own) throws(BlobStorageError) in
      try withHandle(.removed) { (removed) throws(BlobStorageError) in
        var sources: [any RowSteps] = [
          try OwnSteps(own, table, from: start), try RemovedSteps(removed, table, from: start),
          try outer.walk(table, from: start),
        ]
        if let added = rows?[table], !added.isEmpty {
          sources.insert(TailSteps(walk: added.walk(from: start)), at: 0)
        }
        while true {
          var first: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)?
          for source in sources {
            guard let row = source.row else { continue }
            if let key = first?.key, SortedRows.order(row.key, key) >= 0 { continue }
            first = row
          }
          guard let first else { return }
          if let value = first.value, try !body(first.key, value) { return }
          // `first` borrows from a source, so that source advances last.
          var last: Int?
          for index in sources.indices {
            guard let row = sources[index].row, SortedRows.order(row.key, first.key) == 0 else { continue }
            if row.key.baseAddress == first.key.baseAddress {
              last = index
            } else {
              try sources[index].advance()
            }
          }
          if let last { try sources[last].advance() }
        }
      }
    }
  }

  /// The rows that tails add to a table, or remove from it.
  private struct TailSteps: RowSteps {
    var walk: SortedRows.Walk

    var row: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)? {
      walk.row.map { ($0.key, $0.value) }
    }

    mutating func advance() { walk.advance() }
  }

  /// The rows of a table in the database.
  private struct OwnSteps: RowSteps {
    private let handle: OpaquePointer
    private let table: Table
    private let packed: PackedCursor?
    private(set) var row: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)?

    init(_ handle: OpaquePointer, _ table: Table, from start: UnsafeRawBufferPointer) throws(BlobStorageError)
    {
      self.handle = handle
      self.table = table
      packed = table.packedKeyByteCount.map {
        PackedCursor(handle: handle, table: table, keyByteCount: $0)
      }
      try move(to: start)
    }

    mutating func advance() throws(BlobStorageError) { try move(to: nil) }

    /// Moves to the first row whose key is at least `start`, or to the next row.
    private mutating func move(to start: UnsafeRawBufferPointer?) throws(BlobStorageError) {
      row = nil
      if let packed {
        let found = if let start { try packed.row(from: start) } else { try packed.next() }
        if let found { try set(packed.key(found), packed.value(found)) }
        return
      }
      var (key, value) = (MDB_val(), MDB_val())
      if let start {
        key = MDB_val(mv_size: start.count, mv_data: UnsafeMutableRawPointer(mutating: start.baseAddress))
      }
      let step = start.map { $0.isEmpty ? MDB_FIRST : MDB_SET_RANGE } ?? MDB_NEXT
      let code = mdb_cursor_get(handle, &key, &value, step)
      if code == MDB_NOTFOUND { return }
      try Database.check(code, "read")
      try set(
        UnsafeRawBufferPointer(start: key.mv_data, count: key.mv_size),
        UnsafeRawBufferPointer(start: value.mv_data, count: value.mv_size))
    }

    /// - Parameter value: includes the guard.
    private mutating func set(
      _ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer
    ) throws(BlobStorageError) {
      row = (key, try ReadTransaction.guarded(table, key, value))
    }
  }

  /// The outer rows of a table that were removed.
  private struct RemovedSteps: RowSteps {
    private var steps: OwnSteps
    private let table: UInt8

    init(_ handle: OpaquePointer, _ table: Table, from start: UnsafeRawBufferPointer) throws(BlobStorageError)
    {
      self.table = table.number
      steps = try table.withNumbered(start) { (key) throws(BlobStorageError) in
        try OwnSteps(handle, .removed, from: key)
      }
    }

    var row: (key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?)? {
      guard let key = steps.row?.key, key.first == table else { return nil }
      return (UnsafeRawBufferPointer(rebasing: key.dropFirst()), nil)
    }

    mutating func advance() throws(BlobStorageError) { try steps.advance() }
  }

  /// Looks up values in a packed table one after the other.
  struct PackedLookUp {
    private let cursor: PackedCursor
    private let transaction: ReadTransaction
    /// The rows of the page that was visited last.
    private var page = UnsafeRawBufferPointer(start: nil, count: 0)
    private var rowByteCount = 1

    init(_ cursor: PackedCursor, _ transaction: ReadTransaction) {
      self.cursor = cursor
      self.transaction = transaction
    }

    /// The value under `key`, borrowed until the transaction ends, or nil. For keys in order, the tree is descended
    /// only once per page.
    mutating func value(_ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
      if let row = transaction.rows?.row(cursor.table, key) { return row.value }
      if let value = try ownValue(key) { return value }
      return try transaction.outerValue(cursor.table, key)
    }

    private mutating func ownValue(
      _ key: UnsafeRawBufferPointer
    ) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
      var index = place(of: key)
      if index == 0 || index == page.count / rowByteCount {
        // The key may belong to another page, unless it lies between two rows of this one.
        guard let row = try cursor.row(from: key) else { return nil }
        page = try cursor.page(of: row)
        rowByteCount = row.count
        index = place(of: key)
      }
      guard (index + 1) * rowByteCount <= page.count else { return nil }
      let row = self.row(index)
      guard SortedRows.order(cursor.key(row), key) == 0 else { return nil }
      return try ReadTransaction.guarded(cursor.table, key, cursor.value(row))
    }

    /// The index of the page's first row whose key is at least `key`.
    private func place(of key: UnsafeRawBufferPointer) -> Int {
      var (low, high) = (0, page.count / rowByteCount)
      while low < high {
        let middle = (low + high) / 2
        if SortedRows.order(cursor.key(row(middle)), key) < 0 { low = middle + 1 } else { high = middle }
      }
      return low
    }

    private func row(_ index: Int) -> UnsafeRawBufferPointer {
      UnsafeRawBufferPointer(rebasing: page[index * rowByteCount..<(index + 1) * rowByteCount])
    }
  }

  fileprivate static func guarded(
    _ table: Table, _ key: UnsafeRawBufferPointer, _ found: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    let count = found.count - 2
    guard count >= 0, let data = found.baseAddress else {
      throw BlobStorageError(.catalogDamaged, "A value of the catalog's table \(table) is too short.")
    }
    let value = UnsafeRawBufferPointer(start: data, count: count)
    guard
      data.loadUnaligned(fromByteOffset: count, as: UInt16.self)
        == guardValue(key, CRC32C.checksum(value.bytes))
    else { throw BlobStorageError(.catalogDamaged, "A value of the catalog's table \(table) is damaged.") }
    return value
  }

  static func guardValue(_ key: UnsafeRawBufferPointer, _ valueChecksum: UInt32) -> UInt16 {
    UInt16(truncatingIfNeeded: CRC32C.checksum(key.bytes, continuing: valueChecksum)).littleEndian
  }
}

/// Packed tables, whose rows all have one length. LMDB keeps the rows as the sorted values of a single key
/// (`MDB_DUPFIXED`). They lie side by side in a page and save the ten bytes of overhead of any other row.
extension Table {
  /// Bytes of each key of a packed table; nil for other tables.
  var packedKeyByteCount: Int? {
    switch self {
    case .chunks: BlobDigest.byteCount
    case .chunkBases: 8
    default: nil
    }
  }

  /// The flags with which LMDB creates the table.
  var flags: UInt32 { packedKeyByteCount == nil ? 0 : UInt32(MDB_DUPSORT | MDB_DUPFIXED) }
}

/// A cursor of a packed table. Its owner closes it.
struct PackedCursor {
  let handle: OpaquePointer
  let table: Table
  let keyByteCount: Int

  /// The first row that is at least `start`.
  func row(from start: UnsafeRawBufferPointer) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
    // LMDB does not accept an empty value.
    if start.isEmpty {
      return try withUnsafeBytes(of: 0 as UInt8) { (zero) throws(BlobStorageError) in try row(from: zero) }
    }
    return try Self.withGroup { (group) throws(BlobStorageError) in
      var found = MDB_val(
        mv_size: start.count, mv_data: UnsafeMutableRawPointer(mutating: start.baseAddress))
      return try row(mdb_cursor_get(handle, &group, &found, MDB_GET_BOTH_RANGE), found)
    }
  }

  /// The row with this key.
  func row(_ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
    guard let row = try row(from: key), SortedRows.order(self.key(row), key) == 0 else { return nil }
    return row
  }

  /// The row after the one that was found last.
  func next() throws(BlobStorageError) -> UnsafeRawBufferPointer? {
    var (group, found) = (MDB_val(), MDB_val())
    return try row(mdb_cursor_get(handle, &group, &found, MDB_NEXT_DUP), found)
  }

  /// All rows on the page of the row that was found last, side by side.
  func page(of row: UnsafeRawBufferPointer) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    var group = MDB_val()
    // For a table of one row LMDB returns no page, and this row stays.
    var found = MDB_val(mv_size: row.count, mv_data: UnsafeMutableRawPointer(mutating: row.baseAddress))
    try Database.check(mdb_cursor_get(handle, &group, &found, MDB_GET_MULTIPLE), "read")
    return UnsafeRawBufferPointer(start: found.mv_data, count: found.mv_size)
  }

  /// Puts a row, and replaces the row with the same key.
  func put(_ row: UnsafeRawBufferPointer) throws(BlobStorageError) {
    try remove(key(row))
    try Self.withGroup { (group) throws(BlobStorageError) in
      var added = MDB_val(mv_size: row.count, mv_data: UnsafeMutableRawPointer(mutating: row.baseAddress))
      try Database.check(mdb_cursor_put(handle, &group, &added, 0), "write to")
    }
  }

  /// Removes the row with this key; false if there is none.
  @discardableResult
  func remove(_ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool {
    guard try row(key) != nil else { return false }
    try Database.check(mdb_cursor_del(handle, 0), "write to")
    return true
  }

  func key(_ row: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(rebasing: row[..<keyByteCount])
  }

  /// The value of a row, with its guard.
  func value(_ row: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(rebasing: row[keyByteCount...])
  }

  private func row(_ code: Int32, _ found: MDB_val) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
    if code == MDB_NOTFOUND { return nil }
    try Database.check(code, "read")
    guard found.mv_size > keyByteCount else {
      throw BlobStorageError(.catalogDamaged, "A row of the catalog's table \(table) is too short.")
    }
    return UnsafeRawBufferPointer(start: found.mv_data, count: found.mv_size)
  }

  /// Calls `body` with the single key, a zero.
  private static func withGroup<T>(
    _ body: (inout MDB_val) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    try withUnsafeBytes(of: 0 as UInt8) { (zero) throws(BlobStorageError) in
      var group = MDB_val(mv_size: 1, mv_data: UnsafeMutableRawPointer(mutating: zero.baseAddress))
      return try body(&group)
    }
  }
}
