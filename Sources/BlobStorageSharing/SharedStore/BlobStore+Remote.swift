import BlobStorage

extension BlobStore {
  /// Creates an empty shared store and opens it.
  ///
  /// - Parameter hasSingleCollector: whether the object store lacks conditional put, so that only this state folder may
  ///   collect garbage.
  /// - Throws: `storeExists`, or `notAStore` if the place holds other objects.
  package static func create(
    in objects: any ObjectStore, state: String, options: StoreOptions = StoreOptions(),
    hasSingleCollector: Bool = false, configuration: StoreConfiguration = StoreConfiguration(),
    remote: RemoteConfiguration = RemoteConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    try await blocking { () throws(BlobStorageError) in
      if hasSingleCollector {
        try Engine.create(in: objects, maintainedFrom: state, options: options)
      } else {
        try Engine.create(in: objects, options: options)
      }
    }
    return try await open(objects, state: state, configuration: configuration, remote: remote)
  }

  /// Opens a shared store, and extends this machine's catalog.
  ///
  /// - Parameter state: this machine's state folder, created if missing. Processes of one machine share it. Losing it
  ///   loses nothing that was published.
  /// - Throws: `noStore`; `notAStore`, also if the state folder belongs to another store.
  package static func open(
    _ objects: any ObjectStore, state: String, configuration: StoreConfiguration = StoreConfiguration(),
    remote: RemoteConfiguration = RemoteConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    try await blocking { () throws(BlobStorageError) in
      try BlobStore({ () throws(BlobStorageError) in
        try Engine(
          path: state, configuration: configuration,
          remote: Engine.Remote(objects: objects, configuration: remote))
      })
    }
  }
}
