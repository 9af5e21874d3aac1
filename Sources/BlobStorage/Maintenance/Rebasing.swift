/// Stores chunks again without their base, if the base is live only for them and costs more than it saves.
///
/// After `keep` has dropped a long history, many bases would stay: chunks of the first version that the current
/// version's chunks are encoded against. Rebasing only adds chunks. What they replace is garbage for the collection
/// that follows, so a crash before that loses nothing.
struct Rebasing {
  private struct Group {
    let base: ChunkRow
    private(set) var dependants: [(digest: BlobDigest, row: ChunkRow)] = []
    /// Bytes that the base saves, summed over its dependants.
    private(set) var savedByteCount = 0

    init(base: ChunkRow) { self.base = base }

    mutating func add(_ digest: BlobDigest, _ row: ChunkRow) {
      dependants.append((digest, row))
      savedByteCount += row.expectedByteCount(like: base) - row.storedByteCount
    }
  }

  let engine: Engine
  let isDryRun: Bool

  /// - Parameter marks: changed as if the chunks already had their new places.
  /// - Returns: the chunks that were stored again, and the bytes of their records.
  func run(_ marks: inout Marks) throws(BlobStorageError) -> (chunkCount: Int, byteCount: Int64) {
    var (chunkCount, byteCount) = (0, Int64(0))
    let groups = try marks.baseCount > 0 ? plan(marks) : []
    guard !groups.isEmpty else { return (0, 0) }
    let session = engine.newSession()
    groups: for group in groups {
      for (digest, row) in group.dependants {
        try CancellationFlag.check()
        // An unreadable chunk keeps its base; verify reports it.
        guard let plain = try unlessCorrupted(try engine.chunks.bytes(digest)) else { continue groups }
        let chunk = try engine.planner.encodeAlone(digest, plain.span.bytes)
        byteCount += Int64(chunk.recordByteCount)
        chunkCount += 1
        marks.remove(row)
        if isDryRun { continue }
        let payload = chunk.stored ?? plain
        try session.append(.chunk(chunk.record), payload: payload.span.bytes)
      }
      marks.remove(group.base)
    }
    guard !isDryRun else { return (chunkCount, byteCount) }
    try session.rollOver()
    for group in groups {
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        for (digest, _) in group.dependants {
          if let row = try transaction.chunkRow(digest) { _ = marks.insert(row) }
        }
      }
    }
    return (chunkCount, byteCount)
  }

  /// Finds the bases that are live only for their dependants, and save less than they take.
  private func plan(_ marks: Marks) throws(BlobStorageError) -> [Group] {
    var groups: [BlobDigest: Group] = [:]
    try engine.catalog.forEachChunk { (digest, row, transaction) throws(BlobStorageError) in
      guard let base = row.base, marks.contains(row.place) else { return true }
      if groups[base] == nil, let baseRow = try transaction.chunkRow(base), marks.isOnlyBase(baseRow.place) {
        groups[base] = Group(base: baseRow)
      }
      groups[base]?.add(digest, row)
      return true
    }
    return groups.values.filter { $0.savedByteCount < $0.base.recordByteCount }
  }
}
