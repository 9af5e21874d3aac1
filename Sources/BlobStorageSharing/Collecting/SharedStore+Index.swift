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
      try parts.catalog.indexRoot()?.run != newest.run
    else { return }
    try parts.catalog.rebuild(because: nil)
  }

  /// Half of the limit is for rows that no index has, the other half for parts of the index.
  private var limitOfCatalog: Int64 { remote.configuration.catalogByteLimit / 2 }

  /// Puts an index of all rows that a collector's catalog has, if that is longer than the limit and the newest index does not
  /// serve any more.
  ///
  /// A failure is logged: the index saves space and time, and nothing else depends on it.
  func keepIndex() {
    do throws(BlobStorageError) {
      guard backend.hasChanges, try parts.catalog.ownByteCount() > limitOfCatalog else { return }
      try catalogExtension.run()
      let newest = try backend.index.newest()
      // One snapshot for all.
      let root = try parts.catalog.read { (transaction) throws(BlobStorageError) -> IndexRoot? in
        guard let now = try settledRoot(transaction) else { return nil }
        guard var known = newest, try serves(known, now, transaction) else {
          return try write(now, transaction)
        }
        if known.log == now.log { return nil }
        // Its rows agree with what the log says now, too.
        known.log = now.log
        return known
      }
      if let root { try backend.index.put(root) }
    } catch {
      logger.warning("The store's index was not renewed.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// The most changes that a machine reads one by one after an index.
  private static let changeCountMax: UInt32 = 4_096

  /// Whether machines can go on with an index: no pack is gone that it knows, and the records that came since take half of
  /// what such a machine has room for.
  private func serves(
    _ index: IndexRoot, _ now: IndexRoot, _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> Bool {
    guard index.log <= now.log, index.change <= now.change, now.change - index.change <= Self.changeCountMax,
      index.recordCount <= now.recordCount
    else { return false }
    let byteCountOfRecord = Double(index.byteCount) / Double(max(1, index.recordCount))
    guard Double(now.recordCount - index.recordCount) * byteCountOfRecord <= Double(limitOfCatalog / 2) else {
      return false
    }
    if index.log == now.log { return true }
    do throws(BlobStorageError) { return try transaction.hasPacks(of: backend.index.look(index)) } catch {
      guard error.code == .catalogDamaged else { throw error }
      return false
    }
  }

  /// Writes the parts of an index, and returns its root.
  private func write(
    _ root: IndexRoot, _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> IndexRoot {
    let (folder, files) = (parts.setting.folder.incoming, parts.setting.folder.files)
    let path = folder.entry("run-\(Hex.text(root.run))")
    defer { files.discard(path) }
    var writer = RowRunWriter(root, keyCount: try transaction.filteredRowCount()) {
      (_) throws(BlobStorageError) in
      files.discard(path)
      return try files.open(path, .create)
    } end: { [index = backend.index] (part, file, byteCount) throws(BlobStorageError) in
      defer { file.close() }
      try index.putPart(root.partName(part), file, byteCount: byteCount)
    }
    try transaction.forEachIndexedRow { (table, key, value) throws(BlobStorageError) in
      try writer.add(table, key, value)
    }
    return try writer.finish()
  }

  /// What the rows agree with; nil if a pack is not whole in the catalog, or is about to go, or if it does not agree with the
  /// log.
  private func settledRoot(_ transaction: ReadTransaction) throws(BlobStorageError) -> IndexRoot? {
    let collections = backend.collections
    let nextChange = try transaction.meta(.nextChange)
    guard nextChange > 0, collections.condemned.isEmpty, try transaction.meta(.unsettledPacks) == 0,
      try transaction.meta(.settledLog) == UInt64(collections.number) + 1,
      try transaction.meta(.settledPack) == transaction.meta(.nextPack)
    else { return nil }
    let rows = try transaction.packRows().map(\.row)
    guard
      rows.allSatisfy({ $0.state == .live && !$0.isDamaged && !$0.isLost && !$0.isPoisoned })
    else { return nil }
    return IndexRoot(
      storeID: backend.storeID, layout: CatalogState.layout, log: collections.number,
      change: UInt32(clamping: nextChange - 1), recordCount: rows.reduce(0) { $0 + UInt64($1.recordCount) },
      run: environment.randomNumber())
  }
}
