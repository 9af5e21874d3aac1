import BlobStorage

/// A change that has become visible.
public enum KeyChange: Sendable, Hashable {
  /// The key has this current version.
  case set(BlobVersion)
  /// The key has no version any more.
  case deleted(String)
  /// More has changed than can be named: load everything again that you show.
  case reload
}

extension BlobStore {
  /// The changes that become visible from now on, in this process or any other, to keys of a prefix.
  ///
  /// Call it first and load what you show afterwards: then no change is missed. After its last change a key is
  /// delivered at least once, with its state at that time. So a consumer that applies each change to what it loaded
  /// shows the final state. The sequence does not promise every state on the way: several changes of a key can arrive
  /// as one. A key may also arrive without a change, after gc has moved its versions.
  ///
  /// The sequence remembers positions in packs and at most 10,000 keys, however slow the consumer is. If more has
  /// changed, or if gc has removed the records of a change, it delivers ``KeyChange/reload``.
  ///
  /// It ends when its task is cancelled and when the store is closed or opened again. The next loop over the same value
  /// delivers a change that was not delivered; two loops at once share the changes.
  ///
  /// - Parameters:
  ///   - prefix: the prefix of the keys; all keys by default.
  ///   - interval: how often it looks for changes of other processes, a millisecond at least. It looks for those of
  ///     this store at once.
  /// - Throws: `closed`, `corrupted`. The sequence throws `corrupted`, and ends when the store is closed.
  /// - Complexity: each look reads a row for each pack, and the records that are new. Changes of other machines appear
  ///   once this machine has extended its catalog.
  public func changes(
    prefix: some KeyPrefixConvertible = KeyPrefix.all, interval: Duration = .milliseconds(100)
  ) async throws(BlobStorageError) -> KeyChanges {
    let search = ChangeSearch(prefix: prefix.keyPrefix)
    let engine = try await read { (engine) throws(BlobStorageError) in
      try search.advance(engine)
      return ObjectIdentifier(engine)
    }
    // The system cannot wait for much longer than 2⁶² s.
    let interval = min(max(interval, .milliseconds(1)), .seconds(1 << 40))
    return KeyChanges(store: self, engine: engine, search: search, interval: interval)
  }
}

/// Changes of keys, for one consumer.
public struct KeyChanges: AsyncSequence, Sendable {
  let store: BlobStore
  let engine: ObjectIdentifier
  let search: ChangeSearch
  let interval: Duration

  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(self) }

  public struct AsyncIterator: AsyncIteratorProtocol {
    private let changes: KeyChanges
    private static let batchCount = 100

    init(_ changes: KeyChanges) { self.changes = changes }

    public mutating func next() async throws(BlobStorageError) -> KeyChange? {
      let search = changes.search
      while !Task.isCancelled, ObjectIdentifier(changes.store.engine) == changes.engine {
        if let change = search.removePending() { return change }
        let signal = changes.store.engine.catalog.changeSignal
        // Read before the look, so that no commit falls between.
        let count = signal.count
        do throws(BlobStorageError) {
          let isFilled = try await changes.store.read { (engine) throws(BlobStorageError) in
            try search.fill(engine, countMax: Self.batchCount)
          }
          if isFilled { continue }
        } catch {
          if error.code == .closed || error.isCancellation { return nil }
          throw error
        }
        await signal.wait(after: count, atMost: changes.interval)
      }
      return nil
    }
  }
}
