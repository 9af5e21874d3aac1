/// The status of a path or an open file.
package struct FileStatus: Sendable, Hashable {
  /// The kind of file.
  package enum Kind: Sendable, Hashable {
    case regular, directory, symbolicLink
    /// A named pipe, socket or device.
    case other
  }

  package var kind: Kind
  /// The length of the content.
  package var byteCount: Int64
  /// Allocated bytes on the medium: less than `byteCount` for a file with holes.
  package var allocatedByteCount: Int64
  /// The number of names; 0 once it was removed while open.
  package var linkCount: Int
  package var inode: UInt64
  package var device: UInt64
  package var modified: FileTime
  /// The last change of content, length or properties (ctime). Programs cannot set it.
  package var changed: FileTime
  /// The lower twelve mode bits.
  package var permissions: UInt16
  /// The numeric IDs of its owner and group.
  package var user: UInt32
  package var group: UInt32

  /// The file's identity on this machine.
  package var identity: FileIdentity { FileIdentity(device: device, inode: inode) }

  /// A status with these values.
  ///
  /// - Parameter changed: `modified` if nil.
  package init(
    kind: Kind, byteCount: Int64, allocatedByteCount: Int64, linkCount: Int, inode: UInt64, device: UInt64,
    modified: FileTime, changed: FileTime? = nil, permissions: UInt16, user: UInt32 = 0, group: UInt32 = 0
  ) {
    self.kind = kind
    self.byteCount = byteCount
    self.allocatedByteCount = allocatedByteCount
    self.linkCount = linkCount
    self.inode = inode
    self.device = device
    self.modified = modified
    self.changed = changed ?? modified
    self.permissions = permissions
    (self.user, self.group) = (user, group)
  }
}

/// Distinguishes files and folders of one machine, whatever their paths.
package struct FileIdentity: Hashable, Sendable {
  package var device: UInt64
  package var inode: UInt64
}

/// A point in time as file systems record it.
package struct FileTime: Sendable, Hashable, Comparable {
  /// Seconds since 1970 in UTC; negative before.
  package var seconds: Int64
  /// 0..<1_000_000_000, always forward in time.
  package var nanoseconds: Int32

  /// A time with these values.
  package init(seconds: Int64, nanoseconds: Int32) {
    self.seconds = seconds
    self.nanoseconds = nanoseconds
  }

  /// A time of a wall clock.
  package init(millisecondsSince1970 milliseconds: UInt64) {
    seconds = Int64(milliseconds / 1_000)
    nanoseconds = Int32(milliseconds % 1_000) * 1_000_000
  }

  package static func < (left: FileTime, right: FileTime) -> Bool {
    (left.seconds, left.nanoseconds) < (right.seconds, right.nanoseconds)
  }
}
