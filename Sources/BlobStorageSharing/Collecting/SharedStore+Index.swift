import BlobStorage
import Logging
import SystemPackage

extension SharedStore {
  /// Makes the catalog anew from the store's index: if it is new, or longer than this machine's limit, and there is an index
  /// that is as new as what it knows of the log.
  func adoptIndex() throws(BlobStorageError) {
    let isNew = try parts.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.meta(.nextChange) == 0
    }
    if !isNew, try parts.catalog.ownByteCount() <= limitOfCatalog { return }
    guard let newest = try backend.findIndex(), newest.log >= backend.collections.number,
      try parts.catalog.indexRoot() != newest
    else { return }
    try parts.catalog.rebuild(because: nil)
  }

  /// Half of the limit is for rows that no index has, the other half for parts of the index.
  private var limitOfCatalog: Int64 { remote.configuration.catalogByteLimit / 2 }

  /// Puts an index of all rows that a collector's catalog has, if that is longer than the limit and there is none for this
  /// state of the store.
  ///
  /// A failure is logged: the index saves space and time, and nothing else depends on it.
  func keepIndex() {
    do throws(BlobStorageError) {
      guard backend.hasChanges, try parts.catalog.ownByteCount() > limitOfCatalog else { return }
      try catchUp.run()
      let newest = try backend.index.newest()
      guard let root = try writeIndex(after: newest) else { return }
      try backend.index.put(root)
    } catch {
      logger.warning("The store's index was not renewed.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Writes the parts of an index. Returns its root, or nil if the rows agree with no state of the store, or with that of
  /// the newest index.
  private func writeIndex(after newest: IndexRoot?) throws(BlobStorageError) -> IndexRoot? {
    let (folder, files) = (parts.setting.folder.incoming, parts.setting.folder.files)
    let run = environment.randomNumber()
    let path = folder.entry("run-\(Hex.text(run))")
    defer { files.discard(path) }
    // One snapshot for all.
    return try parts.catalog.read { (transaction) throws(BlobStorageError) -> IndexRoot? in
      guard let change = try settledChange(transaction) else { return nil }
      let log = backend.collections.number
      if let newest, (newest.log, newest.change) == (log, change) { return nil }
      var writer = RowRunWriter(
        IndexRoot(
          storeID: backend.storeID, layout: CatalogState.layout, log: log, change: change, run: run),
        keyCount: try transaction.filteredRowCount()
      ) { (_) throws(BlobStorageError) in
        files.discard(path)
        return try files.open(path, .create)
      } end: { [index = backend.index] (part, file, byteCount) throws(BlobStorageError) in
        defer { file.close() }
        try index.putPart(PackName(writer: run, sequence: UInt32(part) + 1), file, byteCount: byteCount)
      }
      try transaction.forEachIndexedRow { (table, key, value) throws(BlobStorageError) in
        try writer.add(table, key, value)
      }
      return try writer.finish()
    }
  }

  /// The last change whose packs the catalog has; nil if a pack is not whole in it, or is about to go, or if it does not
  /// agree with the log.
  private func settledChange(_ transaction: ReadTransaction) throws(BlobStorageError) -> UInt32? {
    let collections = backend.collections
    let nextChange = try transaction.meta(.nextChange)
    guard nextChange > 0, collections.condemned.isEmpty, try transaction.meta(.unsettledPacks) == 0,
      try transaction.meta(.settledLog) == UInt64(collections.number) + 1,
      try transaction.meta(.settledPack) == transaction.meta(.nextPack),
      try transaction.packRows().allSatisfy({
        $0.row.state == .live && !$0.row.isDamaged && !$0.row.isLost && !$0.row.isPoisoned
      })
    else { return nil }
    return UInt32(clamping: nextChange - 1)
  }
}
