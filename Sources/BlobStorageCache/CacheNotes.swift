import BlobStorage

/// What this process has observed of a cache's keys and not written to the catalog yet.
///
/// The notes are only advice (Caching.md, invariant 4), so they may be written late, and a crash may lose them. A put
/// of a cache is therefore a commit like any other.
struct CacheNotes {
  enum Note {
    case used
    case put(key: [UInt8])
    case dropped
  }

  /// The last note of each key, with its ordinal among these notes.
  private(set) var keys: [CachedKeyRow.ID: (note: Note, ordinal: Int)] = [:]
  /// How many puts were noted: each may add a row.
  private(set) var putCount = 0
  /// For each blob, the versions put minus the versions dropped or replaced.
  private(set) var versionChanges: [BlobDigest: Int] = [:]
  /// Blobs that were stored anew: nothing of them was garbage before.
  private(set) var newBlobs: Set<BlobDigest> = []
  /// Bytes of refs that were dropped or replaced.
  private(set) var refGarbage: [PackName: Int64] = [:]
  /// The time of the oldest note.
  private(set) var since: ContinuousClock.Instant?
  private var ordinal = 0

  var isEmpty: Bool { keys.isEmpty }

  mutating func use(_ id: CachedKeyRow.ID) { add(.used, id) }

  /// Notes that a key has a version that may lack a row.
  mutating func put(_ key: [UInt8]) { add(.put(key: key), CachedKeyRow.id(of: key)) }

  mutating func drop(_ id: CachedKeyRow.ID) { add(.dropped, id) }

  /// Notes a version that was just put.
  mutating func addVersion(of digest: BlobDigest, isNew: Bool) {
    versionChanges[digest, default: 0] += 1
    if isNew { newBlobs.insert(digest) }
  }

  /// Notes that a version is about to be dropped.
  mutating func removeVersion(
    _ row: VersionRow, _ transaction: ReadTransaction
  ) throws(BlobStorageError) {
    versionChanges[row.digest, default: 0] -= 1
    guard let pack = try transaction.packRow(row.place.pack)?.name else { return }
    refGarbage[pack, default: 0] += Int64(row.recordByteCount)
  }

  /// Adds later notes.
  mutating func append(_ later: CacheNotes) {
    for (id, entry) in later.keys.sorted(by: { $0.value.ordinal < $1.value.ordinal }) { add(entry.note, id) }
    versionChanges.merge(later.versionChanges) { $0 + $1 }
    newBlobs.formUnion(later.newBlobs)
    refGarbage.merge(later.refGarbage) { $0 + $1 }
  }

  private mutating func add(_ note: Note, _ id: CachedKeyRow.ID) {
    ordinal += 1
    if since == nil { since = .now }
    switch note {
    case .used where keys[id] != nil: keys[id]?.ordinal = ordinal
    case .put:
      putCount += 1
      keys[id] = (note, ordinal)
    default: keys[id] = (note, ordinal)
    }
  }

  /// Whether these changes made a blob garbage (true), or needed again (false).
  ///
  /// - Returns: nil if neither.
  func becomesGarbage(_ digest: BlobDigest, versionCount count: Int) -> Bool? {
    let wasNeeded = count - (versionChanges[digest] ?? 0) > 0
    let wasGarbage = !wasNeeded && !newBlobs.contains(digest)
    let isGarbage = count == 0
    return isGarbage == wasGarbage ? nil : isGarbage
  }
}

extension CacheNotes {
  /// Writes the notes. Dropping a key frees what no other version needs. A blob of one chunk is freed with its last
  /// version. The chunks of a longer blob count as its own, unless they are blobs themselves. The collection of the
  /// pack finds the chunks that other long blobs share, and keeps them.
  ///
  /// - Parameter long: the chunks of longer blobs.
  func write(
    long: [BlobDigest: Set<BlobDigest>], to transaction: WriteTransaction
  ) throws(BlobStorageError) {
    for (id, (note, _)) in keys.sorted(by: { $0.value.ordinal < $1.value.ordinal }) {
      switch note {
      case .used:
        guard var row = try transaction.cachedKey(id) else { continue }
        row.tick = try transaction.nextCacheTick()
        try transaction.setCachedKey(id, row)
      case .put(let key):
        guard let current = try transaction.currentVersion(ofKey: key) else { continue }
        try transaction.setCachedKey(key, current.row, tick: try transaction.nextCacheTick())
      case .dropped:
        // Another process may have put the key since.
        guard let row = try transaction.cachedKey(id),
          try transaction.nameRow(row.key)?.versionCount ?? 0 == 0
        else { continue }
        try transaction.setCachedKey(id, nil)
      }
    }
    for (name, byteCount) in refGarbage {
      if let number = try transaction.packNumber(name) { try transaction.addGarbage(number, byteCount) }
    }
    for digest in versionChanges.keys {
      let count = try transaction.versionCount(of: digest)
      guard let isGarbage = becomesGarbage(digest, versionCount: count) else { continue }
      for (pack, byteCount) in try transaction.places(of: digest, chunks: long[digest]) {
        try transaction.addGarbage(pack, isGarbage ? byteCount : -byteCount)
      }
    }
  }
}

extension ReadTransaction {
  /// The packs of the records that only this blob needs, with the records' lengths.
  ///
  /// - Parameter chunks: the chunks of a blob that has a manifest.
  func places(
    of digest: BlobDigest, chunks: Set<BlobDigest>?
  ) throws(BlobStorageError) -> [(pack: UInt32, byteCount: Int64)] {
    if let row = try chunkRow(digest) { return [(row.place.pack, Int64(row.recordByteCount))] }
    guard let row = try manifestRow(digest) else { return [] }
    var places = [(row.place.pack, Int64(row.recordByteCount))]
    for chunk in chunks ?? [] where try versionCount(of: chunk) == 0 {
      if let row = try chunkRow(chunk) { places.append((row.place.pack, Int64(row.recordByteCount))) }
    }
    return places
  }
}
