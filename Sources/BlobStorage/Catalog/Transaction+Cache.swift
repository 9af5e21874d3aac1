/// What a cache notes about its keys: how recently each was used, and how much of each pack has become garbage.
///
/// Unlike the rest of the catalog, a rebuild does not restore this: it is made again, in the order of puts. Nothing is
/// removed because of it alone: it says where to look, and a removal checks again.
extension ReadTransaction {
  /// What is noted of a key.
  package func cachedKey(_ id: CachedKeyRow.ID) throws(BlobStorageError) -> CachedKeyRow? {
    guard let value = try value(.cacheKeys, Self.bytes(id)) else { return nil }
    return try CachedKeyRow(value, algorithm: algorithm)
  }

  /// How many keys are noted.
  package func cachedKeyCount() throws(BlobStorageError) -> Int { try count(.cacheKeys) }

  /// Calls `body` with all keys, those to be evicted first first, until it returns false.
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

  /// Whether the keys of the cache were noted since the catalog was made.
  package func cacheIndexState() throws(BlobStorageError) -> CacheIndexState {
    CacheIndexState(rawValue: try meta(.cacheIndexed)) ?? .none
  }

  // MARK: Garbage

  /// Bytes of a pack's records that have become garbage, as far as was noticed.
  package func garbageByteCount(_ pack: UInt32) throws(BlobStorageError) -> Int64 {
    try withUnsafeBytes(of: pack.bigEndian) { (key) throws(BlobStorageError) in
      try number(.packGarbage, key) ?? 0
    }
  }

  fileprivate static func bytes(_ id: CachedKeyRow.ID) -> [UInt8] { withUnsafeBytes(of: id) { Array($0) } }

  fileprivate static func orderKey(_ row: CachedKeyRow, _ id: CachedKeyRow.ID) -> [UInt8] {
    [row.priority] + withUnsafeBytes(of: row.tick.bigEndian) { Array($0) } + bytes(id)
  }
}

extension WriteTransaction {
  /// Notes it, or forgets it.
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

  /// The next tick: greater than all before.
  package func nextCacheTick() throws(BlobStorageError) -> UInt64 {
    try increment(.cacheTick)
  }

  /// Has later ticks be greater than this.
  package func raiseCacheTick(_ tick: UInt64) throws(BlobStorageError) {
    if tick > (try meta(.cacheTick)) { try setMeta(.cacheTick, tick) }
  }

  package func setCacheIndexed(_ state: CacheIndexState = .complete) throws(BlobStorageError) {
    try setMeta(.cacheIndexed, state.rawValue)
  }

  /// Notes that a process has died, perhaps before it noted its keys.
  func setCacheLacksKeys() throws(BlobStorageError) {
    if try cacheIndexState() == .complete { try setCacheIndexed(.lacksKeys) }
  }

  // MARK: Garbage

  package func setGarbageByteCount(_ pack: UInt32, _ byteCount: Int64) throws(BlobStorageError) {
    try withUnsafeBytes(of: pack.bigEndian) { (key) throws(BlobStorageError) in
      try setNumber(.packGarbage, key, byteCount > 0 ? byteCount : nil)
    }
  }

  package func addGarbage(_ pack: UInt32, _ byteCount: Int64) throws(BlobStorageError) {
    try setGarbageByteCount(pack, try garbageByteCount(pack) + byteCount)
  }
}

/// Whether the cache's tables are complete.
package enum CacheIndexState: UInt64 {
  case none = 0
  /// All but the latest keys, which their processes still have to note.
  case complete = 1
  /// A process may have died before it noted its keys.
  case lacksKeys = 2
}

/// What a cache notes of one of its keys.
package struct CachedKeyRow: Hashable, Sendable {
  /// Names a key: the first 16 bytes of its digest.
  package typealias ID = SIMD2<UInt64>

  package static func id(of key: [UInt8]) -> ID {
    let digest = Digest.of(key.span.bytes, by: .blake3)
    return digest.withUnsafeBytes { $0.loadUnaligned(as: ID.self) }
  }

  /// Lower goes first.
  package var priority: UInt8
  /// When it was last used, in the order of all uses.
  package var tick: UInt64
  /// Plain bytes of its value.
  package var byteCount: Int64
  package var digest: Digest
  package var key: [UInt8]

  package init(priority: UInt8, tick: UInt64, byteCount: Int64, digest: Digest, key: [UInt8]) {
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

  init(_ bytes: UnsafeRawBufferPointer, algorithm: Digest.Algorithm) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    priority = try reader.integer()
    tick = try reader.integer()
    byteCount = try reader.integer()
    digest = Digest(algorithm: algorithm, bytes: try reader.bytes(Digest.byteCount))
    key = Array(try reader.bytes(Int(try reader.integer(UInt16.self))))
  }
}
