import BlobStorage
import BlobStorageTestSupport
import SystemPackage

/// The system's files with a hook, which sees every call before it is made and may make it fail.
struct HookedFiles: ForwardingFiles {
  /// - Parameter call: the name of the method.
  typealias Hook = @Sendable (_ call: String, FilePath) throws(BlobStorageError) -> Void

  let system = SystemFiles()
  private let hook: Hook

  init(_ hook: @escaping Hook) { self.hook = hook }

  func begin(_ call: String, _ path: FilePath) throws(BlobStorageError) { try hook(call, path) }

  func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    try hook("open", path)
    return HookedFile(try system.open(path, intent), hook)
  }
  func mountIdentity(of path: FilePath) -> String { system.mountIdentity(of: path) }
}

private final class HookedFile: ForwardingFile {
  let file: any File
  private let hook: HookedFiles.Hook

  init(_ file: any File, _ hook: @escaping HookedFiles.Hook) {
    self.file = file
    self.hook = hook
  }

  func begin(_ call: String) throws(BlobStorageError) { try hook(call, path) }

  func append(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    try hook("append", path)
    try file.append(bytes)
  }
  func lock(_ kind: LockKind, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool {
    try hook("lock", path)
    return try file.lock(kind, withinSeconds: seconds)
  }
  func lock(bytes: Range<Int64>, wait: Bool) throws(BlobStorageError) -> Bool {
    try hook("lock bytes", path)
    return try file.lock(bytes: bytes, wait: wait)
  }
  func lock(bytes: Range<Int64>, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool {
    try hook("lock bytes", path)
    return try file.lock(bytes: bytes, withinSeconds: seconds)
  }
  func unlock(bytes: Range<Int64>) throws(BlobStorageError) {
    try hook("unlock bytes", path)
    try file.unlock(bytes: bytes)
  }
  func mapped(byteCount: Int) throws(BlobStorageError) -> SharedMemory {
    try hook("mapped", path)
    return try file.mapped(byteCount: byteCount)
  }
}
