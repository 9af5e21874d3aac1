import Foundation
import Logging

/// A content-addressed store of blobs in a folder: keys with versions, deduplicated and compressed chunks.
///
/// Any number of processes, and of `BlobStore` values in each, read, write and collect garbage on one folder at the
/// same time. Readers never wait for writers or for gc. All methods may be called from any task; each does its work
/// on a thread of the store's own, in one hop, and suspends the caller when all of them are busy. Cancelling the
/// caller's task ends long work with `cancelled`; a change is then done whole or not at all.
///
/// Missing is nil or `notFound`, damage is `corrupted`; bytes that do not match their digest are never returned.
public final class BlobStore: Sendable {
  package let engine: Engine
  let pool: OperationPool

  init(engine: Engine, pool: OperationPool) {
    self.engine = engine
    self.pool = pool
  }

  /// Creates an empty store and opens it.
  ///
  /// - Parameter path: a folder that is empty or does not exist; missing parents are made.
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

  /// Opens the store at a path, recovering what writers that died left unfinished.
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

  /// Ends the use of the store here: seals the pack under way, forces it to the medium, lets go of everything.
  ///
  /// Later calls throw `closed`. A store that is not closed loses nothing: the next to open it does the rest.
  public func close() async throws(BlobStorageError) {
    try await run { (engine) throws(BlobStorageError) in try engine.close() }
  }

  /// Where the store is and what `create` decided.
  public var information: StoreInformation { engine.information }

  /// Moves a blocking operation to a thread of the store's.
  func run<T: Sendable>(
    _ body: @escaping @Sendable (Engine) throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    let engine = engine
    return try await pool.run { () throws(BlobStorageError) in try body(engine) }
  }
}
