import Dispatch
import Logging
import Synchronization

/// What a publisher asks of a session, and does to it. In a folder the session syncs its packs itself.
extension WriterSession {
  /// Makes collectors of a shared store wait for the session. It must not count on anything that it looked up before.
  package func join() throws(BlobStorageError) { try publisher.join(self) }

  /// Makes all durable. If packs are published, the session writes nothing from then on, and collectors stop waiting.
  ///
  /// - Throws: when what was written may not be durable.
  package func close() throws(BlobStorageError) { try publisher.close(self) }

  /// Whether the next record begins a pack.
  package var beginsPack: Bool { locked { $0.writer == nil } }

  /// Why nothing is written any more; nil while the session can write.
  package var ending: BlobStorageError? { locked { $0.poison } }

  /// Seals a pack, if it is the one under way.
  package func seal(_ pack: PackName) throws(BlobStorageError) {
    sealWhenSettled { $0.name == pack }
    try settleFull()
  }

  /// The last pack that was sealed, once no thread is sealing one; nil if none was.
  package func lastSealedPack() -> PackName? {
    while true {
      sealing.wait()
      // Together: another thread may renumber the session, and then the sequence does not belong to the new number.
      let last = locked { state -> PackName? in
        // One that another thread has begun to seal is not the publisher's yet.
        if state.sealingCount > 0 { return nil }
        let next = state.full.map(\.name.sequence).min() ?? state.writer?.name.sequence ?? state.nextSequence
        return PackName(writer: writerID, sequence: next - 1)
      }
      if let last { return last.sequence > 0 ? last : nil }
    }
  }

  /// Whether the record at `place` is stored for good once the records of this session are (H1).
  func stays(at place: Place, _ transaction: ReadTransaction) throws(BlobStorageError) -> Bool {
    try publisher.keeps(place, transaction, self)
  }

  /// Whether a pack is known to be durable.
  package func isDurable(_ pack: PackName) -> Bool { locked { $0.durable[pack] ?? 0 } > 0 }

  /// Marks a pack as published.
  package func markPublished(_ pack: PackName, byteCount: Int64) throws(BlobStorageError) {
    locked { $0.durable[pack] = byteCount }
    try catalog.write { (transaction) throws(BlobStorageError) in
      try CatalogBuilder.markPublished(pack, byteCount: byteCount, in: transaction)
    }
  }

  /// Ends all writing of this session.
  package func end(_ error: BlobStorageError) { locked { $0.poison = error } }

  /// Ends all writing if everything is sealed and published; says whether it did.
  package func end(_ error: BlobStorageError, ifPublished isPublished: (UInt32) -> Bool) -> Bool {
    locked { state -> Bool in
      guard isIdle(state), isPublished(state.nextSequence) else { return false }
      state.poison = error
      return true
    }
  }

  /// The next pack, if all packs before it are sealed and published.
  package func nextPack(ifPublished isPublished: (UInt32) -> Bool) -> PackName? {
    locked { state -> PackName? in
      guard isIdle(state), isPublished(state.nextSequence) else { return nil }
      return PackName(writer: writerID, sequence: state.nextSequence)
    }
  }

  /// Continues under another number, unless the session has written since `next` was its next pack; says whether it did.
  ///
  /// - Parameter begin: tells the publisher, before any thread can write.
  package func renumber(
    _ writer: UInt64, from next: PackName, ifPublished isPublished: (UInt32) -> Bool, _ begin: () -> Void
  ) -> Bool {
    locked { state -> Bool in
      guard isIdle(state), isPublished(state.nextSequence), state.nextSequence == next.sequence else {
        return false
      }
      state.nextSequence = 1
      number.store(writer, ordering: .relaxed)
      begin()
      return true
    }
  }

  /// Whether all that was written is sealed.
  private func isIdle(_ state: State) -> Bool {
    state.poison == nil && state.sealFailure == nil && state.writer == nil && state.full.isEmpty
      && state.pending.isEmpty && state.sealingCount == 0
  }

  /// A pack that cannot be sealed keeps all later ones from being published, until the next opening seals it.
  func poisonUnpublished(_ writer: PackWriter, _ state: inout State, _ cause: BlobStorageError) {
    if state.poison == nil {
      state.poison = BlobStorageError(
        .poisoned,
        "Pack \(writer.name) cannot be written (\(cause.message)): open the store anew, which publishes what is left.",
        pack: writer.name.description, path: cause.path, errno: cause.errno)
    }
    writer.file.close()
  }

  /// Leaves packs whose records are published but could not be settled, on a full disk for example. They are forced to
  /// the medium. The next process to open the store settles them.
  func closePublished(because error: BlobStorageError) throws(BlobStorageError) {
    let published = locked { (state) -> [Watermark] in
      guard publishesInTable, state.poison == nil, state.pending.isEmpty,
        state.full.allSatisfy({ state.slots[$0.name] != nil })
      else { return [] }
      return state.full.map { Watermark(pack: $0.name, byteCount: $0.writtenByteCount) }
    }
    if published.isEmpty { throw error }
    for watermark in published { try synchronize(watermark) }
    logger.warning(
      "The catalog lags behind until it can be written.", metadata: ["reason": "\(error.message)"])
  }
}
