import Synchronization

/// Packs of a known length, for which there is space before anything is written.
extension WriterSession {
  /// Bytes that long work appends between commits: a pack ends with a commit, when it is full.
  package var commitByteCountMax: Int64 { min(16 << 20, packByteCountTarget.load(ordering: .relaxed)) }

  func packByteCountTarget(_ state: State) -> Int64 {
    state.packByteCountTarget ?? packByteCountTarget.load(ordering: .relaxed)
  }

  /// Has the pack under way, begun if there is none, take `byteCount` more bytes, and reserves the space for them.
  /// It is full when it has them.
  package func reserveRoom(byteCount: Int64) throws(BlobStorageError) {
    try waitForRoom()
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
