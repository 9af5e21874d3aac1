import BlobStorage
import CBlobKernels
import SystemPackage

/// Walks a tree of folders depth first: names in byte order, a folder before its contents.
///
/// Returns symbolic links as items and never follows them, even if one replaces a folder during the walk: it opens
/// every folder relative to its parent. Returns unreadable entries as items too, so that one bad folder does not end
/// the walk. Memory: the names in the open folders. Descriptors: one for each level.
package struct DirectoryWalker: ~Copyable {
  /// One entry of a folder.
  package struct Item: Sendable {
    /// Relative to the root of the walk, separated by `/`, with the bytes of the file system.
    package let pathBytes: [UInt8]
    /// Its status; nil if it could not be read.
    package let status: FileStatus?
    /// Why the status, or the names in the folder, could not be read.
    package let failure: BlobStorageError?

  }

  /// An open folder on the path to the last item.
  private final class Level {
    let descriptor: OwnedDescriptor
    /// Names still to visit, the next one last.
    var names: [[UInt8]]
    /// The length of the folder's own path in `prefix`.
    let pathByteCount: Int

    init(descriptor: OwnedDescriptor, names: [[UInt8]], pathByteCount: Int) {
      self.descriptor = descriptor
      self.names = names
      self.pathByteCount = pathByteCount
    }
  }

  /// The root of the walk.
  package let folder: InputFolder
  private let depthMax: Int
  private var levels: [Level]
  private var prefix: [UInt8] = []

  /// Begins a walk. The root is not an item, and its path may be a symbolic link.
  ///
  /// - Parameter depthMax: How many levels deep the walk goes; a folder below is an item with a failure.
  package init(root: FilePath, depthMax: Int = 512) throws(BlobStorageError) {
    precondition(depthMax >= 1)
    let folder = try InputFolder(root)
    let level = try Self.level(folder.descriptor, folder.path, pathByteCount: 0)
    self.folder = folder
    self.depthMax = depthMax
    self.levels = [level]
  }

  /// The next item; nil at the end.
  package mutating func next() -> Item? {
    while let level = levels.last {
      guard let name = level.names.popLast() else {
        levels.removeLast()
        continue
      }
      prefix.removeLast(prefix.count - level.pathByteCount)
      if !prefix.isEmpty { prefix.append(UInt8(ascii: "/")) }
      prefix += name
      return visit([CChar](terminating: name), in: level.descriptor.number)
    }
    return nil
  }

  /// The folder of the last item, if the walk entered it; before the first item, the root.
  var entered: OwnedDescriptor? {
    guard let level = levels.last, level.pathByteCount == prefix.count else { return nil }
    return level.descriptor
  }

  /// Skips the contents of the last item's folder, except entries of that name.
  mutating func skipDescendants(except name: String) {
    guard let level = levels.last, level.pathByteCount == prefix.count else { return }
    level.names.removeAll { !$0.elementsEqual(name.utf8) }
  }

  /// Skips the contents of the last item's folder.
  package mutating func skipDescendants() {
    if let level = levels.last, level.pathByteCount == prefix.count, levels.count > 1 { levels.removeLast() }
  }

  private mutating func visit(_ name: [CChar], in directory: Int32) -> Item {
    // Only an error needs the whole path, so only an error builds it.
    var path: FilePath { folder.path.appending(bytes: prefix) }
    var status: FileStatus?
    do throws(BlobStorageError) {
      var raw = bs_status()
      _ = try systemCall("stat", path) { bs_status_at(directory, name, &raw) }
      let found = FileStatus(raw)
      status = found
      if found.kind == .directory {
        if levels.count >= depthMax {
          throw BlobStorageError(
            .limitExceeded, "\(path.string) is more than \(depthMax) folders deep", path: path.string)
        }
        let descriptor = try OwnedDescriptor.open(directory, name, path, Int32(BS_OPEN_DIRECTORY), "list")
        levels.append(try Self.level(descriptor, path, pathByteCount: prefix.count))
      }
      return Item(pathBytes: prefix, status: status, failure: nil)
    } catch {
      return Item(pathBytes: prefix, status: status, failure: error)
    }
  }

  private static func level(
    _ descriptor: OwnedDescriptor, _ path: @autoclosure () -> FilePath, pathByteCount: Int
  ) throws(BlobStorageError) -> Level {
    // `readNames` consumes a descriptor, and this one still has to open the children.
    let duplicate = Int32(try systemCall("list", path()) { bs_duplicate(descriptor.number) })
    let names = try readNames(owning: duplicate, path())
    return Level(descriptor: descriptor, names: names.reversed(), pathByteCount: pathByteCount)
  }
}
