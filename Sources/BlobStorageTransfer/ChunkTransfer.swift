import BlobStorage

/// Copies the chunks that the target lacks, each once, in their stored form. Encodes members of frames again, and joins
/// small blobs into frames.
///
/// Copies a base before the chunks encoded against it. Reads neighbours in the source's packs together, and verifies
/// them on all threads. Nothing refers to the copied chunks yet: the caller must first begin a put with the target's
/// leases. It calls ``release()`` once versions need them.
final class ChunkTransfer {
  private struct Item: Sendable {
    var digest: BlobDigest
    /// Nil if the source does not know the chunk.
    var row: ChunkRow?

    var place: (UInt32, Int64) { row.map { ($0.place.pack, $0.place.offset) } ?? (.max, 0) }
  }

  /// The result of reading one batch.
  private struct Output: Sendable {
    var chunks: [StoredChunk] = []
    var joined: [JoinedChunks] = []
    var failures: [(digest: BlobDigest, error: BlobStorageError)] = []
  }

  /// Chunks per lookup, and the most digests in `known`.
  private static let groupCount = 1_024
  private static let knownCountMax = 1 << 20
  private static let readCount = 128
  private static let batchByteCount = 1 << 20

  private let source: Engine
  private let target: Engine
  private let limiter: RateLimiter?
  private var wanted: [BlobDigest] = []
  private var known: Set<BlobDigest> = []
  /// Wanted chunks that are each a whole blob.
  private var blobs: Set<BlobDigest> = []
  private var holds: [LeaseFile.Hold] = []
  private var committedMark: Int64
  /// Chunks that the source could not read, with the error.
  private(set) var unreadable: [BlobDigest: BlobStorageError] = [:]
  /// Chunks that were copied, their plain bytes, and the bytes that they added to packs.
  private(set) var chunkCount = 0
  private(set) var newByteCount: Int64 = 0
  private(set) var storedByteCount: Int64 = 0

  init(from source: Engine, to target: Engine, _ limiter: RateLimiter?) {
    self.source = source
    self.target = target
    self.limiter = limiter
    committedMark = target.writer.addedByteCount
  }

  /// Releases the holds in the target.
  func release() {
    for hold in holds { target.leases.release(hold) }
    holds = []
  }

  /// Copies these chunks to the target, at the latest in ``flush()``.
  ///
  /// - Parameter areBlobs: whether each chunk is a whole blob.
  func need(_ digests: some Sequence<BlobDigest>, areBlobs: Bool = false) throws(BlobStorageError) {
    for digest in digests where known.insert(digest).inserted {
      wanted.append(digest)
      if areBlobs { blobs.insert(digest) }
      if wanted.count >= Self.groupCount { try flush() }
    }
    if known.count > Self.knownCountMax { known = Set(wanted) }
  }

  /// Whether the target has all these chunks for sharing. Holds all of them.
  func areThere(_ digests: [BlobDigest]) throws(BlobStorageError) -> Bool { try missing(of: digests).isEmpty }

  func flush() throws(BlobStorageError) {
    try CancellationFlag.check()
    let digests = wanted
    defer { blobs = [] }
    wanted = []
    var items = try items(of: try missing(of: digests))
    guard !items.isEmpty else { return }
    var bases: [BlobDigest] = []
    for item in items {
      if let base = item.row?.base, known.insert(base).inserted { bases.append(base) }
    }
    // Readers refuse a base that has a base.
    items += try self.items(of: try missing(of: bases)).filter { $0.row?.base == nil }
    try copy(items.filter { $0.row?.base == nil }, usable: [:])
    let based = items.filter { $0.row?.base != nil }
    guard !based.isEmpty else { return }
    try commit()
    try copy(based, usable: try usableBases(of: based))
  }

  // MARK: Inside

  private func missing(of digests: [BlobDigest]) throws(BlobStorageError) -> [BlobDigest] {
    let (missing, hold) = try target.planner.share(digests)
    if let hold { holds.append(hold) }
    return missing
  }

  private func items(of digests: [BlobDigest]) throws(BlobStorageError) -> [Item] {
    guard !digests.isEmpty else { return [] }
    return try source.catalog.read { (transaction) throws(BlobStorageError) in
      var items: [Item] = []
      for digest in digests { items.append(Item(digest: digest, row: try transaction.chunkRow(digest))) }
      return items
    }
  }

  /// The bases that chunks can keep: the target has the base without a base of its own, and has nothing that is encoded
  /// against the chunk.
  private func usableBases(of items: [Item]) throws(BlobStorageError) -> [BlobDigest: BlobDigest] {
    try target.catalog.read { (transaction) throws(BlobStorageError) in
      var usable: [BlobDigest: BlobDigest] = [:]
      for item in items {
        guard let base = item.row?.base, try transaction.chunkRow(item.digest) == nil,
          try !transaction.isBase(item.digest), let row = try transaction.baseToShare(base),
          try target.planner.canRefer(to: row, transaction)
        else { continue }
        usable[item.digest] = base
      }
      return usable
    }
  }

  private func copy(_ items: [Item], usable: [BlobDigest: BlobDigest]) throws(BlobStorageError) {
    let (source, target, blobs) = (source, target, blobs)
    let aheadCount = source.backend.readAheadCount
    var rest = items.sorted { $0.place < $1.place }[...]
    var group: ArraySlice<Item> = []
    // Over a network, prefetches the next group while this one is read.
    var following: ArraySlice<Item>?
    func nextGroup() -> ArraySlice<Item> {
      let next = rest.prefix(aheadCount > 0 ? aheadCount : Self.readCount)
      rest = rest.dropFirst(next.count)
      if aheadCount > 0, next.count > 1 {
        source.blobs.prefetch(
          next.compactMap { item in
            item.row.map { ChunkEntry(digest: item.digest, plainByteCount: $0.plainByteCount) }
          })
      }
      return next
    }
    try target.work.orderedMap(
      inFlightMax: target.work.width * 2 + 1,
      next: { () throws(BlobStorageError) -> [Item]? in
        try CancellationFlag.check()
        if group.isEmpty {
          group = following ?? nextGroup()
          if aheadCount > 0 { following = nextGroup() }
        }
        var batch: [Item] = []
        var byteCount = 0
        while byteCount < Self.batchByteCount, let item = group.popFirst() {
          batch.append(item)
          byteCount += item.row?.plainByteCount ?? 0
        }
        return batch.isEmpty ? nil : batch
      },
      transform: { (batch) throws(BlobStorageError) -> Output in
        try Self.read(batch, of: blobs, from: source, for: target, usable)
      },
      consume: { (output: Output) throws(BlobStorageError) in
        for failure in output.failures { self.unreadable[failure.digest] = failure.error }
        let before = self.storedByteCount
        for chunk in output.chunks { try self.append(chunk) }
        for group in output.joined { try self.append(group) }
        self.limiter?.pace(self.storedByteCount - before)
        if target.writer.addedByteCount - self.committedMark >= target.writer.commitByteCountMax {
          try self.commit()
        }
      })
  }

  /// - Parameter usable: for each chunk, the base that it may keep in the target.
  private static func read(
    _ items: [Item], of blobs: Set<BlobDigest>, from source: Engine, for target: Engine,
    _ usable: [BlobDigest: BlobDigest]
  ) throws(BlobStorageError) -> Output {
    var output = Output()
    var builder = FrameBuilder(target.codec, target.codecs)
    for item in items {
      do throws(BlobStorageError) {
        var chunk = try StoredChunk.read(item.digest, from: source.chunks)
        let base = chunk.record.base
        if base != nil && base != usable[item.digest] || item.row?.frameOffset != nil {
          chunk = try chunk.alone(by: target.planner)
        }
        guard target.codec.kind == .zstd, blobs.contains(item.digest), FrameBuilder.canJoin(chunk.record)
        else {
          output.chunks.append(chunk)
          continue
        }
        let plain = chunk.plain ?? chunk.stored
        let full = try builder.add(
          item.digest, plain.span.bytes, features: chunk.record.features,
          alone: EncodedChunk(record: chunk.record, stored: chunk.stored))
        if let full { output.joined.append(full) }
      } catch {
        guard error.code == .corrupted else { throw error }
        output.failures.append((item.digest, error))
      }
    }
    if let last = try builder.end() { output.joined.append(last) }
    return output
  }

  private func append(_ group: JoinedChunks) throws(BlobStorageError) {
    let parts = try group.parts(
      by: target.codec, target.codecs, except: { target.writer.hasPendingChunk($0) })
    for part in parts {
      switch part {
      case .frame(let frame, let stored):
        storedByteCount += Int64(try target.writer.append(frame, payload: stored.span.bytes))
        chunkCount += frame.members.count
        newByteCount += Int64(frame.plainByteCount)
      case .chunk(let record, let stored): try append(StoredChunk(record: record, stored: stored))
      }
    }
  }

  private func append(_ chunk: StoredChunk) throws(BlobStorageError) {
    let added = try target.writer.append(.chunk(chunk.record), payload: chunk.stored.span.bytes)
    guard added > 0 else { return }
    chunkCount += 1
    newByteCount += Int64(chunk.record.plainByteCount)
    storedByteCount += Int64(added)
  }

  /// Makes the chunks that were copied readable in the target.
  func commit() throws(BlobStorageError) {
    _ = try target.writer.commit(on: []) { _ in }
    committedMark = target.writer.addedByteCount
  }
}
