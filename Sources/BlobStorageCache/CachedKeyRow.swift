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
    digest = BlobDigest(algorithm: algorithm, bytes: try reader.bytes(BlobDigest.byteCount))
    key = Array(try reader.bytes(Int(try reader.integer(UInt16.self))))
  }
}
