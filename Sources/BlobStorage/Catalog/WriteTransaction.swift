import CLMDB

/// Changes rows as well: those of the database, in the one transaction of all processes that writes, or those that
/// tails add to a snapshot.
package final class WriteTransaction: ReadTransaction {
  /// Changes rows of tails over a snapshot.
  convenience init(_ rows: TailRows, over snapshot: ReadTransaction) {
    self.init(snapshot.handle, of: snapshot.environment, rows: rows)
  }
}

extension WriteTransaction {
  func put(_ table: Table, fixed key: some BitwiseCopyable, _ value: [UInt8]) throws(BlobStorageError) {
    try withUnsafeBytes(of: key) { (bytes) throws(BlobStorageError) in try put(table, bytes, value) }
  }

  func put(
    _ table: Table, fixed key: some BitwiseCopyable, _ value: some TableValue
  ) throws(BlobStorageError) {
    try withUnsafeBytes(of: key) { (bytes) throws(BlobStorageError) in try put(table, bytes, value) }
  }

  /// Puts a number, or removes it for nil.
  func setNumber(
    _ table: Table, _ key: UnsafeRawBufferPointer, _ number: (some FixedWidthInteger)?
  ) throws(BlobStorageError) {
    if let number {
      try withUnsafeBytes(of: number.littleEndian) { (value) throws(BlobStorageError) in
        try put(table, key, bytes: value)
      }
    } else {
      try remove(table, key)
    }
  }

  @discardableResult
  func remove(_ table: Table, fixed key: some BitwiseCopyable) throws(BlobStorageError) -> Bool {
    try withUnsafeBytes(of: key) { (bytes) throws(BlobStorageError) in try remove(table, bytes) }
  }

  func put(_ table: Table, _ key: UnsafeRawBufferPointer, _ value: [UInt8]) throws(BlobStorageError) {
    try bridge(value) { (value) throws(BlobStorageError) in try put(table, key, bytes: value) }
  }

  func put(
    _ table: Table, _ key: UnsafeRawBufferPointer, _ value: some TableValue
  ) throws(BlobStorageError) {
    try put(table, key, byteCount: value.encodedByteCount) { memory in
      var filler = ByteFiller(memory)
      value.encode(into: &filler)
      precondition(filler.remainingByteCount == 0, "a value is as long as it says")
    }
  }

  func put(
    _ table: Table, _ key: UnsafeRawBufferPointer, bytes value: UnsafeRawBufferPointer
  ) throws(BlobStorageError) {
    try put(table, key, byteCount: value.count) { $0.copyMemory(from: value) }
  }

  /// Puts a value that `fill` writes where it stays.
  private func put(
    _ table: Table, _ key: UnsafeRawBufferPointer, byteCount: Int,
    by fill: (UnsafeMutableRawBufferPointer) -> Void
  ) throws(BlobStorageError) {
    if let rows { return rows.set(table, key, byteCount: byteCount, by: fill) }
    if let keyByteCount = table.packedKeyByteCount {
      precondition(key.count == keyByteCount, "keys of a packed table have one length")
      return try withUnsafeTemporaryAllocation(byteCount: keyByteCount + byteCount + 2, alignment: 8) {
        (row) throws(BlobStorageError) in
        row.copyMemory(from: key)
        let value = UnsafeMutableRawBufferPointer(rebasing: row[keyByteCount..<keyByteCount + byteCount])
        fill(value)
        row.storeBytes(
          of: Self.guardValue(key, CRC32C.checksum(value.bytes)), toByteOffset: keyByteCount + byteCount,
          as: UInt16.self)
        try withHandle(table) { (handle) throws(BlobStorageError) in
          try PackedCursor(handle: handle, table: table, keyByteCount: keyByteCount)
            .put(UnsafeRawBufferPointer(row))
        }
      }
    }
    var keyValue = MDB_val(mv_size: key.count, mv_data: UnsafeMutableRawPointer(mutating: key.baseAddress))
    var place = MDB_val(mv_size: byteCount + 2, mv_data: nil)
    try Environment.check(
      mdb_put(handle, number(of: table), &keyValue, &place, UInt32(MDB_RESERVE)), "write to")
    guard let data = place.mv_data else { throw Environment.failure(Environment.outOfMemory, "write to") }
    let value = UnsafeMutableRawBufferPointer(start: data, count: byteCount)
    fill(value)
    data.storeBytes(
      of: Self.guardValue(key, CRC32C.checksum(value.bytes)), toByteOffset: byteCount,
      as: UInt16.self)
  }

  package func put(_ table: Table, _ key: [UInt8], _ value: [UInt8]) throws(BlobStorageError) {
    try bridge(key) { (bytes) throws(BlobStorageError) in try put(table, bytes, value) }
  }

  /// Removes what is under `key`; false when there was nothing.
  @discardableResult
  func remove(_ table: Table, _ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool {
    if let rows {
      guard try value(table, key) != nil else { return false }
      rows.remove(table, key)
      return true
    }
    if let keyByteCount = table.packedKeyByteCount {
      return try withHandle(table) { (handle) throws(BlobStorageError) in
        try PackedCursor(handle: handle, table: table, keyByteCount: keyByteCount).remove(key)
      }
    }
    var keyValue = MDB_val(mv_size: key.count, mv_data: UnsafeMutableRawPointer(mutating: key.baseAddress))
    let code = mdb_del(handle, number(of: table), &keyValue, nil)
    if code == MDB_NOTFOUND { return false }
    try Environment.check(code, "write to")
    return true
  }

  @discardableResult
  package func remove(_ table: Table, _ key: [UInt8]) throws(BlobStorageError) -> Bool {
    try bridge(key) { (bytes) throws(BlobStorageError) in try remove(table, bytes) }
  }
}
