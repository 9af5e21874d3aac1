import BlobStorage
import BlobStorageSharing
import Synchronization

/// One machine's client of a simulated object store. Once killed, all its calls throw `simulatedStop`.
package final class SimulatedClient: ObjectStore {
  package let store: SimulatedObjectStore
  private let hook: SimulatedObjectStore.Hook
  private let killed = Atomic<Bool>(false)
  private let requests = Atomic<Int>(0)

  init(store: SimulatedObjectStore, hook: @escaping SimulatedObjectStore.Hook) {
    self.store = store
    self.hook = hook
  }

  package var isAlive: Bool { !killed.load(ordering: .acquiring) }
  /// The number of requests begun.
  package var requestCount: Int { requests.load(ordering: .relaxed) }

  package func kill() { killed.store(true, ordering: .releasing) }

  private func step(_ call: ObjectCall) throws(BlobStorageError) {
    requests.add(1, ordering: .relaxed)
    if !isAlive { throw BlobStorageError.simulatedStop }
    try hook(call)
    // The hook may have killed the client while others had their turn.
    if !isAlive { throw BlobStorageError.simulatedStop }
  }

  private var stepping: SimulatedObjectStore.Hook {
    { [self] (call) throws(BlobStorageError) in try step(call) }
  }

  package func put(
    _ name: String, _ content: ObjectContent, ifAbsent: Bool
  ) throws(BlobStorageError) -> ObjectPutOutcome {
    try store.put(name, content, ifAbsent: ifAbsent, stepping)
  }

  package func get(_ name: String, _ range: Range<Int64>) throws(BlobStorageError) -> [UInt8]? {
    try store.get(name, range, stepping)
  }

  package func tail(
    _ name: String, byteCount: Int
  ) throws(BlobStorageError) -> (bytes: [UInt8], byteCount: Int64)? {
    try store.tail(name, byteCount, stepping)
  }

  package func list(_ prefix: String, after name: String?) throws(BlobStorageError) -> ObjectPage {
    try store.list(prefix, after: name, stepping)
  }

  package func delete(_ name: String) throws(BlobStorageError) { try store.delete(name, stepping) }
}
