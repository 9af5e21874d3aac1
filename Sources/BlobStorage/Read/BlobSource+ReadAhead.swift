/// Fetching ahead what will be read, where packs come over a network.
extension BlobSource {
  /// Begins to fetch what chunks are stored in. A read of one waits for it; a failure is told there.
  package func prefetch(_ entries: some Collection<ChunkEntry>) {
    do throws(BlobStorageError) {
      var parts: [(file: any File, ranges: [Range<Int64>])] = []
      for (pack, ranges) in try places(of: entries) {
        if let file = try packs.file(pack) { parts.append((file, ranges)) }
      }
      backend.prefetch(parts)
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
      func add(_ digest: BlobDigest) throws(BlobStorageError) -> BlobDigest? {
        if chunks.cache.bytes(digest) != nil { return nil }
        guard let row = try transaction.chunkRow(digest) else { return nil }
        if names[row.place.pack] == nil {
          names[row.place.pack] = try transaction.packRow(row.place.pack)?.name
        }
        if let name = names[row.place.pack] {
          places[name, default: []].append(row.storedRange)
        }
        return row.base
      }
      for entry in entries {
        if let base = try add(entry.digest) { _ = try add(base) }
      }
      return places
    }
  }
}
