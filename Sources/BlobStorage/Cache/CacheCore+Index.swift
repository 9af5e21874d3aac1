import Foundation
import Synchronization

/// Notes that are made again when they were lost with the catalog, and trimming, which looks at everything.
extension CacheCore {
  private static let pageCount = 1_000

  /// Notes all keys if the catalog has lost them, or a process has died before it noted its own: in the order in which
  /// they were put.
  func indexIfNeeded() throws(BlobStorageError) {
    let state = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.cacheIndexState()
    }
    if state == .lacksKeys {
      _ = try index()
      return try engine.catalog.write { (transaction) throws(BlobStorageError) in
        try transaction.setCacheIndexed()
      }
    }
    guard state == .none else { return }
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      try transaction.beginCountingVersions()
    }
    _ = try index()
    try countGarbage()
    try engine.catalog.write { (transaction) throws(BlobStorageError) in try transaction.setCacheIndexed() }
  }

  /// Notes every key that is not noted yet, and returns those that are too old.
  func index() throws(BlobStorageError) -> [String] {
    var expired: [String] = []
    try engine.forEachPage(prefix: prefix, countMax: Self.pageCount) { (page) throws(BlobStorageError) in
      try engine.catalog.write { (transaction) throws(BlobStorageError) in
        for entry in page {
          let key = Array(entry.key.utf8)
          let id = CachedKeyRow.id(of: key)
          guard try transaction.cachedKey(id) == nil,
            let name = try transaction.nameRow(key), name.versionCount > 0
          else { continue }
          let tick = UInt64(max(0, entry.current.created.timeIntervalSince1970 * 1_000))
          try transaction.raiseCacheTick(tick)
          try transaction.setCachedKey(
            id,
            CachedKeyRow(
              priority: CacheMark(metadata: entry.current.metadata).priority.rawValue, tick: tick,
              byteCount: entry.current.byteCount, digest: entry.current.digest, key: key))
        }
      }
      for entry in page where isExpired(entry.current) {
        expired.append(key(of: entry.key))
      }
    }
    return expired
  }

  /// Counts each pack's garbage by following every version, in place of what was noticed.
  package func countGarbage() throws(BlobStorageError) {
    // They would be counted twice.
    try writeNotes()
    var marker = Marker(engine)
    try marker.markVersions()
    let marks = marker.marks
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      for (number, row) in try transaction.packRows() where row.isSealed {
        try transaction.setGarbageByteCount(number, row.recordsByteCount - marks.liveByteCount(number))
      }
    }
  }

  /// Drops what is too old, notes keys that were put past the cache, and brings the folder below its limits.
  package func trim() throws(BlobStorageError) -> CacheTrimReport {
    try engine.checkOpen()
    let start = Date()
    var report = CacheTrimReport()
    let before = try engine.folder.allocatedByteCount()
    let evictedBefore = state.withLock { $0.counts.evictedCount }
    try engine.writer.rollOver()
    try adoptLimits()
    let expired = try index()
    for first in stride(from: 0, to: expired.count, by: Self.pageCount) {
      report.expiredKeyCount += try remove(
        Array(expired[first..<min(first + Self.pageCount, expired.count)]))
    }
    try forgetMissing()
    try holdCount()
    try countGarbage()
    try holdLimit()
    report.evictedKeyCount = state.withLock { $0.counts.evictedCount } - evictedBefore
    report.diskByteCount = try engine.folder.allocatedByteCount()
    report.freedByteCount = max(0, before - report.diskByteCount)
    report.byteCountMax = limits.byteCountMax
    report.seconds = Date().timeIntervalSince(start)
    return report
  }

  /// Notes keys that were put past the cache as just used, and holds the limits.
  package func adopt(_ keys: [String]) throws(BlobStorageError) {
    try engine.checkOpen()
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

  /// Forgets keys that were dropped past the cache.
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

  /// Drops the least recently used keys while there are more than the limits say.
  ///
  /// The keys that other processes have put and not noted yet are not counted. So a process notes its own the sooner
  /// the fewer are missing to the limit: the limit holds while at most eight processes put at once.
  ///
  /// - Parameter kept: keys that stay.
  func holdCount(keeping kept: Set<[UInt8]> = []) throws(BlobStorageError) {
    guard let countMax = limits.countMax else { return }
    try indexIfNeeded()
    while true {
      let notes = state.withLock { $0.notes }
      var victims: [(id: CachedKeyRow.ID, row: CachedKeyRow)] = []
      var excess = 0
      try engine.catalog.read { (view) throws(BlobStorageError) in
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
      guard try evict(victims) == 0 else { continue }
      // The notes name all keys that could go, or the rows are out of date.
      if state.withLock({ $0.notes.isEmpty }) { return }
      try writeNotes()
    }
  }

  /// Sets other limits and holds them.
  package func setLimits(_ limits: CacheLimits) throws(BlobStorageError) {
    try limits.check()
    try inTurn { () throws(BlobStorageError) in
      try locked { () throws(BlobStorageError) in
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

/// What trimming a cache did.
public struct CacheTrimReport: Sendable, Hashable {
  /// Keys whose value was too old.
  public var expiredKeyCount = 0
  /// Keys that went to hold the limits.
  public var evictedKeyCount = 0
  /// Bytes by which the folder became smaller.
  public var freedByteCount: Int64 = 0
  /// Bytes of the medium that the folder takes now.
  public var diskByteCount: Int64 = 0
  /// What it may take.
  public var byteCountMax: Int64 = 0
  public var seconds = 0.0
}

/// How a cache stands.
public struct CacheStatistics: Sendable, Hashable {
  public var prefix: String
  public var limits: CacheLimits
  public var keyCount: Int
  public var packCount: Int
  /// Bytes of records that nothing needs, as far as was noticed.
  public var garbageByteCount: Int64
  /// Bytes of the medium that all files of the store take.
  public var diskByteCount: Int64
  /// What happened since this process opened the cache.
  public var counts: CacheCounts
}
