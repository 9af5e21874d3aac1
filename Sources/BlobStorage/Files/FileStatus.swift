/// What the system says about a name or an open file.
package struct FileStatus: Sendable, Hashable {
  /// What kind of thing it is.
  package enum Kind: Sendable, Hashable {
    case regular, directory, symbolicLink
    /// A named pipe, socket or device.
    case other
  }

  package var kind: Kind
  /// The length that reading sees.
  package var byteCount: Int64
  /// Bytes of the medium that it takes: less than `byteCount` for a file with holes.
  package var allocatedByteCount: Int64
  /// How many names it has; 0 once it was removed while open.
  package var linkCount: Int
  package var inode: UInt64
  package var device: UInt64
  package var modified: FileTime
  /// The lower twelve mode bits.
  package var permissions: UInt16

  /// A status of those values.
  package init(
    kind: Kind, byteCount: Int64, allocatedByteCount: Int64, linkCount: Int, inode: UInt64, device: UInt64,
    modified: FileTime, permissions: UInt16
  ) {
    self.kind = kind
    self.byteCount = byteCount
    self.allocatedByteCount = allocatedByteCount
    self.linkCount = linkCount
    self.inode = inode
    self.device = device
    self.modified = modified
    self.permissions = permissions
  }
}

/// A point in time as file systems keep it.
package struct FileTime: Sendable, Hashable {
  /// Seconds since 1970 in UTC; negative before.
  package var seconds: Int64
  /// 0..<1_000_000_000, always counted forward.
  package var nanoseconds: Int32

  /// A time of those values.
  package init(seconds: Int64, nanoseconds: Int32) {
    self.seconds = seconds
    self.nanoseconds = nanoseconds
  }
}
