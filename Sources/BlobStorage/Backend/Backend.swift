/// Where packs are kept: their names, and the files behind them. Not what is in them.
///
/// A name is visible to others only with its writer's lock held and its header written. Every call may run on any
/// thread.
package protocol Backend: Sendable {
  /// What the store has had written down of its packs; nil where they are published, which has a log of its own.
  var census: CensusFile? { get }

  /// The packs that are there, and those that were retired and not yet removed. What has left the store by the
  /// census is not among the first.
  func packNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName])

  /// Creates a pack that begins with `header`, locked for as long as the file is open.
  ///
  /// - Throws: `io` when the name is taken.
  func createPack(_ name: PackName, header: [UInt8]) throws(BlobStorageError) -> any File

  /// Opens a pack, retired or not; nil when it is not there.
  func openPack(_ name: PackName) throws(BlobStorageError) -> (any File)?

  /// Opens a pack for writing in place of its dead writer and locks it; nil when it is not there any more, or when
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

  /// Forces the names of all packs to the medium.
  func synchronizeNames() throws(BlobStorageError)

  /// Removes what a crash left of packs that never got their name.
  func removeLeftovers() throws(BlobStorageError)

  /// Bytes of the medium that all packs take, retired and set aside ones included.
  func allocatedByteCount() throws(BlobStorageError) -> Int64
}

extension Backend {
  package var census: CensusFile? { nil }

  package func finishLeaving() throws(BlobStorageError) {}
}
