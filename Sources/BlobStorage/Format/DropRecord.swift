/// An entry of a commit record: these versions of this key are gone.
package struct DropRecord: Hashable, Sendable {
  package var key: [UInt8]
  /// When the drop was made.
  package var stamp: Stamp
  package var versions: [Stamp]

  package init(key: [UInt8], stamp: Stamp, versions: [Stamp]) {
    self.key = key
    self.stamp = stamp
    self.versions = versions
  }

  /// Bytes of a commit record with the drop alone, about.
  package var recordByteCount: Int {
    RecordHeader.recordByteCount(
      metaByteCount: CommitRecord.typicalByteCount + key.count + versions.count * Stamp.byteCount)
  }
}
