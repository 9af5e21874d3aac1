import BlobStorage
import CBlobKernels
import SystemPackage

/// Reads files below a folder of the user's, and never outside it, whatever symbolic links appear in it.
package final class InputFolder: Sendable {
  /// The path as it was given, and as an absolute path.
  package let name: FilePath
  package let path: FilePath
  package let identity: FileIdentity
  let descriptor: OwnedDescriptor
  private let excluded: FileIdentity?

  /// Stands for the process's working folder where a call takes an open folder.
  static let workingDirectory = bs_working_directory()

  /// Opens an existing folder. Its own path may be a symbolic link, because the user chose it.
  ///
  /// - Parameter excluded: a folder below it from which nothing is read.
  package init(_ name: FilePath, excluding excluded: FileIdentity? = nil) throws(BlobStorageError) {
    let path = try name.absolute()
    let options = Int32(BS_OPEN_DIRECTORY | BS_OPEN_FOLLOW)
    let descriptor = try OwnedDescriptor.open(Self.workingDirectory, path, path, options, "list")
    self.name = name
    self.path = path
    identity = try descriptor.status(path).identity
    self.descriptor = descriptor
    self.excluded = excluded
  }

  /// The names of the folder's entries.
  func names() throws(BlobStorageError) -> [[UInt8]] {
    try readNames(owning: Int32(try systemCall("list", path) { bs_duplicate(descriptor.number) }), path)
  }

  /// Opens a regular file below the folder.
  ///
  /// Takes every step relative to the parent folder, and refuses symbolic links.
  ///
  /// - Parameters:
  ///   - trail: the folders that are open already.
  ///   - writesBack: whether to write back what mappings have changed.
  /// - Throws: `sourceFailed` if something else has replaced a folder on the way.
  package func open(
    _ bytes: [UInt8], through trail: inout FolderTrail, writesBack: Bool = false
  ) throws(BlobStorageError) -> InputFile {
    let folder = try folder(of: bytes, through: &trail)
    return try InputFile(folder.number, FolderTrail.name(in: bytes), path, bytes, writesBack: writesBack)
  }

  /// The target of a symbolic link below the folder.
  func linkTarget(of bytes: [UInt8], through trail: inout FolderTrail) throws(BlobStorageError) -> [UInt8] {
    let folder = try folder(of: bytes, through: &trail)
    return try Self.linkTarget(folder.number, FolderTrail.name(in: bytes), path.appending(bytes: bytes))
  }

  static func linkTarget(
    _ directory: Int32, _ name: [CChar], _ path: @autoclosure () -> FilePath
  ) throws(BlobStorageError) -> [UInt8] {
    try [UInt8](filling: 4_096) { (target) throws(BlobStorageError) in
      try systemCall("read the link", path()) {
        bs_read_link_at(
          directory, name, target.baseAddress?.assumingMemoryBound(to: CChar.self), target.count)
      }
    }
  }

  /// Whether each change of a file's content changes its change time on the file system that an entry is on.
  static func keepsChangeTimes(
    _ directory: Int32, _ name: [CChar], _ path: @autoclosure () -> FilePath
  ) throws(BlobStorageError) -> Bool {
    try systemCall("stat", path()) { bs_keeps_change_times_at(directory, name) } == 1
  }

  /// The status of an entry below the folder, without following links; nil if it does not exist.
  func status(of bytes: [UInt8], through trail: inout FolderTrail) throws(BlobStorageError) -> FileStatus? {
    do throws(BlobStorageError) {
      let folder = try folder(of: bytes, through: &trail)
      var raw = bs_status()
      _ = try systemCall("stat", path.appending(bytes: bytes)) {
        bs_status_at(folder.number, FolderTrail.name(in: bytes), &raw)
      }
      return FileStatus(raw)
    } catch {
      if error.isMissingName { return nil }
      throw error
    }
  }

  /// Whether the path is a folder that is not empty.
  func hasFilledFolder(_ bytes: [UInt8], through trail: inout FolderTrail) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      let folder = try folder(of: bytes + Array("/x".utf8), through: &trail)
      let duplicate = Int32(try systemCall("list", path) { bs_duplicate(folder.number) })
      return try !readNames(owning: duplicate, path).isEmpty
    } catch {
      if error.isMissingName || error.code == .sourceFailed { return false }
      throw error
    }
  }

  func folder(
    of bytes: [UInt8], through trail: inout FolderTrail
  ) throws(BlobStorageError) -> OwnedDescriptor {
    guard FolderTrail.leadsDown(bytes) else { throw OutputFolder.escapes(path.appending(bytes: bytes)) }
    return try trail.folder(of: bytes, below: descriptor) {
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
  }
}

extension InputFile {
  /// The digest of the bytes that the file had when it was opened. Call it before anything is read.
  func digest(_ algorithm: BlobDigest.Algorithm) throws(BlobStorageError) -> BlobDigest {
    var digest = DigestStream(algorithm)
    let buffer = UnsafeMutableRawBufferPointer.allocate(
      byteCount: Int(clamping: min(max(status.byteCount, 1), 1 << 20)), alignment: 16)
    defer { buffer.deallocate() }
    while true {
      try CancellationFlag.check()
      let count = try read(into: buffer)
      digest.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]).bytes)
      if count < buffer.count { break }
    }
    rewind()
    return digest.finalize()
  }
}
