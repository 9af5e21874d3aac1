import BlobStorage
import Foundation
import Logging
import Synchronization
import SystemPackage

/// A cache on a store: evicts values by itself, least recently used first, so that the folder keeps its limit.
///
/// Blocking, on the caller's thread, like the engine below it. Caching.md describes the design and its invariants.
/// Locks are taken in this order: `turn`, the file `cache.lock`, the collector's, the catalog's.
package final class CacheCore: Sendable {
  package let engine: Engine
  /// The prefix of all keys of the cache.
  package let prefix: String
  package let prefixBytes: [UInt8]
  let memory: MemoryTier
  let durability: Durability
  let lockFile: any File
  /// One thread of this process makes room at a time.
  let turn = IOLock<Void>(())
  let state: Mutex<State>

  struct State: Sendable {
    var limits: CacheLimits
    var notes = CacheNotes()
    /// Whether a reader's task is going to write the notes.
    var isToWriteNotes = false
    /// The notes are written after this many puts: fewer when the cache is near its limit of keys.
    var putCountMax = Int.max
    /// Increases whenever room was made, so that a waiting put first tries again.
    var roomCount = 0
    /// Until this time nothing is stored, because no room could be made.
    var refusesUntil: Double?
    var counts = CacheCounts()
  }

  /// - Parameters:
  ///   - limits: written into the folder; nil adopts the folder's.
  ///   - takesKeys: whether a store that already has such keys may become a cache, which can evict them.
  /// - Throws: `invalidArgument` for limits out of range, a folder without limits, a cache with another prefix, and
  ///   keys that may not be evicted.
  package init(
    engine: Engine, prefix: String, limits: CacheLimits?, memoryByteLimit: Int, durability: Durability,
    takesKeys: Bool = true
  ) throws(BlobStorageError) {
    let prefixBytes = Array(prefix.utf8)
    // The prefix must leave room for a key.
    if !prefix.isEmpty { _ = try Engine.keyBytes(prefix + "k") }
    try limits?.check()
    try engine.requireFolderForCache()
    let lockFile = try engine.folder.files.open(engine.folder.cacheLock, .openOrCreate)
    var isLower = false
    var isDamaged = false
    let limits = try lockFile.locked { () throws(BlobStorageError) in
      var known: CacheFile?
      do throws(BlobStorageError) { known = try CacheFile.read(engine.folder) } catch {
        guard error.code == .corrupted, limits != nil else { throw error }
        isDamaged = true
      }
      if let known, known.prefix != prefixBytes {
        throw BlobStorageError(
          .invalidArgument,
          "The store at \(engine.folder.path) has a cache under the prefix “\(String(decoding: known.prefix, as: UTF8.self))”: a store has only one cache."
        )
      }
      guard let limits = limits ?? known?.limits else {
        throw BlobStorageError(
          .invalidArgument, "The store at \(engine.folder.path) is not a cache: set limits first.")
      }
      if known == nil, !isDamaged, !takesKeys { try Self.requireNoKeys(engine, prefix) }
      let file = CacheFile(prefix: prefixBytes, limits: limits)
      if file != known { try file.write(engine.folder) }
      isLower = known.map { limits.byteLimit < $0.limits.byteLimit } ?? false
      return limits
    }
    self.lockFile = lockFile
    self.engine = engine
    self.prefix = prefix
    self.prefixBytes = prefixBytes
    self.durability = durability
    memory = MemoryTier(byteCountMax: memoryByteLimit)
    state = Mutex(State(limits: limits))
    engine.limitPacks(to: limits.packByteCountTarget)
    // The keys that are noted may be of another prefix.
    if isDamaged {
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        try transaction.forgetCachedKeys()
      }
    }
    try indexIfNeeded()
    if isLower { try holdLimit() }
    engine.closingHooks.withLock { hooks in hooks[ObjectIdentifier(self)] = { [weak self] in self?.close() } }
  }

  deinit {
    close()
    engine.closingHooks.withLock { hooks in hooks[ObjectIdentifier(self)] = nil }
    lockFile.close()
  }

  private static func requireNoKeys(_ engine: Engine, _ prefix: String) throws(BlobStorageError) {
    guard let key = try engine.keys(.bytes(prefix), after: nil, limit: 1).first?.key else { return }
    throw BlobStorageError(
      .invalidArgument,
      "The store at \(engine.folder.path) is not a cache and has keys, such as “\(key)”: "
        + "allow the cache to evict them.",
      key: key, path: engine.folder.path.string)
  }

  /// Ends this use of the cache; the store stays open. A closing store calls it too.
  package func close() {
    // Notes are only advice.
    do throws(BlobStorageError) { try writeNotes() } catch {}
    memory.removeAll()
  }

  package var limits: CacheLimits { state.withLock { $0.limits } }

  // MARK: Reading

  /// The bytes of a key; nil if it has no valid value.
  ///
  /// The caller asks ``areNotesToWrite()`` afterwards.
  package func data(_ key: String) throws(BlobStorageError) -> Data? { try value(key)?.data }

  /// The value of a key; nil if it has no valid one.
  func value(_ key: String) throws(BlobStorageError) -> MemoryTier.Kept? {
    let whole = prefix + key
    let bytes = Array(whole.utf8)
    let changeCount = memory.changeCount(bytes)
    guard let version = try engine.version(whole, nil), !isExpired(version) else { return counted(nil) }
    if let data = memory.data(bytes, version.id) {
      use(whole)
      return counted(MemoryTier.Kept(version: version, data: data))
    }
    do throws(BlobStorageError) {
      guard let data = try engine.data(whole, version.id) else { return counted(nil) }
      let kept = MemoryTier.Kept(version: version, data: data)
      memory.insert(bytes, kept, ifNoChangeSince: changeCount)
      use(whole)
      return counted(kept)
    } catch {
      guard error.code == .corrupted else { throw error }
      engine.logger.warning(
        "A value of the cache is damaged and is dropped.", metadata: ["reason": "\(error)"])
      // It is a miss even if the medium is too full to record the drop. A cache that was ended drops nothing.
      do throws(BlobStorageError) {
        try adoptLimits()
        _ = try drop([bytes]) { (_, view) throws(BlobStorageError) in
          try view.currentVersion(ofKey: bytes)?.stamp == version.id.stamp
        }
      } catch {}
      return counted(nil)
    }
  }

  /// Notes a use in memory, so that a read writes nothing and waits for no writer.
  func use(_ key: String) {
    let id = CachedKeyRow.id(of: Array(key.utf8))
    state.withLock { $0.notes.use(id) }
  }

  /// Whether the key has a valid value; does not count as a use.
  package func contains(_ key: String) throws(BlobStorageError) -> Bool {
    try engine.version(prefix + key, nil).map { !isExpired($0) } ?? false
  }

  func isExpired(_ version: BlobVersion) -> Bool {
    return CacheMark(metadata: version.metadata).isExpired(
      created: version.createdMilliseconds, now: engine.clock.now(),
      otherwise: limits.lifetime?.milliseconds ?? 0)
  }

  /// Counts a hit, or a miss for nil.
  @discardableResult
  func counted(_ kept: MemoryTier.Kept?) -> MemoryTier.Kept? {
    state.withLock { state in
      if kept == nil { state.counts.missCount += 1 } else { state.counts.hitCount += 1 }
    }
    engine.metrics?.record(kept == nil ? .cacheMiss : .cacheHit)
    return kept
  }
}

/// Counts what a cache did since this process opened it.
public struct CacheCounts: Sendable, Hashable, Codable {
  public var hitCount = 0
  public var missCount = 0
  /// Keys that were evicted to make room.
  public var evictedCount = 0
  /// Values that were not stored, because they were too long or there was no room.
  public var refusedCount = 0
  /// Bytes of packs that were freed to make room, and live bytes that had to be copied for it.
  public var freedByteCount: Int64 = 0
  public var copiedByteCount: Int64 = 0

  public init() {}
}

/// Rebuilds notes that were lost with the catalog, and trims, which examines everything.
extension CacheCore {
  private static let pageCount = 1_000

  /// Notes all keys in the order of their puts, if the catalog has lost them or a process died before it noted its own.
  func indexIfNeeded() throws(BlobStorageError) {
    let state = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.cacheIndexState()
    }
    guard state != .complete else { return }
    if state == .none {
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        // An earlier build left those of a cache that was ended.
        try transaction.forgetCachedKeys()
        try transaction.beginCountingVersions()
      }
    }
    _ = try index()
    if state == .none { try countGarbage() }
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.setCacheIndexState(.complete)
    }
  }

  /// Notes every key that is not noted yet, and returns the expired keys.
  func index() throws(BlobStorageError) -> [[UInt8]] {
    var expired: [[UInt8]] = []
    try engine.forEachPage(prefix: .bytes(prefix), countMax: Self.pageCount) {
      (page) throws(BlobStorageError) in
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        for entry in page {
          let key = Array(entry.key.utf8)
          guard let current = try transaction.currentVersion(ofKey: key)?.row,
            try transaction.cachedKey(CachedKeyRow.id(of: key))?.digest != current.digest
          else { continue }
          let tick = entry.current.createdMilliseconds
          try transaction.raiseCacheTick(tick)
          try transaction.setCachedKey(key, current, tick: tick)
        }
      }
      for entry in page where isExpired(entry.current) { expired.append(Array(entry.key.utf8)) }
    }
    return expired
  }

  /// Counts each pack's garbage by following every version, and replaces the counts from notes.
  package func countGarbage() throws(BlobStorageError) {
    // Unwritten notes would be counted twice.
    try writeNotes()
    var marker = Marker(engine.blobs, engine.folder)
    try marker.markVersions()
    let marks = marker.marks
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      for (number, row) in try transaction.packRows() where row.isSealed {
        try transaction.setGarbageByteCount(number, row.recordsByteCount - marks.liveByteCount(number))
      }
    }
  }

  /// Drops expired values, notes keys that were put around the cache, and brings the folder below its limits.
  package func trim() throws(BlobStorageError) -> CacheTrimReport {
    try engine.checkOpen()
    let start = Date()
    var report = CacheTrimReport()
    let before = try engine.folder.allocatedByteCount()
    let evictedBefore = state.withLock { $0.counts.evictedCount }
    let expired = try engine.folder.withReserve { () throws(BlobStorageError) in
      try engine.writer.rollOver()
      try adoptLimits()
      return try index()
    }
    for part in expired.parts(of: Self.pageCount) {
      let keys = Array(part)
      report.expiredKeyCount += try dropAll(keys) { (index, view) throws(BlobStorageError) in
        // A value that was put since stays. Nothing is noted once another process has ended the cache.
        guard try view.cachedKey(CachedKeyRow.id(of: keys[index])) != nil,
          let current = try view.currentVersion(ofKey: keys[index])
        else { return false }
        return isExpired(BlobVersion(key: "", stamp: current.stamp, row: current.row))
      }
    }
    try forgetMissing()
    try holdCount()
    try countGarbage()
    try holdLimit()
    report.evictedKeyCount = state.withLock { $0.counts.evictedCount } - evictedBefore
    report.diskByteCount = try engine.folder.allocatedByteCount()
    report.freedByteCount = max(0, before - report.diskByteCount)
    report.byteLimit = limits.byteLimit
    report.duration = .seconds(Date().timeIntervalSince(start))
    return report
  }

  /// Notes keys that were put around the cache as just used, and holds the limits.
  package func adopt(_ keys: [String]) throws(BlobStorageError) {
    try engine.checkOpen()
    try adoptLimits()
    var bytes: [[UInt8]] = []
    for key in keys { bytes.append(try Engine.keyBytes(prefix + key)) }
    try engine.writer.rollOver()
    var notes = CacheNotes()
    for key in bytes { notes.put(key) }
    add(notes, makesRoom: false)
    try writeNotes()
    try holdCount()
    try holdLimit()
  }

  /// Forgets keys that were dropped around the cache.
  private func forgetMissing() throws(BlobStorageError) {
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      var missing: [CachedKeyRow.ID] = []
      try transaction.forEachCachedKey { (id, row) throws(BlobStorageError) in
        if try transaction.nameRow(row.key)?.versionCount ?? 0 == 0 { missing.append(id) }
        return true
      }
      for id in missing { try transaction.setCachedKey(id, nil) }
    }
  }

  /// Drops the least recently used keys while there are more than the limit allows.
  ///
  /// Does not count keys that other processes have put and not noted yet. So a process notes its own the sooner, the
  /// closer the cache is to the limit: it holds while at most eight processes put at once.
  ///
  /// - Parameter kept: keys that stay.
  func holdCount(keeping kept: Set<[UInt8]> = []) throws(BlobStorageError) {
    guard let countMax = limits.keyLimit else { return }
    var areNotesWritten = false
    while true {
      try indexIfNeeded()
      // In this order: a process that ends the cache after this forgets all that was noted, and nothing is evicted.
      try adoptLimits()
      let notes = state.withLock { $0.notes }
      var victims: [(id: CachedKeyRow.ID, row: CachedKeyRow)] = []
      var excess = 0
      try engine.catalog.read { (view) throws(BlobStorageError) in
        // It runs again if it finds the catalog damaged.
        victims = []
        var count = try view.cachedKeyCount()
        let missing = max(0, countMax - count)
        state.withLock { $0.putCountMax = max(1, missing / 8) }
        for (id, (note, _)) in notes.keys {
          switch note {
          case .used: break
          case .put: if try view.cachedKey(id) == nil { count += 1 }
          case .dropped: if try view.cachedKey(id) != nil { count -= 1 }
          }
        }
        excess = count - countMax
        guard excess > 0 else { return }
        let goal = min(excess, Self.pageCount)
        try view.forEachCachedKey { id, row in
          if notes.keys[id] == nil, !kept.contains(row.key) { victims.append((id, row)) }
          return victims.count < goal
        }
      }
      guard excess > 0 else { return }
      guard try evict(victims) == 0 else {
        areNotesWritten = false
        continue
      }
      // The unwritten notes name all keys that could go, or the rows are out of date. Reads may add notes all the time.
      if areNotesWritten || state.withLock({ $0.notes.isEmpty }) { return }
      try writeNotes()
      areNotesWritten = true
    }
  }

  /// Sets other limits and holds them.
  ///
  /// - Throws: `invalidArgument` when another process has ended the cache: its keys must stay.
  package func setLimits(_ limits: CacheLimits) throws(BlobStorageError) {
    try limits.check()
    try inTurn { () throws(BlobStorageError) in
      try locked { () throws(BlobStorageError) in
        try adoptLimits()
        try CacheFile(prefix: prefixBytes, limits: limits).write(engine.folder)
      }
    }
    state.withLock { $0.limits = limits }
    _ = try trim()
  }

  package func statistics() throws(BlobStorageError) -> CacheStatistics {
    try adoptLimits()
    try writeNotes()
    let counts = state.withLock { $0.counts }
    let (keyCount, packCount, garbageByteCount) = try engine.catalog.read {
      (transaction) throws(BlobStorageError) in
      let rows = try transaction.packRows()
      var sum: Int64 = 0
      for (number, _) in rows { sum += max(0, try transaction.garbageByteCount(number)) }
      return (try transaction.cachedKeyCount(), rows.count, sum)
    }
    return CacheStatistics(
      prefix: prefix, limits: limits, keyCount: keyCount, packCount: packCount,
      garbageByteCount: garbageByteCount, diskByteCount: try engine.folder.allocatedByteCount(),
      counts: counts)
  }
}

/// The result of trimming a cache.
public struct CacheTrimReport: Sendable, Hashable, Codable {
  /// Keys that were dropped because their value had expired.
  public var expiredKeyCount = 0
  /// Keys that were evicted to hold the limits.
  public var evictedKeyCount = 0
  /// Bytes by which the folder became smaller.
  public var freedByteCount: Int64 = 0
  /// Bytes that the folder now takes on the medium.
  public var diskByteCount: Int64 = 0
  /// The most bytes that it may take.
  public var byteLimit: Int64 = 0
  public var duration = Duration.zero

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case freedByteCount, diskByteCount, byteLimit
    case expiredKeyCount = "keysExpired"
    case evictedKeyCount = "keysEvicted"
    case duration = "seconds"
  }
}

/// The state of a cache.
public struct CacheStatistics: Sendable, Hashable, Codable {
  public var prefix: String
  public var limits: CacheLimits
  public var keyCount: Int
  public var packCount: Int
  /// Bytes of records that nothing needs, as far as the cache knows.
  public var garbageByteCount: Int64
  /// Bytes of the medium that all files of the store take.
  public var diskByteCount: Int64
  /// What happened since this process opened the cache.
  public var counts: CacheCounts

  public init(
    prefix: String, limits: CacheLimits, keyCount: Int, packCount: Int, garbageByteCount: Int64,
    diskByteCount: Int64, counts: CacheCounts = CacheCounts()
  ) {
    self.prefix = prefix
    self.limits = limits
    self.keyCount = keyCount
    self.packCount = packCount
    self.garbageByteCount = garbageByteCount
    self.diskByteCount = diskByteCount
    self.counts = counts
  }

  private enum CodingKeys: String, CodingKey {
    case prefix, limits, garbageByteCount, diskByteCount, counts
    case keyCount = "keys"
    case packCount = "packs"
  }
}

/// Writes the notes.
extension CacheCore {
  /// Limits of the number and age of notes in memory.
  private static let noteCountMax = 1_024
  private static let noteSecondsMax = 30
  /// Above this number, unwritable notes are discarded: a step that finds nothing to evict indexes such keys.
  private static let lostNoteCount = 16 * noteCountMax

  /// Adds the notes of a put or a drop, and writes all of them when they are many or old.
  ///
  /// A put or drop holds even if its notes cannot be written.
  ///
  /// - Parameter makesRoom: whether keys may be evicted when the medium is full; false while `turn` is held.
  func add(_ notes: CacheNotes, makesRoom: Bool) {
    let isDue = state.withLock { state in
      state.notes.append(notes)
      return areNotesDue(state)
    }
    if isDue { writeNotes(makesRoom: makesRoom) }
  }

  /// Whether a task should call ``writeNotesOfReads()``; true only for the first caller.
  package func areNotesToWrite() -> Bool {
    state.withLock { state in
      guard !state.isToWriteNotes, areNotesDue(state) else { return false }
      state.isToWriteNotes = true
      return true
    }
  }

  /// Writes all notes, after reads have added many or old ones. Evicts nothing.
  package func writeNotesOfReads() {
    state.withLock { $0.isToWriteNotes = false }
    // A process that never makes room gives back here the space of packs that others have removed.
    do throws(BlobStorageError) { try engine.packs.forgetRemoved() } catch {}
    writeNotes(makesRoom: false)
  }

  private func writeNotes(makesRoom: Bool) {
    // A process that never makes room learns here of limits that another has set. An ended cache keeps its own.
    do throws(BlobStorageError) { try adoptLimits() } catch {}
    do throws(BlobStorageError) {
      do throws(BlobStorageError) { try writeNotes() } catch {
        guard error.code == .noSpace, makesRoom else { throw error }
        try makeRoom(0, since: state.withLock { $0.roomCount }, mediumIsFull: true)
        try writeNotes()
      }
    } catch {
      engine.logger.warning(
        "The cache's notes could not be written.", metadata: ["reason": "\(error.message)"])
      state.withLock {
        if max($0.notes.keys.count, $0.notes.versionChanges.count) >= Self.lostNoteCount {
          $0.notes = CacheNotes()
        }
      }
    }
  }

  private func areNotesDue(_ state: State) -> Bool {
    guard let since = state.notes.since else { return false }
    // A row takes about a kilobyte of the catalog, and no put makes room for it.
    let rowCountMax = max(1, Int(state.limits.byteLimit >> 10) / 200)
    return state.notes.keys.count >= Self.noteCountMax
      || state.notes.putCount >= min(rowCountMax, state.putCountMax)
      || since.duration(to: .now) > .seconds(Self.noteSecondsMax)
  }

  /// Writes all notes, in one transaction.
  package func writeNotes() throws(BlobStorageError) {
    let notes = state.withLock { state in
      defer { state.notes = CacheNotes() }
      return state.notes
    }
    guard !notes.isEmpty else { return }
    do throws(BlobStorageError) {
      let changed = try engine.catalog.read { (view) throws(BlobStorageError) in
        var changed: [BlobDigest] = []
        for digest in notes.versionChanges.keys
        where notes.becomesGarbage(digest, versionCount: try view.versionCount(of: digest)) != nil {
          changed.append(digest)
        }
        return changed
      }
      let long = try longBlobs(changed)
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        try notes.write(long: long, to: transaction)
      }
    } catch {
      state.withLock { state in
        var all = notes
        all.append(state.notes)
        state.notes = all
      }
      throw error
    }
  }
}

extension CacheCore {
  /// The chunks of those blobs that have more than one: each once, because a hostile manifest can name a chunk more
  /// often than memory can hold.
  func longBlobs(
    _ digests: some Sequence<BlobDigest>
  ) throws(BlobStorageError) -> [BlobDigest: Set<BlobDigest>] {
    let long = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var long: Set<BlobDigest> = []
      for digest in digests where try transaction.chunkRow(digest) == nil { long.insert(digest) }
      return long
    }
    let walk = LiveWalk(engine.blobs)
    var chunks: [BlobDigest: Set<BlobDigest>] = [:]
    for digest in long {
      // A damaged value can be dropped like any other; a later count shows what it frees.
      _ = try walk.outcome(of: digest) { (layout) throws(BlobStorageError) in
        var found: Set<BlobDigest> = []
        try walk.forEachPart(of: layout) { part in
          found.insert(part.digest)
          return true
        }
        chunks[digest] = found
      }
    }
    return chunks
  }
}

extension BlobVersion {
  /// When it was put, in milliseconds since 1970. Bounded, because a forged store may claim any time.
  var createdMilliseconds: UInt64 {
    UInt64(min(max(0, (created.timeIntervalSince1970 * 1_000).rounded()), 3.2e15))
  }
}
