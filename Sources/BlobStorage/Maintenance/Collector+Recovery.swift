import Logging

/// Going on after a collection that was killed, and on a full disk.
extension Collector {
  /// Ends what a collection that was killed has begun, and takes in the packs of dead writers.
  func recover() throws(BlobStorageError) {
    try finishLast()
    try engine.recoverDeadWriters()
  }

  /// Ends what a collection that was killed has begun.
  func finishLast() throws(BlobStorageError) {
    pardon()
    let names = try engine.backend.packNames()
    for name in names.retired { try Retirement.finish(name, engine: engine) }
    for (_, row) in try packRows() where row.state == .retired {
      try synchronizeOpenPacks()
      try rename([row.name])
    }
  }

  /// What died while it was copied was noted for the pack that goes: it is garbage of the new one.
  func noteGarbage(_ content: PackContent, _ transaction: Transaction) throws(BlobStorageError) {
    for digest in content.keptBlobs where try transaction.versionCount(of: digest) == 0 {
      guard let row = try transaction.chunkRow(digest) else { continue }
      try transaction.addGarbage(row.place.pack, Int64(row.recordByteCount))
    }
  }

  /// Rows may point into packs that are being written to, relaxed: they must not be all that is left (H1, H7).
  func synchronizeOpenPacks() throws(BlobStorageError) {
    for (_, row) in try packRows() where !row.isSealed && row.state == .live {
      try engine.writer.synchronizeOther(row.name)
    }
  }

  // MARK: A full disk

  /// Runs `body`; if the disk is full, gives the reserve free and runs it once more.
  func withReserve(_ body: () throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    do throws(BlobStorageError) { try body() } catch {
      guard error.code == .noSpace, try engine.folder.files.status(of: engine.folder.reserve) != nil else {
        throw error
      }
      try engine.folder.files.remove(engine.folder.reserve)
      try body()
    }
  }

  /// Puts the reserve back, where there is room for it.
  func keepReserve() {
    guard !options.isDryRun else { return }
    do throws(BlobStorageError) {
      try engine.folder.keepReserve()
    } catch {
      engine.logger.warning("There is no room for the reserve.", metadata: ["reason": "\(error.message)"])
    }
  }
}
