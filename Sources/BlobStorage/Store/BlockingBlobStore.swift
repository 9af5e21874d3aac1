import Foundation

/// A store whose operations run on the caller's thread and return when they are done: for programs without
/// tasks.
///
/// Do not use it inside a task: it would block one of the few threads that all tasks share. The ``BlobStore`` method of
/// the same name documents what an operation does and throws.
public struct BlockingBlobStore: Sendable {
  /// The same store for tasks.
  public let store: BlobStore

  /// Creates an empty store and opens it.
  public static func create(
    at path: some PathConvertible, options: StoreOptions = StoreOptions(),
    configuration: StoreConfiguration = StoreConfiguration()
  ) throws(BlobStorageError) -> BlockingBlobStore {
    try Engine.create(at: try path.pathText(), options: options)
    return try open(at: path, configuration: configuration)
  }

  /// Opens the store at a path.
  public static func open(
    at path: some PathConvertible, configuration: StoreConfiguration = StoreConfiguration()
  ) throws(BlobStorageError) -> BlockingBlobStore {
    try BlobStore.open(at: try path.pathText(), configuration).blocking
  }

  /// Opens the store at a path, or creates one if the folder is empty or does not exist.
  public static func openOrCreate(
    at path: some PathConvertible, options: StoreOptions = StoreOptions(),
    configuration: StoreConfiguration = StoreConfiguration()
  ) throws(BlobStorageError) -> BlockingBlobStore {
    try BlobStore.openOrCreate(at: try path.pathText(), options, configuration).blocking
  }

  /// Closes the store.
  public func close() throws(BlobStorageError) { try store.engine.close() }

  /// Makes durable what was stored with ``Durability/relaxed``.
  public func synchronize() throws(BlobStorageError) { try store.engine.synchronize() }

  /// Applies what other machines have published before the call.
  @discardableResult
  public func extend() throws(BlobStorageError) -> Int { try store.engine.extend().newPackCount }

  /// Stores bytes as the current version of a key.
  @discardableResult
  public func put(
    _ content: BlobContent, forKey key: String, options: PutOptions = PutOptions()
  ) throws(BlobStorageError) -> PutResult {
    try BlobStore.put(store.engine, key, content, options, nil)
  }

  /// Stores bytes in memory as the current version of a key.
  ///
  /// - Complexity: copies the bytes once.
  @discardableResult
  public func put(
    _ bytes: RawSpan, forKey key: String, options: PutOptions = PutOptions()
  ) throws(BlobStorageError) -> PutResult {
    let data = bytes.withUnsafeBytes { Data($0) }
    return try store.engine.put(key, .data(data), options)
  }

  /// Stores several blobs in one commit: all of them or none.
  @discardableResult
  public func put(_ items: [PutItem], options: PutOptions = PutOptions()) throws(BlobStorageError)
    -> [PutResult]
  {
    try store.engine.put(items, options)
  }

  /// Makes several changes in one commit: all of them or none.
  @discardableResult
  public func apply(
    _ changes: [BlobChange], durability: Durability = .durable
  ) throws(BlobStorageError) -> [PutResult?] {
    try store.engine.change(changes, durability)
  }

  /// Drops a key with all its versions; false when it did not exist.
  @discardableResult
  public func delete(
    _ key: String, if condition: ChangeCondition = .always, durability: Durability = .durable
  ) throws(BlobStorageError) -> Bool {
    try store.engine.delete([key], durability, if: condition) > 0
  }

  /// Drops every key of a prefix, which is not empty.
  @discardableResult
  public func delete(
    prefix: some KeyPrefixConvertible, durability: Durability = .durable
  ) throws(BlobStorageError) -> Int {
    try store.engine.delete(prefix: Engine.nonempty(prefix.keyPrefix, elseSay: "deleteAllKeys()"), durability)
  }

  /// Drops every key.
  @discardableResult
  public func deleteAllKeys(durability: Durability = .durable) throws(BlobStorageError) -> Int {
    try store.engine.delete(prefix: .all, durability)
  }

  /// Keeps the current version of a key and its youngest `archivedCount` archived ones.
  @discardableResult
  public func keep(
    upTo archivedCount: Int, of key: String, durability: Durability = .durable
  ) throws(BlobStorageError) -> RetentionResult {
    try store.engine.keep(upTo: archivedCount, keys: [key], durability)
  }

  /// Keeps the youngest `archivedCount` archived versions of every key of a scope, besides the current ones.
  @discardableResult
  public func trimHistory(
    of scope: KeyScope, toArchived archivedCount: Int, durability: Durability = .durable
  ) throws(BlobStorageError) -> RetentionResult {
    try store.engine.trimHistory(of: scope, toArchived: archivedCount, durability)
  }

  /// Removes what neither a version nor a hold needs. Safe at any time beside readers and writers of any process.
  @discardableResult
  public func collectGarbage(
    _ options: GarbageCollectionOptions = GarbageCollectionOptions()
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    try BlobStore.collectGarbage(store.engine, options, nil)
  }

  /// The bytes of a key's current or named version; nil when there is none.
  public func data(
    forKey key: String, version: BlobVersion.ID? = nil, verification: Verification = .digest
  ) throws(BlobStorageError) -> Data? {
    let engine = store.engine
    let start = engine.metrics == nil ? nil : ContinuousClock.now
    let data = try engine.data(key, version, verification)
    if let start { engine.record(data, since: start) }
    return data
  }

  /// The bytes of a version; nil when it was dropped.
  public func data(
    of version: BlobVersion, verification: Verification = .digest
  ) throws(BlobStorageError) -> Data? {
    try data(forKey: version.key, version: version.id, verification: verification)
  }

  /// All versions of a key, newest first.
  public func versions(of key: String) throws(BlobStorageError) -> [BlobVersion] {
    try store.engine.versions(key)
  }

  /// The versions that a key has now.
  public func history(of key: String) throws(BlobStorageError) -> VersionHistory {
    VersionHistory(try store.engine.holdVersions(key), pool: store.reads)
  }

  /// The bytes of one version of a history.
  public func data(at index: Int, of history: VersionHistory) throws(BlobStorageError) -> Data {
    try history.held.data(at: index)
  }

  /// Opens a key's current or named version for random access; nil when there is none.
  public func reader(forKey key: String, version: BlobVersion.ID? = nil) throws(BlobStorageError)
    -> BlobReader?
  {
    try store.engine.openBlob(key, version).map {
      BlobReader(blob: $0, reads: store.reads, longWork: store.longWork)
    }
  }

  /// Opens the blob with that digest; nil when the store does not have it.
  public func reader(for digest: BlobDigest) throws(BlobStorageError) -> BlobReader? {
    try store.engine.openBlob(digest).map {
      BlobReader(blob: $0, reads: store.reads, longWork: store.longWork)
    }
  }

  /// Up to `limit` keys of a prefix that come after `after`, in byte order.
  public func keys(
    prefix: some KeyPrefixConvertible = KeyPrefix.all, after: String? = nil, limit: Int
  ) throws(BlobStorageError) -> [KeyEntry] {
    try store.engine.keys(prefix.keyPrefix, after: after, limit: limit)
  }
}
