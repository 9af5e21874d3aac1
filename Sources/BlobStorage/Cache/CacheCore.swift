import Foundation
import Logging
import Synchronization
import SystemPackage

/// A cache on a store: values that go by themselves, least recently used first, so that the folder keeps its limit.
///
/// Blocking and on the caller's thread, like the engine below it. The design, with its invariants, is in Caching.md.
/// Locks, in the order in which they are taken: `turn`, the file `cache.lock`, the collector's, the catalog's.
package final class CacheCore: Sendable {
  package let engine: Engine
  /// What all keys of the cache begin with.
  package let prefix: String
  let prefixBytes: [UInt8]
  private let memory: MemoryTier
  let durability: Durability
  let lockFile: any File
  /// One thread of this process makes room at a time.
  let turn = Mutex<Void>(())
  let state: Mutex<State>

  struct State: Sendable {
    var limits: CacheLimits
    /// Keys that were used since the order was last written, with the ordinal of that use.
    var touched: [CachedKeyRow.ID: Int] = [:]
    var touchCount = 0
    var touchedSince: ContinuousClock.Instant?
    /// Increases whenever room was made, so that a waiting put first tries again.
    var roomCount = 0
    /// Until when nothing is stored because there is no room to be had.
    var refusesUntil: Double?
    var counts = CacheCounts()
  }

  /// Limits of recorded uses and of their age in memory before they are written.
  private static let touchedCountMax = 1_024
  private static let touchedSecondsMax = 30

  /// - Parameters:
  ///   - limits: written into the folder; nil takes those that the folder has.
  ///   - takesKeys: whether a store that has such keys already may become a cache, which can evict them.
  /// - Throws: `invalidArgument` for limits out of range, a folder without limits, a cache with another prefix, and
  ///   keys that may not be evicted.
  package init(
    engine: Engine, prefix: String, limits: CacheLimits?, memoryByteCountMax: Int, durability: Durability,
    takesKeys: Bool = true
  ) throws(BlobStorageError) {
    let prefixBytes = Array(prefix.utf8)
    // A key goes on behind it.
    if !prefix.isEmpty { _ = try Engine.keyBytes(prefix + "k") }
    try limits?.check()
    try engine.requireFolderForCache()
    let lockFile = try engine.folder.files.open(engine.folder.cacheLock, .openOrCreate)
    var isLower = false
    let limits = try lockFile.locked { () throws(BlobStorageError) in
      var known: CacheFile?
      var isCache = true
      do throws(BlobStorageError) {
        known = try CacheFile.read(engine.folder)
        isCache = known != nil
      } catch {
        guard error.code == .corrupted, limits != nil else { throw error }
      }
      if let known, known.prefix != prefixBytes {
        throw BlobStorageError(
          .invalidArgument,
          "The store at \(engine.folder.path) has a cache under the prefix “\(String(decoding: known.prefix, as: UTF8.self))”, and it can have one only."
        )
      }
      guard let limits = limits ?? known?.limits else {
        throw BlobStorageError(
          .invalidArgument, "The store at \(engine.folder.path) has no limits of a cache: set them first.")
      }
      if !isCache, !takesKeys { try Self.requireNoKeys(engine, prefix) }
      let file = CacheFile(prefix: prefixBytes, limits: limits)
      if file != known { try file.write(engine.folder) }
      isLower = known.map { limits.byteCountMax < $0.limits.byteCountMax } ?? false
      return limits
    }
    self.lockFile = lockFile
    self.engine = engine
    self.prefix = prefix
    self.prefixBytes = prefixBytes
    self.durability = durability
    memory = MemoryTier(byteCountMax: memoryByteCountMax)
    state = Mutex(State(limits: limits))
    engine.limitPacks(to: limits.packByteCountTarget)
    try indexIfNeeded()
    if isLower { try holdLimit() }
  }

  deinit { lockFile.close() }

  private static func requireNoKeys(_ engine: Engine, _ prefix: String) throws(BlobStorageError) {
    guard let key = try engine.keys(prefix, after: nil, limit: 1).first?.key else { return }
    throw BlobStorageError(
      .invalidArgument,
      "The store at \(engine.folder.path) is no cache and has keys that a cache could evict, “\(key)” first: "
        + "say that it may evict them.",
      key: key, path: engine.folder.path.string)
  }

  /// Ends the use of the cache here; the store stays open.
  package func close() {
    // What was used lately is only advice.
    do throws(BlobStorageError) { try flushTouches() } catch {}
    memory.removeAll()
  }

  /// A key of the store without the prefix: byte by byte, because a prefix may end inside a character.
  func key(of whole: String) -> String {
    String(decoding: whole.utf8.dropFirst(prefixBytes.count), as: UTF8.self)
  }

  package var limits: CacheLimits { state.withLock { $0.limits } }

  // MARK: Reading

  /// The value of a key; nil when there is none that is good.
  package func data(_ key: String) throws(BlobStorageError) -> Data? {
    let whole = prefix + key
    guard let version = try engine.version(whole, nil), !isExpired(version) else { return counted(nil) }
    if let data = memory.data(key, version.id) {
      try touch(whole)
      return counted(data)
    }
    do throws(BlobStorageError) {
      guard let data = try engine.data(whole, version.id) else { return counted(nil) }
      memory.insert(key, version.id, data)
      try touch(whole)
      return counted(data)
    } catch {
      guard error.code == .corrupted else { throw error }
      engine.logger.warning(
        "A value of the cache is damaged and is dropped.", metadata: ["reason": "\(error)"])
      // It is a miss also when the medium is too full to say that it is gone.
      do throws(BlobStorageError) { _ = try remove([key]) } catch {}
      return counted(nil)
    }
  }

  /// Whether the key has a value that is good; not a use of it.
  package func contains(_ key: String) throws(BlobStorageError) -> Bool {
    try engine.version(prefix + key, nil).map { !isExpired($0) } ?? false
  }

  func isExpired(_ version: BlobVersion) -> Bool {
    let created = UInt64(max(0, (version.created.timeIntervalSince1970 * 1_000).rounded()))
    return CacheMark(metadata: version.metadata).isExpired(
      created: created, now: engine.clock.now(), otherwise: limits.lifetime?.milliseconds ?? 0)
  }

  private func counted(_ data: Data?) -> Data? {
    state.withLock { state in
      if data == nil { state.counts.missCount += 1 } else { state.counts.hitCount += 1 }
    }
    return data
  }

  // MARK: Uses

  /// Notes in memory that the key was used.
  func touch(_ key: String) throws(BlobStorageError) {
    let id = CachedKeyRow.id(of: Array(key.utf8))
    let isDue = state.withLock { state in
      state.touchCount += 1
      state.touched[id] = state.touchCount
      guard let since = state.touchedSince else {
        state.touchedSince = .now
        return false
      }
      return state.touched.count >= Self.touchedCountMax
        || since.duration(to: .now) > .seconds(Self.touchedSecondsMax)
    }
    guard isDue else { return }
    do throws(BlobStorageError) { try flushTouches() } catch {
      // A hit is a hit, also when the medium is full.
      engine.logger.warning("Uses of keys could not be noted.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Writes down which keys were used, in one transaction.
  package func flushTouches() throws(BlobStorageError) {
    let touched = removeTouched()
    guard !touched.isEmpty else { return }
    try engine.catalog.write { (transaction) throws(BlobStorageError) in try recordUses(touched, transaction)
    }
  }

  /// The keys used since the last time, in the order of their last use.
  func removeTouched() -> [CachedKeyRow.ID] {
    state.withLock { state in
      defer {
        state.touched.removeAll(keepingCapacity: true)
        state.touchedSince = nil
      }
      return state.touched.sorted { $0.value < $1.value }.map(\.key)
    }
  }

  func recordUses(_ touched: [CachedKeyRow.ID], _ transaction: WriteTransaction) throws(BlobStorageError) {
    for id in touched {
      guard var row = try transaction.cachedKey(id) else { continue }
      row.tick = try transaction.nextCacheTick()
      try transaction.setCachedKey(id, row)
    }
  }
}

/// What a cache did since this process opened it.
public struct CacheCounts: Sendable, Hashable {
  public var hitCount = 0
  public var missCount = 0
  /// Keys that went to make room.
  public var evictedCount = 0
  /// Values that were not stored: too long, or no room was to be had.
  public var refusedCount = 0
  /// Bytes of packs that were freed to make room, and live bytes that had to be copied for it.
  public var freedByteCount: Int64 = 0
  public var copiedByteCount: Int64 = 0
}
