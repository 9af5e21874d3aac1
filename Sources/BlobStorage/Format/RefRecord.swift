/// An entry of a commit record: gives a key a version.
package struct RefRecord: Hashable, Sendable {
  package var key: [UInt8]
  package var version: Stamp
  /// The version that this one replaces; `.none` if it replaces nothing.
  package var replaced: Stamp
  package var digest: BlobDigest
  package var byteCount: Int64
  /// Milliseconds since 1970 by the writer's wall clock.
  package var created: UInt64
  package var metadata: [UInt8]

  package init(
    key: [UInt8], version: Stamp, replaced: Stamp, digest: BlobDigest, byteCount: Int64, created: UInt64,
    metadata: [UInt8]
  ) {
    self.key = key
    self.version = version
    self.replaced = replaced
    self.digest = digest
    self.byteCount = byteCount
    self.created = created
    self.metadata = metadata
  }

  /// The approximate length of a commit record with only such a ref, which names its blob by place.
  package static func recordByteCount(keyByteCount: Int, metadataByteCount: Int) -> Int {
    let entry = CommitRecord.typicalByteCount + keyByteCount + metadataByteCount
    return RecordHeader.recordByteCount(metaByteCount: entry)
  }

  /// The most bytes that a ref adds to its pack: in its commit record, and in the footer, which repeats it.
  package static func packByteCountMax(keyByteCount: Int, metadataByteCount: Int) -> Int {
    2 * (RecordHeader.byteCountMax + CommitRecord.fixedByteCountMax + keyByteCount + metadataByteCount)
  }
}
