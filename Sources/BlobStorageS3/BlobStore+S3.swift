import BlobStorage

/// Stores whose packs are objects in a bucket, shared by any number of machines.
extension BlobStore {
  /// Creates an empty store in a place of a bucket that holds nothing, and opens it.
  ///
  /// The engine is tried first: of several puts of one new name with `If-None-Match: *` under way at once, it has to
  /// store exactly one. All that keeps machines apart stands on that.
  ///
  /// - Parameter state: A folder for what this machine knows of the store, made when it is missing.
  /// - Throws: `storeExists`, `notAStore` where there is anything else, `unfitEngine`, or why the engine refuses or
  ///   cannot be reached: `permissionDenied`, `noBucket`, `unreachable`. Then there is no store.
  public static func create(
    in place: S3Configuration, state: String, options: StoreOptions = StoreOptions(),
    configuration: StoreConfiguration = StoreConfiguration(),
    remote: RemoteConfiguration = RemoteConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    let objects = S3ObjectStore(try S3Client(place))
    try await BlobStore.blocking { () throws(BlobStorageError) in
      // What is there is told before anything is written.
      guard try objects.firstThatCounts().first == nil else { return }
      guard try ConditionalPutProbe().run(on: objects, below: objects.trialFolder) == .holds else {
        throw BlobStorageError(
          .unfitEngine,
          "The engine at \(place.authority) lets several of those who put one new name at once believe that they did: "
            + "a store that machines share would lose data there.")
      }
    }
    return try await create(
      in: objects, state: state, options: options, configuration: configuration, remote: remote)
  }

  /// Opens the store in a place of a bucket, and takes in what other machines have published.
  ///
  /// - Parameter state: A folder for what this machine knows of the store, made when it is missing. Processes of one
  ///   machine share it; losing it loses nothing that was published.
  /// - Throws: `noStore`, `notAStore`, or why the engine refuses or cannot be reached: `permissionDenied`, `noBucket`,
  ///   `unreachable`.
  public static func open(
    _ place: S3Configuration, state: String, configuration: StoreConfiguration = StoreConfiguration(),
    remote: RemoteConfiguration = RemoteConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    try await open(
      S3ObjectStore(try S3Client(place)), state: state, configuration: configuration, remote: remote)
  }
}

extension BlobStorageError.Code {
  /// The engine does not do what a store that machines share stands on.
  public static let unfitEngine = Self("unfitEngine")
}
