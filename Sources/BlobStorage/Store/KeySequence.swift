/// Keys in byte order.
public struct KeySequence: AsyncSequence, Sendable {
  let store: BlobStore
  let prefix: String

  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(store: store, prefix: prefix) }

  public struct AsyncIterator: AsyncIteratorProtocol {
    private let store: BlobStore
    private let prefix: String
    private var page: ArraySlice<KeyEntry> = []
    private var last: String?
    private var isAtEnd = false
    private static let pageCount = 1_000

    init(store: BlobStore, prefix: String) {
      self.store = store
      self.prefix = prefix
    }

    public mutating func next() async throws(BlobStorageError) -> KeyEntry? {
      if page.isEmpty, !isAtEnd {
        let fetched = try await store.keys(prefix: prefix, after: last, limit: Self.pageCount)
        isAtEnd = fetched.count < Self.pageCount
        last = fetched.last?.key
        page = fetched[...]
      }
      return page.popFirst()
    }
  }
}
