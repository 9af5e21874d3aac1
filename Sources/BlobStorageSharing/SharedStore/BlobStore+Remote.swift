import BlobStorage

extension BlobStore {
  /// Creates an empty store of objects and opens it.
  ///
  /// - Parameter isMaintained: whether the place lacks conditional puts: then garbage is collected from this state folder
  ///   only.
  /// - Throws: `storeExists`, `notAStore` where there is anything else.
  package static func create(
    in objects: any ObjectStore, state: String, options: StoreOptions = StoreOptions(),
    isMaintained: Bool = false, configuration: StoreConfiguration = StoreConfiguration(),
    remote: RemoteConfiguration = RemoteConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    try await blocking { () throws(BlobStorageError) in
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
    try await blocking { () throws(BlobStorageError) in
      let engine = try Engine(
        path: state, configuration: configuration,
        remote: Engine.Remote(objects: objects, configuration: remote))
      return BlobStore(waitingEngine: engine)
    }
  }
}
