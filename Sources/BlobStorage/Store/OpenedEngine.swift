import Synchronization

/// The engine of a store that can be opened again.
///
/// Every operation loads the engine without a lock. Earlier engines stay until the store is released: an operation may
/// still use one, which is closed.
final class OpenedEngine: Sendable {
  private let opening: BlobStore.Opening
  /// Its lock is also held while the store is opened again.
  private let engines: IOLock<[Engine]>
  /// The address of the last engine.
  private let current: Atomic<UInt>

  init(_ opening: @escaping BlobStore.Opening) throws(BlobStorageError) {
    self.opening = opening
    let engine = try opening()
    engines = IOLock([engine])
    current = Atomic(Self.address(of: engine))
  }

  var engine: Engine {
    guard let pointer = UnsafeRawPointer(bitPattern: current.load(ordering: .acquiring)) else {
      preconditionFailure("a store has an engine")
    }
    return withExtendedLifetime(self) { Unmanaged<Engine>.fromOpaque(pointer).takeUnretainedValue() }
  }

  private static func address(of engine: Engine) -> UInt {
    UInt(bitPattern: Unmanaged.passUnretained(engine).toOpaque())
  }

  func reopen() throws(BlobStorageError) {
    try engines.withLock { (engines) throws(BlobStorageError) in
      // The engine may be closed already, or fail again.
      do throws(BlobStorageError) { try engine.close() } catch {}
      let engine = try opening()
      engines.append(engine)
      current.store(Self.address(of: engine), ordering: .releasing)
    }
  }
}
