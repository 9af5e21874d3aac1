import BlobStorage
import SystemPackage

/// Keeps the folders from a root down to a file open for the next file, so that neighbours in a tree cost few system
/// calls.
///
/// Opens every folder relative to its parent. The trail still leads through an open folder that was moved away, so use
/// a trail for a short run of files. For use by one thread. Descriptors: one for each level.
package struct FolderTrail: ~Copyable {
  private struct Level {
    let folder: OwnedDescriptor
    /// The length of the folder's path in `path`.
    let pathByteCount: Int
  }

  private static let separator = UInt8(ascii: "/")
  private var root: OwnedDescriptor?
  /// The path of the last level.
  private var path: ArraySlice<UInt8> = []
  private var levels: [Level] = []

  package init() {}

  /// Whether a path names something below a folder, without a detour: no part of it is empty, `.` or `..`.
  package static func leadsDown(_ path: [UInt8]) -> Bool {
    let dot = UInt8(ascii: ".")
    var partByteCount = 0
    var dotCount = 0
    for byte in path {
      if byte == separator {
        if partByteCount == dotCount, partByteCount <= 2 { return false }
        (partByteCount, dotCount) = (0, 0)
      } else {
        if byte == 0 { return false }
        partByteCount += 1
        if byte == dot { dotCount += 1 }
      }
    }
    return partByteCount > dotCount || partByteCount > 2
  }

  /// The last component of a path, as a C string.
  static func name(in path: [UInt8]) -> [CChar] {
    [CChar](terminating: path[(path.lastIndex(of: separator).map { $0 + 1 } ?? 0)...])
  }

  /// The folder that contains a file.
  ///
  /// - Parameters:
  ///   - path: the file's path below the root; ``leadsDown(_:)`` must hold for it.
  ///   - open: opens the folder of that name in its parent.
  mutating func folder(
    of path: [UInt8], below root: OwnedDescriptor,
    opening open: (
      _ above: OwnedDescriptor, _ name: [CChar], _ path: ArraySlice<UInt8>
    ) throws(BlobStorageError) -> OwnedDescriptor
  ) throws(BlobStorageError) -> OwnedDescriptor {
    if self.root !== root { (self.root, levels) = (root, []) }
    let end = path.lastIndex(of: Self.separator) ?? 0
    let sameCount = zip(self.path, path).prefix { $0 == $1 }.count
    levels.removeAll { $0.pathByteCount > min(sameCount, end) || path[$0.pathByteCount] != Self.separator }
    self.path = path[..<end]
    var current = levels.last?.folder ?? root
    var start = levels.last.map { $0.pathByteCount + 1 } ?? 0
    while start < end {
      let stop = path[start...].firstIndex(of: Self.separator) ?? end
      current = try open(current, [CChar](terminating: path[start..<stop]), path[..<stop])
      levels.append(Level(folder: current, pathByteCount: stop))
      start = stop + 1
    }
    return current
  }
}
