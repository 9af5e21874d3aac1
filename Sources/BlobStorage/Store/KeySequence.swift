/// Keys in byte order.
public struct KeySequence: AsyncSequence, Sendable {
  let store: BlobStore
  let prefix: KeyPrefix

  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(store: store, prefix: prefix) }

  public struct AsyncIterator: AsyncIteratorProtocol {
    fileprivate let store: BlobStore
    fileprivate let prefix: KeyPrefix
    fileprivate var page: ArraySlice<KeyEntry> = []
    fileprivate var last: String?
    fileprivate var isAtEnd = false
    private static let pageCount = 1_000

    public mutating func next() async throws(BlobStorageError) -> KeyEntry? {
      if page.isEmpty, !isAtEnd {
        let (prefix, last) = (prefix, last)
        let fetched = try await store.read { (engine) throws(BlobStorageError) in
          try CancellationFlag.check()
          return try engine.keys(prefix, after: last, limit: Self.pageCount)
        }
        isAtEnd = fetched.count < Self.pageCount
        // A forged store may have keys that are not UTF-8.
        if let last, let key = fetched.last?.key, !last.utf8.lexicographicallyPrecedes(key.utf8) {
          throw BlobStorageError(.corrupted, "A key in the store is not UTF-8: it cannot be listed.")
        }
        self.last = fetched.last?.key
        page = fetched[...]
      }
      return page.popFirst()
    }
  }
}
