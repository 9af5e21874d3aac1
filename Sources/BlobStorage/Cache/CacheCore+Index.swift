import Foundation
import Synchronization

/// Notes that are made again when they were lost with the catalog, and trimming, which looks at everything.
extension CacheCore {
  private static let pageCount = 1_000

  /// Notes all keys if the catalog has lost them: in the order in which they were put.
  func indexIfNeeded() throws(BlobStorageError) {
    let isIndexed = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.isCacheIndexed()
    }
    if isIndexed { return }
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
          try transaction.noteCacheTick(tick)
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
    for part in expired.parts(of: Self.pageCount) { report.expiredKeyCount += try remove(Array(part)) }
    try forgetMissing()
    try dropBeyondCount()
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
    let adopted = bytes
    try engine.writer.rollOver()
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      for key in adopted {
        guard let current = try transaction.currentVersion(ofKey: key) else { continue }
        try transaction.setCachedKey(
          CachedKeyRow.id(of: key),
          CachedKeyRow(
            priority: CacheMark(metadata: current.row.metadata).priority.rawValue,
            tick: try transaction.nextCacheTick(), byteCount: current.row.byteCount,
            digest: current.row.digest, key: key))
      }
    }
    try dropBeyondCount()
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

  private func dropBeyondCount() throws(BlobStorageError) {
    guard let countMax = limits.countMax else { return }
    // What was read lately stays longest.
    try flushTouches()
    while true {
      var victims: [(CachedKeyRow.ID, CachedKeyRow)] = []
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        let excess = min(try transaction.cachedKeyCount() - countMax, Self.pageCount)
        guard excess > 0 else { return }
        try transaction.forEachCachedKey { id, row in
          victims.append((id, row))
          return victims.count < excess
        }
      }
      if victims.isEmpty { return }
      let long = try longBlobs(victims.map(\.1.digest))
      let chosen = victims
      _ = try engine.writer.commitSettling { (commit, transaction) throws(BlobStorageError) in
        var dropping = CacheDropping(engine, long: long)
        for (id, row) in chosen { try dropping.drop(row.key, id, &commit, transaction) }
      }
      state.withLock { $0.counts.evictedCount += chosen.count }
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
    try flushTouches()
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
