import CBlobKernels
import SystemPackage

/// A new file below a folder: written under a temporary name, and there under its own name all at once or not.
///
/// Dropping it without ``commit(overwriting:modified:isDurable:)`` removes what was written.
package struct OutputFile: ~Copyable {
  /// What happens to a file on its way to its name.
  package enum Step: Sendable { case synced, named }

  /// The path it will have.
  package let path: FilePath
  private let directory: OwnedDescriptor
  private let descriptor: OwnedDescriptor
  private let name: FilePath
  private let temporaryName: FilePath
  private let observer: (@Sendable (Step) -> Void)?
  private var byteCount: Int64 = 0
  private var isCommitted = false

  /// Creates the temporary file, and the folders on the way to it.
  ///
  /// - Parameter relativePath: Without a leading `/` and without `.` and `..`; anything else is `invalidArgument`.
  package init(in folder: OutputFolder, relativePath: FilePath) throws(BlobStorageError) {
    let path = folder.path.appending(relativePath.components)
    guard relativePath.isRelative, let last = relativePath.lastComponent, last.kind == .regular else {
      throw OutputFolder.escapes(path)
    }
    let directory = try folder.descend(relativePath.components.dropLast())
    // Not made from the name, which may be as long as a name can be.
    let temporaryName = FilePath(".blobstorage-\(String(randomUInt64(), radix: 36)).partial")
    let options = Int32(BS_OPEN_WRITE | BS_OPEN_CREATE | BS_OPEN_EXCLUSIVE)
    let descriptor = try OwnedDescriptor.open(directory.number, temporaryName, path, options, "write")
    self.path = path
    observer = folder.observer
    self.directory = directory
    self.descriptor = descriptor
    self.name = FilePath(root: nil, [last])
    self.temporaryName = temporaryName
  }

  deinit {
    if isCommitted { return }
    _ = temporaryName.withPlatformString { bs_remove_at(directory.number, $0) }
  }

  /// Appends all bytes or throws.
  package mutating func write(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var done = 0
    while done < bytes.count {
      let rest = UnsafeRawBufferPointer(rebasing: bytes[done...])
      let offset = byteCount
      let count = try systemCall("write to", path) {
        bs_write_at(descriptor.number, rest.baseAddress, rest.count, offset)
      }
      if count == 0 { throw .systemCall("write to", path: path, errno: Errno.ioError.rawValue) }
      done += count
      byteCount += Int64(count)
    }
  }

  /// Gives the file its name.
  ///
  /// - Parameters:
  ///   - overwriting: Whether a file of that name is replaced; otherwise it is an error with `EEXIST`. The new bytes
  ///     are on the medium before the old ones go: a power cut leaves one or the other.
  ///   - modified: The modification time to set.
  ///   - permissions: The permissions to set instead of 0600.
  ///   - isDurable: Whether bytes and name are on the medium on return.
  package consuming func commit(
    overwriting: Bool, modified: FileTime? = nil, permissions: UInt16? = nil, isDurable: Bool = false
  ) throws(BlobStorageError) {
    let number = descriptor.number
    if let permissions {
      _ = try systemCall("set the permissions of", path) { bs_set_permissions(number, UInt32(permissions)) }
    }
    if let modified {
      _ = try systemCall("set the time of", path) {
        bs_set_modified(number, modified.seconds, modified.nanoseconds)
      }
    }
    let folder = directory.number
    if isDurable {
      _ = try systemCall("sync", path) { bs_sync_all(number) }
      observer?(.synced)
    } else if overwriting, isTaken {
      _ = try systemCall("sync", path) { bs_sync_data(number) }
      observer?(.synced)
    }
    _ = try systemCall("write", path) {
      temporaryName.withPlatformString { from in
        name.withPlatformString { to in
          overwriting
            ? bs_rename_at(folder, from, folder, to)
            : bs_rename_without_replacing_at(folder, from, folder, to)
        }
      }
    }
    observer?(.named)
    isCommitted = true
    if isDurable { _ = try systemCall("sync the folder of", path) { bs_sync_all(folder) } }
  }

  /// Whether there is something of that name.
  private var isTaken: Bool {
    var raw = bs_status()
    return uninterrupted { name.withPlatformString { bs_status_at(directory.number, $0, &raw) } } == 0
  }
}
