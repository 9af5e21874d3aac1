import BlobStorage
@_exported import BlobStorageSharing

/// Opens stores that keep their packs in a bucket, shared by any number of machines.
extension BlobStore {
  /// Creates an empty store in an empty place of a bucket, and opens it.
  ///
  /// First tests whether the object store has conditional put: of concurrent puts of one new name with `If-None-Match:
  /// *`, exactly one must store. Without it, a suspended writer cannot be fenced. The store then names this state
  /// folder, and only this folder may collect garbage, once all writers have acknowledged or left.
  ///
  /// - Parameter state: This machine's state folder, created if missing.
  /// - Throws: `storeExists`, or `notAStore` if the place holds other objects or lies inside another store: nothing was
  ///   created. The object store's refusal (`permissionDenied`, `noBucket`, `unreachable`), or an error of opening the
  ///   state folder: the store may exist.
  public static func create(
    in place: S3Configuration, state: some PathConvertible, options: StoreOptions = StoreOptions(),
    configuration: StoreConfiguration = StoreConfiguration(),
    remote: RemoteConfiguration = RemoteConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    let (objects, state) = (S3ObjectStore(try S3Client(place)), try state.pathText())
    let hasSingleCollector = try await BlobStore.blocking { () throws(BlobStorageError) in
      // Check for existing objects before writing any.
      guard try objects.firstThatCounts().first == nil else { return false }
      try place.checkOutside()
      return try ConditionalPutProbe().run(on: objects, below: objects.trialFolder) != .holds
    }
    return try await create(
      in: objects, state: state, options: options, hasSingleCollector: hasSingleCollector,
      configuration: configuration,
      remote: remote)
  }

  /// Opens the store in a place of a bucket, and extends its catalog by packs of other machines.
  ///
  /// - Parameter state: This machine's state folder, created if missing. Processes of one machine share it. Losing it
  ///   loses nothing that was published.
  /// - Throws: `noStore`; `notAStore`, also if the state folder belongs to another store; or the object store's
  ///   refusal: `permissionDenied`, `noBucket`, `unreachable`.
  public static func open(
    _ place: S3Configuration, state: some PathConvertible,
    configuration: StoreConfiguration = StoreConfiguration(),
    remote: RemoteConfiguration = RemoteConfiguration()
  ) async throws(BlobStorageError) -> BlobStore {
    try await open(
      S3ObjectStore(try S3Client(place)), state: try state.pathText(), configuration: configuration,
      remote: remote)
  }
}

extension S3Configuration {
  /// - Throws: `notAStore` if the place lies inside another store: its objects could be mistaken for that store's.
  fileprivate func checkOutside() throws(BlobStorageError) {
    var outer = self
    while let parent = outer.location.parent {
      outer.location = parent
      let bytes: [UInt8]?
      do throws(BlobStorageError) {
        bytes = try S3ObjectStore(try S3Client(outer)).get(
          SharedNames.store, 0..<Int64(StoreHeader.magic.count))
      } catch {
        // The credentials may be valid for this place alone.
        guard error.code == .permissionDenied else { throw error }
        continue
      }
      guard bytes == StoreHeader.magic else { continue }
      throw BlobStorageError(
        .notAStore, "\(location) lies in the store \(parent): name a place outside of it.",
        path: location.description)
    }
  }
}
