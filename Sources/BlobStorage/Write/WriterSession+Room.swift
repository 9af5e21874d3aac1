import Synchronization

/// Begins packs, and reserves space for packs of known length before anything is written.
extension WriterSession {
  /// Bytes that long work appends between commits: a pack ends with a commit, when it is full.
  package var commitByteCountMax: Int64 { min(16 << 20, packByteCountTarget.load(ordering: .relaxed)) }

  func packByteCountTarget(_ state: State) -> Int64 {
    state.packByteCountTarget ?? packByteCountTarget.load(ordering: .relaxed)
  }

  /// Begins the next pack, adds it to the catalog, and claims a slot of the live table if one is free.
  func beginPack() throws(BlobStorageError) {
    let result: Result<Void, BlobStorageError> = beginning.withLock { _ in
      do throws(BlobStorageError) { return .success(try beginPackInTurn()) } catch { return .failure(error) }
    }
    try result.get()
  }

  private func beginPackInTurn() throws(BlobStorageError) {
    guard
      try tryLocked({ (state) throws(BlobStorageError) -> Bool in
        if let poison = state.poison { throw poison }
        return state.writer == nil
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
      // The pack gets a slot before any record: a rebuild applies it only up to the slot's length.
      let slot = try catalog.claimSlot(writer.name)
      let begun = Unchecked(value: writer)
      locked { state in
        state.writer = begun.value
        // Only now: syncing of names, and leases, rely on the packs up to this number.
        state.nextSequence = sequence + 1
        state.slots[begun.value.name] = slot
        state.packByteCountTarget = nil
      }
    } catch {
      // The next opening removes it or seals it as an empty pack.
      writer.file.close()
      locked { $0.nextSequence = sequence + 1 }
      throw error
    }
  }

  private func newPack(_ sequence: UInt32, time: UInt64) throws(BlobStorageError) -> PackWriter {
    guard time < Stamp.timeMax else {
      throw BlobStorageError(.limitExceeded, "The store's clock has come to its end.")
    }
    let header = PackHeader(
      name: PackName(writer: writerID, sequence: sequence), storeID: store.storeID,
      digestAlgorithm: store.digestAlgorithm, created: time)
    let writer = try PackWriter(header: header, backend: backend, codecs: codecs)
    if publishes { writer.synchronizes = false }
    return writer
  }

  /// Begins the next pack of a store whose packs are published as objects.
  func begin(_ state: inout State, time: UInt64) throws(BlobStorageError) {
    state.writer = try newPack(state.nextSequence, time: time)
    state.packByteCountTarget = nil
    state.nextSequence += 1
  }

  /// Makes the current pack, begun if necessary, accept `byteCount` more bytes, and reserves the space for them. It is
  /// full when it has them.
  package func reserveRoom(byteCount: Int64) throws(BlobStorageError) {
    try publisher.admit(self)
    if publishesInTable { try beginPack() }
    let last = try catalog.read { (transaction) throws(BlobStorageError) in try transaction.clock() }
    try tryLocked { (state) throws(BlobStorageError) in
      if let poison = state.poison { throw poison }
      if state.writer == nil { try begin(&state, time: Stamp.timeAfter(last, wallClock: clock.now())) }
      guard let writer = state.writer else { return }
      let target = writer.byteCount + byteCount
      try writer.reserve(byteCount: target)
      state.packByteCountTarget = target
    }
  }
}

extension WriterSession.Commit {
  /// Bytes that the pack under way can still take without asking for space.
  package var roomByteCount: Int64 {
    guard let writer = box.state.writer else { return 0 }
    return max(0, writer.reservedByteCount - writer.byteCount)
  }
}
