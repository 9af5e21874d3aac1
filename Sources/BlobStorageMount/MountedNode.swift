import BlobStorage

/// A file or folder of a mount.
///
/// A file is one version, whatever its path. When a key gets another version, its name leads to another node. So the
/// system may cache the bytes of a node for as long as it likes, and bytes of two versions never mix.
enum MountedNode: Sendable {
  case root
  case folder(tree: Int, [UInt8])
  case file(BlobVersion)

  enum Identity: Hashable {
    case root
    case folder(tree: Int, [UInt8])
    // In bytes: as strings, keys that differ only in their normalization would be equal.
    case file(key: [UInt8], BlobVersion.ID)
  }

  var identity: Identity {
    switch self {
    case .root: .root
    case .folder(let tree, let path): .folder(tree: tree, path)
    case .file(let version): .file(key: Array(version.key.utf8), version.id)
    }
  }

  /// A number for programs: always the same, and hardly ever that of another node.
  var inode: UInt64 {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325  // FNV-1a
    func add(_ bytes: some Sequence<UInt8>) {
      for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    }
    switch self {
    case .root: return 1
    case .folder(let tree, let path):
      add([UInt8(truncatingIfNeeded: tree)])
      add(path)
    case .file(let version):
      add(version.id.description.utf8)
      add(version.key.utf8)
    }
    return max(hash, 2)
  }
}
