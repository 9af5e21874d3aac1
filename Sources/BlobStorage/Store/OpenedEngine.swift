import Synchronization

/// The engine of a store, which can be opened again.
///
/// Every operation loads it, so it takes no lock to do so. Engines of before stay until the store goes: an operation may
/// still use one, which is closed.
final class OpenedEngine: Sendable {
  private let opening: BlobStore.Opening
  /// Also held while the store is opened again.
  private let engines: IOLock<[Engine]>
  /// The address of the last of them.
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
      // It may be closed, or fail as before.
      do throws(BlobStorageError) { try engine.close() } catch {}
      let engine = try opening()
      engines.append(engine)
      current.store(Self.address(of: engine), ordering: .releasing)
    }
  }
}
