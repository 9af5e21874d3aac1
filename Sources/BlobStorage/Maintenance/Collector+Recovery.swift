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
    if engine.remote != nil { return try finishLastShared() }
    pardon()
    let names = try engine.backend.packNames()
    for name in names.retired { try Retirement.finish(name, engine: engine) }
    for (_, row) in try packRows() where row.state == .retired {
      try synchronizeOpenPacks()
      try rename([row.name])
    }
  }

  /// Rows may point into packs that are being written to, relaxed: they must not be all that is left (H1, H7).
  func synchronizeOpenPacks() throws(BlobStorageError) {
    if engine.weaknesses.contains(.retiresBeforeSync) { return }
    for (_, row) in try packRows() where !row.isSealed && row.state == .live {
      try engine.writer.synchronizeOther(row.name)
    }
  }

  // MARK: A full disk

  /// Runs `body`, with the reserve given free if the disk is full.
  func withReserve(_ body: () throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    try engine.folder.withReserve(body)
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
