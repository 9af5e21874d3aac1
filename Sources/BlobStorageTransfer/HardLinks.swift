import BlobStorage

/// Files that an export writes under one of their names, and then gives the others.
struct HardLinks {
  /// A file that gets its bytes through another of its names.
  struct Follower {
    var version: BlobVersion
    /// The path of the one that is written.
    fileprivate var leader: [UInt8]
  }

  private struct Group: Hashable {
    var inode: UInt64
    var digest: BlobDigest
    var modified: FileTime
    // With the device.
    var attributes: FileAttributes
  }

  private let options: ExportOptions
  private var leaders: [Group: [UInt8]] = [:]
  private(set) var followers: [Follower] = []
  /// Paths of files with several names that are as they should be.
  private var wholePaths: Set<[UInt8]> = []

  init(_ options: ExportOptions) { self.options = options }

  /// Whether another name of the same file is written. If so, keeps the version for later.
  mutating func follows(_ version: BlobVersion) -> Bool {
    guard options.restoresAttributes, let mark = FileMark(metadata: version.metadata),
      var attributes = mark.attributes, attributes.device != nil
    else { return false }
    attributes.isNameEscaped = false
    let group = Group(
      inode: mark.inode, digest: version.digest, modified: mark.modified, attributes: attributes)
    if let leader = leaders[group] {
      followers.append(Follower(version: version, leader: leader))
      return true
    }
    leaders[group] = VersionWriter.path(of: version, options)
    return false
  }

  /// Remembers a file that is as it should be, if it has several names.
  mutating func insert(_ version: BlobVersion) {
    guard let attributes = FileMark(metadata: version.metadata)?.attributes, attributes.device != nil,
      let path = VersionWriter.path(of: version.key, attributes, options)
    else { return }
    wholePaths.insert(path)
  }

  /// Gives a file another of its names; nil if it must be written by itself.
  func link(
    _ follower: Follower, in folder: OutputFolder?
  ) throws(BlobStorageError) -> VersionWriter.Result? {
    guard let folder, wholePaths.contains(follower.leader),
      let path = VersionWriter.path(of: follower.version, options)
    else { return nil }
    do throws(BlobStorageError) {
      let written = try InputFolder(folder.path)
      var trail = FolderTrail()
      guard let leader = try written.status(of: follower.leader, through: &trail), leader.kind != .directory
      else {
        return nil
      }
      if let known = try written.status(of: path, through: &trail) {
        if known.identity == leader.identity { return .unchanged }
        if !options.overwrites { return nil }
      }
      try folder.createName(path, of: follower.leader, overwriting: options.overwrites)
      return .written(isComplete: true)
    } catch {
      // Some file systems have no hard links, and a path may have become another folder's.
      guard error.code == .io || error.code == .permissionDenied || error.code == .sourceFailed else {
        throw error
      }
      return nil
    }
  }
}
