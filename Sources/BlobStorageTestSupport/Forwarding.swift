import BlobStorage
import BlobStorageSharing
import Dispatch
import SystemPackage

/// Files behind a type that changes some calls. Forwards the others.
package protocol ForwardingFiles: FileSystem {
  associatedtype Wrapped: FileSystem
  var system: Wrapped { get }
  /// Runs before each forwarded call. If it throws, the call fails with that error.
  ///
  /// - Parameter call: the name of the method.
  func begin(_ call: String, _ path: FilePath) throws(BlobStorageError)
}

extension ForwardingFiles {
  package func begin(_ call: String, _ path: FilePath) throws(BlobStorageError) {}

  package func resolved(_ path: FilePath) -> FilePath { system.resolved(path) }
  package func status(of path: FilePath) throws(BlobStorageError) -> FileStatus? {
    try begin("status", path)
    return try system.status(of: path)
  }
  package func list(_ directory: FilePath) throws(BlobStorageError) -> [String] {
    try begin("list", directory)
    return try system.list(directory)
  }
  package func listFiles(_ directory: FilePath) throws(BlobStorageError) -> [String] {
    try begin("list", directory)
    return try system.listFiles(directory)
  }
  package func availableByteCount(at directory: FilePath) throws(BlobStorageError) -> Int64 {
    try begin("availableByteCount", directory)
    return try system.availableByteCount(at: directory)
  }
  package func createDirectory(_ path: FilePath) throws(BlobStorageError) {
    try begin("createDirectory", path)
    try system.createDirectory(path)
  }
  package func rename(_ from: FilePath, to: FilePath) throws(BlobStorageError) {
    try begin("rename", from)
    try system.rename(from, to: to)
  }
  package func remove(_ path: FilePath) throws(BlobStorageError) {
    try begin("remove", path)
    try system.remove(path)
  }
  package func removeDirectory(_ path: FilePath) throws(BlobStorageError) {
    try begin("removeDirectory", path)
    try system.removeDirectory(path)
  }
  package func syncDirectory(_ path: FilePath) throws(BlobStorageError) {
    try begin("syncDirectory", path)
    try system.syncDirectory(path)
  }
}

/// An open file behind a type that changes some calls. Forwards the others, except those that not every file supports
/// (locks of bytes, shared memory).
package protocol ForwardingFile: File {
  var file: any File { get }
  /// Runs before each forwarded call. If it throws, the call fails with that error.
  func begin(_ call: String) throws(BlobStorageError)
}

extension ForwardingFile {
  package func begin(_ call: String) throws(BlobStorageError) {}

  package var path: FilePath { file.path }

  package func read(
    into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> Int {
    try begin("read")
    return try file.read(into: buffer, at: offset)
  }
  package func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Int? {
    do throws(BlobStorageError) { try begin("readIfCached") } catch { return nil }
    return file.readIfCached(into: buffer, at: offset)
  }
  package func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError) {
    try begin("write")
    try file.write(bytes, at: offset)
  }
  package func synchronize() throws(BlobStorageError) {
    try begin("synchronize")
    try file.synchronize()
  }
  package func beginWriteback(from offset: Int64, byteCount: Int64) {
    do throws(BlobStorageError) { try begin("beginWriteback") } catch { return }
    file.beginWriteback(from: offset, byteCount: byteCount)
  }
  package func truncate(to byteCount: Int64) throws(BlobStorageError) {
    try begin("truncate")
    try file.truncate(to: byteCount)
  }
  package func allocate(byteCount: Int64) throws(BlobStorageError) {
    try begin("allocate")
    try file.allocate(byteCount: byteCount)
  }
  package func reserve(byteCount: Int64) throws(BlobStorageError) {
    try begin("reserve")
    try file.reserve(byteCount: byteCount)
  }
  package func status() throws(BlobStorageError) -> FileStatus {
    try begin("status")
    return try file.status()
  }
  package func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool {
    try begin("lock")
    return try file.lock(kind, wait: wait)
  }
  package func unlock() throws(BlobStorageError) {
    try begin("unlock")
    try file.unlock()
  }
  package func readThroughDispatch(
    offset: Int64, byteCount: Int, queue: DispatchQueue,
    completion: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void
  ) {
    file.readThroughDispatch(offset: offset, byteCount: byteCount, queue: queue, completion: completion)
  }
  package func close() { file.close() }
}

/// Objects in memory behind a type that changes how they are put. Forwards the other calls.
package protocol ForwardingObjects: ObjectStore {
  var objects: MemoryObjectStore { get }
}

extension ForwardingObjects {
  package func get(_ name: String, _ range: Range<Int64>) throws(BlobStorageError) -> [UInt8]? {
    try objects.get(name, range)
  }
  package func tail(
    _ name: String, byteCount: Int
  ) throws(BlobStorageError) -> (bytes: [UInt8], byteCount: Int64)? {
    try objects.tail(name, byteCount: byteCount)
  }
  package func list(_ prefix: String, after name: String?) throws(BlobStorageError) -> ObjectPage {
    try objects.list(prefix, after: name)
  }
  package func delete(_ name: String) throws(BlobStorageError) { try objects.delete(name) }
}
