/// One batch of chunks, on any thread: named, looked up, encoded and appended.
struct ChunkIntake: Sendable {
  /// What goes through the pipeline in one piece.
  struct Batch: Sendable {
    var bytes: [UInt8]
    var chunks: [Range<Int>]
    var hint: CompressibilityHint
    /// Where it begins in its blob.
    var start: Int64 = 0
    /// It is all of its blob.
    var isWhole = false
  }

  struct BatchResult: Sendable {
    var entries: [ChunkEntry] = []
    var holds: [LeaseFile.Hold] = []
    var newByteCount: Int64 = 0
    var storedByteCount: Int64 = 0
  }

  private struct Missing {
    var digest: Digest
    var range: Range<Int>
    var features: SIMD3<UInt32>?
    var previous: PreviousVersion.Candidate?
    var found = BaseSearch.Found()
  }

  private let engine: Engine
  private let search: BaseSearch

  init(_ engine: Engine, _ codec: CodecChoice) {
    self.engine = engine
    search = BaseSearch(engine, codec)
  }

  /// Whether chunks are tried against others at all.
  var usesBases: Bool { search.triesBases(.unknown) }

  /// - Parameter previous: what the blob's key holds so far.
  func process(_ batch: Batch, previous: PreviousVersion? = nil) throws(BlobStorageError) -> BatchResult {
    var result = BatchResult()
    return try bridge(batch.bytes) { (bytes) throws(BlobStorageError) in
      for range in batch.chunks {
        let digest = Digest.of(
          UnsafeRawBufferPointer(rebasing: bytes[range]), by: engine.header.digestAlgorithm)
        result.entries.append(ChunkEntry(digest: digest, plainByteCount: range.count))
      }
      let present = try share(result.entries.map(\.digest), &result)
      var missing: [Missing] = []
      var missingIndices: [Int] = []
      for (index, range) in batch.chunks.enumerated() {
        let digest = result.entries[index].digest
        if present.contains(digest) || engine.writer.hasPendingChunk(digest) { continue }
        let plain = UnsafeRawBufferPointer(rebasing: bytes[range])
        missing.append(
          Missing(digest: digest, range: range, features: search.features(plain, hint: batch.hint)))
        missingIndices.append(index)
      }
      if let previous, !missing.isEmpty, search.triesBases(batch.hint) {
        let candidates = try previous.candidates(
          for: result.entries, at: batch.start, isWhole: batch.isWhole && batch.chunks.count == 1,
          from: engine.chunks)
        for (place, index) in missingIndices.enumerated() { missing[place].previous = candidates[index] }
      }
      try findBases(&missing, &result)
      var guesses = BaseSearch.Guesses()
      for chunk in missing {
        let plain = UnsafeRawBufferPointer(rebasing: bytes[chunk.range])
        let encoded = try search.encode(
          chunk.digest, plain, hint: batch.hint, features: chunk.features, chunk.found,
          &guesses)
        let added: Int
        if let stored = encoded.stored {
          added = try bridge(stored) { (raw) throws(BlobStorageError) in
            try engine.writer.append(.chunk(encoded.record), payload: raw)
          }
        } else {
          added = try engine.writer.append(.chunk(encoded.record), payload: plain)
        }
        result.storedByteCount += Int64(added)
        if added > 0 { result.newByteCount += Int64(plain.count) }
      }
      return result
    }
  }

  /// Finds bases, and leases them before they are looked up again, like chunks that are shared.
  private func findBases(_ missing: inout [Missing], _ result: inout BatchResult) throws(BlobStorageError) {
    guard missing.contains(where: { $0.features != nil || $0.previous != nil }) else { return }
    let (found, unsynced) = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var found: [BaseSearch.Found] = []
      // Chunks of a long blob are no small blobs: no dictionary is tried.
      let use = BaseSearch.Use(isWhole: false, archives: false)
      var unsynced: Set<PackName> = []
      for chunk in missing {
        let entry = ChunkEntry(digest: chunk.digest, plainByteCount: chunk.range.count)
        let tried = try search.find(
          for: entry, chunk.features, previous: chunk.previous, use, transaction)
        for base in tried.bases { unsynced.formUnion(try engine.unsyncedPacks(base.row, transaction)) }
        found.append(tried)
      }
      return (found, unsynced)
    }
    let digests = found.flatMap { $0.bases.map(\.digest) }
    for name in unsynced { try engine.writer.synchronizeOther(name) }
    guard !digests.isEmpty else { return }
    result.holds.append(try engine.leases.hold(digests.map { .chunk($0) }))
    var confirmed = found
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      for index in found.indices {
        for part in [\BaseSearch.Found.base, \.other] {
          guard let base = found[index][keyPath: part] else { continue }
          guard let row = try transaction.baseToShare(base.digest),
            try engine.unsyncedPacks(row, transaction).isEmpty
          else {
            confirmed[index][keyPath: part] = nil
            continue
          }
        }
      }
    }
    for index in missing.indices { missing[index].found = confirmed[index] }
  }

  /// Which of these chunks are there to be shared: found, leased, and found again in a snapshot taken after that.
  func share(_ digests: [Digest], _ result: inout BatchResult) throws(BlobStorageError) -> Set<Digest> {
    let (found, unsynced) = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var found: [Digest] = []
      var unsynced: Set<PackName> = []
      for digest in digests {
        guard let row = try transaction.chunkToShare(digest) else { continue }
        found.append(digest)
        unsynced.formUnion(try engine.unsyncedPacks(row, transaction))
      }
      return (found, unsynced)
    }
    guard !found.isEmpty else { return [] }
    for name in unsynced { try engine.writer.synchronizeOther(name) }
    result.holds.append(try engine.leases.hold(found.map { .chunk($0) }))
    return try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var present: Set<Digest> = []
      for digest in found {
        guard let row = try transaction.chunkToShare(digest),
          try engine.unsyncedPacks(row, transaction).isEmpty
        else { continue }
        present.insert(digest)
      }
      return present
    }
  }
}
