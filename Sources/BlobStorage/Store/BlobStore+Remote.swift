extension BlobStore {
  /// Creates an empty store of objects and opens it.
  ///
  /// - Parameter isMaintained: whether the object store lacks conditional put. Then garbage is collected from this
  ///   state folder only.
  /// - Throws: `storeExists`, `notAStore` if the place holds other objects.
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

  /// Opens a store of objects and applies what other machines have published.
  ///
  /// - Parameter state: this machine's folder for the store, created if missing. Processes of one machine share it.
  ///   Losing it loses nothing that was published.
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

  /// Runs `body`, which waits for a network or a medium, on a thread that may block.
  package static func blocking<T: Sendable>(
    _ body: @escaping @Sendable () throws(BlobStorageError) -> T
  ) async throws(BlobStorageError) -> T {
    try await OperationPool.opening.run(body)
  }

  /// Makes durable what this value stored with ``Durability/relaxed`` before the call.
  ///
  /// - Durability: on the medium; in a store in a bucket, published.
  public func synchronize() async throws(BlobStorageError) {
    try await run { (engine) throws(BlobStorageError) in try engine.synchronize() }
  }

  /// Applies what other machines published before the call, and returns the number of packs. In a folder it does
  /// nothing: all processes see the same.
  @discardableResult
  public func catchUp() async throws(BlobStorageError) -> Int {
    try await run { (engine) throws(BlobStorageError) in try engine.catchUp().newPackCount }
  }
}

extension BlockingBlobStore {
  /// Makes durable what was stored with ``Durability/relaxed``.
  public func synchronize() throws(BlobStorageError) { try store.engine.synchronize() }

  /// Applies what other machines published before the call.
  @discardableResult
  public func catchUp() throws(BlobStorageError) -> Int { try store.engine.catchUp().newPackCount }
}
