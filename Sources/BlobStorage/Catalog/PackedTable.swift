import CLMDB

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
