extension StoreStatistics {
  static func take(_ engine: Engine) throws(BlobStorageError) -> StoreStatistics {
    try engine.checkOpen()
    var marker = Marker(engine)
    try marker.markVersions()
    let rows = try engine.catalog.read { (transaction) throws(BlobStorageError) in try transaction.packRows()
    }
    var statistics = StoreStatistics()
    statistics.keyCount = marker.keyCount
    statistics.versionCount = marker.versionCount
    statistics.blobCount = marker.blobCount
    statistics.chunkCount = marker.marks.chunkCount
    statistics.packCount = rows.count
    statistics.plainByteCount = marker.versionByteCount
    statistics.uniqueByteCount = marker.marks.plainByteCount - marker.marks.basePlainByteCount
    statistics.storedByteCount = marker.marks.storedByteCount
    statistics.usesSimilarity = engine.header.flags.contains(.similarity)
    statistics.baseByteCount = marker.marks.baseByteCount
    statistics.deduplicationSavedByteCount = max(0, statistics.plainByteCount - statistics.uniqueByteCount)
    statistics.codecSavedByteCount = marker.marks.codecSavedByteCount
    statistics.similaritySavedByteCount = marker.marks.similaritySavedByteCount
    for (number, row) in rows {
      statistics.garbageByteCount += row.recordsByteCount - marker.marks.liveByteCount(number)
    }
    statistics.diskByteCount = try engine.folder.allocatedByteCount()
    return statistics
  }
}

extension PackRow {
  /// Bytes of the pack's records.
  var recordsByteCount: Int64 { appliedByteCount - Int64(PackHeader.byteCount) }
}

extension BlobInformation {
  package static func take(
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
    var seen: Set<Digest> = []
    func count(_ digest: Digest) throws(BlobStorageError) {
      guard seen.insert(digest).inserted else { return }
      let row = try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.chunkRow(digest)
      }
      guard let row else {
        throw BlobStorageError(
          .corrupted, "Key “\(key)”: chunk \(digest) is missing from the store.", key: key, digest: digest)
      }
      information.storedByteCount += Int64(row.storedByteCount)
      if !others.marks.contains(row.place) { information.exclusiveByteCount += Int64(row.storedByteCount) }
      if row.base != nil { information.basedChunkCount += 1 }
      information.codecs[CodecKind(rawValue: row.codecNumber)?.name ?? "\(row.codecNumber)", default: 0] += 1
    }
    if layout.byteCount == 0 { try count(version.digest) }
    try layout.forEachChunk(in: 0..<layout.byteCount, from: engine.chunks) {
      (placed) throws(BlobStorageError) in
      information.chunkCount += 1
      try count(placed.entry.digest)
      return true
    }
    if layout.byteCount == 0 { information.chunkCount = 1 }
    return information
  }
}
