import BlobStorage
@_exported import BlobStorageSharing

/// Stores whose packs are objects in a bucket, shared by any number of machines.
extension BlobStore {
  /// Creates an empty store in a place of a bucket that holds nothing, and opens it.
  ///
  /// Tests the object store first: of several puts of one new name with `If-None-Match: *` under way at once, it has to
  /// store exactly one. Where it does not, a writer that sleeps cannot be kept out: the store then names this state
  /// folder, and only from it garbage is collected, once all writers have answered.
  ///
  /// - Parameter state: A folder for what this machine knows of the store, made when it is missing.
  /// - Throws: `storeExists`, `notAStore` where there is anything else, or the object store's refusal:
  ///   `permissionDenied`, `noBucket`, `unreachable`. Then there is no store.
  public static func create(
    in place: S3Configuration, state: String, options: StoreOptions = StoreOptions(),
    configuration: StoreConfiguration = StoreConfiguration(),
    remote: RemoteConfiguration = RemoteConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    let objects = S3ObjectStore(try S3Client(place))
    let isMaintained = try await BlobStore.blocking { () throws(BlobStorageError) in
      // Reports existing objects before it writes anything.
      guard try objects.firstThatCounts().first == nil else { return false }
      return try ConditionalPutProbe().run(on: objects, below: objects.trialFolder) != .holds
    }
    return try await create(
      in: objects, state: state, options: options, isMaintained: isMaintained, configuration: configuration,
      remote: remote)
  }

  /// Opens the store in a place of a bucket, and takes in what other machines have published.
  ///
  /// - Parameter state: A folder for what this machine knows of the store, made when it is missing. Processes of one
  ///   machine share it; losing it loses nothing that was published.
  /// - Throws: `noStore`, `notAStore`, or why the object store refuses or cannot be reached: `permissionDenied`,
  ///   `noBucket`, `unreachable`.
  public static func open(
    _ place: S3Configuration, state: String, configuration: StoreConfiguration = StoreConfiguration(),
    remote: RemoteConfiguration = RemoteConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    try await open(
      S3ObjectStore(try S3Client(place)), state: state, configuration: configuration, remote: remote)
  }
}
