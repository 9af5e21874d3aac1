/// The meta of a ref record: this key got this version.
package struct RefRecord: Hashable, Sendable, RecordMeta {
  /// Bytes before the key.
  package static let fixedByteCount = 88

  package var key: [UInt8]
  package var version: Stamp
  /// The version that this one replaces, `.none` when it replaces nothing.
  package var replaced: Stamp
  package var digest: Digest
  package var byteCount: Int64
  /// Milliseconds since 1970 by the writer's wall clock.
  package var created: UInt64
  package var metadata: [UInt8]
  /// Bytes of its own pack that were on the medium when it was written; 0 when that is not known. What is
  /// missing before there is damage, behind it in a pack without footer it was never promised.
  package var syncedByteCount: UInt32

  package init(
    key: [UInt8], version: Stamp, replaced: Stamp, digest: Digest, byteCount: Int64, created: UInt64,
    metadata: [UInt8], syncedByteCount: UInt32 = 0
  ) {
    self.key = key
    self.version = version
    self.replaced = replaced
    self.digest = digest
    self.byteCount = byteCount
    self.created = created
    self.metadata = metadata
    self.syncedByteCount = syncedByteCount
  }

  /// Bytes of the meta.
  package static func metaByteCount(keyByteCount: Int, metadataByteCount: Int) -> Int {
    fixedByteCount + keyByteCount + metadataByteCount
  }

  /// Bytes of the whole record.
  package static func recordByteCount(keyByteCount: Int, metadataByteCount: Int) -> Int {
    RecordHeader.recordByteCount(
      metaByteCount: metaByteCount(keyByteCount: keyByteCount, metadataByteCount: metadataByteCount))
  }

  package var metaByteCount: Int {
    Self.metaByteCount(keyByteCount: key.count, metadataByteCount: metadata.count)
  }

  package func encodeMeta(into filler: inout ByteFiller) {
    version.encode(into: &filler)
    replaced.encode(into: &filler)
    filler.integer(created)
    filler.integer(byteCount)
    digest.withUnsafeBytes { filler.raw($0) }
    filler.integer(UInt16(key.count))
    filler.integer(UInt16(metadata.count))
    filler.integer(syncedByteCount)
    filler.raw(key)
    filler.raw(metadata)
  }

  package init(meta: UnsafeRawBufferPointer, algorithm: Digest.Algorithm) throws(BlobStorageError) {
    var reader = ByteReader(meta)
    version = try Stamp(from: &reader)
    replaced = try Stamp(from: &reader)
    created = try reader.integer()
    byteCount = try reader.integer()
    digest = Digest(algorithm: algorithm, bytes: try reader.bytes(Digest.byteCount))
    let keyByteCount = Int(try reader.integer(UInt16.self))
    let metadataByteCount = Int(try reader.integer(UInt16.self))
    syncedByteCount = try reader.integer()
    guard 1...Limits.keyByteCountMax ~= keyByteCount, metadataByteCount <= Limits.metadataByteCountMax,
      0...Limits.blobByteCountMax ~= byteCount, version != .none, replaced != version
    else { throw BlobStorageError(.corrupted, "A ref's fields are not possible.") }
    key = Array(try reader.bytes(keyByteCount))
    metadata = Array(try reader.bytes(metadataByteCount))
    try reader.finish()
  }
}
