/// An entry of a commit record: drops these versions of a key.
package struct DropRecord: Hashable, Sendable {
  package var key: [UInt8]
  /// The time of the drop.
  package var stamp: Stamp
  package var versions: [Stamp]

  package init(key: [UInt8], stamp: Stamp, versions: [Stamp]) {
    self.key = key
    self.stamp = stamp
    self.versions = versions
  }

  /// The approximate length of a commit record with only this drop.
  package var recordByteCount: Int {
    RecordHeader.recordByteCount(
      metaByteCount: CommitRecord.typicalByteCount + key.count + versions.count * Stamp.byteCount)
  }
}
