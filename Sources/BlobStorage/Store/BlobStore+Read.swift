import Foundation

extension BlobStore {
  /// The bytes of a key's current or named version; nil when there is none.
  ///
  /// A blob of up to 64 KiB that is in the page cache is read on the caller's thread, without a hop to another.
  ///
  /// - Throws: `corrupted` when the bytes are damaged or missing. See ``Verification``.
  public func data(
    forKey key: String, version: BlobVersion.ID? = nil, verification: Verification = .digest
  ) async throws(BlobStorageError) -> Data? {
    if let data = engine.dataAtOnce(key, version, verification) { return data }
    return try await run { (engine) throws(BlobStorageError) in try engine.data(key, version, verification) }
  }

  /// The bytes with that digest; nil when the store has no such blob.
  public func data(
    for digest: Digest, verification: Verification = .digest
  ) async throws(BlobStorageError) -> Data? {
    if let data = engine.dataAtOnce(digest, verification) { return data }
    return try await run { (engine) throws(BlobStorageError) in try engine.data(digest, verification) }
  }

  /// Opens a key's current or named version for random access; nil when there is none.
  ///
  /// The version stays readable until the reader is closed, even if it is dropped and collected.
  public func reader(
    forKey key: String, version: BlobVersion.ID? = nil
  ) async throws(BlobStorageError) -> BlobReader? {
    let pool = pool
    return try await run { (engine) throws(BlobStorageError) in
      try engine.openBlob(key, version).map { BlobReader(blob: $0, pool: pool) }
    }
  }

  /// Opens the blob with that digest; nil when the store does not have it.
  public func reader(for digest: Digest) async throws(BlobStorageError) -> BlobReader? {
    let pool = pool
    return try await run { (engine) throws(BlobStorageError) in
      try engine.openBlob(digest).map { BlobReader(blob: $0, pool: pool) }
    }
  }

  /// The current version of a key, or nil.
  public func current(_ key: String) async throws(BlobStorageError) -> BlobVersion? {
    try await run { (engine) throws(BlobStorageError) in try engine.version(key, nil) }
  }

  /// A version by its ID, or nil.
  public func version(
    _ id: BlobVersion.ID, of key: String
  ) async throws(BlobStorageError) -> BlobVersion? {
    try await run { (engine) throws(BlobStorageError) in try engine.version(key, id) }
  }

  /// All versions of a key, newest first; empty when there is no such key.
  public func versions(of key: String) async throws(BlobStorageError) -> [BlobVersion] {
    try await run { (engine) throws(BlobStorageError) in try engine.versions(key) }
  }

  /// All current versions of a key. They stay readable until the history is closed.
  public func history(of key: String) async throws(BlobStorageError) -> VersionHistory {
    let pool = pool
    return try await run { (engine) throws(BlobStorageError) in
      VersionHistory(versions: try engine.holdVersions(key), engine: engine, pool: pool)
    }
  }

  /// Up to `limit` keys that begin with `prefix` and come after `after`, in byte order.
  public func keys(
    prefix: String = "", after: String? = nil, limit: Int
  ) async throws(BlobStorageError) -> [KeyEntry] {
    try await run { (engine) throws(BlobStorageError) in try engine.keys(prefix, after: after, limit: limit) }
  }

  /// All keys that begin with `prefix`, in byte order, fetched a page at a time.
  ///
  /// Keys that are put or dropped meanwhile may be missing. Every other key appears once.
  public func keys(prefix: String = "") -> KeySequence { KeySequence(store: self, prefix: prefix) }
}

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
