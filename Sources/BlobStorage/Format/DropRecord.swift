/// A drop record: these versions of this key are gone. The key stands in the meta, the versions in the payload.
package struct DropRecord: Hashable, Sendable, RecordMeta {
  /// Bytes before the key.
  private static let fixedByteCount = 28

  package var key: [UInt8]
  /// When the drop was made.
  package var stamp: Stamp
  package var versions: [Stamp]
  /// Bytes of the pack that were known to be on the medium when the drop was appended.
  package var syncedByteCount: UInt32

  package init(key: [UInt8], stamp: Stamp, versions: [Stamp], syncedByteCount: UInt32 = 0) {
    self.syncedByteCount = syncedByteCount
    self.key = key
    self.stamp = stamp
    self.versions = versions
  }

  package var metaByteCount: Int { Self.fixedByteCount + key.count }

  /// Bytes of the whole record.
  package var recordByteCount: Int {
    RecordHeader.recordByteCount(
      metaByteCount: metaByteCount, payloadByteCount: versions.count * Stamp.byteCount)
  }

  package func encodeMeta(into filler: inout ByteFiller) {
    stamp.encode(into: &filler)
    filler.integer(UInt32(versions.count))
    filler.integer(syncedByteCount)
    filler.integer(UInt16(key.count))
    filler.zeros(2)
    filler.raw(key)
  }

  package func encodedPayload() -> [UInt8] {
    [UInt8](byteCount: versions.count * Stamp.byteCount) { filler in
      for version in versions { version.encode(into: &filler) }
    }
  }

  /// - Parameter payload: the record's payload, its checksum already checked.
  package init(meta: UnsafeRawBufferPointer, payload: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var reader = ByteReader(meta)
    stamp = try Stamp(from: &reader)
    let count = Int(try reader.integer(UInt32.self))
    syncedByteCount = try reader.integer()
    let keyByteCount = Int(try reader.integer(UInt16.self))
    try reader.reserved(2)
    guard 1...Limits.keyByteCountMax ~= keyByteCount, 1...Limits.dropVersionCountMax ~= count else {
      throw BlobStorageError(.corrupted, "A drop's counts are not possible.")
    }
    key = Array(try reader.bytes(keyByteCount))
    try reader.finish()
    var list = ByteReader(payload)
    versions = []
    versions.reserveCapacity(count)
    for _ in 0..<count { versions.append(try Stamp(from: &list)) }
    try list.finish()
    guard stamp != .none, !versions.contains(.none) else {
      throw BlobStorageError(.corrupted, "A drop's stamps are not possible.")
    }
  }
}
