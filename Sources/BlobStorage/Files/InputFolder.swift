import CBlobKernels
import SystemPackage

/// A folder of the user's below which files are read, and never outside, whatever symbolic links come to stand in it.
package final class InputFolder: Sendable {
  /// The folder as it was named, and from the root on.
  package let name: FilePath
  package let path: FilePath
  package let identity: FileIdentity
  let descriptor: OwnedDescriptor

  /// Opens an existing folder; it may itself be reached through a symbolic link, as the user's own choice.
  package init(_ name: FilePath) throws(BlobStorageError) {
    let path = try name.absolute()
    let options = Int32(BS_OPEN_DIRECTORY | BS_OPEN_FOLLOW)
    let descriptor = try OwnedDescriptor.open(bs_working_directory(), path, path, options, "list")
    self.name = name
    self.path = path
    identity = try descriptor.status(path).identity
    self.descriptor = descriptor
  }

  /// Opens a regular file below the folder.
  ///
  /// Every step is taken relative to the folder before it and refuses a symbolic link.
  ///
  /// - Throws: `sourceFailed` when what was a folder is one no more.
  package func open(_ relativePath: FilePath) throws(BlobStorageError) -> InputFile {
    let path = self.path.appending(relativePath.components)
    guard relativePath.isRelative, let last = relativePath.lastComponent, last.kind == .regular else {
      throw OutputFolder.escapes(path)
    }
    var current = descriptor
    for component in relativePath.components.dropLast() {
      guard component.kind == .regular else { throw OutputFolder.escapes(path) }
      let name = FilePath(root: nil, [component])
      do throws(BlobStorageError) {
        current = try .open(current.number, name, path, Int32(BS_OPEN_DIRECTORY), "open")
      } catch {
        let errno = error.errno.map(Errno.init(rawValue:))
        guard errno == .notDirectory || errno == .tooManySymbolicLinkLevels else { throw error }
        throw BlobStorageError(
          .sourceFailed, "\(path.string) cannot be read: a folder on the way to it was replaced",
          path: path.string)
      }
    }
    return try InputFile(current.number, FilePath(root: nil, [last]), path)
  }
}
