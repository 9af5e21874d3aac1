/// Stores chunks anew without their base, where the base is there for them alone and costs more than it saves.
///
/// After `keep` has dropped a long history, what is left of it would else be bases: the current version's chunks
/// encoded against chunks of the first one. Only adds chunks; what they replace is garbage for the collection that
/// follows, so that a crash in between loses nothing.
struct Rebasing {
  private struct Group {
    var base: ChunkRow
    var dependants: [(digest: Digest, row: ChunkRow)] = []
    /// What the base saves, summed over its dependants.
    var savedByteCount = 0
  }

  private(set) var reencodedChunkCount = 0
  /// Bytes of the records that were added.
  private(set) var addedByteCount: Int64 = 0

  private let engine: Engine
  private let isDryRun: Bool
  private var algorithm: Digest.Algorithm { engine.header.digestAlgorithm }

  init(_ engine: Engine, isDryRun: Bool) {
    self.engine = engine
    self.isDryRun = isDryRun
  }

  /// - Parameter marks: changed as if the chunks lay where they lie afterwards.
  mutating func run(_ marks: inout Marks) throws(BlobStorageError) {
    guard marks.baseCount > 0 else { return }
    let groups = try plan(marks)
    guard !groups.isEmpty else { return }
    let session = engine.newSession()
    for group in groups {
      try CancellationFlag.check()
      var encoded: [(digest: Digest, chunk: Engine.EncodedChunk, plain: [UInt8])] = []
      do throws(BlobStorageError) {
        for (digest, _) in group.dependants {
          let plain = try engine.chunks.bytes(digest)
          encoded.append((digest, try encodeAlone(digest, plain), plain))
        }
      } catch {
        // What cannot be read stays as it is; verify tells.
        guard error.code == .corrupted else { throw error }
        continue
      }
      for (_, row) in group.dependants { marks.remove(row, base: group.base) }
      marks.remove(group.base, base: nil)
      for (_, chunk, plain) in encoded { try append(chunk, plain, to: session) }
      reencodedChunkCount += encoded.count
    }
    guard !isDryRun else { return }
    try session.rollOver()
    for group in groups {
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        for (digest, _) in group.dependants {
          if let row = try transaction.chunkRow(digest) { _ = marks.insert(row, base: nil) }
        }
      }
    }
  }

  /// The bases that are live for their dependants alone, and save less than they take.
  private func plan(_ marks: Marks) throws(BlobStorageError) -> [Group] {
    var groups: [Digest: Group] = [:]
    var last: Digest?
    while true {
      try CancellationFlag.check()
      var pageCount = 0
      var end: Digest?
      try engine.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.forEachChunk(algorithm: algorithm, after: last) {
          (digest, row) throws(BlobStorageError) in
          end = digest
          pageCount += 1
          guard row.baseKind == .prefix, let base = row.base, marks.contains(row.place) else {
            return pageCount < 20_000
          }
          var group = groups[base]
          if group == nil, let baseRow = try transaction.chunkRow(base), marks.isOnlyBase(baseRow.place) {
            group = Group(base: baseRow)
          }
          if var found = group {
            found.dependants.append((digest, row))
            found.savedByteCount += row.expectedByteCount(like: found.base) - row.storedByteCount
            groups[base] = found
          }
          return pageCount < 20_000
        }
      }
      if pageCount < 20_000 { break }
      last = end
    }
    return groups.values.filter { $0.savedByteCount < $0.base.recordByteCount }
  }

  private func encodeAlone(_ digest: Digest, _ plain: [UInt8]) throws(BlobStorageError) -> Engine.EncodedChunk
  {
    try bridge(plain) { (raw) throws(BlobStorageError) in
      let search = BaseSearch(engine, engine.codec)
      return try search.alone(
        digest, raw, hint: .unknown, features: search.features(raw, hint: .unknown))
    }
  }

  private mutating func append(
    _ chunk: Engine.EncodedChunk, _ plain: [UInt8], to session: WriterSession
  ) throws(BlobStorageError) {
    let payload = chunk.stored ?? plain
    let metaByteCount = chunk.record.encodedMeta().count
    addedByteCount += Int64(
      RecordHeader.byteCount + metaByteCount + payload.count + (payload.isEmpty ? 0 : 4))
    guard !isDryRun else { return }
    try bridge(payload) { (raw) throws(BlobStorageError) in
      _ = try session.append(.chunk(chunk.record), payload: raw)
    }
  }
}
