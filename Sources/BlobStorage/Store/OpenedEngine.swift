import Synchronization

/// The engine of a store that can be opened again.
///
/// An operation keeps the engine that it began with. An earlier engine, which is closed, ends with the last operation
/// that uses it.
final class OpenedEngine: Sendable {
  private let opening: BlobStore.Opening
  private let current: Mutex<Engine>
  /// Held while the store is opened again.
  private let turn = IOLock<Void>(())

  init(_ opening: @escaping BlobStore.Opening) throws(BlobStorageError) {
    self.opening = opening
    current = Mutex(try opening())
  }

  var engine: Engine { current.withLock { $0 } }

  /// - Parameter lost: an engine whose folder is gone, so that nothing is written for it. If it is not the current one,
  ///   nothing happens.
  /// - Returns: the engine that is current now.
  @discardableResult
  func reopen(abandoning lost: Engine? = nil) throws(BlobStorageError) -> Engine {
    try turn.withLock { (_) throws(BlobStorageError) in
      let engine = engine
      if let lost {
        guard engine === lost else { return engine }
        lost.abandon()
      } else {
        // The engine may be closed already, or fail again.
        do throws(BlobStorageError) { try engine.close() } catch {}
      }
      let new = try opening()
      // The earlier one is returned, so that it ends outside the mutex.
      _ = current.withLock { engine in
        let earlier = engine
        engine = new
        return earlier
      }
      return new
    }
  }
}
