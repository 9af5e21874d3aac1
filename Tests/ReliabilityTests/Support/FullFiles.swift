import BlobStorage
import SystemPackage

/// The system's files on a disk that has no room for another one while `isFull` says so.
struct FullFiles: FileSystem {
  private let system = SystemFiles()
  private let isFull: @Sendable () -> Bool

  init(_ isFull: @escaping @Sendable () -> Bool) { self.isFull = isFull }

  func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    let mayCreate = intent == .create || intent == .openOrCreate || intent == .append
    if mayCreate, try system.status(of: path) == nil, isFull() {
      throw BlobStorageError.systemCall("create", path: path, errno: Errno.noSpace.rawValue)
    }
    return try system.open(path, intent)
  }
  func status(of path: FilePath) throws(BlobStorageError) -> FileStatus? { try system.status(of: path) }
  func list(_ directory: FilePath) throws(BlobStorageError) -> [String] { try system.list(directory) }
  func availableByteCount(at directory: FilePath) throws(BlobStorageError) -> Int64 {
    try system.availableByteCount(at: directory)
  }
  func createDirectory(_ path: FilePath) throws(BlobStorageError) { try system.createDirectory(path) }
  func rename(_ from: FilePath, to: FilePath) throws(BlobStorageError) { try system.rename(from, to: to) }
  func remove(_ path: FilePath) throws(BlobStorageError) { try system.remove(path) }
  func removeDirectory(_ path: FilePath) throws(BlobStorageError) { try system.removeDirectory(path) }
  func syncDirectory(_ path: FilePath) throws(BlobStorageError) { try system.syncDirectory(path) }
}
