import SystemPackage

/// Names and folders. Tests substitute a simulated disk here.
///
/// Every call may run on any thread. Errors carry the path and the `errno`. `ENOENT` and `EEXIST` have code `io`,
/// because only the caller knows whether they are expected. A created, renamed or removed name is durable only after
/// ``syncDirectory(_:)`` of its folder.
package protocol FileSystem: Sendable {
  /// Opens a regular file; refuses a symbolic link as the last component (`ELOOP`).
  func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File
  /// The status of a path, without following a symbolic link; nil only if nothing exists there.
  func status(of path: FilePath) throws(BlobStorageError) -> FileStatus?
  /// The names in a folder in byte order, without `.` and `..`; invalid UTF-8 is repaired.
  func list(_ directory: FilePath) throws(BlobStorageError) -> [String]
  /// The names of the regular files in a folder. May include others if the file system does not tell.
  func listFiles(_ directory: FilePath) throws(BlobStorageError) -> [String]
  /// The free bytes of the file system of a folder.
  func availableByteCount(at directory: FilePath) throws(BlobStorageError) -> Int64
  /// Creates a folder with permissions 0700; `EEXIST` if the name is taken.
  func createDirectory(_ path: FilePath) throws(BlobStorageError)
  /// Renames a file, and atomically replaces a file with the new name.
  func rename(_ from: FilePath, to: FilePath) throws(BlobStorageError)
  /// Removes a file's name; `ENOENT` if it does not exist.
  func remove(_ path: FilePath) throws(BlobStorageError)
  /// Removes an empty folder.
  func removeDirectory(_ path: FilePath) throws(BlobStorageError)
  /// Syncs the folder's names.
  func syncDirectory(_ path: FilePath) throws(BlobStorageError)
  /// A text that changes when the file system at `path` is mounted again; empty if unknown.
  func mountIdentity(of path: FilePath) -> String
  /// The path with symbolic links resolved, as far as it exists.
  func resolved(_ path: FilePath) -> FilePath
  /// Gives a file that root created to the owner of its folder; does nothing for other users.
  func shareOwner(of path: FilePath)
  /// Whether ``anchored(by:)`` has an effect.
  var canBeAnchored: Bool { get }
  /// The same files. Paths below the folder of the anchor lead into that folder, whatever they name by now. Calls throw
  /// `closed` once the folder's path names another folder.
  func anchored(by anchor: FolderAnchor) -> any FileSystem
  /// The folder that holds the files; nil if paths are used as they are.
  var anchor: FolderAnchor? { get }
}

extension FileSystem {
  package func mountIdentity(of path: FilePath) -> String { "" }
  package func resolved(_ path: FilePath) -> FilePath { path }
  package func shareOwner(of path: FilePath) {}
  package var canBeAnchored: Bool { false }
  package func anchored(by anchor: FolderAnchor) -> any FileSystem { self }
  package var anchor: FolderAnchor? { nil }

  /// Calls `body` with a path for code that opens files by itself. Where the path may lead elsewhere by then, the caller
  /// has to compare what was opened.
  func withSystemPath<T>(
    _ path: FilePath, _ body: (String) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    if let anchor { return try anchor.withSystemPath(path, body) }
    return try body(path.string)
  }

  /// Creates a folder that belongs to the owner of its parent, even if root creates it.
  package func createPart(_ path: FilePath) throws(BlobStorageError) {
    try createDirectory(path)
    shareOwner(of: path)
  }

  /// The allocated bytes of everything below a folder. Ignores files that disappear during the call.
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

/// How to open a file. Descriptors never survive `exec`, and symbolic links are never followed.
///
/// A file that root creates belongs to the owner of its folder.
package enum OpenIntent: Sendable, Hashable {
  /// Read an existing file.
  case read
  /// Read and write an existing file.
  case readWrite
  /// Create a file with permissions 0600; `EEXIST` if the name is taken.
  case create
  /// Read and write a file; create it with permissions 0600 if it is missing.
  case openOrCreate
  /// Append to a file; create it with permissions 0600 if it is missing.
  case append
}
