import Foundation
import Logging
import SystemPackage

/// A content-addressed store of blobs in a folder: keys with versions, deduplicated and compressed chunks.
///
/// Any number of processes, and of `BlobStore` values in each, can use one folder at the same time. Readers never wait
/// for writers or for gc. All methods may be called from any task. A store has 16 threads for reads, 16 for changes, and 16
/// for long work such as gc, imports and streams. A method suspends the caller while all threads of its kind are busy.
/// Only a small get that need not wait runs on the caller's thread. Cancelling the caller's task ends long work with
/// `cancelled`; a commit is then made whole or not at all.
///
/// A method returns nil for what is missing, and throws `corrupted` for damage. The store never returns bytes that do
/// not match their digest, unless the caller asks for ``Verification/checksum``. A part of a blob is compared with the
/// digests of its chunks.
///
/// Every method has these properties, except where its documentation says otherwise:
/// - *Errors.* `closed` after ``close()``, and once the store's path leads to another folder than the one that was
///   opened; `cancelled`; `invalidArgument` for an invalid key, and for a digest of
///   another algorithm than the store's; `io`, `permissionDenied` and `busy` because of the medium or other processes;
///   `noSpace`, `readOnly`, `poisoned` and in a bucket `fenced` for changes, and `held` for one that would drop what a
///   hold of `BlobStorageTrees` protects. A change that throws was not made, unless a sync or its publication in a
///   bucket failed: then it may have been made.
/// - *Durability.* A change is on the medium on return, unless its `durability` or its options say `relaxed`.
/// - *Cost.* A lookup takes microseconds, and more where pages of the catalog are not in memory. A change takes one
///   append, and a sync if it is durable, which concurrent changes share.
public final class BlobStore: Sendable {
  package typealias Opening = @Sendable () throws(BlobStorageError) -> Engine

  private let opened: OpenedEngine
  /// The threads for reads, so that none waits for a change.
  let reads = OperationPool()
  private let changes = OperationPool()
  /// The threads for work that takes as long as the store or its content, or a closure of the program, needs.
  let longWork = OperationPool()

  package init(_ opening: @escaping Opening) throws(BlobStorageError) { opened = try OpenedEngine(opening) }

  package var engine: Engine { opened.engine }

  /// Creates an empty store and opens it.
  ///
  /// `path` is a folder that is empty or does not exist. Missing parents are created.
  ///
  /// - Throws: `storeExists`; `notAStore` for a path that holds anything else or lies in another store;
  ///   `invalidArgument` for options out of their range. Nothing was changed.
  /// - Durability: the store is on the medium on return.
  public static func create(
    at path: some PathConvertible, options: StoreOptions = StoreOptions(),
    configuration: StoreConfiguration = StoreConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    let path = try path.pathText()
    return try await OperationPool.opening.run { () throws(BlobStorageError) in
      try Engine.create(at: path, options: options)
      return try open(at: path, configuration)
    }
  }

  package static func open(
    at path: String, _ configuration: StoreConfiguration,
    in environment: Engine.Environment = Engine.Environment()
  ) throws(BlobStorageError) -> BlobStore {
    // The process may change its working folder before it opens the store again.
    let path = try Engine.absolute(path).string
    return try BlobStore { () throws(BlobStorageError) in
      let engine = try Engine(path: path, configuration: configuration, environment: environment)
      try engine.adoptCacheLimits()
      return engine
    }
  }

  /// Opens the store at a path and recovers the packs of dead writers.
  ///
  /// - Throws: `noStore`, `notAStore`, `unsupportedFormat`, `corrupted` for a damaged header.
  /// - Complexity: lists the packs. Reads the packs of dead writers, and once in a boot the file of the catalog. If
  ///   that has to be rebuilt, reads the footers of all packs: about 5 µs for each chunk.
  public static func open(
    at path: some PathConvertible, configuration: StoreConfiguration = StoreConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    let path = try path.pathText()
    return try await OperationPool.opening.run { () throws(BlobStorageError) in
      try open(at: path, configuration)
    }
  }

  /// Opens the store at a path for reading only. No call changes anything in its folder.
  ///
  /// Calls that would change something throw `readOnly`. The value shows the store as it was when it was opened. If it
  /// needs a pack that gc has removed since, it shows the store as it is then. It cannot keep gc from removing a blob
  /// whose version another process drops meanwhile. If a folder cannot be written, as on a read-only mount,
  /// ``open(at:configuration:)`` opens it like this too.
  ///
  /// - Throws: as ``open(at:configuration:)``.
  /// - Complexity: builds a catalog of its own in the folder for temporary files, about 5 µs for each chunk.
  public static func openReadOnly(
    at path: some PathConvertible, configuration: StoreConfiguration = StoreConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    let path = try path.pathText()
    return try await OperationPool.opening.run { () throws(BlobStorageError) in
      var environment = Engine.Environment()
      environment.files = ReadOnlyFiles(environment.files)
      environment.catalogFiles = ReadOnlyFiles(environment.catalogFiles)
      return try open(at: path, configuration, in: environment)
    }
  }

  /// Opens the store at a path, or creates one if the folder is empty or does not exist.
  ///
  /// Any number of processes may call this at the same time: one creates the store, and all open it. The options are
  /// for a new store. An existing one keeps its own: see ``information``.
  ///
  /// - Throws: what ``open(at:configuration:)`` and ``create(at:options:configuration:)`` throw, except `noStore` and
  ///   `storeExists`.
  public static func openOrCreate(
    at path: some PathConvertible, options: StoreOptions = StoreOptions(),
    configuration: StoreConfiguration = StoreConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    let path = try path.pathText()
    return try await OperationPool.opening.run { () throws(BlobStorageError) in
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

  /// Whether there is a store at a path. Makes a few system calls on the caller's thread.
  public static func exists(at path: some PathConvertible) -> Bool {
    do throws(BlobStorageError) { return Engine.storeExists(at: try path.pathText()) } catch { return false }
  }

  /// Closes the store: seals the current pack, syncs it, and releases all resources.
  ///
  /// Later calls throw `closed`. A store that is not closed loses nothing: the next opening recovers it.
  ///
  /// - Throws: if changes may not be durable. The store is closed all the same.
  /// - Durability: all changes of this value are durable on return.
  public func close() async throws(BlobStorageError) { try await close {} }

  /// Closes the store as ``close()`` does, after `body`.
  package func close(
    after body: @escaping @Sendable () throws(BlobStorageError) -> Void
  ) async throws(BlobStorageError) {
    let engine = engine
    try await OperationPool.onOwnThread(mustRun: true) { () throws(BlobStorageError) in
      try body()
      try engine.close()
    }
  }

  /// Closes the store and opens it again behind this value: the remedy for `poisoned`, `fenced` and `closed`.
  ///
  /// Opens the folder that the path leads to now.
  ///
  /// Calls in progress end or throw `closed`. Earlier readers, histories and caches are closed: open them again. If
  /// opening fails, the store stays closed, and the call can be repeated.
  ///
  /// - Throws: what opening throws.
  /// - Durability: a durable change that returned is in the store afterwards. A relaxed change that a failed sync has
  ///   lost is not.
  public func reopen() async throws(BlobStorageError) {
    let opened = opened
    try await OperationPool.onOwnThread(mustRun: true) { () throws(BlobStorageError) in
      _ = try opened.reopen()
    }
  }

  /// Opens the store at the path again, on the caller's thread, because the folder of an engine was removed or exchanged.
  /// Returns the current engine, if that is another one already.
  package func reopen(abandoning lost: Engine) throws(BlobStorageError) -> Engine {
    try opened.reopen(abandoning: lost)
    return engine
  }

  /// Where the store is, and the options of `create`.
  public var information: StoreInformation { engine.information }

  /// The store's operations on the caller's thread.
  public var blocking: BlockingBlobStore { BlockingBlobStore(store: self) }

  /// Runs a read: it waits neither for changes nor for other processes.
  package func read<T: Sendable>(
    _ body: @escaping @Sendable (Engine) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let engine = engine
    return try await reads.run { () throws(BlobStorageError) in try body(engine) }
  }

  /// Runs a change. While another process holds up changes of the same keys, it takes no thread.
  ///
  /// - Parameter keys: the keys that it changes; nil for any.
  package func change<T: Sendable>(
    _ keys: [String]?, _ body: @escaping @Sendable (Engine) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let engine = engine
    return try await changes.run { resume in
      engine.catalog.isDeferred(keys?.map { Array($0.utf8) }, resume)
    } _: { () throws(BlobStorageError) in
      try body(engine)
    }
  }

  /// Runs work that takes as long as the store or its content is.
  package func work<T: Sendable>(
    _ body: @escaping @Sendable (Engine) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let engine = engine
    return try await longWork.run { () throws(BlobStorageError) in try body(engine) }
  }

  /// Runs work that may wait for a network or a medium, on a thread of the pool that opens stores in buckets.
  package static func blocking<T: Sendable>(
    _ body: @escaping @Sendable () throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    try await OperationPool.openingRemotes.run(body)
  }
}

extension BlobStore {
  /// Collects garbage: removes what neither a version nor a hold needs. Safe at any time beside readers and writers of
  /// any process.
  ///
  /// For a store with a cache, `trimAndCollectGarbage` of `BlobStorageCache` trims the cache first.
  ///
  /// - Throws: `busy` when another process has been collecting for longer than `options.timeout`, or inside a commit
  ///   for ten seconds; `invalidArgument` for options out of their range.
  public func collectGarbage(
    _ options: GarbageCollectionOptions = GarbageCollectionOptions(), progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> GarbageCollectionReport {
    try await work { (engine) throws(BlobStorageError) in try Self.collectGarbage(engine, options, progress) }
  }

  static func collectGarbage(
    _ engine: Engine, _ options: GarbageCollectionOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    try engine.watched("gc", progress) { (progress) throws(BlobStorageError) in
      try engine.collectGarbage(options, progress: progress)
    }
  }

  /// Reads everything back and checks each checksum and digest. Damage is in the report, not thrown.
  ///
  /// Records in the folder which packs were found undamaged, and when, if the folder can be written.
  ///
  /// - Parameters:
  ///   - depth: how much is read.
  ///   - share: the part of the store to read; nil for all of it. Missing packs are always looked for.
  ///   - maximumAge: reads only packs that were not found undamaged within that time on this machine, or have changed
  ///     since. Nil for all packs. Verifying only the structure does not count, and blobs are always compared.
  ///   - progress: receives the bytes that were read, and the total.
  public func verify(
    _ depth: VerificationDepth = .chunks, share: VerificationShare? = nil, maximumAge: Duration? = nil,
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> VerificationReport {
    try await work { (engine) throws(BlobStorageError) in
      try engine.watched("verify", progress) { (progress) throws(BlobStorageError) in
        try Verifier(engine, progress).run(depth, share, maximumAge: maximumAge)
      }
    }
  }

  /// Rebuilds the catalog from the packs. Saves the intact records of damaged packs and sets those packs aside, so that
  /// the next put of the same bytes heals what was lost. In a bucket damaged packs stay in place.
  ///
  /// `acceptsLosses` accepts losses for good: it drops versions that cannot be read. Their keys then answer with the
  /// previous version, if there is one, and ``losses()`` is empty. It accepts nothing while packs have records that
  /// only a later build can read.
  ///
  /// - Throws: `busy` if another process collects or repairs for a minute, or still writes to a damaged pack.
  /// - Durability: the acceptance is on the medium on return.
  public func repair(
    acceptsLosses: Bool = false, progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> RepairReport {
    try await work { (engine) throws(BlobStorageError) in
      try engine.watched("repair", progress) { (progress) throws(BlobStorageError) in
        try Repairer(engine, progress).run(acceptsLosses: acceptsLosses)
      }
    }
  }

  /// The losses that were not accepted. While there are any, answers may be out of date.
  ///
  /// For a store in a bucket, these are the losses that this machine knows; ``verify(_:share:maximumAge:progress:)``
  /// looks again.
  public func losses() async throws(BlobStorageError) -> StoreLosses {
    try await read { (engine) throws(BlobStorageError) in try engine.losses() }
  }

  /// Restores the file `store` of a store's folder if it is missing, damaged or another store's, so that the store can
  /// be opened. Returns false if the file was right. A census of another store moves to `set-aside`.
  ///
  /// - Throws: what ``open(at:configuration:)`` throws for the file, if neither the census nor a pack says what it
  ///   contained; `corrupted` if the packs belong to several stores.
  public static func restoreStoreFile(at path: some PathConvertible) async throws(BlobStorageError) -> Bool {
    let path = try path.pathText()
    return try await OperationPool.opening.run { () throws(BlobStorageError) in
      try Engine.restoreHeader(at: path)
    }
  }

  /// The long work that processes, this one included, currently do on the store at a path: imports, exports,
  /// collections, verifications, and long puts.
  ///
  /// Does not open the store. Sees only processes of the same user that could write their activity files; on a full
  /// disk, for example, they cannot.
  ///
  /// - Throws: `noStore`, `notAStore`, `unsupportedFormat`, `corrupted` for a damaged header.
  public static func activities(at path: some PathConvertible) async throws(BlobStorageError)
    -> [StoreActivity]
  {
    let path = try path.pathText()
    return try await OperationPool.opening.run { () throws(BlobStorageError) in
      try Engine.activities(at: path)
    }
  }

  /// Makes everything durable that this value stored with ``Durability/relaxed`` before the call.
  ///
  /// - Durability: on the medium; published, where packs are shared by several machines.
  public func synchronize() async throws(BlobStorageError) {
    try await change([]) { (engine) throws(BlobStorageError) in try engine.synchronize() }
  }

  /// Applies what other machines have published before the call, and returns the number of packs. Does nothing for a
  /// store in a folder, because all processes see the same.
  @discardableResult
  public func extend() async throws(BlobStorageError) -> Int {
    try await work { (engine) throws(BlobStorageError) in try engine.extend().newPackCount }
  }
}

/// Holds on blobs, which need no key.
extension BlobStore {
  /// Stores bytes without a key. gc keeps them until the hold is released; ``link(_:to:options:)`` gives them a key.
  ///
  /// - Parameters:
  ///   - content: the bytes, a file, an open descriptor or a closure.
  ///   - name: the name of the hold: 1 to 255 bytes of UTF-8.
  ///   - options: the codec. Holds are durable, and metadata belong to versions.
  ///   - progress: receives the bytes of long content that were read, and the total if it is known.
  /// - Throws: `conditionFailed` if the name holds another blob, or was released meanwhile; `invalidArgument` for an
  ///   invalid name, and for a store in a bucket; `limitExceeded` if the file `holds` is full; what
  ///   ``put(_:forKey:options:progress:)`` throws. Then the call has added no hold. A name that held the same blob
  ///   before still holds it.
  /// - Durability: durable.
  /// - Complexity: as of a durable put, and two more syncs for the hold.
  public func put(
    _ content: BlobContent, holding name: String, options: PutOptions = PutOptions(),
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> BlobHold {
    try await work { (engine) throws(BlobStorageError) in
      try BlobHolds(engine).put(content, as: name, options, progress)
    }
  }

  /// Keeps a blob from gc until the hold is released, whatever happens to its keys.
  ///
  /// - Returns: nil if the store has no blob with that digest.
  /// - Throws: what a put without a key throws, and `corrupted` for a blob that is damaged.
  /// - Durability: durable.
  /// - Complexity: reads and verifies the blob, and takes the syncs of a put without a key.
  @discardableResult
  public func hold(_ digest: BlobDigest, as name: String) async throws(BlobStorageError) -> BlobHold? {
    try await work { (engine) throws(BlobStorageError) in try BlobHolds(engine).hold(digest, as: name) }
  }

  /// Ends a hold. Returns false if there is none of that name. gc then removes the blob unless a version or another
  /// hold needs it. On a full disk it may use the store's reserve.
  ///
  /// - Throws: `corrupted` if the file `holds` cannot be read.
  /// - Durability: durable.
  @discardableResult
  public func release(_ name: String) async throws(BlobStorageError) -> Bool {
    try await change([]) { (engine) throws(BlobStorageError) in try BlobHolds(engine).release(name) }
  }

  /// All holds, by name.
  ///
  /// - Throws: `corrupted` if the file `holds` cannot be read. gc removes nothing then.
  public func holds() async throws(BlobStorageError) -> [BlobHold] {
    try await read { (engine) throws(BlobStorageError) in try BlobHolds(engine).all() }
  }
}
