import SystemPackage

/// Allows reads only, and refuses every change, as a read-only mount does.
package struct ReadOnlyFiles: FileSystem {
  private let files: any FileSystem

  package init(_ files: any FileSystem) { self.files = files }

  package func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    guard intent == .read else { throw Self.refusal(path) }
    return try files.open(path, intent)
  }

  package func status(of path: FilePath) throws(BlobStorageError) -> FileStatus? {
    try files.status(of: path)
  }
  package func list(_ directory: FilePath) throws(BlobStorageError) -> [String] { try files.list(directory) }
  package func listFiles(_ directory: FilePath) throws(BlobStorageError) -> [String] {
    try files.listFiles(directory)
  }

  package func availableByteCount(at directory: FilePath) throws(BlobStorageError) -> Int64 {
    try files.availableByteCount(at: directory)
  }

  package func createDirectory(_ path: FilePath) throws(BlobStorageError) { throw Self.refusal(path) }
  package func rename(_ from: FilePath, to: FilePath) throws(BlobStorageError) { throw Self.refusal(from) }
  package func remove(_ path: FilePath) throws(BlobStorageError) { throw Self.refusal(path) }
  package func removeDirectory(_ path: FilePath) throws(BlobStorageError) { throw Self.refusal(path) }
  /// Does nothing: there are no changes to sync.
  package func syncDirectory(_ path: FilePath) {}
  package func mountIdentity(of path: FilePath) -> String { files.mountIdentity(of: path) }
  package func resolved(_ path: FilePath) -> FilePath { files.resolved(path) }
  package var canBeAnchored: Bool { files.canBeAnchored }
  package func anchored(by anchor: FolderAnchor) -> any FileSystem { Self(files.anchored(by: anchor)) }
  package var anchor: FolderAnchor? { files.anchor }

  private static func refusal(_ path: FilePath) -> BlobStorageError {
    BlobStorageError(
      .readOnly, "The store was opened for reading only: open it with open(at:) to change it.",
      path: path.string)
  }
}
