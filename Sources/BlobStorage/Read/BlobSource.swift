/// Digest of a blob → its layout and bytes.
package final class BlobSource: Sendable {
  package let catalog: Catalog
  let backend: any Backend
  let packs: PackFiles
  package let chunks: ChunkSource
  let work: WorkPool

  package init(
    catalog: Catalog, backend: any Backend, packs: PackFiles, chunks: ChunkSource, work: WorkPool
  ) {
    self.catalog = catalog
    self.backend = backend
    self.packs = packs
    self.chunks = chunks
    self.work = work
  }

  private enum Found {
    case chunk(Int)
    case manifest(ManifestRow, PackName)
  }

  /// What the blob is made of, or nil when the store does not have it.
  ///
  /// - Throws: `corrupted` when its manifest cannot be read.
  package func layout(_ digest: BlobDigest) throws(BlobStorageError) -> BlobLayout? {
    var lookCount = 0
    repeat {
      if let layout = try knownLayout(digest) { return layout }
    } while try chunks.looksAgain(&lookCount)
    return nil
  }

  private func knownLayout(_ digest: BlobDigest) throws(BlobStorageError) -> BlobLayout? {
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
        } otherwise: { () throws(BlobStorageError) in
          try otherLayout(digest, insteadOf: pack, row.place)
        }
        guard let layout else { continue }
        return layout
      }
    }
    throw BlobStorageError(
      .corrupted, "The manifest of blob \(digest) is in a pack that is missing.", digest: digest)
  }

  /// The manifest at its place, checked to be this blob's: no digest guards it, so its checksums must.
  private func read(
    _ digest: BlobDigest, _ row: ManifestRow, _ file: any File, _ pack: PackName
  ) throws(BlobStorageError) -> BlobLayout {
    do throws(BlobStorageError) { return try readAfresh(digest, row, file, pack) } catch {
      guard error.code == .corrupted, let layout = try otherLayout(digest, insteadOf: pack, row.place) else {
        throw error
      }
      return layout
    }
  }

  /// Reads the manifest that the catalog knows; no other copy stands in for it.
  ///
  /// - Throws: `corrupted` when it is damaged or missing.
  func checkKnownCopy(_ digest: BlobDigest) throws(BlobStorageError) {
    let found = try catalog.read { (transaction) throws(BlobStorageError) -> (ManifestRow, PackName)? in
      guard let row = try transaction.manifestRow(digest),
        let pack = try transaction.packRow(row.place.pack)
      else { return nil }
      return (row, pack.name)
    }
    guard let (row, pack) = found, let file = try packs.file(pack) else {
      throw BlobStorageError(.corrupted, "The manifest of blob \(digest) is missing.", digest: digest)
    }
    _ = try readAfresh(digest, row, file, pack)
  }

  /// What another copy of the manifest says, which the catalog points at from then on; nil if no other is undamaged.
  private func otherLayout(
    _ digest: BlobDigest, insteadOf pack: PackName, _ place: Place
  ) throws(BlobStorageError) -> BlobLayout? {
    let copies = try chunks.otherCopies.copies(
      of: digest, isManifest: true, insteadOf: pack, place.offset)
    for copy in copies {
      guard case .manifest(let manifest) = copy.record.content, let file = try packs.file(copy.pack) else {
        continue
      }
      let number = try catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.packNumber(copy.pack)
      }
      guard let number else { continue }
      let row = ManifestRow(
        place: Place(pack: number, offset: copy.record.offset, ordinal: copy.ordinal), record: manifest)
      do throws(BlobStorageError) {
        let layout = try readOnce(digest, row, file, copy.pack)
        use(row, insteadOf: place, digest)
        return layout
      } catch {
        guard error.code == .corrupted || error.code == .packGone else { throw error }
      }
    }
    return nil
  }

  private func use(_ row: ManifestRow, insteadOf place: Place, _ digest: BlobDigest) {
    do throws(BlobStorageError) {
      try catalog.write { (transaction) throws(BlobStorageError) in
        guard try transaction.manifestRow(digest)?.place == place, try transaction.isTrusted(row.place.pack)
        else { return }
        try transaction.setManifestRow(digest, row)
      }
    } catch {
      // Reading goes on; the next read finds the copy again.
    }
  }

  private func readAfresh(
    _ digest: BlobDigest, _ row: ManifestRow, _ file: any File, _ pack: PackName
  ) throws(BlobStorageError) -> BlobLayout {
    let range = row.place.offset..<row.place.offset + Int64(row.recordByteCount)
    return try file.readingAfresh(range) { () throws(BlobStorageError) in
      try readOnce(digest, row, file, pack)
    }
  }

  private func readOnce(
    _ digest: BlobDigest, _ row: ManifestRow, _ file: any File, _ pack: PackName
  ) throws(BlobStorageError) -> BlobLayout {
    do throws(BlobStorageError) {
      let bytes = try file.bytes(at: row.place.offset, row.recordByteCount, pack: pack)
      return try bridge(bytes) { (raw) throws(BlobStorageError) in
        let payload = try row.packRecord(digest).verifiedPayload(raw, in: pack)
        let layout =
          row.depth == 0
          ? try BlobLayout(digest: digest, chunks: ChunkEntry.list(payload, algorithm: digest.algorithm))
          : try BlobLayout(digest: digest, lists: ListEntry.list(payload, algorithm: digest.algorithm))
        guard layout.byteCount == row.byteCount, layout.chunkCount == row.chunkCount else {
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
