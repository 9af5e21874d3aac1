import Foundation

extension StoreStatistics {
  static func count(_ engine: Engine) throws(BlobStorageError) -> StoreStatistics {
    try countWithPacks(engine).statistics
  }

  /// The same, and of each pack what it has and how much of it is live.
  static func countWithPacks(
    _ engine: Engine, progress: (Int) -> Void = { _ in }
  ) throws(BlobStorageError) -> (statistics: StoreStatistics, packs: [StoreReport.Pack]) {
    try engine.checkOpen()
    var marker = Marker(engine)
    try marker.markVersions(progress: progress)
    let rows = try engine.catalog.packRows()
    var statistics = StoreStatistics()
    statistics.keyCount = marker.keyCount
    statistics.versionCount = marker.versionCount
    statistics.blobCount = marker.blobCount
    statistics.chunkCount = marker.marks.chunkCount
    statistics.packCount = rows.count
    statistics.plainByteCount = marker.versionByteCount
    statistics.uniqueByteCount = marker.marks.plainByteCount - marker.marks.basePlainByteCount
    statistics.storedByteCount = marker.marks.storedByteCount
    statistics.unreadable = marker.notFollowed
    statistics.usesSimilarity = engine.header.flags.contains(.similarity)
    statistics.baseByteCount = marker.marks.baseByteCount
    statistics.deduplicationSavedByteCount = max(0, statistics.plainByteCount - statistics.uniqueByteCount)
    statistics.codecSavedByteCount = marker.marks.codecSavedByteCount
    statistics.similaritySavedByteCount = marker.marks.similaritySavedByteCount
    var packs: [StoreReport.Pack] = []
    for (number, row) in rows {
      let liveByteCount = marker.marks.liveByteCount(number)
      statistics.garbageByteCount += row.recordsByteCount - liveByteCount
      // The clock of an empty store has not begun: its first pack says so, too.
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
}

extension Marker {
  /// Why blobs could not be followed to all of their chunks; only the first reasons.
  fileprivate var notFollowed: [String] {
    unreadable.map(\.message) + missing.sorted().map(\.neededAndMissing)
  }
}

extension PackRow {
  /// Bytes of the pack's records.
  var recordsByteCount: Int64 { appliedByteCount - Int64(PackHeader.byteCount) }
}

extension BlobInformation {
  package static func find(
    _ engine: Engine, _ key: String, _ id: BlobVersion.ID?
  ) throws(BlobStorageError) -> BlobInformation? {
    guard let version = try engine.version(key, id) else { return nil }
    guard let layout = try engine.blobs.layout(version.digest) else {
      throw BlobStorageError(
        .corrupted, "Key “\(key)”: blob \(version.digest) is missing from the store.", key: key,
        digest: version.digest)
    }
    var others = Marker(engine)
    let keyBytes = Array(key.utf8)
    try others.markVersions(isLeftOut: { $0 == keyBytes && $1 == version.id.stamp })
    var information = BlobInformation(
      version: version, chunkCount: 0, codecs: [:], basedChunkCount: 0, storedByteCount: 0,
      exclusiveByteCount: 0)
    var seen = PlaceSet()
    try LiveWalk(engine.blobs).forEachRow(of: layout) { (part, row) throws(BlobStorageError) in
      guard part.kind == .chunk else { return }
      guard let row else {
        throw BlobStorageError(
          .corrupted, "Key “\(key)”: chunk \(part.digest) is missing from the store.", key: key,
          digest: part.digest)
      }
      guard seen.insert(row.place) else { return }
      information.storedByteCount += Int64(row.storedByteCount)
      if !others.marks.contains(row.place) { information.exclusiveByteCount += Int64(row.storedByteCount) }
      if row.base != nil { information.basedChunkCount += 1 }
      information.codecs[CodecKind(rawValue: row.codecNumber)?.name ?? "\(row.codecNumber)", default: 0] += 1
    }
    information.chunkCount = max(1, Int(clamping: layout.chunkCount))
    information.unreadable = others.notFollowed
    return information
  }
}
