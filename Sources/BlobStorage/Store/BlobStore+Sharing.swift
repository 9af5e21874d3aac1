extension BlobStore {
  /// A store whose operations may wait for a network: it gets threads of its own.
  package convenience init(waitingEngine engine: Engine) {
    self.init(engine: engine, pool: OperationPool(width: OperationPool.defaultWidth))
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

  /// Applies what other machines have published before the call, and returns how many packs that were. For a store in a
  /// folder there is nothing to do, because all processes see the same.
  @discardableResult
  public func catchUp() async throws(BlobStorageError) -> Int {
    try await run { (engine) throws(BlobStorageError) in try engine.catchUp().newPackCount }
  }
}

extension BlockingBlobStore {
  /// Makes durable what was stored with ``Durability/relaxed``.
  public func synchronize() throws(BlobStorageError) { try store.engine.synchronize() }

  /// Applies what other machines have published before the call.
  @discardableResult
  public func catchUp() throws(BlobStorageError) -> Int { try store.engine.catchUp().newPackCount }
}
