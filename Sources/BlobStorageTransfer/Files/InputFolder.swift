import BlobStorage
import CBlobKernels
import SystemPackage

/// A folder of the user's below which files are read, and never outside, whatever symbolic links come to stand in it.
package final class InputFolder: Sendable {
  /// The folder as it was named, and from the root on.
  package let name: FilePath
  package let path: FilePath
  package let identity: FileIdentity
  let descriptor: OwnedDescriptor
  private let excluded: FileIdentity?

  /// Opens an existing folder; it may itself be reached through a symbolic link, as the user's own choice.
  ///
  /// - Parameter excluded: a folder below it that nothing is read from.
  package init(_ name: FilePath, excluding excluded: FileIdentity? = nil) throws(BlobStorageError) {
    let path = try name.absolute()
    let options = Int32(BS_OPEN_DIRECTORY | BS_OPEN_FOLLOW)
    let descriptor = try OwnedDescriptor.open(bs_working_directory(), path, path, options, "list")
    self.name = name
    self.path = path
    identity = try descriptor.status(path).identity
    self.descriptor = descriptor
    self.excluded = excluded
  }

  /// Opens a regular file below the folder.
  ///
  /// Every step is taken relative to the folder before it and refuses a symbolic link.
  ///
  /// - Parameter trail: leads through the folders that are open already.
  /// - Throws: `sourceFailed` when what was a folder is one no more.
  package func open(
    _ relativePath: String, through trail: inout FolderTrail
  ) throws(BlobStorageError) -> InputFile {
    try open(Array(relativePath.utf8), through: &trail)
  }

  /// The same of a path in bytes.
  func open(
    _ bytes: [UInt8], through trail: inout FolderTrail
  ) throws(BlobStorageError) -> InputFile {
    guard FolderTrail.leadsDown(bytes) else { throw OutputFolder.escapes(path.appending(bytes: bytes)) }
    let folder = try trail.folder(of: bytes, below: descriptor) {
      (above, name, bytesOfFolder) throws(BlobStorageError) in
      do throws(BlobStorageError) {
        let folder = try OwnedDescriptor.open(
          above.number, name, path.appending(bytes: bytes), Int32(BS_OPEN_DIRECTORY), "open")
        try OutputFolder.check(folder, path.appending(bytes: bytesOfFolder), isNot: excluded)
        return folder
      } catch {
        let errno = error.errno.map(Errno.init(rawValue:))
        guard errno == .notDirectory || errno == .tooManySymbolicLinkLevels else { throw error }
        let path = path.appending(bytes: bytes).string
        throw BlobStorageError(
          .sourceFailed, "\(path) cannot be read: a folder on the way to it was replaced", path: path)
      }
    }
    return try InputFile(folder.number, FolderTrail.name(in: bytes), path, bytes)
  }

  package func open(_ relativePath: String) throws(BlobStorageError) -> InputFile {
    var trail = FolderTrail()
    return try open(relativePath, through: &trail)
  }
}
