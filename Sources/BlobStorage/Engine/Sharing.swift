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
  package let sharing: @Sendable (StoreParts) -> any Sharing

  package init(backend: any Backend, sharing: @escaping @Sendable (StoreParts) -> any Sharing) {
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
/// processes see the same packs, and ``LocalSharing`` has nothing to do. Machines that share a bucket do the same steps
/// with objects. A session *publishes* its packs in order. A store *extends* its catalog by what others have published.
/// A pack leaves the store only after it was *condemned* and each session has acknowledged that, has left, or was
/// *fenced*.
package protocol Sharing: Sendable {
  /// Where the store is if not in its folder, and which machine alone collects garbage there; nil if any may.
  var place: (path: String, collectingMachine: String?)? { get }

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

  /// Extends the catalog by all that was published, and removed, before the call.
  @discardableResult
  func extend() throws(BlobStorageError) -> ExtensionReport

  /// The same for a reader that misses something. False when nothing can have changed since the last time.
  func extendForMissing() throws(BlobStorageError) -> Bool

  /// Makes the catalog anew if removed packs may have hidden other copies; says whether there is a new one.
  func completeCatalog() throws(BlobStorageError) -> Bool

  /// Brings the catalog up to the removal of a pack that it still names.
  ///
  /// - Throws: `corrupted` if no collector has removed the pack.
  func resolveGone(_ pack: PackName, _ reason: String) throws(BlobStorageError)

  /// Collects garbage together with the other machines; nil where the store alone decides about its packs.
  func collect(
    _ engine: Engine, _ options: CollectionOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> CollectionReport?

  /// The packs that should be published and are not; nil where the census tells which packs are lost.
  func missingPacks(_ rows: [PackRow]) throws(BlobStorageError) -> Set<PackName>?

  /// Makes the next reads of a pack fetch what other machines read; false if its ends differ from the copy here.
  func readAnew(_ pack: PackName) throws(BlobStorageError) -> Bool
}

/// Makes the packs of one session durable.
package protocol PackPublisher: Sendable {
  /// Makes collectors wait for the session. It must not count on anything that it looked up before.
  func join(_ session: WriterSession) throws(BlobStorageError)

  /// The same for a stream, which counts on what it looks up from now on until it commits.
  ///
  /// - Returns: the lease by which the stream is seen, to be ended by the caller; nil if the stream needs none yet.
  func joinStream(_ session: WriterSession, _ leases: LeaseFile) throws(BlobStorageError) -> UInt64?

  /// Waits until the session may write, and begin a pack if it has none. Called without locks.
  func admit(_ session: WriterSession) throws(BlobStorageError)

  /// Accepts a sealed pack. If packs are published, the publisher closes the file, which gives up the pack's lock.
  ///
  /// - Returns: how many bytes of the pack are durable already.
  func add(_ pack: PackName, _ file: any File, byteCount: Int64, of session: WriterSession) -> Int64

  /// Whether a pack is always durable before anything that the session writes from now on.
  func precedes(_ pack: PackName, _ session: WriterSession) -> Bool

  /// Whether the record at `place` is stored for good once the records of the session are. A pack that another process
  /// has not published may never be (H1).
  func keeps(
    _ place: Place, _ transaction: Transaction, _ session: WriterSession
  ) throws(BlobStorageError) -> Bool

  /// Makes durable what a commit has written.
  func publish(_ watermark: WriterSession.Watermark, of session: WriterSession) throws(BlobStorageError)

  /// Makes all sealed packs durable.
  func publishSealed(of session: WriterSession) throws(BlobStorageError)

  /// Makes all packs durable, and lets collectors stop waiting for the session.
  func close(_ session: WriterSession) throws(BlobStorageError)
}

/// By what an extension has changed the catalog.
package struct ExtensionReport: Sendable, Hashable {
  package var newPackCount = 0
  package var removedPackCount = 0
  /// Packs that were published once and are gone although no collector has removed them. The first so many.
  package var missing: [PackName] = []

  package init(missing: [PackName] = []) { self.missing = missing }
}
