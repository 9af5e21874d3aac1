/// Finds the layout of a blob by its digest, and reads its bytes.
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

  /// Returns the layout of a blob; nil if the store does not have the blob.
  ///
  /// - Throws: `corrupted` when its manifest cannot be read.
  package func layout(_ digest: BlobDigest) throws(BlobStorageError) -> BlobLayout? {
    var lookCount = 0
    repeat {
      if let layout = try knownLayout(digest) { return layout }
    } while try chunks.looksAgain(&lookCount)
    return nil
  }

  /// Where the store has a manifest that is the same as this layout's. Nil if it has none, if it names other chunks, or
  /// if it cannot be read now.
  ///
  /// - Complexity: reads the manifest if there is one. Does not extend the catalog.
  package func place(of layout: BlobLayout) throws(BlobStorageError) -> Place? {
    guard layout.chunkCount > 1, let (row, pack) = try knownManifest(layout.digest),
      row.chunkCount == layout.chunkCount
    else { return nil }
    do throws(BlobStorageError) {
      // A request costs more than another manifest.
      guard let file = try packs.file(pack), !file.isRemote else { return nil }
      let known = try readAfresh(layout.digest, row, file, pack)
      return try known.manifest().payload == layout.manifest().payload ? row.place : nil
    } catch {
      guard error.code != .cancelled else { throw error }
      return nil
    }
  }

  private func knownManifest(_ digest: BlobDigest) throws(BlobStorageError) -> (ManifestRow, PackName)? {
    try catalog.read { (view) throws(BlobStorageError) in
      guard let row = try view.manifestRow(digest), let pack = try view.packRow(row.place.pack) else {
        return nil
      }
      return (row, pack.name)
    }
  }

  private func knownLayout(_ digest: BlobDigest) throws(BlobStorageError) -> BlobLayout? {
    for _ in 0..<chunks.lookUpCountMax {
      let found = try catalog.read { (transaction) throws(BlobStorageError) -> Found? in
        let chunk = try transaction.chunkRow(digest)
        if let chunk, !chunk.isSuspect { return .chunk(chunk.plainByteCount) }
        // A blob of one chunk may also have a manifest: an older chunker cut it otherwise, or its bytes equal a list of
        // a manifest. The manifest heals the blob if the one chunk is damaged.
        guard let row = try transaction.manifestRow(digest),
          let pack = try transaction.packRow(row.place.pack)
        else { return chunk.map { .chunk($0.plainByteCount) } }
        return .manifest(row, pack.name)
      }
      switch found {
      case nil: return nil
      case .chunk(var byteCount):
        // A blob of no bytes is not read, and so not compared with its digest. A hostile pack may claim one.
        if byteCount == 0, digest != BlobDigest.of(RawSpan(), by: digest.algorithm) {
          byteCount = try chunks.bytes(digest).count
        }
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

  /// Reads the manifest, or another copy if it is damaged. No digest guards a manifest, so its checksums must.
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

  /// Reads the manifest that the catalog knows, and no other copy.
  ///
  /// - Throws: `corrupted` when it is damaged or missing.
  func checkKnownCopy(_ digest: BlobDigest) throws(BlobStorageError) {
    guard let (row, pack) = try knownManifest(digest), let file = try packs.file(pack) else {
      throw BlobStorageError(.corrupted, "The manifest of blob \(digest) is missing.", digest: digest)
    }
    _ = try readAfresh(digest, row, file, pack)
  }

  /// Reads another copy of the manifest and points the catalog at it; nil if no other copy is undamaged.
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
        _ = try transaction.increment(.movedRows)
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
        // No manifest is made for one chunk or none: the chunk's digest is the blob's, and guards its bytes.
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
        digest: digest, pack: pack.description, offset: row.place.offset, path: error.path,
        errno: error.errno)
    }
  }
}

/// Prefetches chunks where packs come over a network.
extension BlobSource {
  /// Starts fetching the stored bytes of chunks. A later read waits for them and reports a failure.
  package func prefetch(_ entries: some Collection<ChunkEntry>) {
    do throws(BlobStorageError) {
      var parts: [(file: any File, ranges: [Range<Int64>])] = []
      for (pack, ranges) in try places(of: entries) {
        if let file = try packs.file(pack) { parts.append((file, ranges)) }
      }
      backend.prefetch(parts)
    } catch {
      // The read reports the error.
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

/// Reads the bytes of a blob in order.
extension BlobSource {
  /// Passes the bytes of a whole blob to `sink` in order. Unless `verification` is `.checksum`, compares their digest
  /// at the end: undamaged chunks may still be the wrong ones.
  ///
  /// - Throws: `corrupted` for a damaged chunk, or after the last byte if the digest does not match.
  package func streamWhole(
    _ layout: BlobLayout, _ verification: Verification = .digest,
    _ sink: (UnsafeRawBufferPointer) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    // The digest of a single chunk is the digest of the blob.
    guard layout.chunkCount > 1, verification == .digest else {
      return try stream(layout, 0..<layout.byteCount, verification: verification, sink)
    }
    var digest = DigestStream(layout.digest.algorithm)
    try stream(layout, 0..<layout.byteCount) { (bytes) throws(BlobStorageError) in
      digest.update(bytes.bytes)
      try sink(bytes)
    }
    guard digest.finalize() == layout.digest else {
      throw BlobStorageError(
        .corrupted,
        "The manifest of blob \(layout.digest) names the chunks of other bytes: put the same bytes again.",
        digest: layout.digest)
    }
  }

  /// Passes the bytes of a range to `sink` in order. Reads and verifies chunks on all cores, a bounded number ahead.
  ///
  /// - Parameter keeps: whether to keep the chunks in the cache, because they are likely to be read again soon.
  func stream(
    _ layout: BlobLayout, _ range: Range<Int64>, access: ChunkSource.Access = .sequential,
    keeps: Bool = false, verification: Verification = .digest,
    _ sink: (UnsafeRawBufferPointer) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let source = chunks
    let aheadCount = backend.readAheadCount
    var group: ArraySlice<ReadPart> = []
    // Over a network, the next group is prefetched while this one is read.
    var following: ArraySlice<ReadPart>?
    var position = range.lowerBound
    func fetchGroup() throws(BlobStorageError) -> ArraySlice<ReadPart> {
      guard position < range.upperBound else { return [] }
      var fetched: [BlobLayout.PlacedChunk] = []
      let countMax = aheadCount > 0 ? aheadCount : 256
      try layout.forEachChunk(in: position..<range.upperBound, from: source, access: access) { placed in
        fetched.append(placed)
        return fetched.count < countMax
      }
      if let last = fetched.last { position = last.start + Int64(last.entry.plainByteCount) }
      if aheadCount > 0, fetched.count > 1 { prefetch(fetched.map(\.entry)) }
      let frames = fetched.count > 1 ? try source.framePlaces(of: fetched.map(\.entry.digest)) : [nil]
      return zip(fetched, frames).map { (placed, frame) in
        let end = placed.start + Int64(placed.entry.plainByteCount)
        let wanted = max(range.lowerBound, placed.start)..<min(range.upperBound, end)
        return ReadPart(
          entry: placed.entry,
          wanted: Int(wanted.lowerBound - placed.start)..<Int(wanted.upperBound - placed.start), frame: frame)
      }[...]
    }
    // Passing a chunk to another thread costs about as much as hashing it, so in a long range a thread gets several.
    let partCountMax = range.count > Self.byteCountOfSingles ? Self.partCountTogether : 1
    /// Chunks for one thread. Members of a frame stay together, so that no other thread waits for its decoding.
    func nextParts() throws(BlobStorageError) -> [ReadPart]? {
      try CancellationFlag.check()
      if group.isEmpty {
        if let next = following { group = next } else { group = try fetchGroup() }
        if aheadCount > 0 { following = try fetchGroup() }
      }
      guard let first = group.popFirst() else { return nil }
      var parts = [first]
      while let next = group.first, next.frame == first.frame, next.frame != nil || parts.count < partCountMax
      {
        parts.append(group.removeFirst())
      }
      return parts
    }
    @Sendable func read(_ parts: [ReadPart]) throws(BlobStorageError) -> [ReadResult] {
      func result(_ part: ReadPart) throws(BlobStorageError) -> ReadResult {
        let bytes = try source.bytes(part.entry, access: access, keeps: keeps, verification: verification)
        return ReadResult(bytes: bytes, wanted: part.wanted)
      }
      guard parts[0].frame != nil else { return try parts.map(result) }
      // Reads the last one first: a frame that is decoded up to its last member holds the others as well.
      return try parts.reversed().map(result).reversed()
    }
    func handOver(_ results: [ReadResult]) throws(BlobStorageError) {
      for result in results {
        try bridge(result.bytes) { (raw) throws(BlobStorageError) in
          try sink(UnsafeRawBufferPointer(rebasing: raw[result.wanted]))
        }
      }
    }
    guard let first = try nextParts() else { return }
    // For a single chunk, one frame, or a few chunks that are not encoded, waking another thread takes longer than it
    // saves.
    var isDoneAlone = first.reduce(0) { $0 + $1.wanted.count } == range.count
    if !isDoneAlone, range.count <= Self.byteCountWithoutThreads {
      isDoneAlone = try !source.isEncoded(first[0].entry.digest)
    }
    if isDoneAlone {
      var parts: [ReadPart]? = first
      while let next = parts {
        try handOver(try read(next))
        parts = try nextParts()
      }
      return
    }
    var ahead: [ReadPart]? = first
    try work.orderedMap(
      inFlightMax: work.width * 4,
      next: { () throws(BlobStorageError) -> [ReadPart]? in
        if let first = ahead.take() { return first }
        return try nextParts()
      },
      transform: read, consume: handOver)
  }

  private static let byteCountWithoutThreads = 256 << 10
  private static let byteCountOfSingles = 1 << 20
  private static let partCountTogether = 4

  private struct ReadPart: Sendable {
    var entry: ChunkEntry
    var wanted: Range<Int>
    var frame: ChunkSource.FramePlace?
  }

  private struct ReadResult: Sendable {
    var bytes: [UInt8]
    var wanted: Range<Int>
  }
}
