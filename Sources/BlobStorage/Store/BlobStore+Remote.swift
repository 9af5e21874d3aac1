extension BlobStore {
  /// Creates an empty store of objects and opens it.
  ///
  /// - Parameter isMaintained: whether puts of one name are not kept apart there: then garbage is collected from this
  ///   state folder only.
  /// - Throws: `storeExists`, `notAStore` where there is anything else.
  package static func create(
    in objects: any ObjectStore, state: String, options: StoreOptions = StoreOptions(),
    isMaintained: Bool = false, configuration: StoreConfiguration = StoreConfiguration(),
    remote: RemoteConfiguration = RemoteConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    try await OperationPool.opening.run { () throws(BlobStorageError) in
      if isMaintained {
        try Engine.create(in: objects, maintainedFrom: state, options: options)
      } else {
        try Engine.create(in: objects, options: options)
      }
    }
    return try await open(objects, state: state, configuration: configuration, remote: remote)
  }

  /// Opens a store of objects, and brings this machine up to it.
  ///
  /// - Parameter state: a folder for what this machine knows of it, made when it is missing. Processes of one machine
  ///   share it; losing it loses nothing that was published.
  /// - Throws: `noStore`, `notAStore`, also for a state folder that belongs to another store.
  package static func open(
    _ objects: any ObjectStore, state: String, configuration: StoreConfiguration = StoreConfiguration(),
    remote: RemoteConfiguration = RemoteConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    try await OperationPool.opening.run { () throws(BlobStorageError) in
      let engine = try Engine(
        path: state, configuration: configuration,
        remote: Engine.Remote(objects: objects, configuration: remote))
      return BlobStore(engine: engine, pool: OperationPool(width: OperationPool.defaultWidth))
    }
  }

  /// Runs what waits for a network or a medium on a thread that may.
  package static func blocking<T: Sendable>(
    _ body: @escaping @Sendable () throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    try await OperationPool.opening.run(body)
  }

  /// Makes durable what was stored with ``Durability/relaxed``: by this value, before the call.
  ///
  /// - Durability: on the medium; published, where packs are shared by several machines.
  public func synchronize() async throws(BlobStorageError) {
    try await run { (engine) throws(BlobStorageError) in try engine.synchronize() }
  }

  /// Takes in what other machines have published before the call, and says how many packs that were. For a store in a
  /// folder there is nothing to do: all processes see the same.
  @discardableResult
  public func catchUp() async throws(BlobStorageError) -> Int {
    try await run { (engine) throws(BlobStorageError) in try engine.catchUp().newPackCount }
  }
}

extension BlockingBlobStore {
  /// Makes durable what was stored with ``Durability/relaxed``.
  public func synchronize() throws(BlobStorageError) { try store.engine.synchronize() }

  /// Takes in what other machines have published before the call.
  @discardableResult
  public func catchUp() throws(BlobStorageError) -> Int { try store.engine.catchUp().newPackCount }
}
