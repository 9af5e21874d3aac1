import Foundation
import Logging

/// A content-addressed store of blobs in a folder: keys with versions, deduplicated and compressed chunks.
///
/// Any number of processes, and of `BlobStore` values in each, can use one folder at the same time. Readers never wait
/// for writers or for gc. All methods may be called from any task. Each runs on a thread of the store's own and
/// suspends the caller while all threads are busy; only a small get that need not wait runs on the caller's thread.
/// Cancelling the caller's task ends long work with `cancelled`; the change is then made whole or not at all.
///
/// A missing thing is nil or `notFound`, damage is `corrupted`. Bytes that do not match their digest are never
/// returned, unless ``Verification/checksum`` is asked for.
public final class BlobStore: Sendable {
  package let engine: Engine
  let pool: OperationPool

  init(engine: Engine, pool: OperationPool) {
    self.engine = engine
    self.pool = pool
  }

  /// Creates an empty store and opens it.
  ///
  /// `path` is a folder that is empty or does not exist. Missing parents are created.
  ///
  /// - Throws: `storeExists`, `notAStore` for a path that holds anything else, `invalidArgument`; nothing was changed.
  /// - Durability: the store is on the medium on return.
  public static func create(
    at path: String, options: StoreOptions = StoreOptions(),
    configuration: StoreConfiguration = StoreConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    try await OperationPool.shared.run { () throws(BlobStorageError) in
      try Engine.create(at: path, options: options)
      return BlobStore(engine: try Engine(path: path, configuration: configuration), pool: .shared)
    }
  }

  static func open(
    at path: String, _ configuration: StoreConfiguration,
    _ environment: Engine.Environment = Engine.Environment()
  ) throws(BlobStorageError) -> BlobStore {
    let engine = try Engine(path: path, configuration: configuration, environment: environment)
    try engine.adoptCacheLimits()
    return BlobStore(engine: engine, pool: .shared)
  }

  /// Opens the store at a path and recovers the packs of dead writers.
  ///
  /// - Throws: `noStore`, `notAStore`, `unsupportedFormat`, `corrupted` for a damaged header.
  /// - Complexity: lists the packs; no chunk is read, unless the catalog has to be rebuilt.
  public static func open(
    at path: String, configuration: StoreConfiguration = StoreConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    try await OperationPool.shared.run { () throws(BlobStorageError) in
      try open(at: path, configuration)
    }
  }

  /// Whether there is a store at a path.
  public static func exists(at path: String) -> Bool { Engine.storeExists(at: path) }

  /// Closes the store: seals the current pack, syncs it, and releases all resources.
  ///
  /// Later calls throw `closed`. A store that is not closed loses nothing: the next opening recovers it.
  public func close() async throws(BlobStorageError) {
    try await run { (engine) throws(BlobStorageError) in try engine.close() }
  }

  /// Where the store is, and the options of `create`.
  public var information: StoreInformation { engine.information }

  /// Runs a blocking operation on a thread of the store's own.
  package func run<T: Sendable>(
    _ body: @escaping @Sendable (Engine) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let engine = engine
    return try await pool.run { () throws(BlobStorageError) in try body(engine) }
  }
}
