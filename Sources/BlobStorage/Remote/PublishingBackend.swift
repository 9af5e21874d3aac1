/// Packs that are written here and published for all machines to read. "On the medium" means published then.
///
/// What it promises beyond ``Backend``: a pack that was published is the same for everybody, for ever, until a
/// collector removes it. Nothing else is ever published under its name.
package protocol PublishingBackend: Backend {
  /// The packs that only this machine has, and those of them that are just being published. Asks nobody.
  func localPackNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName])

  /// The packs that can be read everywhere, and how long they are, and what collectors have said of them. Those that
  /// were published before the call are among them, unless they were removed. A fence, and what lies beyond it, is not.
  func publishedPacks() throws(BlobStorageError) -> StoreListing

  /// The packs that can be read everywhere, as far as that is known here. Asks nobody.
  func knownPackNames() throws(BlobStorageError) -> Set<PackName>

  /// Whether what is published later may refer to what lies in a pack: no collector is known to have condemned it or to
  /// have removed it.
  func isCountedOn(_ name: PackName) -> Bool

  /// Publishes a sealed pack, of which `file` are the bytes; once it was published, every time.
  ///
  /// - Throws: when it is not known whether it was published; it can be tried again.
  func publish(_ name: PackName, _ file: any File, byteCount: Int64) throws(BlobStorageError)
    -> Publication.Outcome

  /// Gives up the local copy of a pack that was published and that the catalog knows as such.
  func settle(_ name: PackName) throws(BlobStorageError)

  /// Calls `body` with published packs in that order, nil for one that has gone; what a scan of them needs is fetched
  /// ahead, several at once.
  func forEachPublished(
    _ names: [PackName], _ body: (PackName, (any File)?) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError)

  /// Has the records of a pack read from where everybody reads them: gives up what is kept of them here.
  func forgetRecords(_ name: PackName)

  /// Whether header and footer of a published pack are other bytes than those that are kept here. What is kept stays:
  /// nobody else may have it.
  func hasOtherFooter(_ name: PackName) throws(BlobStorageError) -> Bool

  /// Forgets all that is kept here of a pack that was removed.
  func forget(_ name: PackName)
}

extension BlobStorageError.Code {
  /// A published pack that is not there any more: whoever looks it up again finds what was in it elsewhere.
  package static let packGone = Self("packGone")
}
