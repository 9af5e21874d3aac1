import BlobStorage
import Foundation

/// The contents of a store and the space they take.
public struct StoreStatistics: Sendable, Hashable, Codable {
  public var keyCount = 0
  public var versionCount = 0
  /// Distinct blobs that versions point at or that are held.
  public var blobCount = 0
  /// Chunks that versions need, bases and lists included.
  public var chunkCount = 0
  public var packCount = 0
  /// Plain bytes of all versions, each counted.
  public var plainByteCount: Int64 = 0
  /// Plain bytes of the chunks that versions need, each once; without chunks that are only bases.
  public var uniqueByteCount: Int64 = 0
  /// Stored bytes of live chunks.
  public var storedByteCount: Int64 = 0
  /// Stored bytes of live chunks that are only bases of others.
  public var baseByteCount: Int64 = 0
  /// Whether the store encodes new chunks against similar ones.
  public var usesSimilarity = false
  /// Bytes saved by storing equal chunks once.
  public var deduplicationSavedByteCount: Int64 = 0
  /// Bytes saved by encoding chunks alone.
  public var codecSavedByteCount: Int64 = 0
  /// Bytes saved on top of that by encoding chunks against similar ones; an estimate, from the bases' own ratio.
  public var similaritySavedByteCount: Int64 = 0
  /// Bytes of records that nothing needs.
  public var garbageByteCount: Int64 = 0
  /// Bytes of the medium that all files of the store take.
  public var diskByteCount: Int64 = 0
  /// Why some blobs could not be followed to their chunks, so that these do not count. Only the first reasons.
  public var unreadable: [String] = []

  public init() {}

  private enum CodingKeys: String, CodingKey {
    case plainByteCount, uniqueByteCount, storedByteCount, baseByteCount, usesSimilarity,
      deduplicationSavedByteCount, codecSavedByteCount, similaritySavedByteCount, garbageByteCount,
      diskByteCount, unreadable
    case keyCount = "keys"
    case versionCount = "versions"
    case blobCount = "blobs"
    case chunkCount = "chunks"
    case packCount = "packs"
  }
}

extension Engine {
  /// The contents of the store.
  package func statistics() throws(BlobStorageError) -> StoreStatistics {
    try StoreStatistics.countWithPacks(self).statistics
  }
}

extension StoreStatistics {
  /// Counts the contents of a store, and the total and live bytes of each pack.
  static func countWithPacks(
    _ engine: Engine, progress: (Int) -> Void = { _ in }
  ) throws(BlobStorageError) -> (statistics: StoreStatistics, packs: [StoreReport.Pack]) {
    try engine.checkOpen()
    // Read first: what is put or moved after it was marked is no garbage.
    let rows = try engine.catalog.packRows()
    var marker = Marker(engine.blobs, engine.folder)
    try marker.markVersions(progress: progress)
    var statistics = StoreStatistics()
    statistics.keyCount = marker.keyCount
    statistics.versionCount = marker.versionCount
    statistics.blobCount = marker.blobCount
    statistics.packCount = rows.count
    statistics.plainByteCount = marker.versionByteCount
    statistics.unreadable = try engine.confirmed(marker.notFollowed)
    statistics.usesSimilarity = engine.header.flags.contains(.similarity)
    try engine.catalog.forEachChunk { (_, row, transaction) throws(BlobStorageError) in
      guard marker.marks.contains(row.place) else { return true }
      let base: ChunkRow? = if let base = row.base { try transaction.chunkRow(base) } else { nil }
      statistics.add(row, base, isOnlyBase: marker.marks.isOnlyBase(row.place))
      return true
    }
    statistics.deduplicationSavedByteCount = max(0, statistics.plainByteCount - statistics.uniqueByteCount)
    var packs: [StoreReport.Pack] = []
    for (number, row) in rows {
      let liveByteCount = min(marker.marks.liveByteCount(number), row.recordsByteCount)
      statistics.garbageByteCount += row.recordsByteCount - liveByteCount
      // The first pack of a store may have no time, because the store's clock has not begun.
      let created = max(row.created >> 16, engine.header.created)
      packs.append(
        StoreReport.Pack(
          name: row.name.description, created: Date(timeIntervalSince1970: Double(created) / 1_000),
          isSealed: row.isSealed, byteCount: row.recordsByteCount, liveByteCount: liveByteCount))
    }
    packs.sort { $0.created != $1.created ? $0.created < $1.created : $0.name < $1.name }
    statistics.diskByteCount = try engine.folder.allocatedByteCount()
    return (statistics, packs)
  }

  /// Adds a live chunk. Estimates from the ratio of its base what a chunk with a base would take alone.
  private mutating func add(_ row: ChunkRow, _ base: ChunkRow?, isOnlyBase: Bool) {
    chunkCount += 1
    storedByteCount += Int64(row.storedByteCount)
    if isOnlyBase {
      baseByteCount += Int64(row.storedByteCount)
    } else {
      uniqueByteCount += Int64(row.plainByteCount)
    }
    let alone = base.map { row.expectedByteCount(like: $0) } ?? row.storedByteCount
    codecSavedByteCount += Int64(row.plainByteCount - alone)
    similaritySavedByteCount += Int64(alone - row.storedByteCount)
  }
}

extension Engine {
  /// The reasons why blobs could not be followed; none if a new walk follows all. A blob that was dropped and collected
  /// while it was followed is not missing.
  func confirmed(_ reasons: [String]) throws(BlobStorageError) -> [String] {
    if reasons.isEmpty { return [] }
    var marker = Marker(blobs, folder)
    try marker.markVersions(countsRefs: false)
    return marker.notFollowed.isEmpty ? [] : reasons
  }
}

extension Marker {
  /// Why blobs could not be followed to all of their chunks; only the first reasons.
  var notFollowed: [String] {
    unreadable.map(\.message) + missing.sorted().map(\.neededAndMissing)
  }
}
