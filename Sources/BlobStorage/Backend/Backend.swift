/// Keeps the packs of a store: lists, creates, opens and removes their files. Does not read records.
///
/// Other processes see a pack's name only once its writer holds the lock and has written the header. Every call may run
/// on any thread.
package protocol Backend: Sendable {
  /// The store's census.
  var census: any CensusLog { get }

  /// Whether a sealed and synced pack is durable. If false, a pack is durable only once its publisher has published it.
  var isDurableOnceSynced: Bool { get }

  /// Whether an error means that a pack is damaged. The store then goes on without the damaged part. Any other error
  /// ends the operation.
  func isDamage(_ error: BlobStorageError) -> Bool

  /// Lists the store's packs, and the retired packs that still have a file. `live` has no pack that has left the store
  /// by the census.
  func packNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName])

  /// Lists the packs whose files are in the local folder. Makes no request.
  func localPackNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName])

  /// Makes reads of a published pack ignore its local file, which a power cut may have torn.
  func distrustLocal(_ name: PackName)

  /// The published packs that this machine knows of. Makes no request.
  func knownPackNames() throws(BlobStorageError) -> Set<PackName>

  /// Fetches what a new catalog needs from the published packs, so that a rebuild makes no request under its lock.
  func prefetchFooters() throws(BlobStorageError)

  /// Forgets what this machine keeps of a published pack's ends: one wrong answer may have damaged it.
  func forgetEnds(_ name: PackName)

  /// Whether a new record may refer to one in this pack: no collector is known to have condemned or removed the pack.
  func isCountedOn(_ name: PackName) -> Bool

  /// Whether new records may refer to any pack of the catalog, as far as that shows without a look at each.
  ///
  /// - Parameter settledLog: the number behind that of the log entry with which the catalog agrees.
  func countsOnAll(settledLog: UInt64) -> Bool

  /// Whether a collector is known to have removed the pack: what is needed of it lies in others.
  func isRemoved(_ name: PackName) -> Bool

  /// How many chunks a reader fetches together, where requests cost more than bytes; else 0.
  var readAheadCount: Int { get }

  /// Starts to prefetch parts of packs. A later read of a part waits for its fetch, and throws the fetch's error.
  func prefetch(_ parts: [(file: any File, ranges: [Range<Int64>])])

  /// Whether the medium has enough free space for an open pack to allocate some before it needs it.
  var hasRoomAhead: Bool { get }

  /// Removes a pack that this process has just created and that no catalog has. The name may be used again.
  func removeNewPack(_ name: PackName) throws(BlobStorageError)

  /// Whether an open pack has left the store because it can never be published.
  func isUnpublishable(_ name: PackName) throws(BlobStorageError) -> Bool

  /// Creates a pack that begins with `header`, locked for as long as the file is open.
  ///
  /// - Throws: `io` if the name is taken.
  func createPack(_ name: PackName, header: [UInt8]) throws(BlobStorageError) -> any File

  /// Opens a pack, retired or not; nil if it has no file.
  func openPack(_ name: PackName) throws(BlobStorageError) -> (any File)?

  /// Opens a pack that a writer still fills, or that waits to be published. Makes no request.
  func openLocalPack(_ name: PackName) throws(BlobStorageError) -> (any File)?

  /// Opens and locks a dead writer's pack for writing. Nil if it has no file, or if another process holds its lock: the
  /// living writer, or a process that recovers it.
  func adoptPack(_ name: PackName) throws(BlobStorageError) -> (any File)?

  /// The file to end an open pack in, where `file` is what ``adoptPack(_:)`` returned. It is a copy under the same name
  /// if `file` has another name, too: a copy of the store may share it by a hard link.
  func ownPack(_ name: PackName, _ file: any File) throws(BlobStorageError) -> any File

  /// Removes packs from the store, durably on return: no later catalog is built from them. Their files stay. A second
  /// call does the same again.
  func retirePacks(_ names: [PackName]) throws(BlobStorageError)

  /// Retires or moves the files of packs that have left the store by the census. A crash may have come before that, or
  /// a restored copy may have brought them back. The caller holds the collection lock.
  func finishLeaving() throws(BlobStorageError)

  /// Removes the file of a retired pack.
  func removeRetiredPack(_ name: PackName) throws(BlobStorageError)

  /// Moves a damaged pack out of the store without removing it, and returns its new place.
  func setAsidePack(_ name: PackName) throws(BlobStorageError) -> String

  /// Renames this store's packs whose files have wrong names, unless they have left the store. Continues an interrupted
  /// call.
  ///
  /// - Returns: the renamed packs, and the wrong names that have no file after that.
  func restoreNames(
    of store: StoreHeader
  ) throws(BlobStorageError) -> (found: Set<PackName>, left: Set<PackName>)

  /// Syncs the names of all packs.
  func synchronizeNames() throws(BlobStorageError)

  /// Removes the files that a crash left before their packs got a name.
  func removeLeftovers() throws(BlobStorageError)
}

extension Backend {
  package func isDamage(_ error: BlobStorageError) -> Bool { error.code == .corrupted }
  package func ownPack(_ name: PackName, _ file: any File) throws(BlobStorageError) -> any File { file }
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
  package func forgetEnds(_ name: PackName) {}
  package func isCountedOn(_ name: PackName) -> Bool { true }
  package func countsOnAll(settledLog: UInt64) -> Bool { false }
  package func isRemoved(_ name: PackName) -> Bool { false }
  package var readAheadCount: Int { 0 }
  package func prefetch(_ parts: [(file: any File, ranges: [Range<Int64>])]) {}
}
