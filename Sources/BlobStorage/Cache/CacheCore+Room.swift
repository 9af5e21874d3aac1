import Foundation
import Logging
import Synchronization
import SystemPackage

/// Holding the limit: room for a pack is made before the pack is begun, and reserved for it.
///
/// A put that begins a pack holds `cache.lock`, measures what the folder takes, frees what is missing, and reserves the
/// pack's space in its file. So the measurement includes what others may still write, and no put writes beyond it.
extension CacheCore {
  private static let roundCountMax = 12

  /// Begins a pack with room for `need` bytes.
  ///
  /// - Parameters:
  ///   - roomCount: how often room had been made when it was found missing.
  ///   - mediumIsFull: frees something also when the limit does not ask for it.
  /// - Throws: `limitExceeded` when the limit leaves no room, `busy` when another process makes room for too long,
  ///   `noSpace` when the medium has none.
  func makeRoom(_ need: Int64, since roomCount: Int, mediumIsFull: Bool) throws(BlobStorageError) {
    try inTurn { () throws(BlobStorageError) in
      let (isMade, refusesUntil) = state.withLock { ($0.roomCount != roomCount, $0.refusesUntil) }
      if isMade { return }
      let time = engine.environment.time
      if let refusesUntil, refusesUntil > time.now() {
        throw BlobStorageError(.limitExceeded, "The cache has no room, and had none a moment ago.")
      }
      do throws(BlobStorageError) { try makeRoomLocked(need, mediumIsFull) } catch {
        if Self.isNoRoom(error.code) { state.withLock { $0.refusesUntil = time.now() + 1 } }
        throw error
      }
      state.withLock {
        $0.roomCount += 1
        $0.refusesUntil = nil
      }
    }
  }

  private func makeRoomLocked(_ need: Int64, _ mediumIsFull: Bool) throws(BlobStorageError) {
    // Gives back what the last pack has reserved and not used.
    try engine.writer.rollOver()
    // Gives back the space of packs that others have removed.
    try engine.packs.forgetRemoved()
    try locked { () throws(BlobStorageError) in
      try adoptLimits()
      try indexIfNeeded()
      let limits = limits
      do throws(BlobStorageError) {
        try beginPack(need, limits, freesAtLeast: mediumIsFull ? limits.stepByteCount : 0)
      } catch {
        // The medium is smaller than the limit: it is the limit then.
        guard error.code == .noSpace, !mediumIsFull else { throw error }
        try beginPack(need, limits, freesAtLeast: limits.stepByteCount)
      }
    }
  }

  private func beginPack(
    _ need: Int64, _ limits: CacheLimits, freesAtLeast least: Int64
  ) throws(BlobStorageError) {
    let wanted = max(need, limits.packByteCountTarget)
    let missing = try free(wanted, limits, atLeast: least)
    // A whole pack is better, and what is needed now is enough.
    guard missing <= wanted - need else {
      throw BlobStorageError(
        .limitExceeded,
        "The store at \(engine.folder.path) takes \(missing) bytes more than the cache's limit allows.")
    }
    try engine.writer.reserveRoom(byteCount: missing > 0 ? wanted - missing : wanted)
  }

  /// Brings the folder below the limit, if it is not.
  func holdLimit() throws(BlobStorageError) {
    try inTurn { () throws(BlobStorageError) in
      try locked { () throws(BlobStorageError) in
        try adoptLimits()
        try indexIfNeeded()
        let missing = try free(0, limits, atLeast: 0)
        if missing > 0 {
          engine.logger.warning("The cache takes \(missing) bytes more than its limit: other keys need them.")
        }
      }
    }
  }

  /// Frees until `wanted` bytes fit below the limit.
  ///
  /// - Returns: the bytes that are still missing; 0 or less when none are.
  private func free(
    _ wanted: Int64, _ limits: CacheLimits, atLeast least: Int64
  ) throws(BlobStorageError) -> Int64 {
    var missing = try engine.folder.allocatedByteCount() + wanted - limits.byteCountMax
    var goal = max(missing, least)
    guard goal > 0 else { return missing }
    try recoverTheDead()
    // Puts back what a step on a full medium was given, so that the next has it too.
    if least > 0 { engine.keepReserve() }
    missing = try engine.folder.allocatedByteCount() + wanted - limits.byteCountMax
    goal = max(missing, least)
    var isCounted = false
    for _ in 0..<Self.roundCountMax where goal > 0 {
      // Far above the limit, bigger steps: what is copied is bounded apart from that.
      let freed = try engine.folder.withReserve { () throws(BlobStorageError) in
        try step(goal: goal + limits.stepByteCount, limits)
      }
      if least > 0 { engine.keepReserve() }
      let last = missing
      missing = try engine.folder.allocatedByteCount() + wanted - limits.byteCountMax
      goal = missing
      guard freed == 0 || missing >= last else { continue }
      // Nothing was freed. A killed collection left condemned packs, which are not chosen; or killed writers left
      // unrecorded keys; or the recorded garbage is wrong; or nothing is left to free.
      if isCounted { break }
      try finishLastCollection()
      _ = try index()
      try countGarbage()
      isCounted = true
    }
    return missing
  }

  /// Evicts what is needed to empty some packs as far as possible, and takes them away.
  ///
  /// - Returns: bytes by which packs became smaller.
  private func step(
    goal: Int64, _ limits: CacheLimits, copiesLarge: Bool = true
  ) throws(BlobStorageError) -> Int64 {
    try flushTouches()
    let choice = try CacheChoice.make(self, goal: goal, limits, copiesLarge: copiesLarge)
    guard !choice.packs.isEmpty else { return 0 }
    try evict(choice.keys)
    let report: CollectionReport
    do throws(BlobStorageError) { report = try engine.collectGarbage(in: choice.packs) } catch {
      // No room for a copy: then the pack goes with all that is in it.
      guard error.code == .noSpace, choice.hasLarge else { throw error }
      return try step(goal: goal, limits, copiesLarge: false)
    }
    if let obstacle = report.obstacles.first {
      engine.logger.warning("The cache cannot free space.", metadata: ["reason": "\(obstacle)"])
      try heal()
    }
    state.withLock { state in
      state.counts.freedByteCount += report.freedByteCount
      state.counts.copiedByteCount += report.copiedByteCount
    }
    return report.freedByteCount
  }

  /// Drops keys, unless they were used since they were chosen.
  private func evict(_ keys: [(id: CachedKeyRow.ID, row: CachedKeyRow)]) throws(BlobStorageError) {
    for page in keys.parts(of: 500) {
      let long = try longBlobs(page.map(\.row.digest))
      let count = try engine.writer.commitSettling { (commit, transaction) throws(BlobStorageError) in
        var dropping = CacheDropping(engine, long: long)
        for (id, row) in page {
          guard try transaction.cachedKey(id) == row else { continue }
          try dropping.drop(row.key, id, &commit, transaction)
        }
        return dropping.droppedKeyCount
      }.result
      state.withLock { $0.counts.evictedCount += count }
    }
  }

  /// Takes in packs whose writer died: they hold on to space that they do not use.
  private func recoverTheDead() throws(BlobStorageError) {
    var isAnyDead = false
    for (_, row) in try engine.catalog.packRows() where !row.isSealed && row.state == .live {
      guard let file = try engine.backend.adoptPack(row.name) else { continue }
      file.close()
      isAnyDead = true
    }
    if isAnyDead { try engine.recoverDeadWriters() }
    try engine.backend.removeLeftovers()
  }

  /// Ends a collection that was killed, if there was one: only live packs are chosen to make room.
  private func finishLastCollection() throws(BlobStorageError) {
    if try engine.catalog.packRows().contains(where: { $0.row.state != .live }) {
      _ = try engine.collectGarbage(in: [])
    }
  }

  /// Damage keeps a collection from removing anything. In a store that is all cache, what is damaged can go.
  private func heal() throws(BlobStorageError) {
    guard prefix.isEmpty else { return }
    let report = try engine.repair(acceptsLosses: true)
    for path in report.setAside { try engine.removeSetAside(path) }
    // A repair rebuilds the catalog, without the notes: nothing would be found to go.
    try indexIfNeeded()
  }

  /// Takes the limits that the folder has by now.
  ///
  /// - Throws: `invalidArgument` when another process has ended the cache.
  func adoptLimits() throws(BlobStorageError) {
    // Those that are known hold on where they cannot be read.
    guard let file = try unlessCorrupted(try CacheFile.read(engine.folder)) else { return }
    guard let file, file.prefix == prefixBytes else {
      throw BlobStorageError(
        .invalidArgument, "The store at \(engine.folder.path) is no longer this cache: open it anew.",
        path: engine.folder.path.string)
    }
    state.withLock { $0.limits = file.limits }
    engine.limitPacks(to: file.limits.packByteCountTarget)
  }

  // MARK: Locks

  func inTurn<T: Sendable>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    try turn.withLock { (_) throws(BlobStorageError) in try body() }
  }

  /// Runs `body` as the one of all processes that makes room. The lock dies with its process.
  func locked<T>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    try lockFile.locked(body)
  }
}

extension File {
  /// Runs `body` with the file's lock held.
  ///
  /// - Throws: `busy` when it could not be had for ten seconds: a process that was stopped may hold it.
  func locked<T>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    let end = ContinuousClock.now + .seconds(10)
    while !(try lock(.exclusive, wait: false)) {
      try CancellationFlag.check()
      guard ContinuousClock.now < end else {
        throw BlobStorageError(
          .busy, "Another process has been making room in the cache for too long.", path: path.string)
      }
      Thread.sleep(forTimeInterval: 0.001)
    }
    defer {
      // A lock that cannot be given back ends with the file.
      do throws(BlobStorageError) { try unlock() } catch {}
    }
    return try body()
  }
}
