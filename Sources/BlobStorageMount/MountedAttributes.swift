import BlobStorage
import BlobStorageTransfer
import Foundation

/// What programs see of a file or folder besides its bytes.
package struct MountedAttributes: Hashable, Sendable {
  /// Kind and permissions, as in `stat`.
  package var mode: UInt32
  package var byteCount: Int64 = 0
  package var modified: FileTime
  package var user: UInt32
  package var group: UInt32

  /// The attributes of a version's file. An imported file has its original ones; any other has the time of its put.
  package static func attributes(of version: BlobVersion) -> MountedAttributes {
    let mark = FileMark(metadata: version.metadata)
    let kind = mark?.attributes?.kind == .link ? S_IFLNK : S_IFREG
    return MountedAttributes(
      kind, permissions: 0o444, mark, byteCount: max(version.byteCount, 0), modified: time(version.created))
  }

  /// Shows owners to root alone: other users could not read files that seem to have other owners.
  private init(
    _ kind: mode_t, permissions: UInt32, _ mark: FileMark?, byteCount: Int64, modified: FileTime
  ) {
    let attributes = mark?.attributes
    mode = UInt32(kind) | (attributes.map { UInt32($0.permissions) } ?? permissions)
    self.byteCount = byteCount
    self.modified = mark?.modified ?? modified
    let owner = geteuid() == 0 ? attributes?.owner : nil
    (user, group) = (owner?.user ?? geteuid(), owner?.group ?? getegid())
  }

  /// The attributes of a folder: the imported ones, or else the time of the mount.
  package static func folder(_ mark: FileMark?, mounted: FileTime) -> MountedAttributes {
    MountedAttributes(S_IFDIR, permissions: 0o555, mark, byteCount: 0, modified: mounted)
  }

  /// A time, limited to the years 1970 to 9999: a hostile store may have any.
  static func time(_ date: Date) -> FileTime {
    let milliseconds = (date.timeIntervalSince1970 * 1_000).rounded()
    return FileTime(millisecondsSince1970: UInt64(min(max(milliseconds, 0), 253_402_300_799_999)))
  }
}
