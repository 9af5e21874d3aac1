/// Compares a file with a current version of the same length. Putting the same bytes again then costs reading and
/// hashing them, but no cutting.
///
/// It hashes the file's bytes at the position of each chunk of the current version, on all threads, up to the first
/// difference. A changed file costs only the part before that.
struct SameContent {
  /// Bytes that are read, compared and reported together: they are hashed while they are in the processor's cache.
  private static let batchByteCount: Int64 = 256 << 10
  /// Roughly the bytes whose chunks are looked up together.
  private static let groupByteCount: Int64 = 64 << 20
  /// The most of these chunks. A hostile manifest can name millions.
  private static let groupCount = 1 << 16

  private struct Batch: Sendable {
    var start: Int64
    var byteCount: Int
    var entries: [ChunkEntry]
  }

  private let planner: ChunkPlanner
  private let key: [UInt8]
  private let stamp: Stamp
  private let layout: BlobLayout

  /// Nil if the key's current version has another length or cannot be shared or read, or if the file is put from
  /// memory.
  init?(_ planner: ChunkPlanner, key: [UInt8], byteCount: Int64) throws(BlobStorageError) {
    guard byteCount > Int64(MemoryPut.byteCountMax) else { return nil }
    let current = try planner.catalog.read {
      (transaction) throws(BlobStorageError) -> StampedVersion? in
      guard let current = try transaction.currentVersion(ofKey: key),
        current.row.byteCount == byteCount,
        let manifest = try transaction.manifestToShare(current.row.digest),
        try planner.writer.canRefer(to: manifest.place, transaction)
      else { return nil }
      return current
    }
    guard let current else { return nil }
    guard let layout = try unlessCorrupted(try planner.blobs.layout(current.row.digest)) ?? nil,
      layout.byteCount == byteCount
    else { return nil }
    self.layout = layout
    self.planner = planner
    self.key = key
    stamp = current.stamp
  }

  /// Whether the file holds the version's bytes and all chunks of the version can be shared.
  ///
  /// Compares the digest of the whole as well: equal chunks are no proof, because a manifest can name the chunks of
  /// other bytes.
  ///
  /// - Parameter progress: receives the number of bytes compared so far.
  func isHeld(
    by file: InputFile, progress: (Int64) -> Void
  ) throws(BlobStorageError) -> Bool {
    var isSame = try areThereToShare(layout.listDigests)
    var offset: Int64 = 0
    var group: ArraySlice<ChunkEntry> = []
    var looked: Int64 = 0
    var whole = DigestStream(layout.digest.algorithm)
    do throws(BlobStorageError) {
      try planner.blobs.work.orderedMap(
        inFlightMax: planner.blobs.work.width * 2 + 1,
        next: { () throws(BlobStorageError) -> Batch? in
          try CancellationFlag.check()
          guard isSame else { return nil }
          if group.isEmpty, looked < layout.byteCount {
            group = try entries(from: &looked)[...]
            isSame = try areThereToShare(group.map(\.digest))
          }
          guard isSame, let batch = nextBatch(of: &group, at: &offset) else { return nil }
          progress(offset)
          return batch
        },
        transform: { (batch) throws(BlobStorageError) in
          let bytes = try [UInt8](filling: batch.byteCount) { (buffer) throws(BlobStorageError) in
            try file.read(into: buffer, at: batch.start)
          }
          guard bytes.count == batch.byteCount, Self.isSame(bytes.span.bytes, batch.entries) else {
            return nil
          }
          return bytes
        },
        consume: { (bytes: [UInt8]?) in
          if let bytes { whole.update(bytes.span.bytes) } else { isSame = false }
        })
    } catch {
      // A list of the manifest cannot be read. Putting the file again heals it.
      guard error.code == .corrupted else { throw error }
      return false
    }
    return isSame && offset == layout.byteCount && whole.finalize() == layout.digest
  }

  /// Puts the content again as the key's newest version, with the options' metadata. Returns nil if the key now holds
  /// another version, or if its version is not on the medium yet.
  ///
  /// No lease is needed: the version keeps all that it needs, and the commit adds the new version while the old one
  /// exists.
  func commit(
    _ options: PutOptions
  ) throws(BlobStorageError) -> (result: PutResult, watermark: WriterSession.Watermark?)? {
    let (result, watermark) = try planner.writer.commit(on: [key]) {
      (commit) throws(BlobStorageError) -> PutResult? in
      commit.isPromised = options.durability == .durable
      guard let current = try commit.transaction.currentVersion(ofKey: key),
        // If a ref is on the medium, so are the records before it and those that it refers to elsewhere (H1).
        current.stamp == stamp, try commit.canRefer(to: current.row.place)
      else { return nil }
      let (version, refByteCount) = try commit.appendRef(
        key, layout.digest, layout.byteCount, RefOptions(options))
      return PutResult(version: version, newByteCount: 0, storedByteCount: Int64(refByteCount))
    }
    return result.map { ($0, watermark) }
  }

  // MARK: Inside

  private func entries(from start: inout Int64) throws(BlobStorageError) -> [ChunkEntry] {
    let limit = min(start + Self.groupByteCount, layout.byteCount)
    var entries: [ChunkEntry] = []
    var end = start
    try layout.forEachChunk(in: start..<limit, from: planner.blobs.chunks) { placed in
      entries.append(placed.entry)
      end = placed.start + Int64(placed.entry.plainByteCount)
      return entries.count < Self.groupCount
    }
    start = end
    return entries
  }

  private func areThereToShare(_ digests: [BlobDigest]) throws(BlobStorageError) -> Bool {
    try planner.catalog.read { (transaction) throws(BlobStorageError) in
      for digest in digests.sorted() {
        guard let row = try transaction.chunkToShare(digest),
          try planner.canRefer(to: row, transaction)
        else { return false }
      }
      return true
    }
  }

  private func nextBatch(of group: inout ArraySlice<ChunkEntry>, at offset: inout Int64) -> Batch? {
    var batch = Batch(start: offset, byteCount: 0, entries: [])
    while batch.byteCount < Self.batchByteCount, let entry = group.popFirst() {
      batch.entries.append(entry)
      batch.byteCount += entry.plainByteCount
    }
    guard !batch.entries.isEmpty else { return nil }
    offset += Int64(batch.byteCount)
    return batch
  }

  private static func isSame(_ bytes: RawSpan, _ entries: [ChunkEntry]) -> Bool {
    var start = 0
    for entry in entries {
      let end = start + entry.plainByteCount
      guard
        BlobDigest.of(bytes.extracting(start..<end), by: entry.digest.algorithm)
          == entry.digest
      else { return false }
      start = end
    }
    return true
  }
}
