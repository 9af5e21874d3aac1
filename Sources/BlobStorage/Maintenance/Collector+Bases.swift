/// What chunks need that were committed while garbage is being collected.
extension Collector {
  /// Marks the bases of all chunks in packs that were not sealed when marking began.
  ///
  /// A put may find a base before its pack is condemned, commit after that, and release its lease before gc reads it.
  /// The row of its chunk can then replace one without a base. The manifest that names the chunk was marked before, so
  /// it is not walked again.
  func markNewBases() throws(BlobStorageError) {
    if engine.weaknesses.contains(.forgetsNewBases) { return }
    for (number, row) in try packRows() where !sealed.contains(number) {
      guard let file = try engine.backend.openPack(row.name) else { continue }
      defer { file.close() }
      var bases: Set<Digest> = []
      _ = try PackScanner(file: file, name: row.name, codecs: engine.codecs, store: engine.header).scan {
        record in
        if case .chunk(let chunk) = record.content, let base = chunk.base { bases.insert(base) }
      }
      try marker.markChunks(Array(bases))
    }
  }
}
