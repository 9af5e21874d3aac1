/// What the versions of a commit refer to, and what has to be done before it may.
///
/// - A ref's pack has to be on the medium. Then so is what lies before the ref, and what it refers to elsewhere (H1).
/// - While gc is about to remove packs, it reads all keys once more. A version that changes to a key that gc has passed
///   is seen under neither. So while packs are condemned, nothing that it needs may lie in one (H2). In a bucket this
///   holds for versions of the same key, too: another machine may have dropped the old one, and gc does not see the new
///   one before it is published.
struct FoundBlobs {
  let checksCondemned: Bool
  /// Packs to sync first.
  private(set) var unsynced: Set<PackName> = []
  /// Blobs whose chunks have to be known first.
  private(set) var unknown: Set<BlobDigest> = []
  /// Why the commit may not refer to a blob before gc has finished.
  private(set) var refusal: BlobStorageError?
  private var synced: Set<PackName> = []
  private var needed: [BlobDigest: (chunks: Set<BlobDigest>, hasManifest: Bool)] = [:]

  init(checksCondemned: Bool) { self.checksCondemned = checksCondemned }

  var isComplete: Bool { unsynced.isEmpty && unknown.isEmpty && refusal == nil }

  mutating func begin() {
    synced.formUnion(unsynced)
    (unsynced, unknown, refusal) = ([], [], nil)
  }

  mutating func add(_ digest: BlobDigest, _ chunks: Set<BlobDigest>, hasManifest: Bool) {
    needed[digest] = (chunks, hasManifest)
  }

  /// Whether the commit may refer to the blobs of these versions; else records what has to be done first.
  ///
  /// - Throws: `corrupted` if it is not known which blob a version has.
  mutating func mayReferTo(
    _ rows: [VersionRow], _ commit: borrowing Commit
  ) throws(BlobStorageError) -> Bool {
    // The commit may have been tried before.
    (unsynced, unknown, refusal) = ([], [], nil)
    let view = commit.transaction
    let backend = commit.session.backend
    let isCollecting = checksCondemned ? try Self.isCollecting(view, backend) : false
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
      guard let (chunks, hasManifest) = needed[row.digest] else {
        unknown.insert(row.digest)
        continue
      }
      guard try Self.stays(row.digest, chunks, hasManifest: hasManifest, view, backend) else {
        refusal = BlobStorageError(
          .busy, "gc is moving what the version needs: try again when it has finished.", digest: row.digest)
        return false
      }
    }
    return isComplete
  }

  /// Whether the view has packs on which nothing new may rely.
  ///
  /// - Parameter countsLost: whether lost packs, which no collector removes, count too.
  static func isCollecting(
    _ view: ReadTransaction, _ backend: any Backend, countsLost: Bool = true
  ) throws(BlobStorageError) -> Bool {
    if try backend.countsOnAll(settledLog: view.meta(.settledLog)) { return false }
    // A process that knows less of collections than the backend may have extended the catalog since.
    return try view.packRows().contains { (_, row) in
      (countsLost || !row.isLost) && (row.state != .live || !backend.isCountedOn(row.name))
    }
  }

  /// Whether no collector is about to remove what a blob needs.
  static func stays(
    _ blob: BlobDigest, _ chunks: Set<BlobDigest>, hasManifest: Bool, _ view: ReadTransaction,
    _ backend: any Backend
  ) throws(BlobStorageError) -> Bool {
    var packs: Set<UInt32> = []
    if hasManifest {
      guard let row = try view.manifestToShare(blob) else { return false }
      packs.insert(row.place.pack)
    }
    for chunk in chunks {
      guard let row = try view.chunkToShare(chunk) else { return false }
      packs.insert(row.place.pack)
      if let base = row.base, let baseRow = try view.chunkRow(base) { packs.insert(baseRow.place.pack) }
    }
    for pack in packs {
      guard let row = try view.packRow(pack), backend.isCountedOn(row.name) else { return false }
    }
    return true
  }
}
