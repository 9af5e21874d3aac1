import BlobStorage
import Dispatch
import SystemPackage

/// The system's files with a hook, which sees every call before it is made and may make it fail.
struct HookedFiles: FileSystem {
  /// - Parameter call: the name of the method.
  typealias Hook = @Sendable (_ call: String, FilePath) throws(BlobStorageError) -> Void

  private let system = SystemFiles()
  private let hook: Hook

  init(_ hook: @escaping Hook) { self.hook = hook }

  func open(_ path: FilePath, _ intent: OpenIntent) throws(BlobStorageError) -> any File {
    try hook("open", path)
    return HookedFile(try system.open(path, intent), hook)
  }
  func status(of path: FilePath) throws(BlobStorageError) -> FileStatus? {
    try hook("status", path)
    return try system.status(of: path)
  }
  func list(_ directory: FilePath) throws(BlobStorageError) -> [String] {
    try hook("list", directory)
    return try system.list(directory)
  }
  func availableByteCount(at directory: FilePath) throws(BlobStorageError) -> Int64 {
    try hook("availableByteCount", directory)
    return try system.availableByteCount(at: directory)
  }
  func createDirectory(_ path: FilePath) throws(BlobStorageError) {
    try hook("createDirectory", path)
    try system.createDirectory(path)
  }
  func rename(_ from: FilePath, to: FilePath) throws(BlobStorageError) {
    try hook("rename", from)
    try system.rename(from, to: to)
  }
  func remove(_ path: FilePath) throws(BlobStorageError) {
    try hook("remove", path)
    try system.remove(path)
  }
  func removeDirectory(_ path: FilePath) throws(BlobStorageError) {
    try hook("removeDirectory", path)
    try system.removeDirectory(path)
  }
  func syncDirectory(_ path: FilePath) throws(BlobStorageError) {
    try hook("syncDirectory", path)
    try system.syncDirectory(path)
  }
  func mountIdentity(of path: FilePath) -> String { system.mountIdentity(of: path) }
}

private final class HookedFile: File {
  private let file: any File
  private let hook: HookedFiles.Hook

  init(_ file: any File, _ hook: @escaping HookedFiles.Hook) {
    self.file = file
    self.hook = hook
  }

  var path: FilePath { file.path }

  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(BlobStorageError) -> Int {
    try hook("read", path)
    return try file.read(into: buffer, at: offset)
  }
  func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Int? {
    do throws(BlobStorageError) { try hook("readIfCached", path) } catch { return nil }
    return file.readIfCached(into: buffer, at: offset)
  }
  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError) {
    try hook("write", path)
    try file.write(bytes, at: offset)
  }
  func append(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    try hook("append", path)
    try file.append(bytes)
  }
  func synchronize() throws(BlobStorageError) {
    try hook("synchronize", path)
    try file.synchronize()
  }
  func beginWriteback(from offset: Int64, byteCount: Int64) {
    do throws(BlobStorageError) { try hook("beginWriteback", path) } catch { return }
    file.beginWriteback(from: offset, byteCount: byteCount)
  }
  func truncate(to byteCount: Int64) throws(BlobStorageError) {
    try hook("truncate", path)
    try file.truncate(to: byteCount)
  }
  func allocate(byteCount: Int64) throws(BlobStorageError) {
    try hook("allocate", path)
    try file.allocate(byteCount: byteCount)
  }
  func reserve(byteCount: Int64) throws(BlobStorageError) {
    try hook("reserve", path)
    try file.reserve(byteCount: byteCount)
  }
  func status() throws(BlobStorageError) -> FileStatus {
    try hook("status", path)
    return try file.status()
  }
  func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool {
    try hook("lock", path)
    return try file.lock(kind, wait: wait)
  }
  func lock(_ kind: LockKind, withinSeconds seconds: Double) throws(BlobStorageError) -> Bool {
    try hook("lock", path)
    return try file.lock(kind, withinSeconds: seconds)
  }
  func unlock() throws(BlobStorageError) {
    try hook("unlock", path)
    try file.unlock()
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
  func readThroughDispatch(
    offset: Int64, byteCount: Int, queue: DispatchQueue,
    completion: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void
  ) {
    file.readThroughDispatch(offset: offset, byteCount: byteCount, queue: queue, completion: completion)
  }
  func close() { file.close() }
}
