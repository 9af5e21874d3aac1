/// Changes of versions that store no bytes: new versions refer to blobs that are there.
///
/// As long as a version is there, so is all that it needs, and the commit that reads it publishes the new one before any
/// other commit can drop it. A version of another key needs more, because gc may have passed that key already: see
/// ``FoundBlobs``.
extension Engine {
  /// Makes a version of one key the current version of that key or another, with its metadata; nil if it is not there.
  ///
  /// - Parameter id: nil for the current version.
  package func putVersion(
    _ id: BlobVersion.ID?, of source: String, as target: String, _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    try putVersion(id, of: try Self.keyBytes(source), as: try Self.keyBytes(target), options)
  }

  /// The same for keys in bytes, such as internal ones.
  package func putVersion(
    _ id: BlobVersion.ID?, of from: [UInt8], as to: [UInt8], _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    try checkOpen()
    try check(options.condition, on: to)
    return try commitVersions(on: [from, to], options.durability) {
      (commit, found) throws(BlobStorageError) in
      guard let name = try commit.transaction.nameRow(from) else { return nil }
      let row =
        if let id { try commit.transaction.versionRow(of: name, id.stamp) } else { name.current?.row }
      guard let row, try found.mayReferTo([row], commit) else { return nil }
      var ref = RefOptions(options)
      ref.metadata = row.metadata
      let (version, byteCount) = try commit.appendRef(to, row.digest, row.byteCount, ref)
      return PutResult(version: version, newByteCount: 0, storedByteCount: Int64(byteCount))
    }
  }

  /// Puts a blob that is there under a key; nil if it is not there.
  ///
  /// No version may need the blob, and gc may be about to remove it. So the bytes are put like any others, which finds
  /// that they are there. The blob is held meanwhile.
  package func link(
    _ key: String, to digest: BlobDigest, _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    try check(options.condition, on: try Self.keyBytes(key))
    guard let blob = try openBlob(digest) else { return nil }
    defer { blob.close() }
    return try put(key, Self.content(of: blob), options)
  }

  /// Gives all versions of a key to one that does not exist; false if there is no such key.
  package func rename(
    _ source: String, to target: String, _ durability: Durability
  ) throws(BlobStorageError) -> Bool {
    let (from, to) = (try Self.keyBytes(source), try Self.keyBytes(target))
    guard from != to else {
      throw BlobStorageError(.invalidArgument, "The key “\(source)” has that name already.", key: source)
    }
    return try rename(from, to: to, durability)
  }

  /// The same for keys in bytes, such as internal ones.
  package func rename(
    _ from: [UInt8], to: [UInt8], _ durability: Durability
  ) throws(BlobStorageError) -> Bool {
    try checkOpen()
    try checkHolds(on: [from])
    try check(.absent, on: to)
    var ref = RefOptions(PutOptions(replacement: .archiveCurrent, condition: .absent))
    return try commitVersions(on: [from, to], durability) {
      (commit, found) throws(BlobStorageError) in
      guard let name = try commit.transaction.nameRow(from), name.versionCount > 0 else { return nil }
      let versions = try commit.transaction.versions(of: name)
      guard try found.mayReferTo(versions.map(\.row), commit) else { return nil }
      for version in versions.reversed() {
        ref.metadata = version.row.metadata
        _ = try commit.appendRef(
          to, version.row.digest, version.row.byteCount, ref, created: version.row.created)
        // The next one is put behind it.
        ref.condition = .always
      }
      _ = try commit.dropVersions(of: from, keeping: 0)
      return true
    } ?? false
  }

  /// Drops one version of a key; false if it is not there.
  package func delete(
    version id: BlobVersion.ID, of key: String, _ durability: Durability
  ) throws(BlobStorageError) -> Bool {
    try checkOpen()
    let key = try Self.keyBytes(key)
    try checkHolds(on: [key])
    // A caller that drops wants to free room, so dropping must not need room.
    let isDropped = try folder.withReserve { () throws(BlobStorageError) in
      try commitVersions(on: [key], durability) { (commit, _) throws(BlobStorageError) -> Bool? in
        guard let name = try commit.transaction.nameRow(key),
          try commit.transaction.versionRow(of: name, id.stamp) != nil
        else { return nil }
        try commit.drop([id.stamp], of: key)
        return true
      }
    }
    // Another change has dropped it, and may not have made that durable.
    if isDropped == nil, durability == .durable { try sharing.synchronizeFound(writer) }
    return isDropped ?? false
  }

  /// Commits what `body` appends. While `body` finds that it may not refer to something yet, and returns nil, does what
  /// is missing and calls it again.
  private func commitVersions<T>(
    on keys: [[UInt8]], _ durability: Durability,
    _ body: (inout WriterSession.Commit, inout FoundBlobs) throws(BlobStorageError) -> T?
  ) throws(BlobStorageError) -> T? {
    var found = FoundBlobs(checksCondemned: sharing.collectsBesideCommits && keys.first != keys.last)
    for _ in 0..<8 {
      found.begin()
      let (result, watermark) = try writer.commit(on: keys) { (commit) throws(BlobStorageError) in
        commit.isPromised = durability == .durable
        return try body(&commit, &found)
      }
      if found.isComplete {
        if result != nil { try makeDurable(durability, watermark) }
        return result
      }
      if let lost = try writer.publisher.secure(found.unsynced, of: writer) {
        throw BlobStorageError(
          .io, "Pack \(lost), which the version is in, cannot be made durable: run verify.", pack: "\(lost)")
      }
      for digest in found.unknown { found.add(digest, try chunks(of: digest)) }
    }
    throw BlobStorageError(.busy, "Other processes change the key again and again: try again.")
  }

  /// The chunks of a blob, its lists included.
  private func chunks(of digest: BlobDigest) throws(BlobStorageError) -> [BlobDigest] {
    guard let layout = try blobs.layout(digest) else { throw Self.missing(digest) }
    var digests = layout.listDigests
    try layout.forEachChunk(in: 0..<layout.byteCount, from: chunks) { chunk in
      digests.append(chunk.entry.digest)
      return true
    }
    return digests
  }
}

/// What the versions of a commit refer to, and what has to be done before it may.
///
/// - A ref's pack has to be on the medium. Then so is what lies before the ref, and what it refers to elsewhere (H1).
/// - While gc is about to remove packs, it reads all keys once more. A version that changes to a key that gc has passed is
///   seen under neither. So while packs are condemned, nothing that it needs may lie in one (H2). In a bucket the
///   collector reads a catalog that stands still.
private struct FoundBlobs {
  let checksCondemned: Bool
  /// Packs to sync first.
  private(set) var unsynced: Set<PackName> = []
  /// Blobs whose chunks have to be known first.
  private(set) var unknown: Set<BlobDigest> = []
  private var synced: Set<PackName> = []
  private var chunks: [BlobDigest: [BlobDigest]] = [:]

  init(checksCondemned: Bool) { self.checksCondemned = checksCondemned }

  var isComplete: Bool { unsynced.isEmpty && unknown.isEmpty }

  mutating func begin() {
    synced.formUnion(unsynced)
    (unsynced, unknown) = ([], [])
  }

  mutating func add(_ digest: BlobDigest, _ chunks: [BlobDigest]) { self.chunks[digest] = chunks }

  /// Whether the commit may refer to the blobs of these versions; else notes what has to be done first.
  ///
  /// - Throws: `busy` if gc is moving one of them, `corrupted` if it is not known which blob a version has.
  mutating func mayReferTo(
    _ rows: [VersionRow], _ commit: borrowing WriterSession.Commit
  ) throws(BlobStorageError) -> Bool {
    // The commit may have been tried before.
    (unsynced, unknown) = ([], [])
    let view = commit.transaction
    let isCollecting = checksCondemned ? try view.packRows().contains { $0.row.state != .live } : false
    for row in rows {
      guard !row.digest.isUnknown else {
        throw BlobStorageError(.corrupted, "A version's blob cannot be found any more: run verify.")
      }
      if try !commit.canRefer(to: row.place), let pack = try view.packRow(row.place.pack) {
        // In a bucket a condemned pack is not counted on, but its live records are copied before it goes.
        let stays = synced.contains(pack.name) ? try commit.stays(at: row.place) : false
        if !stays { unsynced.insert(pack.name) }
      }
      guard isCollecting else { continue }
      guard let digests = chunks[row.digest] else {
        unknown.insert(row.digest)
        continue
      }
      var isThere = digests.count == 1 ? true : try view.manifestToShare(row.digest) != nil
      for digest in digests where isThere { isThere = try view.chunkToShare(digest) != nil }
      guard isThere else {
        throw BlobStorageError(
          .busy, "gc is moving what the version needs: try again when it has finished.", digest: row.digest)
      }
    }
    return isComplete
  }
}
