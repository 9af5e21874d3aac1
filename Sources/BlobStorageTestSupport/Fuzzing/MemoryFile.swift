import BlobStorage
import Dispatch
import Synchronization
import SystemPackage

/// A file that is an array; for one process, so that its lock is always to be had.
final class MemoryFile: File {
  let path: FilePath = "/memory"
  private let bytes: [UInt8]

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(BlobStorageError) -> Int {
    let part = bytes.dropFirst(Int(offset)).prefix(buffer.count)
    buffer.copyBytes(from: part)
    return part.count
  }

  func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Int? { nil }

  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError) { try refuse() }

  func synchronize() throws(BlobStorageError) {}

  func beginWriteback(from offset: Int64, byteCount: Int64) {}

  func truncate(to byteCount: Int64) throws(BlobStorageError) { try refuse() }

  func allocate(byteCount: Int64) throws(BlobStorageError) { try refuse() }

  func reserve(byteCount: Int64) throws(BlobStorageError) { try refuse() }

  func status() throws(BlobStorageError) -> FileStatus {
    FileStatus(
      kind: .regular, byteCount: Int64(bytes.count), allocatedByteCount: Int64(bytes.count), linkCount: 1,
      inode: 1, device: 1, modified: FileTime(seconds: 0, nanoseconds: 0), permissions: 0o600)
  }

  func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool { true }

  func unlock() throws(BlobStorageError) {}

  func readThroughDispatch(
    offset: Int64, byteCount: Int, queue: DispatchQueue,
    completion: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void
  ) {
    let part = Array(bytes.dropFirst(Int(offset)).prefix(byteCount))
    queue.async { completion(.success(part.withUnsafeBytes { DispatchData(bytes: $0) })) }
  }

  func close() {}

  private func refuse() throws(BlobStorageError) {
    throw BlobStorageError(.readOnly, "This file is read only.")
  }
}
