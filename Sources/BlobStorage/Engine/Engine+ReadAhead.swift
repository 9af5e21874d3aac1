/// Fetching what will be read, where packs come over a network: neighbours by one request, several requests at once.
extension Engine {
  /// Chunks that are fetched together when a blob is read in order.
  static let readAheadCount = 128
  /// Between two chunks that are wanted, so much that is not costs less than another request.
  private static let gapByteCountMax: Int64 = 128 << 10
  private static let requestByteCountMax: Int64 = 4 << 20

  /// Begins to fetch what chunks are stored in. A read of such a chunk waits for the fetch, and reports its failure.
  func prefetch(_ entries: some Collection<ChunkEntry>) {
    guard let readAhead, !entries.isEmpty else { return }
    do throws(BlobStorageError) {
      var begun: [@Sendable () -> Void] = []
      for (pack, ranges) in try places(of: entries) {
        guard let file = try packs.file(pack) as? RemoteFile else { continue }
        for range in Self.merged(ranges) {
          begun.append(
            readAhead.run { do throws(BlobStorageError) { try file.prefetch(range) } catch {} })
        }
      }
      // The last is fetched here, and any that no thread has begun.
      begun.last?()
      if readAhead.width == 0 { for run in begun { run() } }
    } catch {
      // The reading finds it out.
    }
  }

  private func places(
    of entries: some Collection<ChunkEntry>
  ) throws(BlobStorageError) -> [PackName: [Range<Int64>]] {
    try catalog.read { (transaction) throws(BlobStorageError) in
      var places: [PackName: [Range<Int64>]] = [:]
      var names: [UInt32: PackName] = [:]
      func add(_ digest: Digest) throws(BlobStorageError) -> Digest? {
        if chunks.cache.bytes(digest) != nil { return nil }
        guard let row = try transaction.chunkRow(digest) else { return nil }
        if names[row.place.pack] == nil {
          names[row.place.pack] = try transaction.packRow(row.place.pack)?.name
        }
        if let name = names[row.place.pack] {
          places[name, default: []].append(row.payloadOffset..<row.payloadOffset + Int64(row.storedByteCount))
        }
        return row.base
      }
      for entry in entries {
        if let base = try add(entry.digest) { _ = try add(base) }
      }
      return places
    }
  }

  /// Ranges that lie close together, as one.
  private static func merged(_ ranges: [Range<Int64>]) -> [Range<Int64>] {
    var merged: [Range<Int64>] = []
    for range in ranges.sorted(by: { $0.lowerBound < $1.lowerBound }) {
      if let last = merged.last, range.lowerBound <= last.upperBound + gapByteCountMax,
        range.upperBound - last.lowerBound <= requestByteCountMax
      {
        merged[merged.count - 1] = last.lowerBound..<max(last.upperBound, range.upperBound)
      } else {
        merged.append(range)
      }
    }
    return merged
  }
}
