import BlobStorage
import BlobStorageTransfer
import Foundation

/// What programs see of a file or folder beside its bytes.
package struct MountedAttributes: Hashable, Sendable {
  /// Kind and permissions, as in `stat`.
  package var mode: UInt32
  package var byteCount: Int64 = 0
  package var modified: FileTime
  package var user: UInt32
  package var group: UInt32

  /// The attributes of a version's file. An imported file has the time that it had; any other, that of its put.
  package static func attributes(of version: BlobVersion) -> MountedAttributes {
    let modified = FileMark(metadata: version.metadata)?.modified ?? time(version.created)
    return MountedAttributes(
      mode: UInt32(S_IFREG) | 0o444, byteCount: max(version.byteCount, 0), modified: modified,
      user: geteuid(),
      group: getegid())
  }

  /// The attributes of a folder. The store knows no times of folders: all have that of the mount.
  package static func folder(mounted: FileTime) -> MountedAttributes {
    MountedAttributes(mode: UInt32(S_IFDIR) | 0o555, modified: mounted, user: geteuid(), group: getegid())
  }

  /// A time of the years from 1970 to 9999: a hostile store may have any.
  static func time(_ date: Date) -> FileTime {
    let milliseconds = (date.timeIntervalSince1970 * 1_000).rounded()
    return FileTime(millisecondsSince1970: UInt64(min(max(milliseconds, 0), 253_402_300_799_999)))
  }
}
