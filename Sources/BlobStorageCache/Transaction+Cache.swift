import BlobStorage

/// The rows of a cache: how recently each key was used, and how much of each pack has become garbage.
///
/// Unlike the rest of the catalog, a rebuild does not restore them: the cache makes them again, in the order of puts.
/// They only say where to look, and a removal checks again.
extension ReadTransaction {
  /// The row of a key.
  package func cachedKey(_ id: CachedKeyRow.ID) throws(BlobStorageError) -> CachedKeyRow? {
    guard let value = try value(.cacheKeys, Self.bytes(id)) else { return nil }
    return try CachedKeyRow(value, algorithm: algorithm)
  }

  /// The number of keys with rows.
  package func cachedKeyCount() throws(BlobStorageError) -> Int { try count(.cacheKeys) }

  /// Calls `body` with all keys, in the order of eviction, until it returns false.
  package func forEachCachedKey(
    _ body: (CachedKeyRow.ID, CachedKeyRow) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    try scan(.cacheOrder) { (key, _) throws(BlobStorageError) in
      guard key.count == 25 else {
        throw BlobStorageError(.catalogDamaged, "The catalog has a cached key without a place.")
      }
      let id = key.loadUnaligned(fromByteOffset: 9, as: CachedKeyRow.ID.self)
      guard let row = try cachedKey(id) else { return true }
      return try body(id, row)
    }
  }

  fileprivate static func bytes(_ id: CachedKeyRow.ID) -> [UInt8] { withUnsafeBytes(of: id) { Array($0) } }

  fileprivate static func orderKey(_ row: CachedKeyRow, _ id: CachedKeyRow.ID) -> [UInt8] {
    [row.priority] + withUnsafeBytes(of: row.tick.bigEndian) { Array($0) } + bytes(id)
  }
}

extension WriteTransaction {
  /// Sets or removes the row of a key.
  package func setCachedKey(_ id: CachedKeyRow.ID, _ row: CachedKeyRow?) throws(BlobStorageError) {
    if let old = try cachedKey(id) {
      try remove(.cacheOrder, Self.orderKey(old, id))
    }
    if let row {
      try put(.cacheKeys, Self.bytes(id), row.encoded())
      try put(.cacheOrder, Self.orderKey(row, id), [])
    } else {
      try remove(.cacheKeys, Self.bytes(id))
    }
  }

  /// The next tick, greater than all before.
  package func nextCacheTick() throws(BlobStorageError) -> UInt64 {
    try increment(.cacheTick)
  }

  /// Makes later ticks greater than this.
  package func raiseCacheTick(_ tick: UInt64) throws(BlobStorageError) {
    if tick > (try meta(.cacheTick)) { try setMeta(.cacheTick, tick) }
  }

  /// Forgets all keys. A later cache notes its own: it may have another prefix, and some keys will be put without it.
  package func forgetCachedKeys() throws(BlobStorageError) {
    for table in [Table.cacheKeys, .cacheOrder] { try removeAll(table) }
    try setCacheIndexed(.none)
  }

  package func setCacheIndexed(_ state: CacheIndexState = .complete) throws(BlobStorageError) {
    try setMeta(.cacheIndexed, state.rawValue)
  }
}
