/// Where packs are kept: their names, and the files behind them. Not what is in them.
///
/// A name is visible to others only with its writer's lock held and its header written. Every call may run on any
/// thread.
package protocol Backend: Sendable {
  /// What the store has had written down of its packs.
  var census: any CensusLog { get }

  /// Whether a pack is durable once it was sealed and synced here; else its publisher says when it is.
  var isDurableOnceSynced: Bool { get }

  /// Whether an error means that a pack is damaged. The store goes on without the damaged part; any other error ends the
  /// operation.
  func isDamage(_ error: BlobStorageError) -> Bool

  /// The packs that are there, and those that were retired and not yet removed. What has left the store by the
  /// census is not among the first.
  func packNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName])

  /// The same, without the packs that are published. Makes no request.
  func localPackNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName])

  /// Reads a published pack from where it is published from now on, whatever lies here: a power cut may have torn that.
  func distrustLocal(_ name: PackName)

  /// The published packs that this machine knows of. Makes no request.
  func knownPackNames() throws(BlobStorageError) -> Set<PackName>

  /// Fetches what a new catalog needs of the published packs, so that a rebuild makes no request under its lock.
  func prefetchFooters() throws(BlobStorageError)

  /// Whether a new record may refer to one in this pack: no collector is known to have condemned or removed the pack.
  func isCountedOn(_ name: PackName) -> Bool

  /// Whether a collector is known to have removed the pack: what is needed of it lies in others.
  func isRemoved(_ name: PackName) -> Bool

  /// How many chunks a reader fetches together, where requests cost more than bytes; else 0.
  var readAheadCount: Int { get }

  /// Begins to fetch parts of packs. A read of a part waits for it; a failure is told there.
  func prefetch(_ parts: [(file: any File, ranges: [Range<Int64>])])

  /// Whether the medium has so much room that an open pack may take some before it needs it.
  var hasRoomAhead: Bool { get }

  /// Removes a pack that this process has just created, and that no catalog knows. Its name may be used again.
  func removeNewPack(_ name: PackName) throws(BlobStorageError)

  /// Whether an open pack has left the store because it can never be published.
  func isUnpublishable(_ name: PackName) throws(BlobStorageError) -> Bool

  /// Creates a pack that begins with `header`, locked for as long as the file is open.
  ///
  /// - Throws: `io` when the name is taken.
  func createPack(_ name: PackName, header: [UInt8]) throws(BlobStorageError) -> any File

  /// Opens a pack, retired or not; nil when it is not there.
  func openPack(_ name: PackName) throws(BlobStorageError) -> (any File)?

  /// The same for a pack that is still written to, or waits to be published. Makes no request.
  func openLocalPack(_ name: PackName) throws(BlobStorageError) -> (any File)?

  /// Opens a pack for writing in place of its dead writer and locks it. Nil when it is not there any more, or when
  /// another process holds its lock: a living writer, or one that recovers it.
  func adoptPack(_ name: PackName) throws(BlobStorageError) -> (any File)?

  /// Takes packs out of the store: from the return on, durably, they are none of those that a catalog is made of.
  func retirePacks(_ names: [PackName]) throws(BlobStorageError)

  /// Takes away the files of packs that have left the store by the census: a crash came between, or an old copy was
  /// put back. The caller holds the collection lock.
  func finishLeaving() throws(BlobStorageError)

  /// Removes a retired pack.
  func removeRetiredPack(_ name: PackName) throws(BlobStorageError)

  /// Takes a damaged pack out of the store without removing it, and says where it is now.
  func setAsidePack(_ name: PackName) throws(BlobStorageError) -> String

  /// Gives packs of the store whose files have other names their own names back, unless they have left the store. Ends
  /// what an earlier call has begun.
  ///
  /// - Returns: the packs that were found so, and names that no file has any more.
  func restoreNames(
    of store: StoreHeader
  ) throws(BlobStorageError) -> (found: Set<PackName>, left: Set<PackName>)

  /// Forces the names of all packs to the medium.
  func synchronizeNames() throws(BlobStorageError)

  /// Removes what a crash left of packs that never got their name.
  func removeLeftovers() throws(BlobStorageError)
}

extension Backend {
  package func isDamage(_ error: BlobStorageError) -> Bool { error.code == .corrupted }
  package func finishLeaving() throws(BlobStorageError) {}
  package func restoreNames(
    of store: StoreHeader
  ) throws(BlobStorageError) -> (found: Set<PackName>, left: Set<PackName>) { ([], []) }

  package func localPackNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName]) {
    try packNames()
  }
  package func openLocalPack(_ name: PackName) throws(BlobStorageError) -> (any File)? { try openPack(name) }
  package func distrustLocal(_ name: PackName) {}
  package func isUnpublishable(_ name: PackName) throws(BlobStorageError) -> Bool { false }
  package func knownPackNames() throws(BlobStorageError) -> Set<PackName> { [] }
  package func prefetchFooters() throws(BlobStorageError) {}
  package func isCountedOn(_ name: PackName) -> Bool { true }
  package func isRemoved(_ name: PackName) -> Bool { false }
  package var readAheadCount: Int { 0 }
  package var hasRoomAhead: Bool { true }
  package func prefetch(_ parts: [(file: any File, ranges: [Range<Int64>])]) {}
}
