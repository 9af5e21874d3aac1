import BlobStorage

/// The catalog's row for a key of a cache.
package struct CachedKeyRow: Hashable, Sendable {
  /// Identifies a key by the first 16 bytes of its digest.
  package typealias ID = SIMD2<UInt64>

  package static func id(of key: [UInt8]) -> ID {
    let digest = BlobDigest.of(key.span.bytes, by: .blake3)
    return digest.withUnsafeBytes { $0.loadUnaligned(as: ID.self) }
  }

  /// Lower priorities are evicted first.
  package var priority: UInt8
  /// The ordinal of its last use among all uses.
  package var tick: UInt64
  /// Plain bytes of its value.
  package var byteCount: Int64
  package var digest: BlobDigest
  package var key: [UInt8]

  package init(priority: UInt8, tick: UInt64, byteCount: Int64, digest: BlobDigest, key: [UInt8]) {
    self.priority = priority
    self.tick = tick
    self.byteCount = byteCount
    self.digest = digest
    self.key = key
  }

  func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: 64 + key.count)
    writer.integer(priority)
    writer.integer(tick)
    writer.integer(byteCount)
    digest.withUnsafeBytes { writer.raw($0) }
    writer.integer(UInt16(key.count))
    writer.raw(key)
    return writer.bytes
  }

  init(_ bytes: UnsafeRawBufferPointer, algorithm: BlobDigest.Algorithm) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    priority = try reader.integer()
    tick = try reader.integer()
    byteCount = try reader.integer()
    guard byteCount >= 0 else {
      throw BlobStorageError(.catalogDamaged, "The catalog has a value of negative length.")
    }
    digest = BlobDigest(algorithm: algorithm, bytes: try reader.bytes(BlobDigest.byteCount))
    key = Array(try reader.bytes(Int(try reader.integer(UInt16.self))))
  }
}

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

  /// Sets the row of a key with that current version.
  func setCachedKey(_ key: [UInt8], _ current: VersionRow, tick: UInt64) throws(BlobStorageError) {
    let priority = CacheMark(metadata: current.metadata).priority.rawValue
    try setCachedKey(
      CachedKeyRow.id(of: key),
      CachedKeyRow(
        priority: priority, tick: tick, byteCount: current.byteCount, digest: current.digest, key: key))
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
    try setCacheIndexState(.none)
  }

  func setCacheIndexState(_ state: CacheIndexState) throws(BlobStorageError) {
    try setMeta(.cacheIndexed, state.rawValue)
  }
}
