/// Drops keys of a cache inside one commit, and counts for each pack what becomes garbage by it.
///
/// What dropping a key frees is what no other version needs. A blob of one chunk is freed with the last version of it.
/// The chunks of a longer blob are taken to be its own unless they are blobs themselves: what other long blobs share
/// is found out when the pack is taken away, and stays.
struct CacheDropping {
  private let engine: Engine
  /// The chunks of longer blobs, looked up before the commit.
  private let long: [Digest: [Digest]]
  /// Versions of a digest that this commit drops: the catalog counts them until it ends.
  private var dropped: [Digest: Int] = [:]
  private(set) var droppedKeyCount = 0

  init(_ engine: Engine, long: [Digest: [Digest]]) {
    self.engine = engine
    self.long = long
  }

  /// Drops all versions of a key.
  mutating func drop(
    _ key: [UInt8], _ id: CachedKeyRow.ID, _ commit: inout WriterSession.Commit,
    _ transaction: WriteTransaction
  ) throws(BlobStorageError) {
    try transaction.setCachedKey(id, nil)
    guard let name = try transaction.nameRow(key), name.versionCount > 0 else { return }
    let versions = try transaction.versions(key: name.key)
    for version in versions { try account(key, version.row, transaction) }
    try commit.drop(versions.map(\.stamp), of: key)
    droppedKeyCount += 1
  }

  /// Counts what a version frees that is about to go.
  mutating func account(
    _ key: [UInt8], _ row: VersionRow, _ transaction: WriteTransaction
  ) throws(BlobStorageError) {
    try transaction.addGarbage(
      row.place.pack,
      Int64(RefRecord.recordByteCount(keyByteCount: key.count, metadataByteCount: row.metadata.count)))
    dropped[row.digest, default: 0] += 1
    guard try transaction.versionCount(of: row.digest) == dropped[row.digest] else { return }
    for (pack, byteCount) in try transaction.places(of: row.digest, chunks: long[row.digest]) {
      try transaction.addGarbage(pack, byteCount)
    }
  }

  /// Takes it back for a blob that is needed again before it was collected.
  mutating func reuse(_ digest: Digest, _ transaction: WriteTransaction) throws(BlobStorageError) {
    let count = dropped[digest] ?? 0
    guard try transaction.versionCount(of: digest) == count else {
      dropped[digest] = count - 1
      return
    }
    for (pack, byteCount) in try transaction.places(of: digest, chunks: long[digest]) {
      try transaction.addGarbage(pack, -byteCount)
    }
    dropped[digest] = count - 1
  }
}

extension ReadTransaction {
  /// Where the records lie that only this blob needs, with their lengths.
  ///
  /// - Parameter chunks: those of a blob that has a manifest.
  func places(
    of digest: Digest, chunks: [Digest]?
  ) throws(BlobStorageError) -> [(pack: UInt32, byteCount: Int64)] {
    if let row = try chunkRow(digest) { return [(row.place.pack, Int64(row.recordByteCount))] }
    guard let row = try manifestRow(digest) else { return [] }
    var places = [(row.place.pack, Int64(row.recordByteCount))]
    for chunk in Set(chunks ?? []) where try versionCount(of: chunk) == 0 {
      if let row = try chunkRow(chunk) { places.append((row.place.pack, Int64(row.recordByteCount))) }
    }
    return places
  }
}

extension CacheCore {
  /// The chunks of the blobs of these keys that have more than one.
  func longBlobs(_ keys: [[UInt8]]) throws(BlobStorageError) -> [Digest: [Digest]] {
    return try longBlobs(
      engine.catalog.read { (transaction) throws(BlobStorageError) in
        var digests: [Digest] = []
        for key in keys {
          guard let name = try transaction.nameRow(key) else { continue }
          digests += try transaction.versions(key: name.key).map(\.row.digest)
        }
        return digests
      })
  }

  /// The chunks of those of the blobs that have more than one.
  func longBlobs(_ digests: some Sequence<Digest>) throws(BlobStorageError) -> [Digest: [Digest]] {
    let long = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var long: Set<Digest> = []
      for digest in digests where try transaction.chunkRow(digest) == nil { long.insert(digest) }
      return long
    }
    let walk = LiveWalk(engine.blobs)
    var chunks: [Digest: [Digest]] = [:]
    for digest in long {
      // A damaged value can be dropped like any other; what it frees is found out later.
      _ = try walk.outcome(of: digest) { (layout) throws(BlobStorageError) in
        var found: [Digest] = []
        try walk.forEachPart(of: layout) { part in
          found.append(part.digest)
          return true
        }
        chunks[digest] = found
      }
    }
    return chunks
  }
}
