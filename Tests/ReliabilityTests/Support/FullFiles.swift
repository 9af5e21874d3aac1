import BlobStorage
import BlobStorageTestSupport
import SystemPackage

/// The system's files on a disk that has no room for another one while `isFull` says so.
struct FullFiles: ForwardingFiles {
  let system = SystemFiles()
  private let isFull: @Sendable () -> Bool

  init(_ isFull: @escaping @Sendable () -> Bool) { self.isFull = isFull }

  func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    let mayCreate = intent == .create || intent == .openOrCreate || intent == .append
    if mayCreate, try system.status(of: path) == nil, isFull() {
      throw BlobStorageError.systemCall("create", path: path, errno: Errno.noSpace.rawValue)
    }
    return try system.open(path, intent)
  }
}
