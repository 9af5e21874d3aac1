import CBlobKernels
import SystemPackage

/// A folder of the user's below which files are written, and never outside, whatever symbolic links stand in it.
package final class OutputFolder: Sendable {
  package let path: FilePath
  let descriptor: OwnedDescriptor
  private let excluded: FileIdentity?
  /// Told of what is done for a file, in that order.
  let observer: (@Sendable (OutputFile.Step) -> Void)?

  /// Opens an existing folder; it may itself be reached through a symbolic link, as the user's own choice.
  ///
  /// - Parameter excluded: a folder below it that nothing is written into.
  package init(
    _ path: FilePath, excluding excluded: FileIdentity? = nil,
    observer: (@Sendable (OutputFile.Step) -> Void)? = nil
  ) throws(BlobStorageError) {
    let path = try path.absolute()
    self.excluded = excluded
    self.observer = observer
    let options = Int32(BS_OPEN_DIRECTORY | BS_OPEN_FOLLOW)
    self.path = path
    descriptor = try .open(bs_working_directory(), path, path, options, "open the folder")
  }

  /// Opens a folder below this one, and creates what is missing on the way (0700).
  ///
  /// Every step is taken relative to the folder before it and refuses a symbolic link.
  func descend(_ components: some Sequence<FilePath.Component>) throws(BlobStorageError) -> OwnedDescriptor {
    var current = descriptor
    var path = self.path
    for component in components {
      path.append(component)
      guard component.kind == .regular else { throw Self.escapes(path) }
      let name = FilePath(root: nil, [component])
      let created = uninterrupted {
        name.withPlatformString { bs_create_directory_at(current.number, $0) }
      }
      if created < 0 && created != -Int(Errno.fileExists.rawValue) {
        throw .systemCall("create the folder", path: path, errno: Int32(-created))
      }
      current = try .open(current.number, name, path, Int32(BS_OPEN_DIRECTORY), "enter the folder")
      guard let excluded, try current.status(path).identity == excluded else { continue }
      throw BlobStorageError(
        .invalidArgument, "\(path.string) is the store's own folder: nothing is written into it",
        path: path.string)
    }
    return current
  }

  static func escapes(_ path: FilePath) -> BlobStorageError {
    BlobStorageError(
      .invalidArgument, "\(path.string) is not a path below the folder", path: path.string)
  }
}
