/// Where packs are kept: their names, and the files behind them. Not what is in them.
///
/// A name is visible to others only with its writer's lock held and its header written. Every call may run on any
/// thread.
package protocol Backend: Sendable {
  /// The packs that are there, and those that were retired and not yet removed.
  func packNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName])

  /// Creates a pack that begins with `header`, locked for as long as the file is open.
  ///
  /// - Throws: `io` when the name is taken.
  func createPack(_ name: PackName, header: [UInt8]) throws(BlobStorageError) -> any File

  /// Opens a pack, retired or not; nil when it is not there.
  func openPack(_ name: PackName) throws(BlobStorageError) -> (any File)?

  /// Opens a pack for writing in place of its dead writer and locks it; nil when it is not there any more, or when
  /// somebody holds its lock: a living writer, or another that recovers it.
  func adoptPack(_ name: PackName) throws(BlobStorageError) -> (any File)?

  /// Takes packs out of the store: from the return on, durably, they are none of those that a catalog is made of.
  func retirePacks(_ names: [PackName]) throws(BlobStorageError)

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

/// Packs that are written here and published for all machines to read. "On the medium" means published then.
///
/// What it promises beyond ``Backend``: a pack that was published is the same for everybody, for ever, until a
/// collector removes it. Nothing else is ever published under its name.
package protocol PublishingBackend: Backend {
  /// The packs that only this machine has, and those of them that are just being published. Asks nobody.
  func localPackNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName])

  /// The packs that can be read everywhere, and how long they are: one listing. Those that were published before the
  /// call are among them, unless they were removed. A fence, and what lies beyond it, is not.
  func publishedPacks() throws(BlobStorageError) -> [PackName: Int64]

  /// Publishes a sealed pack, of which `file` are the bytes; every time with the same outcome.
  ///
  /// - Throws: when it is not known whether it was published; it can be tried again.
  func publish(_ name: PackName, _ file: any File, byteCount: Int64) throws(BlobStorageError) -> Publication

  /// Gives up the local copy of a pack that was published and that the catalog knows as such.
  func settle(_ name: PackName) throws(BlobStorageError)

  /// Calls `body` with published packs in that order, nil for one that has gone; what a scan of them needs is fetched
  /// ahead, several at once.
  func forEachPublished(
    _ names: [PackName], _ body: (PackName, (any File)?) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError)

  /// Forgets all that is kept here of a pack that was removed.
  func forget(_ name: PackName)
}

/// What came of publishing a pack.
package enum Publication: Hashable, Sendable {
  case published
  /// Its writer may not publish any more: somebody has put a fence under that name.
  case fenced
  /// Other bytes have its name, or had it.
  case taken
}

extension BlobStorageError.Code {
  /// A published pack that is not there any more: whoever looks it up again finds what was in it elsewhere.
  package static let packGone = Self("packGone")
  /// Another machine has shut this writer out, because it did not answer: nothing that was not reported done was
  /// published. Open the store anew and do it again.
  public static let fenced = Self("fenced")
}
