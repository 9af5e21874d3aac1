import Logging

/// Where the packs of a store are. A store is opened with one; ``LocalFolder`` is the default.
package protocol PackLocation: Sendable {
  /// Makes the store's folder ready, before its header is read.
  mutating func prepare(_ folder: StoreFolder) throws(BlobStorageError)

  /// Opens the packs, and removes or sets aside what a crash has left of them.
  func open(_ setting: StoreSetting) throws(BlobStorageError) -> OpenedPacks
}

/// The packs of a store, and the way to its collaborator once the catalog is open.
package struct OpenedPacks: Sendable {
  package let backend: any Backend
  /// Where the catalog can find rows that it does not have itself; nil if it has them all.
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

/// What is known of a store before its packs and its catalog are opened.
package struct StoreSetting: Sendable {
  package let folder: StoreFolder
  package let header: StoreHeader
  package let environment: Engine.Environment
  package let identity: MediumIdentity
  package let codecs: CodecPool
  package let logger: Logger
}

/// The parts of an opened store that its collaborator works with.
package struct StoreParts: Sendable {
  package let setting: StoreSetting
  package let backend: any Backend
  package let catalog: Catalog
  package let builder: CatalogBuilder
  package let packs: PackFiles
}

/// What a store does for the sake of other machines; chosen once, when the store opens.
///
/// On one machine a commit is published by a length in the live table, and durable once its pack is synced: all
/// processes see the same packs, and ``LocalSharing`` has nothing else to publish. Machines that share a bucket do the
/// same, and then the same steps with objects. A session *publishes* its packs in order. A store *extends* its catalog by
/// what others have published. A pack leaves the store only after it was *condemned* and each session has acknowledged
/// that, has left, or was *fenced*.
package protocol Sharing: CatalogExtender {
  /// Where the store is.
  var path: String { get }

  /// Which machine alone collects garbage; nil if any may.
  var collectingMachine: String? { get }

  /// Whether gc reads keys while commits change them. Then it can miss a version that changes to a key it has passed.
  var collectsBesideCommits: Bool { get }

  /// Whether damaged packs stay where they are: repair may not set them aside.
  var keepsDamagedPacks: Bool { get }

  /// - Throws: `invalidArgument` unless the store alone decides about its packs.
  func requireOwnPacks(_ refusal: @autoclosure () -> String) throws(BlobStorageError)

  /// Why packs of this machine will never be published; nil while all can be.
  var fencing: BlobStorageError? { get }

  /// Begins the work that other machines wait for. The store is open.
  func begin(_ engine: Engine) throws(BlobStorageError)

  /// Ends that work.
  func close()

  /// The publisher of a new session.
  ///
  /// - Parameter leases: of the session's streams; nil if it has none.
  func publisher(of writer: UInt64, leases: LeaseFile?) -> any PackPublisher

  /// Makes all durable that a session has committed.
  func synchronize(_ session: WriterSession) throws(BlobStorageError)

  /// Makes durable what a change has found done already: a change that could not publish it has left it perhaps, or a
  /// relaxed change of this process or another.
  func synchronizeFound(_ session: WriterSession) throws(BlobStorageError)

  /// Extends the catalog by all that was published, and removed, before the call.
  @discardableResult
  func extend() throws(BlobStorageError) -> ExtensionReport

  /// Collects garbage, together with the other machines.
  func collect(
    _ engine: Engine, _ options: GarbageCollectionOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> GarbageCollectionReport

  /// What is known to be lost or damaged, and is not accepted yet.
  func losses() throws(BlobStorageError) -> KnownLosses

  /// Records durably that losses are accepted: the rest of the store is complete. The caller holds the collection lock.
  ///
  /// - Parameter replaced: damaged packs that were kept, and whose whole records lie in others now.
  func acceptLosses(_ engine: Engine, replaced: Set<PackName>) throws(BlobStorageError)

  /// Puts back what is lost of the log that all machines read, as far as this machine knows it.
  func restoreLog() throws(BlobStorageError)

  /// The packs that should be there and are not. Packs that a collector has removed are not among them.
  ///
  /// - Parameter rows: the packs that the catalog knows.
  func missingPacks(_ rows: [PackRow]) throws(BlobStorageError) -> Set<PackName>

  /// Counts the chunks and manifests of a damaged pack as missing, except for whole records, so that the next put of
  /// the same bytes stores them again.
  ///
  /// - Returns: the chunks; nil where a damaged pack is set aside.
  func distrust(_ pack: UInt32, except whole: [PackRecord]) throws(BlobStorageError) -> Set<BlobDigest>?

  /// Makes the next reads of a pack fetch what other machines read; false if its ends differ from the copy here.
  func readAnew(_ pack: PackName) throws(BlobStorageError) -> Bool
}

/// By what an extension has changed the catalog.
package struct ExtensionReport: Sendable, Hashable {
  package var newPackCount = 0
  /// Packs that were published once and are gone although no collector has removed them. The first so many.
  package var missing: [PackName] = []

  package init(missing: [PackName] = []) { self.missing = missing }
}
