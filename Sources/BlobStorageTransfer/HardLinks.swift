import BlobStorage

/// Tracks files with several names: an export writes one name and links the others to it.
struct HardLinks {
  /// Another name of a file that the export writes elsewhere.
  struct Follower {
    var version: BlobVersion
    /// The path of the name that is written.
    fileprivate var leader: [UInt8]
  }

  private struct Group: Hashable {
    var inode: UInt64
    var digest: BlobDigest
    var modified: FileTime
    // Includes the device.
    var attributes: FileAttributes
  }

  private let options: ExportOptions
  private var leaders: [Group: [UInt8]] = [:]
  private(set) var followers: [Follower] = []
  /// Paths of complete files with several names.
  private var wholePaths: Set<[UInt8]> = []
  /// For each leader that could not be written, the name that was written in its place.
  private var successors: [[UInt8]: [UInt8]] = [:]

  init(_ options: ExportOptions) { self.options = options }

  /// Whether the export writes another name of the same file. If so, keeps the version for later.
  mutating func follows(_ version: BlobVersion) -> Bool {
    guard options.restoresAttributes, let mark = FileMark(metadata: version.metadata),
      var attributes = mark.attributes, attributes.device != nil,
      let path = VersionWriter.path(of: version, options), !VersionWriter.isOwn(path)
    else { return false }
    attributes.isNameEscaped = false
    let group = Group(
      inode: mark.inode, digest: version.digest, modified: mark.modified, attributes: attributes)
    if let leader = leaders[group] {
      followers.append(Follower(version: version, leader: leader))
      return true
    }
    leaders[group] = path
    return false
  }

  /// Remembers the path of a complete file that has several names.
  mutating func insert(_ version: BlobVersion) {
    guard let attributes = FileMark(metadata: version.metadata)?.attributes, attributes.device != nil,
      let path = VersionWriter.path(of: version.key, attributes, options)
    else { return }
    wholePaths.insert(path)
  }

  /// Makes a follower that was written by itself the leader of the next ones, if theirs could not be written.
  mutating func lead(_ follower: Follower) {
    guard !wholePaths.contains(follower.leader),
      let path = VersionWriter.path(of: follower.version, options), wholePaths.contains(path)
    else { return }
    successors[follower.leader] = path
  }

  /// Links a follower to its leader; nil if it must be written by itself.
  func link(
    _ follower: Follower, in folder: OutputFolder?
  ) throws(BlobStorageError) -> VersionWriter.Result? {
    let leaderPath = successors[follower.leader] ?? follower.leader
    guard let folder, wholePaths.contains(leaderPath),
      let path = VersionWriter.path(of: follower.version, options)
    else { return nil }
    do throws(BlobStorageError) {
      let written = try InputFolder(folder.path)
      var trail = FolderTrail()
      guard let leader = try written.status(of: leaderPath, through: &trail), leader.kind != .directory
      else {
        return nil
      }
      if let known = try written.status(of: path, through: &trail) {
        if known.identity == leader.identity { return .unchanged }
        if !options.overwrites { return nil }
      }
      try folder.createName(path, of: leaderPath, overwriting: options.overwrites)
      return .written(isComplete: true)
    } catch {
      // Some file systems have no hard links, and something else may have replaced a folder on the way.
      guard error.code == .io || error.code == .permissionDenied || error.code == .sourceFailed else {
        throw error
      }
      return nil
    }
  }
}
