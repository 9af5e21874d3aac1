import BlobStorage
import Dispatch
import Synchronization
import SystemPackage

/// A read-only file in an array. It is for one process, so that its lock is always free.
package final class MemoryFile: File {
  package let path: FilePath = "/memory"
  private let bytes: [UInt8]

  package init(_ bytes: [UInt8]) { self.bytes = bytes }

  package func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(BlobStorageError)
    -> Int
  {
    let part = bytes.dropFirst(Int(offset)).prefix(buffer.count)
    buffer.copyBytes(from: part)
    return part.count
  }

  package func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Int? { nil }

  package func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError) {
    try refuse()
  }

  package func synchronize() throws(BlobStorageError) {}

  package func beginWriteback(from offset: Int64, byteCount: Int64) {}

  package func truncate(to byteCount: Int64) throws(BlobStorageError) { try refuse() }

  package func allocate(byteCount: Int64) throws(BlobStorageError) { try refuse() }

  package func reserve(byteCount: Int64) throws(BlobStorageError) { try refuse() }

  package func status() throws(BlobStorageError) -> FileStatus {
    FileStatus(
      kind: .regular, byteCount: Int64(bytes.count), allocatedByteCount: Int64(bytes.count), linkCount: 1,
      inode: 1, device: 1, modified: FileTime(seconds: 0, nanoseconds: 0), permissions: 0o600)
  }

  package func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool { true }

  package func unlock() throws(BlobStorageError) {}

  package func close() {}

  private func refuse() throws(BlobStorageError) {
    throw BlobStorageError(.readOnly, "This file is read only.")
  }
}

extension File {
  /// Reads at once: for files in memory.
  package func readThroughDispatch(
    offset: Int64, byteCount: Int, queue: DispatchQueue,
    completion: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void
  ) {
    let result = Result { () throws(BlobStorageError) in try bytesThere(at: offset, byteCount) }
    queue.async { completion(result.map { bytes in bytes.withUnsafeBytes { DispatchData(bytes: $0) } }) }
  }
}
