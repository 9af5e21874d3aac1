import CLMDB

/// The catalog's tables. Catalog.md says what each contains.
package enum Table: Int, CaseIterable, Sendable {
  case meta, packs, packNumbers, chunks, manifests, names, versions, masks, features, bases
  case blobs, cacheKeys, cacheOrder, packGarbage

  var name: String { "\(self)" }
}

/// Reads the catalog: a snapshot, or a view, which is a snapshot with the rows that tails add. Not to leave its closure.
///
/// Every value is guarded by 16 bits of CRC32C over key and value: what the medium changed is `catalogDamaged`.
package class ReadTransaction {
  final let handle: OpaquePointer
  final let environment: Environment
  /// The rows that tails add.
  final let rows: TailRows?

  init(_ handle: OpaquePointer, of environment: Environment, rows: TailRows? = nil) {
    self.handle = handle
    self.environment = environment
    self.rows = rows
  }

  /// The number of the snapshot or change.
  final var id: Int { mdb_txn_id(handle) }

  /// The algorithm of all digests in the catalog.
  final var algorithm: Digest.Algorithm { environment.algorithm }
}

extension ReadTransaction {
  /// The same snapshot with the rows that tails add.
  func with(_ rows: TailRows) -> ReadTransaction { ReadTransaction(handle, of: environment, rows: rows) }

  func number(of table: Table) -> MDB_dbi { environment.tables[table.rawValue] }

  /// The value under `key`, borrowed until the next change in this transaction, or nil.
  func value(_ table: Table, _ key: UnsafeRawBufferPointer) throws(BlobStorageError)
    -> UnsafeRawBufferPointer?
  {
    if let rows, let row = rows.row(table, key) { return row.value }
    return try snapshotValue(table, key)
  }

  /// The same, without the rows that tails add.
  private func snapshotValue(
    _ table: Table, _ key: UnsafeRawBufferPointer
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer? {
    var keyValue = MDB_val(mv_size: key.count, mv_data: UnsafeMutableRawPointer(mutating: key.baseAddress))
    var found = MDB_val()
    let code = mdb_get(handle, number(of: table), &keyValue, &found)
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

  /// The number under `key`; nil when there is none.
  func number<T: FixedWidthInteger>(_ table: Table, _ key: UnsafeRawBufferPointer) throws(BlobStorageError)
    -> T?
  {
    guard let value = try value(table, key) else { return nil }
    var reader = ByteReader(value)
    return try reader.integer()
  }

  /// Calls `body` with the values whose key is a digest after `last`, in the order of digests, until it returns false.
  func scanDigests(
    _ table: Table, after last: Digest?,
    _ body: (Digest, UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let start = last?.withUnsafeBytes { Array($0) } ?? []
    try scan(table, from: start) { (key, value) throws(BlobStorageError) in
      if last != nil, key.elementsEqual(start) { return true }
      guard key.count == Digest.byteCount else {
        throw BlobStorageError(.catalogDamaged, "A key of the catalog's table \(table) is not a digest.")
      }
      return try body(Digest(algorithm: algorithm, bytes: key), value)
    }
  }

  /// How many values the table holds.
  func count(_ table: Table) throws(BlobStorageError) -> Int {
    var statistics = MDB_stat()
    try Environment.check(mdb_stat(handle, number(of: table), &statistics), "inspect")
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
  func scan(
    _ table: Table, from start: [UInt8] = [],
    _ body: (_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    try bridge(start) { (start) throws(BlobStorageError) in try scan(table, from: start, body) }
  }

  func scan(
    _ table: Table, from start: UnsafeRawBufferPointer,
    _ body: (_ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    var cursor: OpaquePointer?
    try Environment.check(mdb_cursor_open(handle, number(of: table), &cursor), "read")
    defer { mdb_cursor_close(cursor) }
    var key = MDB_val()
    var value = MDB_val()
    var code: Int32
    if start.isEmpty {
      code = mdb_cursor_get(cursor, &key, &value, MDB_FIRST)
    } else {
      key = MDB_val(mv_size: start.count, mv_data: UnsafeMutableRawPointer(mutating: start.baseAddress))
      code = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE)
    }
    var walk: SortedRows.Walk?
    if let added = rows?[table], !added.isEmpty { walk = added.walk(from: start) }
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
      return try ReadTransaction.guarded(table, key, found)
    }
  }

  func withCursor(
    _ table: Table, _ body: (Cursor) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var handle: OpaquePointer?
    try Environment.check(mdb_cursor_open(self.handle, number(of: table), &handle), "read")
    guard let handle else { throw Environment.failure(Environment.outOfMemory, "read") }
    defer { mdb_cursor_close(handle) }
    try body(Cursor(handle: handle, table: table, rows: rows))
  }

  fileprivate static func guarded(
    _ table: Table, _ key: UnsafeRawBufferPointer, _ found: MDB_val
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    let count = found.mv_size - 2
    guard count >= 0, let data = found.mv_data else {
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
