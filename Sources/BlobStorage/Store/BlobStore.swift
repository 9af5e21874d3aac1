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

  /// The store's operations on the caller's thread.
  public var blocking: BlockingBlobStore { BlockingBlobStore(store: self) }

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
  /// Collects garbage: removes what no version needs. Safe at any time beside readers and writers of any process.
  ///
  /// A store with a cache is trimmed first by `trimAndCollectGarbage` of `BlobStorageCache`.
  ///
  /// - Throws: `busy` when another process has been collecting for longer than `options.timeout`.
  public func collectGarbage(
    _ options: GarbageCollectionOptions = GarbageCollectionOptions(), progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> GarbageCollectionReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.watched("gc", progress) { (progress) throws(BlobStorageError) in
        try engine.collectGarbage(options, progress: progress)
      }
    }
  }

  /// Reads everything back and checks each checksum and digest. Damage is in the report, not thrown.
  ///
  /// Records in the folder which packs were found undamaged, and when. In a folder that cannot be written it does not.
  ///
  /// - Parameters:
  ///   - depth: how much is read.
  ///   - share: the part of the store to read; nil for all of it. What is missing is always looked for.
  ///   - maximumAge: reads only packs that were not found undamaged within that time on this machine, or have changed
  ///     since. Nil for all packs. The structure is no verification in this sense, and blobs are always compared.
  ///   - progress: receives the bytes that were read, and the total.
  public func verify(
    _ depth: VerificationDepth = .chunks, share: VerificationShare? = nil, maximumAge: Duration? = nil,
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> VerificationReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.watched("verify", progress) { (progress) throws(BlobStorageError) in
        try Verifier(engine, progress).run(depth, share, maximumAge: maximumAge)
      }
    }
  }

  /// Rebuilds the catalog from the packs. Saves the whole records of damaged packs and sets those packs aside, so that
  /// the next put of the same bytes heals what was lost.
  ///
  /// `acceptsLosses` accepts losses for good: it drops versions that cannot be read. Their keys then answer with the
  /// version before, if there is one, and ``losses()`` is empty.
  ///
  /// - Durability: the acceptance is on the medium on return.
  public func repair(
    acceptsLosses: Bool = false, progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> RepairReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.watched("repair", progress) { (progress) throws(BlobStorageError) in
        try Repairer(engine, progress).run(acceptsLosses: acceptsLosses)
      }
    }
  }

  /// The losses that were not accepted. While there are any, answers may be out of date.
  ///
  /// Of a store in a bucket it says what this machine knows; ``verify(_:share:maximumAge:progress:)`` looks again.
  public func losses() async throws(BlobStorageError) -> StoreLosses {
    try await run { (engine) throws(BlobStorageError) in try engine.losses() }
  }

  /// Restores the file `store` of a store's folder if it is missing, damaged or another store's, so that the store can
  /// be opened. False when the file was right.
  ///
  /// - Throws: `noStore`, `notAStore` when no pack says what the file contained.
  public static func restoreStoreFile(at path: some PathConvertible) async throws(BlobStorageError) -> Bool {
    let path = try path.pathText()
    return try await OperationPool.shared.run { () throws(BlobStorageError) in
      try Engine.restoreHeader(at: path)
    }
  }

  /// The long work that processes, this one included, currently do on the store at a path: imports, exports,
  /// collections, verifications, and long puts.
  ///
  /// The store is not opened. Only processes of the same user are seen, and none that could not write its activity
  /// file, for example on a full disk.
  ///
  /// - Throws: `noStore`, `notAStore`.
  public static func activities(at path: some PathConvertible) async throws(BlobStorageError)
    -> [StoreActivity]
  {
    let path = try path.pathText()
    return try await OperationPool.shared.run { () throws(BlobStorageError) in try Engine.activities(at: path)
    }
  }

  /// Makes durable what was stored with ``Durability/relaxed``: by this value, before the call.
  ///
  /// - Durability: on the medium; published, where packs are shared by several machines.
  public func synchronize() async throws(BlobStorageError) {
    try await run { (engine) throws(BlobStorageError) in try engine.synchronize() }
  }

  /// Applies what other machines have published before the call, and returns how many packs that were. For a store in a
  /// folder there is nothing to do, because all processes see the same.
  @discardableResult
  public func extend() async throws(BlobStorageError) -> Int {
    try await run { (engine) throws(BlobStorageError) in try engine.extend().newPackCount }
  }
}
