import CLMDB

/// The catalog's tables. Catalog.md says what each contains.
package enum Table: Int, CaseIterable, Sendable {
  case meta, packs, packNumbers, chunks, manifests, names, versions, masks, features, bases
  case blobs, cacheKeys, cacheOrder, packGarbage

  var name: String { "\(self)" }
}

/// A snapshot of the catalog, or the one transaction that changes it. Not to leave its closure.
///
/// Every value is guarded by 16 bits of CRC32C over key and value: what the medium changed is `catalogDamaged`.
package struct Transaction {
  let handle: OpaquePointer
  let tables: [MDB_dbi]
  /// Shows which stamps are far ahead of the present.
  let wallClock: WallClock
  /// The rows that tails add.
  var rows: TailRows?
  /// Whether writes go to ``rows`` instead of the database.
  var writesRows = false

  /// The number of the snapshot or change.
  var id: Int { mdb_txn_id(handle) }

  /// The same snapshot with the rows that tails add.
  func with(_ rows: TailRows?) -> Transaction {
    var view = self
    view.rows = rows
    return view
  }

  /// The value under `key`, borrowed until the next change in this transaction, or nil.
  func value(_ table: Table, _ key: UnsafeRawBufferPointer) throws(BlobStorageError)
    -> UnsafeRawBufferPointer?
  {
    if let rows, let row = rows.row(table, key) { return row.value }
    var keyValue = MDB_val(mv_size: key.count, mv_data: UnsafeMutableRawPointer(mutating: key.baseAddress))
    var found = MDB_val()
    let code = mdb_get(handle, tables[table.rawValue], &keyValue, &found)
    if code == MDB_NOTFOUND { return nil }
    try Environment.check(code, "read")
    return try Self.guarded(table, key, found)
  }

  func value(_ table: Table, _ key: [UInt8]) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
    try bridge(key) { (bytes) throws(BlobStorageError) in try value(table, bytes) }
  }

  /// The value under a key of fixed length: numbers, the first byte being the most significant.
  func value(
    _ table: Table, fixed key: some BitwiseCopyable
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
    try withUnsafeBytes(of: key) { (bytes) throws(BlobStorageError) in try value(table, bytes) }
  }

  func put(_ table: Table, fixed key: some BitwiseCopyable, _ value: [UInt8]) throws(BlobStorageError) {
    try withUnsafeBytes(of: key) { (bytes) throws(BlobStorageError) in try put(table, bytes, value) }
  }

  @discardableResult
  func remove(_ table: Table, fixed key: some BitwiseCopyable) throws(BlobStorageError) -> Bool {
    try withUnsafeBytes(of: key) { (bytes) throws(BlobStorageError) in try remove(table, bytes) }
  }

  func put(_ table: Table, _ key: UnsafeRawBufferPointer, _ value: [UInt8]) throws(BlobStorageError) {
    try bridge(value) { (value) throws(BlobStorageError) in try put(table, key, bytes: value) }
  }

  func put(
    _ table: Table, _ key: UnsafeRawBufferPointer, bytes value: UnsafeRawBufferPointer
  ) throws(BlobStorageError) {
    if let rows {
      precondition(writesRows, "a view cannot be changed")
      return rows.set(table, key, value)
    }
    let guardValue = Self.guardValue(key, CRC32C.checksum(value))
    var keyValue = MDB_val(mv_size: key.count, mv_data: UnsafeMutableRawPointer(mutating: key.baseAddress))
    var place = MDB_val(mv_size: value.count + 2, mv_data: nil)
    try Environment.check(
      mdb_put(handle, tables[table.rawValue], &keyValue, &place, UInt32(MDB_RESERVE)), "write to")
    guard let data = place.mv_data else { throw Environment.failure(Environment.outOfMemory, "write to") }
    if let start = value.baseAddress { data.copyMemory(from: start, byteCount: value.count) }
    data.storeBytes(of: guardValue, toByteOffset: value.count, as: UInt16.self)
  }

  func put(_ table: Table, _ key: [UInt8], _ value: [UInt8]) throws(BlobStorageError) {
    try bridge(key) { (bytes) throws(BlobStorageError) in try put(table, bytes, value) }
  }

  /// Removes what is under `key`; false when there was nothing.
  @discardableResult
  func remove(_ table: Table, _ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool {
    if let rows {
      precondition(writesRows, "a view cannot be changed")
      guard try value(table, key) != nil else { return false }
      rows.set(table, key, nil)
      return true
    }
    var keyValue = MDB_val(mv_size: key.count, mv_data: UnsafeMutableRawPointer(mutating: key.baseAddress))
    let code = mdb_del(handle, tables[table.rawValue], &keyValue, nil)
    if code == MDB_NOTFOUND { return false }
    try Environment.check(code, "write to")
    return true
  }

  @discardableResult
  func remove(_ table: Table, _ key: [UInt8]) throws(BlobStorageError) -> Bool {
    try bridge(key) { (bytes) throws(BlobStorageError) in try remove(table, bytes) }
  }

  /// How many values the table holds.
  func count(_ table: Table) throws(BlobStorageError) -> Int {
    var statistics = MDB_stat()
    try Environment.check(mdb_stat(handle, tables[table.rawValue], &statistics), "inspect")
    guard let rows else { return statistics.ms_entries }
    var count = statistics.ms_entries
    let start = UnsafeRawBufferPointer(start: nil, count: 0)
    var walk = rows[table].walk(from: start)
    while let row = walk.row {
      let isThere = try with(nil).value(table, row.key) != nil
      count += (row.value != nil ? 1 : 0) - (isThere ? 1 : 0)
      walk.advance()
    }
    return count
  }

  /// Calls `body` with the values whose keys are at least `start`, in byte order, until it returns false.
  func scan(
    _ table: Table, from start: [UInt8] = [],
    _ body: (_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    var cursor: OpaquePointer?
    try Environment.check(mdb_cursor_open(handle, tables[table.rawValue], &cursor), "read")
    defer { mdb_cursor_close(cursor) }
    var key = MDB_val()
    var value = MDB_val()
    var code = try bridge(start) { (bytes) throws(BlobStorageError) -> Int32 in
      guard !bytes.isEmpty else { return mdb_cursor_get(cursor, &key, &value, MDB_FIRST) }
      key = MDB_val(mv_size: bytes.count, mv_data: UnsafeMutableRawPointer(mutating: bytes.baseAddress))
      return mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE)
    }
    var walk: SortedRows.Walk?
    if let added = rows?[table], !added.isEmpty {
      walk = start.withUnsafeBytes { added.walk(from: $0) }
    }
    while true {
      if code != MDB_NOTFOUND { try Environment.check(code, "read") }
      let keyBytes = UnsafeRawBufferPointer(start: key.mv_data, count: key.mv_size)
      if let row = walk?.row {
        let order = code == MDB_NOTFOUND ? -1 : SortedRows.order(row.key, keyBytes)
        if order <= 0 {
          walk?.advance()
          if let value = row.value, try !body(row.key, value) { return }
          // The row stands for the one in the database.
          if order == 0 { code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT) }
          continue
        }
      } else if code == MDB_NOTFOUND {
        return
      }
      guard try body(keyBytes, try Self.guarded(table, keyBytes, value)) else { return }
      code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)
    }
  }

  /// Looks up one value after the other in a table.
  struct Cursor {
    fileprivate let handle: OpaquePointer
    fileprivate let table: Table
    fileprivate let rows: TailRows?

    /// The value under `key`, borrowed until the transaction ends, or nil.
    func value(_ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
      if let rows, let row = rows.row(table, key) { return row.value }
      var keyValue = MDB_val(mv_size: key.count, mv_data: UnsafeMutableRawPointer(mutating: key.baseAddress))
      var found = MDB_val()
      let code = mdb_cursor_get(handle, &keyValue, &found, MDB_SET)
      if code == MDB_NOTFOUND { return nil }
      try Environment.check(code, "read")
      return try Transaction.guarded(table, key, found)
    }
  }

  func withCursor(
    _ table: Table, _ body: (Cursor) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var handle: OpaquePointer?
    try Environment.check(mdb_cursor_open(self.handle, tables[table.rawValue], &handle), "read")
    guard let handle else { throw Environment.failure(Environment.outOfMemory, "read") }
    defer { mdb_cursor_close(handle) }
    try body(Cursor(handle: handle, table: table, rows: rows))
  }

  private static func guarded(
    _ table: Table, _ key: UnsafeRawBufferPointer, _ found: MDB_val
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    let count = found.mv_size - 2
    guard count >= 0, let data = found.mv_data else {
      throw BlobStorageError(.catalogDamaged, "A value of the catalog's table \(table) is too short.")
    }
    let value = UnsafeRawBufferPointer(start: data, count: count)
    guard
      data.loadUnaligned(fromByteOffset: count, as: UInt16.self) == guardValue(key, CRC32C.checksum(value))
    else { throw BlobStorageError(.catalogDamaged, "A value of the catalog's table \(table) is damaged.") }
    return value
  }

  private static func guardValue(_ key: UnsafeRawBufferPointer, _ valueChecksum: UInt32) -> UInt16 {
    UInt16(truncatingIfNeeded: CRC32C.checksum(key, continuing: valueChecksum)).littleEndian
  }
}
