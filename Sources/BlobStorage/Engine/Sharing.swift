import Logging

/// Says where the packs of a store lie, and opens them. ``LocalFolder`` is the default.
package protocol PackLocation: Sendable {
  /// Prepares the store's folder before its header is read.
  mutating func prepare(_ folder: StoreFolder) throws(BlobStorageError)

  /// Opens the packs, and removes or sets aside the leftovers of a crash.
  func open(_ setting: StoreSetting) throws(BlobStorageError) -> OpenedPacks
}

/// The packs of a store, and a closure that makes its ``Sharing`` once the catalog is open.
package struct OpenedPacks: Sendable {
  package let backend: any Backend
  /// The source of the catalog's outer rows; nil if the catalog has all rows.
  package let outerRows: (any OuterRowsSource)?
  package let sharing: @Sendable (StoreParts) -> any Sharing

  package init(
    backend: any Backend, outerRows: (any OuterRowsSource)? = nil,
    sharing: @escaping @Sendable (StoreParts) -> any Sharing
  ) {
    self.outerRows = outerRows
    self.backend = backend
    self.sharing = sharing
  }
}

/// The parts of a store that exist before its packs and its catalog are opened.
package struct StoreSetting: Sendable {
  package let folder: StoreFolder
  package let header: StoreHeader
  package let environment: Engine.Environment
  package let identity: MediumIdentity
  package let codecs: CodecPool
  package let logger: Logger
}

/// The parts of an opened store that its ``Sharing`` uses.
package struct StoreParts: Sendable {
  package let setting: StoreSetting
  package let backend: any Backend
  package let catalog: Catalog
  package let builder: CatalogBuilder
  package let packs: PackFiles
}

/// A store's work for other machines, chosen once when the store opens.
///
/// On one machine a length in the live table publishes a commit, and a sync of its pack makes it durable. All processes
/// see the same packs, so ``LocalSharing`` has nothing else to publish. Machines that share a bucket do the same, and
/// then repeat these steps with objects. A session *publishes* its packs in order. A store *extends* its catalog by
/// what others have published. A pack leaves the store only after it was *condemned* and each session has acknowledged
/// that, has left, or was *fenced*.
package protocol Sharing: CatalogExtender {
  /// The path or address of the store.
  var path: String { get }

  /// The only machine that collects garbage; nil if any machine may.
  var collectingMachine: String? { get }

  /// Whether gc reads keys while commits change them. Then it can miss a version that moves to a key it has passed.
  var collectsBesideCommits: Bool { get }

  /// Whether damaged packs stay where they are: repair may not set them aside.
  var keepsDamagedPacks: Bool { get }

  /// - Throws: `invalidArgument` unless the store alone decides about its packs.
  func requireOwnPacks(_ refusal: @autoclosure () -> String) throws(BlobStorageError)

  /// The reason why packs of this machine will never be published; nil while all can be.
  var fencing: BlobStorageError? { get }

  /// Starts the work that other machines wait for. The store is already open.
  func begin(_ engine: Engine) throws(BlobStorageError)

  /// Ends the work that ``begin(_:)`` started.
  func close()

  /// The publisher of a new session.
  ///
  /// - Parameter leases: the lease file of the session's streams; nil if it has none.
  func publisher(of writer: UInt64, leases: LeaseFile?) -> any PackPublisher

  /// Makes everything durable that a session has committed.
  func synchronize(_ session: WriterSession) throws(BlobStorageError)

  /// Makes an effect durable that a change found already there. A relaxed change of any process, or a change that
  /// failed to publish, may have left it.
  ///
  /// - Parameter known: packs whose sync had failed before, so that the change counted on nothing in them.
  /// - Throws: `poisoned` if the sync of another open pack has failed.
  func synchronizeFound(
    _ session: WriterSession, exceptFailed known: Set<PackName>
  ) throws(BlobStorageError)

  /// How often ``checkKept(of:since:)`` has found a loss.
  func keptLossCount(of session: WriterSession) -> Int

  /// Checks the packs that imports rely on without having looked for them.
  ///
  /// - Parameter lossCount: the count when the import began.
  /// - Throws: `corrupted` if one was deleted or cut. The next import stores the bytes of a deleted one again.
  func checkKept(of session: WriterSession, since lossCount: Int) throws(BlobStorageError)

  /// Extends the catalog by everything that was published or removed before the call.
  @discardableResult
  func extend() throws(BlobStorageError) -> ExtensionReport

  /// Collects garbage, together with the other machines.
  func collect(
    _ engine: Engine, _ options: GarbageCollectionOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> GarbageCollectionReport

  /// Finishes what a killed collection has begun, for a change that may not rely on packs that it has condemned.
  ///
  /// - Returns: false if a collection runs, or if other machines may collect.
  func finishLastCollection(_ engine: Engine) throws(BlobStorageError) -> Bool

  /// The known losses that are not accepted yet.
  func losses() throws(BlobStorageError) -> KnownLosses

  /// Records durably that losses are accepted: the rest of the store is complete. The caller holds the collection lock.
  ///
  /// - Parameter replaced: damaged packs that stay in place, whose intact records now lie in other packs.
  func acceptLosses(_ engine: Engine, replaced: Set<PackName>) throws(BlobStorageError)

  /// Restores lost entries of the log that all machines read, as far as this machine knows them.
  func restoreLog() throws(BlobStorageError)

  /// The packs that are missing although no collector has removed them.
  ///
  /// - Parameter rows: the packs that the catalog knows.
  func missingPacks(_ rows: [PackRow]) throws(BlobStorageError) -> Set<PackName>

  /// Treats the chunks and manifests of a damaged pack as missing, except for the records at the offsets in `whole`. So
  /// the next put of the same bytes stores them again.
  ///
  /// - Returns: the chunks; nil if the store sets damaged packs aside.
  func distrust(_ pack: UInt32, except whole: Set<Int64>) throws(BlobStorageError) -> Set<BlobDigest>?

  /// Makes the next reads of a pack fetch the published copy; false if header or footer of the local copy differ.
  func readAnew(_ pack: PackName) throws(BlobStorageError) -> Bool
}

/// The changes that an extension made to the catalog.
package struct ExtensionReport: Sendable, Hashable {
  package var newPackCount = 0
  /// Published packs that are missing although no collector has removed them. May hold only the first ones.
  package var missing: [PackName] = []

  package init(missing: [PackName] = []) { self.missing = missing }
}
