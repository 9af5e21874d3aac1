import BlobStorage

/// Remembers the chunks that a dry run would have stored so far.
///
/// Keeps the first eight bytes of their digests: 16 MB for the first million chunks, some 60 GB of large files. Counts
/// chunks that repeat beyond those as new. So memory stays bounded, and the plan overestimates.
struct ImportPlan {
  private var planned: Set<UInt64> = []
  private static let plannedCountMax = 1 << 20

  /// Whether the chunk occurs for the first time.
  mutating func isFirst(_ digest: BlobDigest) -> Bool {
    let beginning = digest.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
    guard planned.count < Self.plannedCountMax else { return !planned.contains(beginning) }
    return planned.insert(beginning).inserted
  }
}

/// Counts what a put would store: looks up and encodes the chunks, and adds the lengths of their records. It cannot
/// know which chunks of the import would be bases of others, so the plan can only overestimate.
extension Importer {
  private struct PlannedChunk: Sendable {
    var digest: BlobDigest
    var byteCount: Int
    /// The length of its record; nil if the store has the chunk.
    var recordByteCount: Int?

    init(_ chunk: ChunkPlan.Chunk) {
      digest = chunk.digest
      byteCount = chunk.range.count
      recordByteCount = chunk.encoded?.recordByteCount
    }
  }

  func plan(_ item: MemoryPut.Item, _ source: ImportSource) throws(BlobStorageError) {
    for chunk in item.plan.chunks { count(PlannedChunk(chunk)) }
    countFile(item.key, isLink: source.isLink, Int64(item.plan.byteCount))
    try countManifest(item.plan.digest, chunkCount: item.plan.chunks.count)
  }

  func plan(
    _ source: ImportSource, _ file: InputFile, _ key: [UInt8], isLastAttempt: Bool,
    _ progress: (Int64) -> Void
  ) throws(BlobStorageError) {
    var cutter = Cutter(sizes: engine.sizes, batchByteCount: 1 << 20)
    let planner = try engine.memoryPut.planner(options.codec)
    let previous = try planner.previousVersion(of: key)
    var chunkCount = 0
    var byteCount: Int64 = 0
    // Nil once a chunk is new: then the store cannot have the manifest.
    var digest: DigestStream? = DigestStream(engine.header.digestAlgorithm)
    try engine.work.orderedMap(
      inFlightMax: engine.work.width + 2,
      next: { () throws(BlobStorageError) -> Cutter.Batch? in
        try CancellationFlag.check()
        let batch = try cutter.next { (target) throws(BlobStorageError) in try file.read(into: target) }
        if let batch { digest?.update(batch.bytes.span.bytes) }
        return batch
      },
      transform: { (batch) throws(BlobStorageError) in
        var chunks: [PlannedChunk] = []
        _ = try planner.plan(batch, previous: previous, .none) { (chunk, _) in
          chunks.append(PlannedChunk(chunk))
        }
        return chunks
      },
      consume: { (chunks: [PlannedChunk]) in
        for chunk in chunks {
          if count(chunk) { digest = nil }
          byteCount += Int64(chunk.byteCount)
        }
        chunkCount += chunks.count
        progress(byteCount)
      })
    if let change = try file.change() {
      if change == .rewritten, !isLastAttempt { throw file.changedError }
      report.uncertain.append(UncertainFile(source, change))
    }
    countFile(key, isLink: false, byteCount)
    try countManifest(digest?.finalize(), chunkCount: chunkCount)
  }

  /// - Returns: whether the chunk is new.
  @discardableResult
  private func count(_ chunk: PlannedChunk) -> Bool {
    if let recordByteCount = chunk.recordByteCount, plan.isFirst(chunk.digest) {
      report.newByteCount += Int64(chunk.byteCount)
      report.storedByteCount += Int64(recordByteCount)
      return true
    }
    report.duplicateByteCount += Int64(chunk.byteCount)
    return false
  }

  /// Counts a file and its ref.
  private func countFile(_ key: [UInt8], isLink: Bool, _ byteCount: Int64) {
    countNew(String(decoding: key, as: UTF8.self), isLink: isLink, byteCount)
    report.storedByteCount += Int64(
      RefRecord.recordByteCount(keyByteCount: key.count, metadataByteCount: FileMark.byteCountTypical))
  }

  /// Counts the manifest of a blob, unless the store has it.
  private func countManifest(_ digest: BlobDigest?, chunkCount: Int) throws(BlobStorageError) {
    guard chunkCount > 1 else { return }
    if let digest {
      let isStored = try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.manifestToShare(digest) != nil
      }
      if isStored || !plan.isFirst(digest) { return }
    }
    report.storedByteCount += Int64(ManifestRecord.recordByteCount(listing: chunkCount))
  }
}
