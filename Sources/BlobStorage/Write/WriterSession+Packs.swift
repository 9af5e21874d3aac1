import Dispatch
import Logging
import Synchronization
import SystemPackage

/// Begins packs, and reserves space for packs of known length before anything is written.
extension WriterSession {
  /// Bytes that long work appends between commits. A full pack ends only at a commit.
  package var commitByteCountMax: Int64 { min(16 << 20, packByteCountTarget.load(ordering: .relaxed)) }

  func packByteCountTarget(_ packs: borrowing OpenPacks) -> Int64 {
    packs.packByteCountTarget ?? packByteCountTarget.load(ordering: .relaxed)
  }

  /// Begins the next pack, adds it to the catalog, and claims a slot of the live table if one is free.
  func beginPack() throws(BlobStorageError) {
    try beginning.withPatience { () throws(BlobStorageError) in try beginPackInTurn() }
  }

  private func beginPackInTurn() throws(BlobStorageError) {
    guard
      try appendLock.withLock({ (packs) throws(BlobStorageError) -> Bool in
        if let poison = locked({ $0.poison }) { throw poison }
        return packs.writer == nil
      })
    else { return }
    let last = try catalog.read { (transaction) throws(BlobStorageError) in try transaction.clock() }
    let sequence = locked { $0.nextSequence }
    let writer = try newPack(sequence, time: Stamp.timeAfter(last, wallClock: clock.now()))
    do throws(BlobStorageError) {
      try catalog.write { (transaction) throws(BlobStorageError) in
        if try transaction.packNumber(writer.name) == nil {
          _ = try transaction.addPack(PackRow(name: writer.name, created: writer.header.created))
        }
      }
    } catch {
      // Removed while it is locked, so that no process recovers it. Its number is reused: numbers have no gaps.
      do throws(BlobStorageError) { try backend.removeNewPack(writer.name) } catch { leave(writer, error) }
      writer.file.close()
      throw error
    }
    do throws(BlobStorageError) {
      // The pack gets a slot before any record: a rebuild applies it only up to the slot's length.
      let name = writer.name
      let slot = try catalog.claimSlot(name)
      appendLock.withLock { packs in
        packs.begin(writer)
        locked { state in
          // Last, because leases and the syncing of names rely on the packs up to this number.
          state.nextSequence = sequence + 1
          state.slots[name] = slot
          state.update(from: packs)
        }
      }
    } catch {
      leave(writer, error)
      writer.file.close()
      throw error
    }
  }

  /// Abandons a pack that was begun and has no records. The next opening seals it as an empty pack.
  private func leave(_ writer: PackWriter, _ cause: BlobStorageError) {
    appendLock.withLock { _ in locked { $0.nextSequence = writer.name.sequence + 1 } }
    publisher.giveUp(writer, cause, of: self)
  }

  private func newPack(_ sequence: UInt32, time: UInt64) throws(BlobStorageError) -> PackWriter {
    guard time < Stamp.timeMax else {
      throw BlobStorageError(.limitExceeded, "The store's clock has come to its end.")
    }
    let header = PackHeader(
      name: PackName(writer: writerID, sequence: sequence), storeID: store.storeID,
      digestAlgorithm: store.digestAlgorithm, created: max(time, min(packTimeMin, Stamp.timeMax - 1)))
    return try PackWriter(header: header, backend: backend, codecs: codecs)
  }

  /// Reserves space for `byteCount` more bytes in the current pack, begun if necessary. The pack is full when it has
  /// them.
  package func reserveRoom(byteCount: Int64) throws(BlobStorageError) {
    try publisher.admit(self)
    try beginPack()
    try appendLock.withLock { (packs) throws(BlobStorageError) in
      if let poison = locked({ $0.poison }) { throw poison }
      guard let writer = packs.writer else { return }
      let target = writer.byteCount + byteCount
      try writer.reserve(byteCount: target)
      packs.packByteCountTarget = target
    }
  }
}

/// How records reach the medium: syncs, shared ones, and the sealing of full packs.
extension WriterSession {
  /// Forces what a commit wrote to the medium. Threads that wait at the same time share one sync.
  ///
  /// - Throws: `poisoned` if the sync failed; this session writes nothing from then on. Where packs are published, also
  ///   the error of publishing; the call can be repeated then.
  package func synchronize(_ watermark: Watermark) throws(BlobStorageError) {
    if weaknesses.contains(.skipsSync) { return }
    try publisher.publish(watermark, of: self)
    // A change in a folder that the path no longer names would be missing from the one that it names.
    try catalog.anchor?.check()
  }

  /// Syncs the pack of a commit. Threads that wait at the same time share one sync (``SyncGroup``).
  func synchronizeShared(_ watermark: Watermark) throws(BlobStorageError) {
    // Wait for sealing first: a sync that fails there is reported once, to the thread that seals.
    sealing.wait()
    if let member = locked({ $0.syncGroup.join(watermark) }), !member.wait() {
      // Another sync than the group's may have failed.
      return try checkNotPoisoned()
    }
    defer {
      let (leader, durable) = locked { $0.endSync() }
      leader?.wake(asLeader: true)
      for member in durable { member.wake(asLeader: false) }
    }
    try synchronizeInTurn(watermark)
  }

  /// Runs `body` while no other thread publishes packs of this session. A task that is cancelled does not wait.
  package func inPublishingTurn(_ body: () throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    try publishingTurn.acquire()
    defer { publishingTurn.release() }
    try body()
  }

  /// Whether the bytes up to a watermark are durable, perhaps by another thread's sync.
  func isDurable(_ watermark: Watermark) -> Bool {
    locked { $0.durableByteCount(of: watermark.pack) >= watermark.byteCount }
  }

  func synchronizeInTurn(_ watermark: Watermark) throws(BlobStorageError) {
    let plan = locked { $0.syncPlan(for: watermark) }
    try checkNotPoisoned()
    if isDurable(watermark) { return }
    guard let plan else {
      // The pack was sealed meanwhile, or given up.
      return try synchronizeGivenUp(watermark)
    }
    do throws(BlobStorageError) {
      let isSynced = try syncs.run(plan.pack) { () throws(BlobStorageError) -> Bool in
        do throws(BlobStorageError) { try plan.file.synchronize() } catch {
          // Another thread has sealed and closed the pack meanwhile.
          throw error.code == .closed ? error : poison(plan.pack, error)
        }
        return true
      }
      if isSynced == nil { throw lost(plan.pack) }
      if !plan.hasName {
        do throws(BlobStorageError) { try synchronizeNames() } catch {
          throw error.code == .closed ? error : poison(plan.pack, error)
        }
      }
    } catch {
      if error.code == .closed { return try synchronizeGivenUp(watermark) }
      markPoisoned(plan.pack)
      throw error
    }
    if let anchor = catalog.anchor, try plan.file.status().linkCount == 0 {
      throw anchor.endWithout("pack \(plan.pack), to which this program writes,")
    }
    if plan.isFirst { enter(.begun(plan.pack)) }
    locked { $0.finish(plan, fillByteCount: fillByteCount) }
    // Cutting the pack back may have failed in another thread. The sync does not report what was lost then.
    try checkNotPoisoned()
  }

  private func synchronizeGivenUp(_ watermark: Watermark) throws(BlobStorageError) {
    if !isDurable(watermark), try !synchronizeOther(watermark.pack) {
      try checkNotPoisoned()
      throw BlobStorageError(
        .poisoned, "A sync of pack \(watermark.pack) has failed: open the store again to continue.",
        pack: watermark.pack.description)
    }
    // Another thread's sync of the pack may have failed. Then this sync proves nothing about what that one lost.
    try checkNotPoisoned()
  }

  /// Ends all writing of this session, because a sync of its pack failed. No record goes to the pack from then on.
  private func poison(_ pack: PackName, _ cause: BlobStorageError) -> BlobStorageError {
    appendLock.withLock { packs in
      for writer in packs.writers where writer.name == pack { writer.poison(cause) }
      let failure = PackWriter.syncFailure(of: pack, cause)
      locked { $0.poison = failure }
      return failure
    }
  }

  /// The error for a pack whose sync has failed: no later sync makes it durable.
  private func lost(_ pack: PackName) -> BlobStorageError {
    ending ?? poison(pack, BlobStorageError(.io, "an earlier sync of it had failed"))
  }

  /// The error that ended all writing; nil while the session can write. Waits while a pack is being cut back: that may
  /// fail, and no sync reports what was lost then. Called without the append lock.
  package var ending: BlobStorageError? {
    let (isCutting, poison) = locked { ($0.isCutting, $0.poison) }
    guard isCutting else { return poison }
    return appendLock.withLock { _ in locked { $0.poison } }
  }

  private func checkNotPoisoned() throws(BlobStorageError) {
    if let ending { throw ending }
  }

  /// Forces the names of all packs that this session has begun to the medium.
  private func synchronizeNames() throws(BlobStorageError) {
    // Other threads may begin packs meanwhile.
    let last = locked { $0.nextSequence - 1 }
    try backend.synchronizeNames()
    locked { $0.namedSequence = max($0.namedSequence, last) }
  }

  /// Syncs a pack that this session does not write.
  ///
  /// - Returns: false if an earlier sync of the pack has failed: no later one makes that good. True if it has no file.
  @discardableResult
  package func synchronizeOther(_ name: PackName) throws(BlobStorageError) -> Bool {
    guard let file = try backend.openPack(name) else { return true }
    defer { file.close() }
    let row = try catalog.packRow(name)
    // Another process's sync of it has failed.
    if row?.isPoisoned == true { return false }
    // Not the file's length: its writer may have filled it ahead.
    let byteCount = row?.appliedByteCount ?? 0
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
        // The thread whose sync failed may not have marked the pack yet.
        markPoisoned(name)
        return false
      }
    } catch {
      markPoisoned(name)
      throw cause ?? error
    }
    do throws(BlobStorageError) { try synchronizeNames() } catch {
      if error.code == .closed { throw error }
      // A later sync would not tell which names were lost.
      markPoisoned(name)
      throw poison(name, error)
    }
    locked { $0.raiseDurable(name, to: byteCount) }
    return true
  }

  /// Whether a record of this session may refer to one at `place` (H1): a power cut that spares the first spares the
  /// second. That holds for earlier records of the current pack, and for packs on the medium. Where packs are published
  /// in order, it holds for all packs of this session.
  ///
  /// The backend, too, must allow relying on the pack: a process that knows of fewer collections may have extended the
  /// catalog since.
  package func canRefer(to place: Place, _ transaction: ReadTransaction) throws(BlobStorageError) -> Bool {
    if weaknesses.contains(.skipsSharedSync) { return true }
    guard let row = try transaction.packRow(place.pack), backend.isCountedOn(row.name) else { return false }
    if row.durableByteCount > place.offset, publisher.isThere(row) { return true }
    if publisher.precedes(row.name, self) { return true }
    return locked { $0.canRefer(to: row.name, offset: place.offset) }
  }

  /// Finishes sealing a pack, so that other records may rely on it.
  func finishSealing(_ pack: PackName, _ byteCount: Int64) {
    locked { state in
      if byteCount > 0 { state.raiseDurable(pack, to: byteCount) }
      state.sealingCount -= 1
    }
    sealing.leave()
  }

  /// Writes the footer and syncs the pack. If the footer cannot be written, syncs the records and throws.
  func makeWhole(_ writer: PackWriter) throws(BlobStorageError) -> Int64 {
    do throws(BlobStorageError) {
      let byteCount = try syncs.run(writer.name) { () throws(BlobStorageError) in
        do throws(BlobStorageError) { return try writer.seal() } catch {
          if error.code == .poisoned { locked { $0.poison = error } }
          throw error
        }
      }
      guard let byteCount else { throw lost(writer.name) }
      do throws(BlobStorageError) { try synchronizeNames() } catch {
        throw error.code == .closed ? error : poison(writer.name, error)
      }
      // What another thread's sync of the pack has lost, this one does not tell.
      try checkNotPoisoned()
      enter(.sealed(writer.name, recordsEnd: writer.byteCount))
      return byteCount
    } catch {
      guard error.code != .poisoned else { throw error }
      do throws(BlobStorageError) {
        let isSynced = try syncs.run(writer.name) { () throws(BlobStorageError) -> Bool in
          do throws(BlobStorageError) { try writer.file.synchronize() } catch {
            throw poison(writer.name, error)
          }
          return true
        }
        if isSynced == nil { throw lost(writer.name) }
        try synchronizeNames()
        enter(.begun(writer.name))
      } catch {
        throw error.code == .poisoned ? error : poison(writer.name, error)
      }
      throw error
    }
  }

  /// Adds a line to the census about a pack that is on the medium. If that fails, a later opening adds it.
  private func enter(_ event: Census.Event) {
    do throws(BlobStorageError) { try backend.census.append([event], durably: false) } catch {
      logger.warning("The census lacks a line.", metadata: ["reason": "\(error.message)"])
    }
  }

  func seal(_ writer: PackWriter) {
    var sealed: Int64?
    do throws(BlobStorageError) {
      let durableByteCount = try publisher.seal(writer, of: self)
      sealed = durableByteCount
      finishSealing(writer.name, durableByteCount)
      _ = try catalog.write { (transaction) throws(BlobStorageError) in
        try transaction.updatePack(writer.name) { row in
          row.isSealed = true
          // The publisher may have recorded its length already.
          row.durableByteCount = max(row.durableByteCount, durableByteCount)
        }
      }
      releaseSlot(writer.name)
    } catch {
      // All records are visible. The next opening writes the footer.
      logger.warning("Pack \(writer.name) was not sealed.", metadata: ["reason": "\(error.message)"])
      if error.code == .poisoned { locked { $0.poison = error } }
      if sealed == nil {
        if error.code != .sharedFile { locked { $0.sealFailure = error } }
        let durableByteCount = publisher.giveUp(writer, error, of: self)
        finishSealing(writer.name, error.code == .poisoned ? 0 : durableByteCount)
      }
      let name = writer.name
      // Dropping a slot is a system call, so it happens outside the lock.
      _ = locked { $0.slots.removeValue(forKey: name) }
      if error.code == .poisoned { markPoisoned(writer.name) }
    }
    // The publisher keeps the file of a pack that is not durable yet.
    if sealed != 0 { writer.file.close() }
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

/// Seals packs.
extension WriterSession {
  /// Ends full packs, and a pack that failed puts have made long: they committed nothing, and what they appended stays
  /// in the pack.
  func endLongPack() throws(BlobStorageError) {
    // Looked at again under the append lock: another thread may have ended the pack and begun the next one.
    if locked({ $0.isLong }) { sealWhenSettled { _ in locked { $0.isLong } } }
    try settleFull()
  }

  /// Applies the pending records of full packs and seals them.
  ///
  /// Threads may append to a pack after a commit's transaction and before the commit ends. If the pack is full at that
  /// end, it has pending records and cannot be sealed yet. No commit writes to the next pack before this one is on the
  /// medium: its refs may need pending records (H1).
  func settleFull() throws(BlobStorageError) {
    if locked({ !$0.full.isEmpty }) {
      do throws(BlobStorageError) {
        var ends: [(slot: LiveTable.Slot, end: Int64)] = []
        let appliedEnd = try catalog.write { (transaction) throws(BlobStorageError) in
          try appendLock.withLock { (packs) throws(BlobStorageError) in
            if let poison = locked({ $0.poison }) { throw poison }
            try flush(&packs)
            try transaction.apply(packs.pending)
            // Tails begin behind these records: no ref of a later commit may name one by its place.
            packs.writer?.endCommit()
            ends = writtenEnds(packs)
            return packs.appliedEnd
          }
        } undo: { _ in
        } done: {
          for (slot, end) in ends { slot.raise(to: end) }
        }
        settle(appliedEnd)
      } catch {
        markUncut()
        throw error
      }
    }
    // Another thread may be sealing a pack.
    sealing.wait()
  }

  /// Forgets the pending records up to that count, which the catalog now has, and seals the full packs.
  func settle(_ appliedEnd: Int) {
    for writer in appendLock.withLock({ removeSettled(&$0, upTo: appliedEnd) }) { seal(writer) }
  }

  /// - Returns: the packs to seal.
  func removeSettled(_ packs: inout OpenPacks, upTo appliedEnd: Int) -> [PackWriter] {
    let settled = packs.removeSettled(upTo: appliedEnd)
    if let writer = packs.writer,
      writer.byteCount >= packByteCountTarget(packs)
        || writer.recordCount >= packRecordCountTarget
    {
      packs.endCurrent()
    }
    let sealable = packs.removeSealable()
    for _ in sealable { sealing.enter() }
    locked { state in
      state.pending.remove(settled)
      state.sealingCount += sealable.count
      state.update(from: packs)
    }
    return sealable
  }

  /// Frees the slot of a pack that is sealed in the catalog.
  func releaseSlot(_ name: PackName) {
    locked { $0.slots.removeValue(forKey: name) }?.release()
  }

  /// Applies what is pending, seals the current pack, and publishes it where packs are published. The next record
  /// begins another pack.
  ///
  /// - Throws: if what was written may not be on the medium.
  package func rollOver() throws(BlobStorageError) {
    sealWhenSettled { _ in true }
    try settleFull()
    // Reported once: later packs are not affected.
    if let failure = ending ?? locked({ $0.sealFailure.take() }) { throw failure }
    try publisher.publishSealed(of: self)
  }

  /// Closes the packs that could not be sealed, so that the next opening recovers them.
  func letGo() {
    let writers = appendLock.withLock { packs in
      let writers = packs.removeAll()
      locked { $0.update(from: packs) }
      return writers
    }
    for writer in writers { writer.file.close() }
  }

  /// Ends the current pack if `isToSeal` returns true for it.
  func sealWhenSettled(_ isToSeal: (PackWriter) -> Bool) {
    appendLock.withLock { packs in
      guard let writer = packs.writer, isToSeal(writer) else { return }
      packs.endCurrent()
      locked { $0.update(from: packs) }
    }
  }
}

/// What a publisher needs from a session. In a folder the session syncs its packs itself.
extension WriterSession {
  /// Makes collectors of a shared store wait for the session, which must not rely on anything that it looked up before.
  package func join() throws(BlobStorageError) { try publisher.join(self) }

  /// Makes everything durable. Where packs are published, the session writes nothing from then on, and collectors stop
  /// waiting.
  ///
  /// - Throws: if what was written may not be durable.
  package func close() throws(BlobStorageError) { try publisher.close(self) }

  /// Whether the next record begins a pack.
  package var beginsPack: Bool { locked { $0.current == nil } }

  /// Seals a pack, if it is the current one.
  package func seal(_ pack: PackName) throws(BlobStorageError) {
    sealWhenSettled { $0.name == pack }
    try settleFull()
  }

  /// The last pack that was sealed; nil if there is none. Waits until no thread is sealing a pack.
  package func lastSealedPack() -> PackName? {
    while true {
      sealing.wait()
      // Read together: if another thread renumbers the session, the sequence does not belong to the new number.
      let last = locked { state -> PackName? in
        // A pack that another thread has begun to seal is not the publisher's yet.
        if state.sealingCount > 0 { return nil }
        return PackName(writer: writerID, sequence: state.firstSequence - 1)
      }
      if let last { return last.sequence > 0 ? last : nil }
    }
  }

  /// Whether the record at `place` is stored for good once the records of this session are (H1).
  ///
  /// - Parameter isChecked: whether the caller secures the pack. If not, ``Sharing/checkKept(of:since:)`` does.
  package func stays(
    at place: Place, _ transaction: ReadTransaction, isChecked: Bool = true
  ) throws(BlobStorageError) -> Bool {
    try publisher.keeps(place, transaction, self, isChecked: isChecked)
  }

  /// Whether a pack is known to be durable.
  package func isDurable(_ pack: PackName) -> Bool { locked { $0.durableByteCount(of: pack) } > 0 }

  /// Marks a pack as published.
  package func markPublished(_ pack: PackName, byteCount: Int64) throws(BlobStorageError) {
    locked { $0.setPublished(pack, byteCount: byteCount) }
    try catalog.write { (transaction) throws(BlobStorageError) in
      try CatalogBuilder.markPublished(pack, byteCount: byteCount, in: transaction)
    }
  }

  /// Ends all writing of this session.
  package func end(_ error: BlobStorageError) {
    // A commit in progress ends first.
    appendLock.withLock { _ in locked { $0.poison = error } }
  }

  /// Ends all writing if everything is sealed and published. Returns whether it did.
  package func end(_ error: BlobStorageError, ifPublished isPublished: (UInt32) -> Bool) -> Bool {
    beginning.withPatience {
      appendLock.withLock { packs in
        guard let next = nextSequence(ifIdle: packs), isPublished(next) else { return false }
        locked { $0.poison = error }
        return true
      }
    }
  }

  /// The next pack, if all packs before it are sealed and published.
  package func nextPack(ifPublished isPublished: (UInt32) -> Bool) -> PackName? {
    appendLock.withLock { packs in
      guard let next = nextSequence(ifIdle: packs), isPublished(next) else { return nil }
      return PackName(writer: writerID, sequence: next)
    }
  }

  /// Continues under another number, unless the session has written since `next` was its next pack. Returns whether it
  /// did.
  ///
  /// - Parameter begin: tells the publisher before any thread can write.
  package func renumber(
    _ writer: UInt64, from next: PackName, ifPublished isPublished: (UInt32) -> Bool, _ begin: () -> Void
  ) -> Bool {
    beginning.withPatience {
      appendLock.withLock { packs in
        guard let sequence = nextSequence(ifIdle: packs), isPublished(sequence), sequence == next.sequence
        else {
          return false
        }
        locked { $0.nextSequence = 1 }
        number.store(writer, ordering: .relaxed)
        begin()
        return true
      }
    }
  }

  /// The sequence number of the next pack; nil unless everything written is sealed.
  private func nextSequence(ifIdle packs: borrowing OpenPacks) -> UInt32? {
    guard packs.pending.isEmpty else { return nil }
    return locked { $0.isIdle ? $0.nextSequence : nil }
  }

  /// Ends all writing of this session, unless something has ended it before. Called with or without the append lock.
  package func poison(_ error: BlobStorageError) { locked { $0.poison = $0.poison ?? error } }

  /// Ends a session whose records are published but could not be settled, for example on a full disk. Syncs its packs,
  /// which the next process to open the store settles. Throws `error` in any other case.
  func closePublished(because error: BlobStorageError) throws(BlobStorageError) {
    let (published, isOnlyFooter) = appendLock.withLock { packs -> ([Watermark], Bool) in
      let (poison, slots) = locked { ($0.poison, $0.slots) }
      // Without room for its footer a pack is synced all the same, and the next opening writes the footer.
      let isOnlyFooter =
        error.code == .noSpace && poison == nil && packs.writer == nil && packs.full.isEmpty
        && packs.pending.isEmpty
      guard catalog.hasTails, poison == nil, packs.pending.isEmpty,
        packs.full.allSatisfy({ slots[$0.name] != nil })
      else { return ([], isOnlyFooter) }
      return (packs.full.map { Watermark(pack: $0.name, byteCount: $0.writtenByteCount) }, isOnlyFooter)
    }
    if published.isEmpty, !isOnlyFooter { throw error }
    for watermark in published { try synchronize(watermark) }
    logger.warning(
      "The catalog lags behind until it can be written.", metadata: ["reason": "\(error.message)"])
  }
}
