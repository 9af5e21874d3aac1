import CBlobKernels
import Dispatch
import Synchronization
import SystemPackage

extension SystemFile {
  package func readThroughDispatch(
    offset: Int64, byteCount: Int, queue: DispatchQueue,
    completion: @escaping @Sendable (Result<DispatchData, BlobStorageError>) -> Void
  ) {
    precondition(offset >= 0 && byteCount >= 0)
    let gathered = Gathered()
    let path = self.path
    do throws(BlobStorageError) {
      try channel.withLock { (channel) throws(BlobStorageError) in
        if channel == nil { channel = try makeChannel() }
        // Only hands the read over; under the lock, so that closing cannot come in between.
        channel?.read(offset: numericCast(offset), length: byteCount, queue: queue) { isLast, data, errno in
          guard let data = gathered.add(data, isLast: isLast || errno != 0) else { return }
          if errno != 0 {
            completion(.failure(.systemCall("read", path: path, errno: errno)))
          } else {
            completion(.success(data))
          }
        }
      }
    } catch {
      queue.async { completion(.failure(error)) }
    }
  }

  /// A channel that owns a duplicate of the descriptor, so that the file can be closed while it still reads.
  private func makeChannel() throws(BlobStorageError) -> DispatchIO {
    let duplicate = Int32(try call("duplicate the descriptor of") { bs_duplicate($0) })
    return DispatchIO(
      type: .random, fileDescriptor: duplicate, queue: .global(),
      cleanupHandler: { _ in closeDescriptor(duplicate) })
  }
}

/// What has arrived of one read.
///
/// Unchecked, because DispatchData is not Sendable on every platform: the channel calls its handler once for every
/// piece, one call at a time whatever the queue, and nothing else sees this object.
private final class Gathered: @unchecked Sendable {
  private var data = DispatchData.empty
  private var isDone = false

  /// Adds a piece; returns all of them with the last piece, and nil ever after.
  func add(_ piece: DispatchData?, isLast: Bool) -> DispatchData? {
    if isDone { return nil }
    if let piece { data.append(piece) }
    isDone = isLast
    return isLast ? data : nil
  }
}
