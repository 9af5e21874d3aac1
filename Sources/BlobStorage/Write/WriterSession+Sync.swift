import Dispatch
import Logging

/// How records reach the medium: syncs, shared ones, and the sealing of full packs.
extension WriterSession {
  /// Whether another thread's sync was for this as well.
  func isDurable(_ watermark: Watermark) -> Bool {
    locked { ($0.durable[watermark.pack] ?? 0) >= watermark.byteCount }
  }

  /// What a sync of the current pack has to do.
  private struct SyncPlan {
    var writer: PackWriter
    /// How much of it is on the medium afterwards.
    var target: Int64
    var hasName: Bool
    /// Whether nothing of the pack has been forced to the medium before.
    var isFirst: Bool
  }

  func synchronizeInTurn(_ watermark: Watermark) throws(BlobStorageError) {
    let plan = locked { state -> Unchecked<SyncPlan?> in
      guard (state.durable[watermark.pack] ?? 0) < watermark.byteCount,
        let writer = state.writer, writer.name == watermark.pack
      else { return Unchecked(value: nil) }
      return Unchecked(
        value: SyncPlan(
          writer: writer, target: writer.writtenByteCount,
          hasName: writer.name.sequence <= state.namedSequence,
          isFirst: state.durable[writer.name] == nil))
    }.value
    try checkNotPoisoned()
    if isDurable(watermark) { return }
    guard let plan else {
      // The pack was sealed meanwhile, or given up.
      return try synchronizeGivenUp(watermark)
    }
    let (writer, target) = (plan.writer, plan.target)
    do throws(BlobStorageError) {
      let isSynced = try syncs.run(writer.name) { () throws(BlobStorageError) -> Bool in
        do throws(BlobStorageError) { try writer.file.synchronize() } catch {
          // Another thread has sealed the pack meanwhile, and closed it.
          throw error.code == .closed ? error : poison(writer, error)
        }
        return true
      }
      if isSynced == nil { throw lost(writer) }
      if !plan.hasName {
        do throws(BlobStorageError) { try synchronizeNames() } catch { throw poison(writer, error) }
      }
    } catch {
      if error.code == .closed { return try synchronizeGivenUp(watermark) }
      markPoisoned(writer.name)
      throw error
    }
    if plan.isFirst { enter(.begun(writer.name)) }
    locked { state in
      let last = state.durable[writer.name]
      // Syncs that follow each other closely.
      if let last, target - last <= fillByteCount { writer.fillByteCount = fillByteCount }
      state.durable[writer.name] = max(last ?? 0, target)
    }
    // Cutting the pack back may have failed in another thread: the sync has not told what was lost then.
    try checkNotPoisoned()
  }

  private func synchronizeGivenUp(_ watermark: Watermark) throws(BlobStorageError) {
    if !isDurable(watermark), try !synchronizeOther(watermark.pack) {
      try checkNotPoisoned()
      throw BlobStorageError(
        .poisoned, "A sync of pack \(watermark.pack) has failed: open the store anew to go on.",
        pack: watermark.pack.description)
    }
    // Another thread's sync of the pack may have failed. Then this sync proves nothing about what that one lost.
    try checkNotPoisoned()
  }

  /// Ends all writing of this session, because a sync of its pack failed.
  private func poison(_ writer: PackWriter, _ cause: BlobStorageError) -> BlobStorageError {
    locked { state in
      writer.poison(cause)
      let failure = writer.failure ?? cause
      state.poison = failure
      return failure
    }
  }

  /// Why a pack cannot be made durable any more whose sync has failed.
  private func lost(_ writer: PackWriter) -> BlobStorageError {
    locked { $0.poison }
      ?? poison(
        writer, BlobStorageError(.io, "an earlier sync of it had failed"))
  }

  private func checkNotPoisoned() throws(BlobStorageError) {
    if let poison = locked({ $0.poison }) { throw poison }
  }

  /// Forces the names of all packs that this session has begun to the medium.
  private func synchronizeNames() throws(BlobStorageError) {
    // Other threads may begin packs meanwhile.
    let last = locked { $0.nextSequence - 1 }
    try backend.synchronizeNames()
    locked { $0.namedSequence = max($0.namedSequence, last) }
  }

  /// Forces a pack to the medium that this session does not write to.
  ///
  /// Where packs are published nothing is forced: what others have not published is stored again instead.
  ///
  /// - Returns: false when an earlier sync of the pack has failed, which no later one makes good.
  @discardableResult
  package func synchronizeOther(_ name: PackName) throws(BlobStorageError) -> Bool {
    if publishes { return true }
    guard let file = try backend.openPack(name) else { return true }
    defer { file.close() }
    // Not the file's length: its writer may have filled it ahead.
    let byteCount = try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.pack(name)?.row.appliedByteCount ?? 0
    }
    var cause: BlobStorageError?
    do throws(BlobStorageError) {
      let isSynced = try syncs.run(name) { () throws(BlobStorageError) -> Bool in
        do throws(BlobStorageError) { try file.synchronize() } catch {
          cause = error
          throw BlobStorageError(.poisoned, error.message, pack: name.description, errno: error.errno)
        }
        return true
      }
      if isSynced == nil {
        // The thread whose sync failed may not have come to it.
        markPoisoned(name)
        return false
      }
    } catch {
      markPoisoned(name)
      throw cause ?? error
    }
    try synchronizeNames()
    locked { $0.durable[name] = max($0.durable[name] ?? 0, byteCount) }
    return true
  }

  /// Whether a record of this session may refer to one at `place` (H1): a power cut that spares the one spares the
  /// other. It does in the pack under way, where the other lies before it, and in packs that are on the medium. Where
  /// packs are published, each goes after all before it: then it does in all packs of this session.
  ///
  /// The backend is asked besides the catalog whether the pack counts: a process that knows less of collections may have
  /// extended the catalog since.
  func canRefer(to place: Place, _ transaction: ReadTransaction) throws(BlobStorageError) -> Bool {
    if weaknesses.contains(.skipsSharedSync) { return true }
    guard let row = try transaction.packRow(place.pack), backend.isCountedOn(row.name) else { return false }
    if row.durableByteCount > place.offset { return true }
    if publisher.precedes(row.name, self) { return true }
    return locked { $0.writer?.name == row.name || ($0.durable[row.name] ?? 0) > place.offset }
  }

  /// The same inside a commit, whose lock is held.
  func canRefer(to place: Place, _ transaction: ReadTransaction, _ state: State) throws(BlobStorageError)
    -> Bool
  {
    if weaknesses.contains(.skipsSharedSync) { return true }
    guard let row = try transaction.packRow(place.pack), backend.isCountedOn(row.name) else { return false }
    if row.durableByteCount > place.offset { return true }
    if publisher.precedes(row.name, self) { return true }
    return state.writer?.name == row.name || (state.durable[row.name] ?? 0) > place.offset
  }

  /// What is left to do before anybody counts on a pack that is not written to any more.
  func finishSealing(_ writer: PackWriter, _ byteCount: Int64) {
    locked { state in
      if byteCount > 0 { state.durable[writer.name] = max(state.durable[writer.name] ?? 0, byteCount) }
      state.sealingCount -= 1
    }
    sealing.leave()
  }

  /// Writes the footer and forces the pack to the medium; without room for a footer, at least its records.
  func makeWhole(_ writer: PackWriter) throws(BlobStorageError) -> Int64 {
    do throws(BlobStorageError) {
      let byteCount = try syncs.run(writer.name) { () throws(BlobStorageError) in
        do throws(BlobStorageError) { return try writer.seal() } catch {
          if error.code == .poisoned { locked { $0.poison = error } }
          throw error
        }
      }
      guard let byteCount else { throw lost(writer) }
      try synchronizeNames()
      // What another thread's sync of the pack has lost, this one does not tell.
      if !publishes { try checkNotPoisoned() }
      enter(.sealed(writer.name, recordsEnd: writer.byteCount))
      return byteCount
    } catch {
      guard error.code != .poisoned else { throw error }
      do throws(BlobStorageError) {
        let isSynced = try syncs.run(writer.name) { () throws(BlobStorageError) -> Bool in
          do throws(BlobStorageError) { try writer.file.synchronize() } catch { throw poison(writer, error) }
          return true
        }
        if isSynced == nil { throw lost(writer) }
        try synchronizeNames()
        enter(.begun(writer.name))
      } catch {
        throw error.code == .poisoned ? error : poison(writer, error)
      }
      throw error
    }
  }

  /// Adds a line to the census about a pack that is on the medium. Without the line a later opening adds it.
  private func enter(_ event: Census.Event) {
    do throws(BlobStorageError) { try backend.census?.append([event], durably: false) } catch {
      logger.warning("The census lacks a line.", metadata: ["reason": "\(error.message)"])
    }
  }

  func seal(_ writer: PackWriter) {
    var isSealing = true
    do throws(BlobStorageError) {
      let byteCount = try makeWhole(writer)
      let durableByteCount = publisher.add(writer.name, writer.file, byteCount: byteCount, of: self)
      finishSealing(writer, durableByteCount)
      isSealing = false
      _ = try catalog.write { (transaction) throws(BlobStorageError) in
        try transaction.updatePack(writer.name) { row in
          row.isSealed = true
          // The publisher may have been here before.
          row.durableByteCount = max(row.durableByteCount, durableByteCount)
        }
      }
      releaseSlot(writer.name)
    } catch {
      // All records are visible. The next opening writes the footer.
      logger.warning("Pack \(writer.name) was not sealed.", metadata: ["reason": "\(error.message)"])
      if isSealing { locked { $0.sealFailure = error } }
      if error.code == .poisoned { locked { $0.poison = error } }
      if publishes, isSealing { locked { poisonUnpublished(writer, &$0, error) } }
      if isSealing {
        finishSealing(writer, error.code == .poisoned || publishes ? 0 : writer.writtenByteCount)
      }
      locked { $0.slots[writer.name] = nil }
      if error.code == .poisoned { markPoisoned(writer.name) }
    }
    // One that is to be published stays locked until it is.
    if !publishes { writer.file.close() }
  }

  /// Marks a pack whose truncation may not survive a power cut, for all writers.
  func markUncut() {
    if let name = locked({ $0.unmarkedPoison.take() }) { markPoisoned(name) }
  }

  /// Marks a pack that may not have reached the medium, for all writers.
  func markPoisoned(_ name: PackName) {
    do throws(BlobStorageError) {
      try catalog.write { (transaction) throws(BlobStorageError) in try transaction.poison(name) }
    } catch { logger.error("Pack \(name) could not be marked as not synced.") }
  }
}
