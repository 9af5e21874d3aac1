/// What any process has published in packs that are still open.
extension WriterSession {
  /// Syncs what all writers of a folder have published in open packs.
  ///
  /// - Parameters:
  ///   - known: packs to leave out, because their sync had failed before.
  ///   - isOfOthers: whether to leave out the packs of this session, too.
  /// - Throws: `poisoned` if the sync of another open pack has failed.
  package func synchronizeOpenPacks(
    exceptFailed known: Set<PackName>, isOfOthers: Bool = false
  ) throws(BlobStorageError) {
    guard backend.isDurableOnceSynced else { return }
    for row in try openPacks() where !known.contains(row.name) {
      if isOfOthers, row.name.writer == writerID { continue }
      if isDurable(Watermark(pack: row.name, byteCount: row.appliedByteCount)) { continue }
      if try synchronizeOther(row.name) { continue }
      guard try isRecovered(row.name) else { throw .unsynced(row.name) }
    }
  }

  /// The open packs of a folder. Reads only the rows from the first pack on that was open the last time: a sealed pack
  /// stays sealed, and a new pack has the greatest number.
  private func openPacks() throws(BlobStorageError) -> [PackRow] {
    let known = locked { $0.firstOpenPack }
    return try catalog.read { (view) throws(BlobStorageError) in
      let database = view.database.number
      let rows = try view.packRows(from: known.database == database ? known.pack : 0)
      let open = rows.filter { !$0.row.isSealed }
      if let first = (open.first ?? rows.last)?.number {
        locked { $0.firstOpenPack = (database, first) }
      }
      return open.map(\.row)
    }
  }

  /// Whether a pack whose sync has failed is on the medium by now. If its writer has ended, recovery writes it again.
  ///
  /// - Returns: also false if the medium has lost records that views have shown until now.
  func isRecovered(_ pack: PackName) throws(BlobStorageError) -> Bool {
    let byteCount = try catalog.packRow(pack)?.appliedByteCount ?? 0
    try catalog.recoverDead()
    guard let row = try catalog.packRow(pack) else { return true }
    return !row.isPoisoned && !row.isDamaged && row.appliedByteCount >= byteCount
  }
}

extension BlobStorageError {
  /// The error for an open pack whose sync has failed: another process may still write to it.
  package static func unsynced(_ pack: PackName) -> Self {
    Self(
      .poisoned, "A sync of pack \(pack) has failed: close the store wherever it is open, and try again.",
      pack: pack.description)
  }
}
