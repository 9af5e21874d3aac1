import SystemPackage

/// Names and folders: the seam at which tests put a simulated disk in place of the system.
///
/// Every call may run on any thread. Errors carry the path and the `errno`; `ENOENT` and `EEXIST` come as code
/// `io`, because only the caller knows whether they are a surprise. A name that was created, renamed or removed
/// is durable only after ``syncDirectory(_:)`` of the folder it is in.
package protocol FileSystem: Sendable {
  /// Opens a regular file; a symbolic link in the last place is refused (`ELOOP`).
  func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File
  /// What is at the path, a symbolic link itself included; nil only when nothing is there.
  func status(of path: FilePath) throws(BlobStorageError) -> FileStatus?
  /// The names in a folder in byte order, without `.` and `..`; a name that is not UTF-8 is repaired.
  func list(_ directory: FilePath) throws(BlobStorageError) -> [String]
  /// The same, without folders, links and whatever else is no regular file, where the file system says so.
  func listFiles(_ directory: FilePath) throws(BlobStorageError) -> [String]
  /// Bytes of the medium that all below a folder takes; what goes away meanwhile takes nothing.
  func allocatedByteCount(below directory: FilePath) throws(BlobStorageError) -> Int64
  /// Bytes that still fit on the file system that a folder lies on.
  func availableByteCount(at directory: FilePath) throws(BlobStorageError) -> Int64
  /// Creates a folder with permissions 0700; `EEXIST` when the name is taken.
  func createDirectory(_ path: FilePath) throws(BlobStorageError)
  /// Renames; a file that has the new name is replaced in the same step.
  func rename(_ from: FilePath, to: FilePath) throws(BlobStorageError)
  /// Removes a file's name; `ENOENT` when it is not there.
  func remove(_ path: FilePath) throws(BlobStorageError)
  /// Removes an empty folder.
  func removeDirectory(_ path: FilePath) throws(BlobStorageError)
  /// Forces the folder's names to the medium.
  func syncDirectory(_ path: FilePath) throws(BlobStorageError)
  /// A text that is another one once the file system at `path` was mounted again; empty where nothing tells.
  func mountIdentity(of path: FilePath) -> String
  /// The path without symbolic links, as far as it exists.
  func resolved(_ path: FilePath) -> FilePath
  /// Gives a file that root created to the owner of its folder; does nothing for other users.
  func shareOwner(of path: FilePath)
}

extension FileSystem {
  package func mountIdentity(of path: FilePath) -> String { "" }
  package func resolved(_ path: FilePath) -> FilePath { path }
  package func shareOwner(of path: FilePath) {}

  /// Creates a folder that belongs to the owner of the one it is in, also if root does it.
  package func createPart(_ path: FilePath) throws(BlobStorageError) {
    try createDirectory(path)
    shareOwner(of: path)
  }

  package func allocatedByteCount(below directory: FilePath) throws(BlobStorageError) -> Int64 {
    var sum: Int64 = 0
    for name in try list(directory) {
      guard let status = try status(of: directory.entry(name)) else { continue }
      sum += status.allocatedByteCount
      if status.kind == .directory {
        do { sum += try allocatedByteCount(below: directory.entry(name)) } catch {
          guard error.isMissingName else { throw error }
        }
      }
    }
    return sum
  }
}

/// What a file is opened for. Descriptors never survive `exec` and symbolic links are never followed.
///
/// What root creates belongs to the owner of the folder it is in.
package enum OpenIntent: Sendable, Hashable {
  /// Read an existing file.
  case read
  /// Read and write an existing file.
  case readWrite
  /// Create a file with permissions 0600; `EEXIST` when the name is taken.
  case create
  /// Read and write a file, created with permissions 0600 when it is missing.
  case openOrCreate
  /// Append to a file, created with permissions 0600 when it is missing.
  case append
}
