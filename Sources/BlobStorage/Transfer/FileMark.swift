/// What a ref's metadata says of the file that was imported: enough to know it again without reading it, and to
/// restore its time. Format.md, "Metadata of imported files".
package struct FileMark: Hashable {
  static let byteCount = 32
  private static let tag: [UInt8] = [0x46, 0x49, 0x4c, 0x31]  // FIL1

  var byteCount: Int64
  var modified: FileTime
  var inode: UInt64

  init(_ status: FileStatus) {
    byteCount = status.byteCount
    modified = status.modified
    inode = status.inode
  }

  /// The mark in a version's metadata, or nil when that is something else.
  package init?(metadata: [UInt8]) {
    guard metadata.count == Self.byteCount, metadata.starts(with: Self.tag) else { return nil }
    func field<T: FixedWidthInteger>(_ offset: Int, _ type: T.Type) -> T {
      metadata.withUnsafeBytes { T(littleEndian: $0.loadUnaligned(fromByteOffset: offset, as: T.self)) }
    }
    let nanoseconds = field(4, Int32.self)
    guard 0..<1_000_000_000 ~= nanoseconds else { return nil }
    byteCount = field(8, Int64.self)
    modified = FileTime(seconds: field(16, Int64.self), nanoseconds: nanoseconds)
    inode = field(24, UInt64.self)
  }

  package var metadata: [UInt8] {
    var writer = ByteWriter(capacity: Self.byteCount)
    writer.raw(Self.tag)
    writer.integer(modified.nanoseconds)
    writer.integer(byteCount)
    writer.integer(modified.seconds)
    writer.integer(inode)
    return writer.bytes
  }
}
