import Dispatch
import SystemPackage

/// The file of a pack. A part that the medium cannot read is damage: the store goes on without it, as without bytes
/// that do not match their checksum.
package final class PackFile: File {
  private let file: any File

  package init(_ file: any File) { self.file = file }

  package var path: FilePath { file.path }

  package func read(
    into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> Int {
    do throws(BlobStorageError) { return try file.read(into: buffer, at: offset) } catch {
      guard error.isOfMedium else { throw error }
    }
    // What fails once may succeed the next time, and damage is remembered.
    do throws(BlobStorageError) { return try file.read(into: buffer, at: offset) } catch {
      throw error.ofPack(at: offset)
    }
  }

  package func readThroughDispatch(
    offset: Int64, byteCount: Int, queue: DispatchQueue,
    completion: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void
  ) {
    file.readThroughDispatch(offset: offset, byteCount: byteCount, queue: queue) { [file] result in
      guard case .failure(let error) = result, error.isOfMedium else { return completion(result) }
      // What fails once may succeed the next time, as above.
      file.readThroughDispatch(offset: offset, byteCount: byteCount, queue: queue) { result in
        completion(result.mapError { $0.ofPack(at: offset) })
      }
    }
  }

  package func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Int? {
    file.readIfCached(into: buffer, at: offset)
  }

  // MARK: Forwarded calls: all that a pack needs

  package func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(BlobStorageError) {
    try file.write(bytes, at: offset)
  }
  package func synchronize() throws(BlobStorageError) { try file.synchronize() }
  package func beginWriteback(from offset: Int64, byteCount: Int64) {
    file.beginWriteback(from: offset, byteCount: byteCount)
  }
  package func truncate(to byteCount: Int64) throws(BlobStorageError) { try file.truncate(to: byteCount) }
  package func allocate(byteCount: Int64) throws(BlobStorageError) { try file.allocate(byteCount: byteCount) }
  package func reserve(byteCount: Int64) throws(BlobStorageError) { try file.reserve(byteCount: byteCount) }
  package func status() throws(BlobStorageError) -> FileStatus { try file.status() }
  package func lock(_ kind: LockKind, wait: Bool) throws(BlobStorageError) -> Bool {
    try file.lock(kind, wait: wait)
  }
  package func unlock() throws(BlobStorageError) { try file.unlock() }
  package func close() { file.close() }
}

extension BlobStorageError {
  /// The numbers of errors that say that the medium has lost a part of a file, or that the file system has found it
  /// damaged. The last is EUCLEAN of Linux, and no number elsewhere.
  private static let numbersOfDamage: [Int32] = [Errno.ioError.rawValue, Errno.badMessage.rawValue, 117]

  /// Whether it is damage of a pack that the medium cannot read, and not of bytes that were read.
  package var isUnreadable: Bool {
    code == .corrupted && errno.map { Self.numbersOfDamage.contains($0) } ?? false
  }

  /// Whether the medium cannot read a part of a file.
  fileprivate var isOfMedium: Bool {
    code == .io && errno.map { Self.numbersOfDamage.contains($0) } ?? false
  }

  /// The error of a read of a pack: damage, if the medium cannot read that part.
  fileprivate func ofPack(at offset: Int64) -> BlobStorageError {
    guard isOfMedium, let errno else { return self }
    return BlobStorageError(
      .corrupted,
      "The medium cannot read \(path ?? "a pack") at \(offset): \(Errno(rawValue: errno).description)",
      offset: offset, path: path, errno: errno)
  }
}
