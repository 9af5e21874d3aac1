import BlobStorage
import Foundation
import Logging
import Synchronization
import SystemPackage

/// Puts values: prepares them without a lock, stores them if there is room, and notes them in memory.
extension CacheCore {
  /// Values to put in one commit: as many as fit into a pack, or one that does not.
  package struct Group {
    package private(set) var items: [MemoryPut.Item] = []
    private var byteCount = 0

    package init() {}

    /// Adds a value; false if the group has no room for it.
    package mutating func add(_ item: MemoryPut.Item, _ limits: CacheLimits) -> Bool {
      let added = item.packByteCountMax
      if byteCount + added > limits.packByteCountTarget, !items.isEmpty { return false }
      items.append(item)
      byteCount += added
      return true
    }

    /// An upper estimate of the bytes that they need in a pack, with the drops of keys evicted for them and the end of
    /// the footer.
    var needByteCount: Int64 { Int64(byteCount + 4_096 + items.count * 256) }
  }

  /// The results of storing a group, and the watermark to sync for durability.
  package typealias Stored = (results: [PutResult], watermark: WriterSession.Watermark?)

  /// Stores values under their keys, as many in one commit as fit.
  ///
  /// - Parameter isWanted: whether to store a single value. Called inside the commit, while no one else can change the
  ///   key, and again afterwards.
  /// - Returns: whether each value was stored. A key whose value was not stored has no value, not an older one.
  /// - Throws: `conditionFailed` if the value is not wanted. Then it is not stored.
  package func put(
    _ items: [CacheItem], if isWanted: () -> Bool = { true }
  ) throws(BlobStorageError) -> [Bool] {
    try engine.checkOpen()
    var stored = [BlobVersion.ID?](repeating: nil, count: items.count)
    let limits = limits
    var group = Group()
    var indices: [Int] = []
    func end() throws(BlobStorageError) {
      if let (results, watermark) = try store(group, durability, if: isWanted) {
        for (index, result) in zip(indices, results) { stored[index] = result.version.id }
        try engine.makeDurable(durability, watermark)
      }
      (group, indices) = (Group(), [])
    }
    for (index, item) in items.enumerated() {
      let key = try Engine.keyBytes(prefix + item.key)
      guard item.data.count <= limits.valueByteLimit else { continue }
      let value = try engine.memoryPut.prepare(key, item.data, item.putOptions)
      if !group.add(value, limits) {
        try end()
        _ = group.add(value, limits)
      }
      indices.append(index)
    }
    if !indices.isEmpty { try end() }
    if !isWanted() {
      // Another thread that has removed all keys meanwhile may not have seen these.
      var keys: [[UInt8]] = []
      for item in items { keys.append(try Engine.keyBytes(prefix + item.key)) }
      _ = try dropAll(keys) { (index, view) throws(BlobStorageError) in
        try view.currentVersion(ofKey: keys[index])?.stamp == stored[index]?.stamp
      }
      throw Self.unwanted
    }
    let refused = items.indices.filter { stored[$0] == nil }
    if !refused.isEmpty {
      state.withLock { $0.counts.refusedCount += refused.count }
      // The caller must not find the key's earlier value. A value that was stored after the refused one stays.
      var last: [[UInt8]: Int] = [:]
      for (index, item) in items.enumerated() { last[Array(item.key.utf8)] = index }
      let dropped = last.values.filter { stored[$0] == nil }.map { items[$0].key }
      if !dropped.isEmpty { _ = try remove(dropped, if: isWanted) }
    }
    return stored.map { $0 != nil }
  }

  /// Stores a value, or changes nothing.
  ///
  /// - Throws: `limitExceeded` when it is too long for the cache; that, `noSpace` or `busy` when no room can be made.
  package func put(
    _ key: String, _ data: Data, _ options: PutOptions, if isWanted: () -> Bool = { true }
  ) throws(BlobStorageError) -> PutResult {
    try engine.checkOpen()
    let bytes = try Engine.keyBytes(prefix + key)
    try engine.check(options.condition, on: bytes)
    let limits = limits
    guard data.count <= limits.valueByteLimit else {
      throw BlobStorageError(
        .limitExceeded,
        "The value of “\(key)” has more than \(limits.valueByteLimit) bytes, the most that the cache keeps "
          + "of one value: raise its limit.", key: key)
    }
    let item = try engine.memoryPut.prepare(bytes, data, options)
    var group = Group()
    _ = group.add(item, limits)
    let (results, watermark) = try storeInRoom(group, options.durability, if: isWanted)
    try engine.makeDurable(options.durability, watermark)
    return results[0]
  }

  /// Stores values in one commit, after making room for them.
  ///
  /// - Returns: nil when no room can be made.
  package func store(
    _ group: Group, _ durability: Durability, if isWanted: () -> Bool = { true }
  ) throws(BlobStorageError) -> Stored? {
    do throws(BlobStorageError) { return try storeInRoom(group, durability, if: isWanted) } catch {
      guard Self.isNoRoom(error.code) else { throw error }
      engine.logger.notice("A value is not stored.", metadata: ["reason": "\(error.message)"])
      return nil
    }
  }

  /// - Throws: `limitExceeded`, `noSpace` or `busy` when no room can be made, `conditionFailed` when it is not wanted.
  private func storeInRoom(
    _ group: Group, _ durability: Durability, if isWanted: () -> Bool = { true }
  ) throws(BlobStorageError) -> Stored {
    // A cache that another process has ended must not evict any more.
    if limits.keyLimit != nil { try adoptLimits() }
    let items = group.items
    let need = group.needByteCount
    for attempt in 0..<Self.attemptCount {
      let roomCount = state.withLock { $0.roomCount }
      do throws(BlobStorageError) {
        var notes = CacheNotes()
        let stored = try engine.memoryPut.commit(items, promising: durability) {
          (commit) throws(BlobStorageError) in
          guard isWanted() else { throw Self.unwanted }
          guard commit.roomByteCount >= need else { throw Self.roomNeeded }
          // A commit can be tried more than once.
          notes = try replaced(by: items, commit.transaction)
        }
        for (item, result) in zip(items, stored.0) {
          memory.replace(item.key, MemoryTier.Kept(version: result.version, data: item.data))
          notes.put(item.key)
          notes.addVersion(of: item.plan.digest, isNew: result.newByteCount > 0)
        }
        add(notes, makesRoom: true)
        tryToHoldCount(keeping: items)
        return stored
      } catch {
        let isLast = attempt == Self.attemptCount - 1
        guard error.code == .cacheNeedsRoom || error.code == .noSpace && !isLast else { throw error }
        try makeRoom(need, since: roomCount, mediumIsFull: error.code == .noSpace)
      }
    }
    throw BlobStorageError(.limitExceeded, "Other puts take all room that the cache makes: try again later.")
  }

  private static let attemptCount = 8
  private static let roomNeeded = BlobStorageError(.cacheNeedsRoom, "The pack has no room.")
  private static let unwanted = BlobStorageError(.conditionFailed, "The key was changed meanwhile.")

  static func isNoRoom(_ code: BlobStorageError.Code) -> Bool {
    code == .noSpace || code == .limitExceeded || code == .busy
  }

  /// Holds the limit of keys. The values are stored already: if this fails, the next put tries again.
  private func tryToHoldCount(keeping items: [MemoryPut.Item]) {
    do throws(BlobStorageError) { try holdCount(keeping: Set(items.map(\.key))) } catch {
      engine.logger.warning(
        "The cache has more keys than its limit.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// The notes for the versions that these values replace.
  private func replaced(
    by items: [MemoryPut.Item], _ view: ReadTransaction
  ) throws(BlobStorageError) -> CacheNotes {
    var notes = CacheNotes()
    var seen: Set<[UInt8]> = []
    for item in items where item.ref.replacement == .replaceCurrent && seen.insert(item.key).inserted {
      if let current = try view.currentVersion(ofKey: item.key) {
        try notes.removeVersion(current.row, view)
      }
    }
    return notes
  }

  // MARK: Removing

  /// Drops keys and returns how many existed.
  ///
  /// - Parameter isWanted: whether to drop a key. No one else changes it between the answer and the drop.
  /// - Throws: `invalidArgument` when another process has ended the cache: its keys must stay.
  package func remove(
    _ keys: [String], if isWanted: () -> Bool = { true }
  ) throws(BlobStorageError) -> Int {
    try adoptLimits()
    var bytes: [[UInt8]] = []
    for key in keys { bytes.append(try Engine.keyBytes(prefix + key)) }
    return try dropAll(bytes) { _, _ in isWanted() }
  }

  /// Drops all versions of keys in one commit, and returns how many keys had any.
  ///
  /// - Parameter isToGo: whether to drop a key, by its index.
  func drop(
    _ keys: [[UInt8]], where isToGo: (Int, ReadTransaction) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) -> Int {
    var notes = CacheNotes()
    let count = try engine.writer.commit(on: keys) { (commit) throws(BlobStorageError) in
      // A commit can be tried more than once.
      notes = CacheNotes()
      var count = 0
      let view = commit.transaction
      for (index, key) in keys.enumerated() where try isToGo(index, view) {
        let id = CachedKeyRow.id(of: key)
        guard notes.keys[id] == nil else { continue }
        notes.drop(id)
        guard try view.nameRow(key)?.versionCount ?? 0 > 0 else { continue }
        count += 1
        // Imports from before there was a cache may have kept what they replaced.
        for key in [key, InternalKey.Purpose.replaced.key(key)] {
          guard let name = try view.nameRow(key), name.versionCount > 0 else { continue }
          let versions = try view.versions(of: name)
          for version in versions { try notes.removeVersion(version.row, view) }
          try commit.drop(versions.map(\.stamp), of: key)
        }
      }
      return count
    }.result
    memory.forget(keys)
    add(notes, makesRoom: false)
    return count
  }

  /// Drops keys of the cache, a page at a time.
  ///
  /// - Throws: `invalidArgument` when another process has ended the cache: its keys must stay.
  package func removeAll(prefix: KeyPrefix = .all) throws(BlobStorageError) -> Int {
    try engine.checkOpen()
    var count = 0
    // Each page begins after the last: until a collection, dropped keys have rows that would be passed again.
    var pages = KeyPages(engine.catalog, prefix: prefix, for: prefixBytes, countMax: 1_000)
    while let keys = try pages.next({ key, _, _ in (key, 1) }) {
      try adoptLimits()
      count += try dropAll(keys)
    }
    return count
  }

  /// Drops keys like ``drop(_:where:)``, on a full medium too.
  func dropAll(
    _ keys: [[UInt8]],
    where isToGo: (Int, ReadTransaction) throws(BlobStorageError) -> Bool = { _, _ in true }
  ) throws(BlobStorageError) -> Int {
    // A caller that drops wants to free space, so dropping must not need space.
    try engine.folder.withReserve { () throws(BlobStorageError) in try drop(keys, where: isToGo) }
  }
}

extension BlobStorageError.Code {
  /// The open pack has no room for a value. Never leaves the library.
  static let cacheNeedsRoom = Self(rawValue: "cacheNeedsRoom")
}

/// Holds the limit: makes room for a pack before it begins the pack, and reserves that room.
///
/// A put that begins a pack holds `cache.lock`, measures what the folder takes, frees what is missing, and reserves the
/// pack's space in its file. So the measurement includes what others may still write, and no put writes beyond it.
extension CacheCore {
  private static let roundCountMax = 12

  /// Begins a pack with room for `need` bytes.
  ///
  /// - Parameters:
  ///   - roomCount: how often room had been made when the put found none.
  ///   - mediumIsFull: frees something even if the limit does not require it.
  /// - Throws: `limitExceeded` when the limit leaves no room, `busy` when another process makes room for too long,
  ///   `noSpace` when the medium has none.
  func makeRoom(_ need: Int64, since roomCount: Int, mediumIsFull: Bool) throws(BlobStorageError) {
    try inTurn { () throws(BlobStorageError) in
      let (isMade, refusesUntil) = state.withLock { ($0.roomCount != roomCount, $0.refusesUntil) }
      if isMade { return }
      let time = engine.environment.time
      if let refusesUntil, refusesUntil > time.now() {
        throw BlobStorageError(.limitExceeded, "The cache had no room a moment ago: try again in a second.")
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
    // Notes come before the seal: if this process dies, only its open pack shows that keys may lack notes.
    do throws(BlobStorageError) { try writeNotes() } catch {}
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
        // If the medium is smaller than the limit, it becomes the limit.
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
    // Room for a whole pack is better, but room for this put is enough.
    guard missing <= wanted - need else {
      throw BlobStorageError(
        .limitExceeded,
        "The store at \(engine.folder.path) exceeds the cache's limit by \(missing) bytes: raise its limit.")
    }
    try engine.writer.reserveRoom(byteCount: missing > 0 ? wanted - missing : wanted)
  }

  /// Brings the folder below the limit, if it is not.
  package func holdLimit() throws(BlobStorageError) {
    try inTurn { () throws(BlobStorageError) in
      try locked { () throws(BlobStorageError) in
        try adoptLimits()
        try indexIfNeeded()
        let missing = try free(0, limits, atLeast: 0)
        if missing > 0 {
          engine.logger.warning("The cache exceeds its limit by \(missing) bytes, which other keys take.")
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
    var missing = try engine.folder.allocatedByteCount() + wanted - limits.byteLimit
    var goal = max(missing, least)
    guard goal > 0 else { return missing }
    try recoverTheDead()
    // Restores the reserve that a step on a full medium has used, so that the next has it too.
    if least > 0 { engine.keepReserve() }
    missing = try engine.folder.allocatedByteCount() + wanted - limits.byteLimit
    goal = max(missing, least)
    var isCounted = false
    for _ in 0..<Self.roundCountMax where goal > 0 {
      // Steps grow with the excess. Another limit bounds what they copy.
      let freed = try engine.folder.withReserve { () throws(BlobStorageError) in
        try step(goal: goal + limits.stepByteCount, limits)
      }
      if least > 0 { engine.keepReserve() }
      let last = missing
      missing = try engine.folder.allocatedByteCount() + wanted - limits.byteLimit
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

  /// Evicts keys to empty some packs as far as possible, and removes these packs.
  ///
  /// - Returns: the bytes by which packs became smaller.
  private func step(
    goal: Int64, _ limits: CacheLimits, copiesLarge: Bool = true
  ) throws(BlobStorageError) -> Int64 {
    try writeNotes()
    let choice = try CacheChoice.make(self, goal: goal, limits, copiesLarge: copiesLarge)
    guard !choice.packs.isEmpty else { return 0 }
    try evict(choice.keys)
    let report: GarbageCollectionReport
    do throws(BlobStorageError) { report = try engine.collectGarbage(in: choice.packs) } catch {
      // Without room for a copy, the pack goes with everything in it.
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

  /// Drops keys, unless they were used or put since they were chosen. Forgets those of an earlier cache.
  ///
  /// - Returns: how many were dropped or forgotten.
  @discardableResult
  func evict(_ keys: [(id: CachedKeyRow.ID, row: CachedKeyRow)]) throws(BlobStorageError) -> Int {
    var evictedCount = 0
    let own = keys.filter { $0.row.key.starts(with: prefixBytes) }
    if own.count < keys.count {
      // A process that used a cache with another prefix has noted them late. Throws if that cache is the newer one.
      try adoptLimits()
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        for (id, row) in keys where !row.key.starts(with: prefixBytes) {
          try transaction.setCachedKey(id, nil)
        }
      }
    }
    for page in own.parts(of: 500) {
      evictedCount += try drop(page.map(\.row.key)) { (index, view) throws(BlobStorageError) in
        let (id, row) = page[page.startIndex + index]
        if state.withLock({ $0.notes.keys[id] != nil }) { return false }
        guard try view.cachedKey(id) == row else { return false }
        // A value that was put since, and is not noted yet, stays.
        guard let current = try view.currentVersion(ofKey: row.key) else { return true }
        return current.row.digest == row.digest
      }
    }
    state.withLock { $0.counts.evictedCount += evictedCount }
    if evictedCount > 0 { engine.metrics?.record(.evicted(keyCount: evictedCount)) }
    return evictedCount + keys.count - own.count
  }

  /// Recovers packs of dead writers: they hold on to space that they do not use.
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

  /// Finishes a killed collection: only live packs can be chosen to make room.
  private func finishLastCollection() throws(BlobStorageError) {
    if try engine.catalog.packRows().contains(where: { $0.row.state != .live }) {
      _ = try engine.collectGarbage(in: [])
    }
  }

  /// Repairs a store that is all cache, and drops what is damaged: damage keeps a collection from removing anything.
  private func heal() throws(BlobStorageError) {
    guard prefix.isEmpty else { return }
    let report = try engine.repair(acceptsLosses: true)
    for path in report.setAside { try engine.folder.files.remove(FilePath(path)) }
    // The repair rebuilt the catalog without notes, so that no key could be evicted.
    try indexIfNeeded()
  }

  /// Adopts the limits that the folder has now.
  ///
  /// - Throws: `invalidArgument` when another process has ended the cache.
  func adoptLimits() throws(BlobStorageError) {
    // If they cannot be read, the known limits stay in force.
    guard let file = try unlessCorrupted(try CacheFile.read(engine.folder)) else { return }
    guard let file, file.prefix == prefixBytes else {
      throw BlobStorageError(
        .invalidArgument, "The store at \(engine.folder.path) is no longer this cache: open it again.",
        path: engine.folder.path.string)
    }
    state.withLock { $0.limits = file.limits }
    engine.limitPacks(to: file.limits.packByteCountTarget)
  }

  // MARK: Locks

  func inTurn<T: Sendable>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    try turn.withLock { (_) throws(BlobStorageError) in try body() }
  }

  /// Runs `body` while no other process makes room. The lock dies with its process.
  func locked<T>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    try lockFile.locked(body)
  }
}

extension File {
  /// Runs `body` with the file's lock held.
  ///
  /// - Throws: `busy` if the lock is not free within ten seconds: a process that was stopped may hold it.
  func locked<T>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    let isLocked = try PassingTime.system.retry(
      withinSeconds: 10, pauseSeconds: 0.001...0.001, failed: CancellationFlag.check
    ) { () throws(BlobStorageError) in try lock(.exclusive, wait: false) }
    guard isLocked else {
      throw BlobStorageError(
        .busy, "Another process has been making room in the cache for too long: try again later.",
        path: path.string)
    }
    defer {
      // A lock that cannot be released ends with the file.
      do throws(BlobStorageError) { try unlock() } catch {}
    }
    return try body()
  }
}

extension Engine {
  /// Removes these packs, by their numbers, after copying their live records.
  package func collectGarbage(in packs: Set<UInt32>) throws(BlobStorageError) -> GarbageCollectionReport {
    try sharing.requireOwnPacks(
      "Making room is not possible yet for a store of objects (\(information.path)).")
    return try Collector(
      self, GarbageCollectionOptions(minimumGarbageShare: 0, timeout: .seconds(5)), nil, scope: packs
    ).run()
  }
}
