import Dispatch
import Logging

/// Where packs are published, what was written is on the medium once its pack is published, and all before it.
extension WriterSession {
  /// Publishes what a commit wrote. Threads that wait at the same time share a pack.
  func publish(_ watermark: Watermark, by publisher: Publisher) throws(BlobStorageError) {
    if publisher.hasPublished(watermark.pack) { return }
    try inSyncTurn(isPatient: false) { () throws(BlobStorageError) in
      if publisher.hasPublished(watermark.pack) { return }
      sealWhenSettled { $0.name == watermark.pack }
      try settleFull()
      // Also where the session has just been ended: what that does to the catalog is done then.
      do throws(BlobStorageError) { try publisher.wait(for: watermark.pack) } catch {
        throw error.code == .cancelled ? error : locked { $0.poison } ?? error
      }
    }
  }

  /// Publishes what is sealed.
  func publishSealed(by publisher: Publisher) throws(BlobStorageError) {
    var last: PackName?
    while last == nil {
      sealing.wait()
      last = locked { state in
        // One that another thread has begun to seal is not the publisher's yet.
        if state.sealingCount > 0 { return nil }
        let next = state.full.map(\.name.sequence).min() ?? state.writer?.name.sequence ?? state.nextSequence
        return PackName(writer: writerID, sequence: next - 1)
      }
    }
    if let last, last.sequence > 0 { try publisher.wait(for: last) }
  }

  /// Whether a version that lies there is stored for good as soon as what this session has written is: always in a folder.
  /// What another process has not published may never be (H1). What is condemned stays: it is copied before its pack goes.
  func stays(at place: Place, _ transaction: Transaction) throws(BlobStorageError) -> Bool {
    guard publisher != nil else { return true }
    guard let row = try transaction.packRow(place.pack) else { return false }
    return row.durableByteCount > place.offset || row.name.writer == writerID
  }

  /// Waits until there is room for another pack, if the next record begins one, and has collectors wait for what is
  /// written then. No lock is held.
  func waitForRoom() throws(BlobStorageError) {
    guard let publisher else { return }
    try join()
    guard locked({ $0.writer == nil }) else { return }
    try renewIfFenced()
    try publisher.waitForRoom()
  }

  /// Notes that a pack was published.
  func note(_ item: Publisher.Item) throws(BlobStorageError) {
    locked { $0.durable[item.name] = item.byteCount }
    try catalog.write { (transaction) throws(BlobStorageError) in
      try CatalogBuilder.notePublished(item.name, byteCount: item.byteCount, in: transaction)
    }
  }

  /// Nothing more is published: what was not is taken out of the spool, and out of the catalog.
  func end(_ error: BlobStorageError) {
    locked { $0.poison = error }
    do throws(BlobStorageError) {
      guard let backend = publishing else { return }
      let left = try backend.localPackNames().live.filter { $0.writer == writerID && !isPublished($0) }
      for name in left {
        let place = try backend.setAsidePack(name)
        logger.warning("Pack \(name) cannot be published and was set aside.", metadata: ["place": "\(place)"])
      }
      try catalog.rebuild(because: error)
    } catch {
      logger.error("What cannot be published is still here.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// A pack that cannot be sealed here keeps all later ones from being published, until it is sealed by another life of
  /// the process.
  func poisonUnpublished(_ writer: PackWriter, _ state: inout State, _ cause: BlobStorageError) {
    if state.poison == nil {
      state.poison = BlobStorageError(
        .poisoned,
        "Pack \(writer.name) cannot be written (\(cause.message)): open the store anew, which publishes what is left.",
        pack: writer.name.description, path: cause.path, errno: cause.errno)
    }
    writer.file.close()
  }

  private func isPublished(_ name: PackName) -> Bool { locked { $0.durable[name] ?? 0 } > 0 }
}
