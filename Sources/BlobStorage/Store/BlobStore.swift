import Foundation
import Logging
import SystemPackage

/// A content-addressed store of blobs in a folder: keys with versions, deduplicated and compressed chunks.
///
/// Any number of processes, and of `BlobStore` values in each, can use one folder at the same time. Readers never wait
/// for writers or for gc. All methods may be called from any task. Each runs on a thread of the store's own and
/// suspends the caller while all threads are busy; only a small get that need not wait runs on the caller's thread.
/// Cancelling the caller's task ends long work with `cancelled`; the change is then made whole or not at all.
///
/// A missing thing is nil, damage is `corrupted`. Bytes that do not match their digest are never
/// returned, unless ``Verification/checksum`` is asked for.
///
/// This holds for every method; what differs is said there:
/// - *Errors.* `closed` after ``close()``; `cancelled`; `invalidArgument` for a key that cannot be one; `io`,
///   `permissionDenied` and `busy` as the medium and other processes cause them; `noSpace`, `readOnly` and `poisoned` for
///   changes. A change that throws was not made, except where its sync or its publication in a bucket fails: then it may
///   be there.
/// - *Durability.* A change is on the medium on return, unless its `durability` or its options say `relaxed`.
/// - *Cost.* A lookup takes microseconds, and more where pages of the catalog are not in memory. A change takes one
///   append, and a sync if it is durable, which concurrent changes share.
public final class BlobStore: Sendable {
  package typealias Opening = @Sendable () throws(BlobStorageError) -> Engine

  private let opened: OpenedEngine
  let pool: OperationPool

  init(pool: OperationPool, _ opening: @escaping Opening) throws(BlobStorageError) {
    opened = try OpenedEngine(opening)
    self.pool = pool
  }

  package var engine: Engine { opened.engine }

  /// Creates an empty store and opens it.
  ///
  /// `path` is a folder that is empty or does not exist. Missing parents are created.
  ///
  /// - Throws: `storeExists`, `notAStore` for a path that holds anything else, `invalidArgument`; nothing was changed.
  /// - Durability: the store is on the medium on return.
  public static func create(
    at path: some PathConvertible, options: StoreOptions = StoreOptions(),
    configuration: StoreConfiguration = StoreConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    let path = try path.pathText()
    return try await OperationPool.shared.run { () throws(BlobStorageError) in
      try Engine.create(at: path, options: options)
      return try open(at: path, configuration)
    }
  }

  package static func open(
    at path: String, _ configuration: StoreConfiguration,
    in environment: Engine.Environment = Engine.Environment()
  ) throws(BlobStorageError) -> BlobStore {
    // A program may change its folder before it opens the store again.
    let path = try Engine.absolute(path).string
    return try BlobStore(pool: .shared) { () throws(BlobStorageError) in
      let engine = try Engine(path: path, configuration: configuration, environment: environment)
      try engine.adoptCacheLimits()
      return engine
    }
  }

  /// Opens the store at a path and recovers the packs of dead writers.
  ///
  /// - Throws: `noStore`, `notAStore`, `unsupportedFormat`, `corrupted` for a damaged header.
  /// - Complexity: lists the packs; no chunk is read, unless the catalog has to be rebuilt.
  public static func open(
    at path: some PathConvertible, configuration: StoreConfiguration = StoreConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    let path = try path.pathText()
    return try await OperationPool.shared.run { () throws(BlobStorageError) in
      try open(at: path, configuration)
    }
  }

  /// Opens the store at a path for reading only. Nothing in its folder is changed, whatever is called.
  ///
  /// Calls that would change something throw `readOnly`. The value shows the store as it was when it was opened. It
  /// cannot keep gc from removing a version that another process drops meanwhile; its blob is then missing. A folder that
  /// cannot be written, as on a read-only mount, is opened like this by ``open(at:configuration:)`` too.
  ///
  /// - Throws: as ``open(at:configuration:)``.
  /// - Complexity: makes a catalog of its own from the packs, about 5 µs for each chunk.
  public static func openReadOnly(
    at path: some PathConvertible, configuration: StoreConfiguration = StoreConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    let path = try path.pathText()
    return try await OperationPool.shared.run { () throws(BlobStorageError) in
      var environment = Engine.Environment()
      environment.files = ReadOnlyFiles(environment.files)
      environment.catalogFiles = ReadOnlyFiles(environment.catalogFiles)
      return try open(at: path, configuration, in: environment)
    }
  }

  /// Opens the store at a path, or creates one if the folder is empty or does not exist.
  ///
  /// Any number of processes may call this at the same time: one creates the store, and all open it. The options are those
  /// of a new store. An existing one keeps its own: see ``information``.
  ///
  /// - Throws: what ``open(at:configuration:)`` and ``create(at:options:configuration:)`` throw, but neither `noStore` nor
  ///   `storeExists`.
  public static func openOrCreate(
    at path: some PathConvertible, options: StoreOptions = StoreOptions(),
    configuration: StoreConfiguration = StoreConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    let path = try path.pathText()
    return try await OperationPool.shared.run { () throws(BlobStorageError) in
      try openOrCreate(at: path, options, configuration)
    }
  }

  static func openOrCreate(
    at path: String, _ options: StoreOptions, _ configuration: StoreConfiguration
  ) throws(BlobStorageError) -> BlobStore {
    do throws(BlobStorageError) { return try open(at: path, configuration) } catch {
      guard error.code == .noStore else { throw error }
    }
    do throws(BlobStorageError) { try Engine.create(at: path, options: options) } catch {
      guard error.code == .storeExists else { throw error }
    }
    return try open(at: path, configuration)
  }

  /// Whether there is a store at a path.
  public static func exists(at path: some PathConvertible) -> Bool {
    do throws(BlobStorageError) { return Engine.storeExists(at: try path.pathText()) } catch { return false }
  }

  /// Closes the store: seals the current pack, syncs it, and releases all resources.
  ///
  /// Later calls throw `closed`. A store that is not closed loses nothing: the next opening recovers it.
  public func close() async throws(BlobStorageError) {
    try await run(mustRun: true) { (engine) throws(BlobStorageError) in try engine.close() }
  }

  /// Closes the store and opens it again behind this value: the way on after `poisoned`, `fenced` or `closed`.
  ///
  /// Calls under way end or throw `closed`. Readers, histories and caches of before are closed: open them again. If opening
  /// fails, the store stays closed, and the call can be repeated.
  ///
  /// - Throws: what opening throws.
  /// - Durability: a durable change that returned is there afterwards. What was relaxed and lost to a failed sync is not.
  public func reopen() async throws(BlobStorageError) {
    let opened = opened
    try await pool.run(mustRun: true) { () throws(BlobStorageError) in try opened.reopen() }
  }

  /// Where the store is, and the options of `create`.
  public var information: StoreInformation { engine.information }

  /// Runs a blocking operation on a thread of the store's own.
  ///
  /// - Parameter mustRun: whether it runs even if the task is cancelled before a thread is free.
  package func run<T: Sendable>(
    mustRun: Bool = false, _ body: @escaping @Sendable (Engine) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let engine = engine
    return try await pool.run(mustRun: mustRun) { () throws(BlobStorageError) in try body(engine) }
  }

  /// A store whose operations may wait for a network: it gets threads of its own.
  package convenience init(waiting opening: @escaping Opening) throws(BlobStorageError) {
    try self.init(pool: OperationPool(width: OperationPool.defaultWidth), opening)
  }

  /// Runs what waits for a network or a medium on a thread that may.
  package static func blocking<T: Sendable>(
    _ body: @escaping @Sendable () throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    try await OperationPool.opening.run(body)
  }
}

extension BlobStore {
  // MARK: Reading

  /// The bytes of a key's current or named version; nil when there is none.
  ///
  /// A blob of one chunk and up to 64 KiB that is in the page cache is read on the caller's thread, without a hop to
  /// another.
  ///
  /// - Throws: `corrupted` when the bytes are damaged or missing. See ``Verification``.
  public func data(
    forKey key: String, version: BlobVersion.ID? = nil, verification: Verification = .digest
  ) async throws(BlobStorageError) -> Data? {
    let start = engine.metrics == nil ? nil : ContinuousClock.now
    var data = engine.dataAtOnce(key, version, verification)
    if data == nil {
      data = try await run { (engine) throws(BlobStorageError) in try engine.data(key, version, verification)
      }
    }
    if let start { engine.record(data ?? nil, since: start) }
    return data ?? nil
  }

  /// The bytes with that digest; nil when the store has no such blob.
  public func data(
    for digest: BlobDigest, verification: Verification = .digest
  ) async throws(BlobStorageError) -> Data? {
    let start = engine.metrics == nil ? nil : ContinuousClock.now
    var data = engine.dataAtOnce(digest, verification)
    if data == nil {
      data = try await run { (engine) throws(BlobStorageError) in try engine.data(digest, verification) }
    }
    if let start { engine.record(data ?? nil, since: start) }
    return data ?? nil
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
  public func reader(for digest: BlobDigest) async throws(BlobStorageError) -> BlobReader? {
    let pool = pool
    return try await run { (engine) throws(BlobStorageError) in
      try engine.openBlob(digest).map { BlobReader(blob: $0, pool: pool) }
    }
  }

  /// Whether the store has a blob with that digest. Unless a version or a hold has it, gc may remove it at any time.
  ///
  /// - Complexity: a lookup; a blob of several chunks takes one read.
  public func contains(_ digest: BlobDigest) async throws(BlobStorageError) -> Bool {
    try await run { (engine) throws(BlobStorageError) in try engine.contains(digest) }
  }

  /// The current version of a key, or nil.
  public func currentVersion(of key: String) async throws(BlobStorageError) -> BlobVersion? {
    try await run { (engine) throws(BlobStorageError) in try engine.version(key, nil) }
  }

  /// A version by its ID, or nil.
  public func version(
    _ id: BlobVersion.ID, of key: String
  ) async throws(BlobStorageError) -> BlobVersion? {
    try await run { (engine) throws(BlobStorageError) in try engine.version(key, id) }
  }

  /// All versions of a key, newest first; empty when there is no such key.
  ///
  /// - Complexity: memory for each version.
  public func versions(of key: String) async throws(BlobStorageError) -> [BlobVersion] {
    try await run { (engine) throws(BlobStorageError) in try engine.versions(key) }
  }

  /// All current versions of a key. They stay readable until the history is closed.
  ///
  /// - Complexity: writes a lease for each version.
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
  /// Keys that are put or dropped meanwhile may be missing. Every other key appears once. Its iterator throws what
  /// ``keys(prefix:after:limit:)`` throws.
  public func keys(prefix: String = "") -> KeySequence { KeySequence(store: self, prefix: prefix) }

  // MARK: Changing

  /// Stores bytes as the current version of a key.
  ///
  /// - Parameters:
  ///   - content: the bytes, a file, an open descriptor or a closure.
  ///   - key: 1 to 4,096 bytes of UTF-8 without NUL; compared byte by byte.
  ///   - options: durability, condition, codec, metadata, and what happens to the previous version.
  ///   - progress: receives the bytes of long content that were read, and the total if it is known.
  /// - Throws: `invalidArgument`, `conditionFailed`, `sourceFailed`, `noSpace`, `busy`, `poisoned`, `io`, `cancelled`;
  ///   the key is then unchanged. In a bucket, a durable put also throws if publishing fails, and `cancelled` while it
  ///   waits. Then this machine keeps the new version and publishes it later.
  /// - Durability: as `options` says, including every chunk that the blob shares with others.
  /// - Complexity: memory is bounded for any length. A small blob takes one append and, if durable, one sync.
  @discardableResult
  public func put(
    _ content: BlobContent, forKey key: String, options: PutOptions = PutOptions(),
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> PutResult {
    try await run { (engine) throws(BlobStorageError) in
      try Self.put(engine, key, content, options, progress)
    }
  }

  static func put(
    _ engine: Engine, _ key: String, _ content: BlobContent, _ options: PutOptions,
    _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> PutResult {
    if case .data = content { return try engine.put(key, content, options, progress) }
    return try engine.watched("put", on: key, byteCountMin: 16 << 20, progress) {
      (progress) throws(BlobStorageError) in try engine.put(key, content, options, progress)
    }
  }

  /// Stores bytes as the current version of a key.
  ///
  /// - Parameters:
  ///   - key: 1 to 4,096 bytes of UTF-8 without NUL; compared byte by byte.
  ///   - data: the bytes.
  ///   - archivingCurrent: whether the previous version stays in the key's history. By default it is dropped.
  ///   - durability: how safe the change is on return.
  /// - Throws: what ``put(_:forKey:options:progress:)`` throws; the key is then unchanged.
  @discardableResult
  public func set(
    _ key: String, to data: Data, archivingCurrent: Bool = false, durability: Durability = .durable
  ) async throws(BlobStorageError) -> PutResult {
    let options = PutOptions(
      durability: durability, replacement: archivingCurrent ? .archiveCurrent : .replaceCurrent)
    return try await put(.data(data), forKey: key, options: options)
  }

  /// The same with options, which say how durable it is.
  @discardableResult
  public func set(
    _ key: String, to data: Data, options: PutOptions
  ) async throws(BlobStorageError) -> PutResult {
    try await put(.data(data), forKey: key, options: options)
  }

  /// Stores several blobs in one commit: all of them or none. Meant for many small ones.
  ///
  /// Ignores the metadata and media type of `options`, because each item has its own.
  ///
  /// - Returns: one result per item, in their order.
  /// - Throws: `limitExceeded` for an item of more than 16 MiB or a batch that is too long for one commit;
  ///   `conditionFailed`. Nothing was changed.
  /// - Complexity: the items are in memory. They take one append and, if durable, one sync together.
  @discardableResult
  public func put(
    _ items: [PutItem], options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> [PutResult] {
    try await run { (engine) throws(BlobStorageError) in try engine.put(items, options) }
  }

  /// Makes several changes in one commit: all of them or none. A batch of deletions succeeds on a full disk.
  ///
  /// There is at most one change for each key.
  ///
  /// - Returns: for each change, in their order, what a put stored, and nil for a deletion.
  /// - Throws: `conditionFailed` when a condition does not hold; `invalidArgument` for conditions in a store in a
  ///   bucket.
  @discardableResult
  public func apply(
    _ changes: [BlobChange], durability: Durability = .durable
  ) async throws(BlobStorageError) -> [PutResult?] {
    try await run { (engine) throws(BlobStorageError) in try engine.change(changes, durability) }
  }

  /// Drops keys with all their versions, in one commit. Succeeds on a full disk.
  ///
  /// - Returns: the number of keys that existed.
  @discardableResult
  public func delete(
    _ keys: [String], durability: Durability = .durable
  ) async throws(BlobStorageError) -> Int {
    try await run { (engine) throws(BlobStorageError) in try engine.delete(keys, durability) }
  }

  /// Drops a key with all its versions; false when it did not exist.
  ///
  /// - Throws: `conditionFailed` when `condition` does not hold.
  @discardableResult
  public func delete(
    _ key: String, if condition: ChangeCondition = .always, durability: Durability = .durable
  ) async throws(BlobStorageError) -> Bool {
    try await run { (engine) throws(BlobStorageError) in
      try engine.delete([key], durability, if: condition) > 0
    }
  }

  /// Drops every key that begins with `prefix`, some thousand in a commit. If it fails, some may be gone.
  ///
  /// - Returns: the number of keys that existed.
  /// - Throws: `invalidArgument` for the empty prefix, which is most often a mistake: ``deleteAllKeys(durability:)``
  ///   drops every key.
  @discardableResult
  public func delete(
    prefix: String, durability: Durability = .durable
  ) async throws(BlobStorageError) -> Int {
    try await run { (engine) throws(BlobStorageError) in
      try engine.delete(prefix: Engine.nonempty(prefix, elseSay: "deleteAllKeys()"), durability)
    }
  }

  /// Drops every key, some thousand in a commit. If it fails, some may be gone.
  ///
  /// - Returns: the number of keys that existed.
  @discardableResult
  public func deleteAllKeys(durability: Durability = .durable) async throws(BlobStorageError) -> Int {
    try await run { (engine) throws(BlobStorageError) in try engine.delete(prefix: "", durability) }
  }

  /// Drops one version of a key; false if it is not there. If it was the current one, the version before becomes current.
  @discardableResult
  public func delete(
    version id: BlobVersion.ID, of key: String, durability: Durability = .durable
  ) async throws(BlobStorageError) -> Bool {
    try await run { (engine) throws(BlobStorageError) in try engine.delete(version: id, of: key, durability) }
  }

  // MARK: Versions of other keys

  /// Makes a blob that the store has the current version of a key.
  ///
  /// - Returns: nil if the store has no blob with that digest; then nothing was changed.
  /// - Throws: what ``put(_:forKey:options:progress:)`` throws, and `corrupted` for a blob that is damaged.
  /// - Durability: as `options` says.
  /// - Complexity: reads and verifies the blob, and stores a ref and no bytes.
  @discardableResult
  public func link(
    _ key: String, to digest: BlobDigest, options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> PutResult? {
    try await run { (engine) throws(BlobStorageError) in try engine.link(key, to: digest, options) }
  }

  /// Makes an earlier version of a key its current one, as a new version with the same bytes and metadata. The version
  /// that was current stays in the history by default.
  ///
  /// - Returns: nil if the key has no such version; then nothing was changed.
  /// - Complexity: stores a ref and no bytes.
  @discardableResult
  public func restore(
    _ id: BlobVersion.ID, of key: String, replacement: Replacement = .archiveCurrent,
    durability: Durability = .durable
  ) async throws(BlobStorageError) -> PutResult? {
    let options = PutOptions(durability: durability, replacement: replacement)
    return try await run { (engine) throws(BlobStorageError) in
      try engine.putVersion(id, of: key, as: key, options)
    }
  }

  /// Makes the current or named version of a key the current version of another key, with the same bytes and metadata.
  ///
  /// The options say how durable it is, its condition, and what happens to the previous version of `target`. Their codec
  /// and metadata are ignored.
  ///
  /// - Returns: nil if there is no such version; then nothing was changed.
  /// - Throws: `conditionFailed`; `busy` while gc is moving what the version needs. Then nothing was changed.
  /// - Complexity: stores a ref and no bytes.
  @discardableResult
  public func duplicate(
    _ key: String, version: BlobVersion.ID? = nil, as target: String, options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> PutResult? {
    try await run { (engine) throws(BlobStorageError) in
      try engine.putVersion(version, of: key, as: target, options)
    }
  }

  /// Gives a key another name, in one commit. Its versions keep their bytes, dates, metadata and order, and get new IDs.
  ///
  /// - Returns: false if there is no such key.
  /// - Throws: `conditionFailed` if `target` exists; `busy` while gc is moving what a version needs; `invalidArgument` in
  ///   a store in a bucket, where another machine could create it at the same time. Then nothing was changed.
  @discardableResult
  public func rename(
    _ key: String, to target: String, durability: Durability = .durable
  ) async throws(BlobStorageError) -> Bool {
    try await run { (engine) throws(BlobStorageError) in try engine.rename(key, to: target, durability) }
  }

  // MARK: Retention

  /// Keeps the current version of a key and its youngest `archivedCount` archived ones, and drops the others.
  ///
  /// - Throws: `invalidArgument` for a negative count; nothing was changed.
  @discardableResult
  public func keep(
    upTo archivedCount: Int, of key: String, durability: Durability = .durable
  ) async throws(BlobStorageError) -> RetentionResult {
    try await run { (engine) throws(BlobStorageError) in
      try engine.keep(upTo: archivedCount, keys: [key], durability)
    }
  }

  /// The same for every key of a scope.
  ///
  /// - Throws: `invalidArgument` for a negative count and for the empty prefix, which is most often a mistake:
  ///   ``KeyScope/all`` means every key. Nothing was changed.
  /// - Complexity: looks at each key that has archived versions; the changes take as many commits as their length needs.
  @discardableResult
  public func trimHistory(
    of scope: KeyScope, toArchived archivedCount: Int, durability: Durability = .durable
  ) async throws(BlobStorageError) -> RetentionResult {
    try await run { (engine) throws(BlobStorageError) in
      try engine.trimHistory(of: scope, toArchived: archivedCount, durability)
    }
  }

  // MARK: Values

  /// Stores a value as the current version of a key. A value that cannot be converted changes nothing.
  ///
  /// - Throws: `sourceFailed` when the conversion fails, and what ``put(_:forKey:options:progress:)`` throws.
  @discardableResult
  public func set<Value: Sendable>(
    _ key: String, to value: Value, as format: BlobFormat<Value>, options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> PutResult {
    try await run { (engine) throws(BlobStorageError) in
      try engine.put(key, .data(try format.data(of: value, key: key)), options)
    }
  }

  /// The same in JSON.
  @discardableResult
  public func set<Value: Codable & Sendable>(
    _ key: String, to value: Value, options: PutOptions = PutOptions()
  ) async throws(BlobStorageError) -> PutResult {
    try await set(key, to: value, as: .json, options: options)
  }

  /// The value of a key's current or named version; nil when there is none.
  ///
  /// - Throws: `sourceFailed` when the bytes are right and the conversion fails, `corrupted` when they are not.
  public func value<Value: Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, version: BlobVersion.ID? = nil,
    as format: BlobFormat<Value>
  ) async throws(BlobStorageError) -> Value? {
    try await run { (engine) throws(BlobStorageError) in
      guard let data = try engine.data(key, version) else { return nil }
      return try format.value(of: data, key: key)
    }
  }

  /// The bytes themselves, as ``data(forKey:version:verification:)`` gives them.
  public func value(
    _ type: Data.Type = Data.self, forKey key: String, version: BlobVersion.ID? = nil
  ) async throws(BlobStorageError) -> Data? {
    try await data(forKey: key, version: version)
  }

  /// The same of JSON.
  public func value<Value: Codable & Sendable>(
    _ type: Value.Type = Value.self, forKey key: String, version: BlobVersion.ID? = nil
  ) async throws(BlobStorageError) -> Value? {
    try await value(type, forKey: key, version: version, as: .json)
  }
}
