/// Digest of a blob → its layout.
package final class BlobSource: Sendable {
  private let catalog: Catalog
  private let packs: PackFiles
  package let chunks: ChunkSource

  package init(catalog: Catalog, packs: PackFiles, chunks: ChunkSource) {
    self.catalog = catalog
    self.packs = packs
    self.chunks = chunks
  }

  private enum Found {
    case chunk(Int)
    case manifest(ManifestRow, PackName)
  }

  /// What the blob is made of, or nil when the store does not have it.
  ///
  /// - Throws: `corrupted` when its manifest cannot be read.
  package func layout(_ digest: Digest) throws(BlobStorageError) -> BlobLayout? {
    var lookCount = 0
    repeat {
      if let layout = try knownLayout(digest) { return layout }
    } while try chunks.looksAgain(&lookCount)
    return nil
  }

  private func knownLayout(_ digest: Digest) throws(BlobStorageError) -> BlobLayout? {
    for _ in 0..<chunks.lookUpCountMax {
      let found = try catalog.read { (transaction) throws(BlobStorageError) -> Found? in
        let chunk = try transaction.chunkRow(digest)
        if let chunk, !chunk.isSuspect { return .chunk(chunk.plainByteCount) }
        // A blob may be there a second time, in chunks: put before chunks were cut as they are now, or of the same
        // bytes as a list of a manifest. That is what heals it when the one chunk is damaged.
        guard let row = try transaction.manifestRow(digest),
          let pack = try transaction.packRow(row.place.pack)
        else { return chunk.map { .chunk($0.plainByteCount) } }
        return .manifest(row, pack.name)
      }
      switch found {
      case nil: return nil
      case .chunk(let byteCount):
        return try BlobLayout(
          digest: digest,
          chunks: byteCount == 0 ? [] : [ChunkEntry(digest: digest, plainByteCount: byteCount)])
      case .manifest(let row, let pack):
        let layout = try chunks.whereThere(pack) { (file) throws(BlobStorageError) in
          try read(digest, row, file, pack)
        }
        guard let layout else { continue }
        return layout
      }
    }
    throw BlobStorageError(
      .corrupted, "The manifest of blob \(digest) is in a pack that is not there.", digest: digest)
  }

  /// The manifest at its place, checked to be this blob's: no digest guards it, so its checksums must.
  private func read(
    _ digest: Digest, _ row: ManifestRow, _ file: any File, _ pack: PackName
  ) throws(BlobStorageError) -> BlobLayout {
    let range = row.place.offset..<row.place.offset + Int64(row.recordByteCount)
    return try file.readingAfresh(range) { () throws(BlobStorageError) in
      try readOnce(digest, row, file, pack)
    }
  }

  private func readOnce(
    _ digest: Digest, _ row: ManifestRow, _ file: any File, _ pack: PackName
  ) throws(BlobStorageError) -> BlobLayout {
    do throws(BlobStorageError) {
      let bytes = try file.bytes(at: row.place.offset, row.recordByteCount, pack: pack)
      return try bridge(bytes) { (raw) throws(BlobStorageError) in
        let (header, meta, payload) = try RecordHeader.verified(raw, pack: pack, offset: row.place.offset)
        guard header.typeNumber == RecordType.manifest.rawValue else {
          throw BlobStorageError(.corrupted, "there is another record in its place")
        }
        let manifest = try ManifestRecord(meta: meta, algorithm: digest.algorithm)
        guard manifest.digest == digest, manifest.payloadByteCount == payload.count else {
          throw BlobStorageError(.corrupted, "it is the manifest of another blob")
        }
        let layout =
          manifest.depth == 0
          ? try BlobLayout(digest: digest, chunks: ChunkEntry.list(payload, algorithm: digest.algorithm))
          : try BlobLayout(digest: digest, lists: ListEntry.list(payload, algorithm: digest.algorithm))
        guard layout.byteCount == manifest.byteCount, layout.chunkCount == manifest.chunkCount else {
          throw BlobStorageError(.corrupted, "its chunks do not add up to the blob")
        }
        // Of one chunk, or none, no manifest is made: the chunk has the blob's name, and guards its bytes.
        guard layout.chunkCount >= 2 else {
          throw BlobStorageError(.corrupted, "it names fewer than two chunks")
        }
        return layout
      }
    } catch {
      guard error.code == .corrupted else { throw error }
      throw BlobStorageError(
        .corrupted,
        "The manifest of blob \(digest) in pack \(pack) at \(row.place.offset) is damaged: \(error.message).",
        digest: digest, pack: pack.description, offset: row.place.offset)
    }
  }
}
