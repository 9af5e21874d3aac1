/// Changes of versions that store no bytes: new versions refer to blobs that are there.
///
/// They need no lease. As long as a version is there, so is all that it needs, and the commit that reads it publishes the
/// new one before any other commit can drop it.
extension Engine {
  /// Makes a version of one key the current version of that key or another, with its metadata; nil if it is not there.
  ///
  /// - Parameter id: nil for the current version.
  package func putVersion(
    _ id: BlobVersion.ID?, of source: String, as target: String, _ options: PutOptions
  ) throws(BlobStorageError) -> PutResult? {
    try checkOpen()
    let (from, to) = (try Self.keyBytes(source), try Self.keyBytes(target))
    try check(options.condition, on: to)
    return try commitVersions(on: [from, to], options.durability) {
      (commit, unsynced) throws(BlobStorageError) in
      guard let name = try commit.transaction.nameRow(from) else { return nil }
      let row = try id.map { (id) throws(BlobStorageError) in
        try commit.transaction.versionRow(of: name, id.stamp)
      }
      guard let row = id == nil ? name.current?.row : row ?? nil else { return nil }
      guard try commit.mayReferToBlob(of: row, &unsynced) else { return nil }
      var ref = RefOptions(options)
      ref.metadata = row.metadata
      let (version, byteCount) = try commit.appendRef(to, row.digest, row.byteCount, ref)
      return PutResult(version: version, newByteCount: 0, storedByteCount: Int64(byteCount))
    }
  }

  /// Gives all versions of a key to one that does not exist; false if there is no such key.
  package func rename(
    _ source: String, to target: String, _ durability: Durability
  ) throws(BlobStorageError) -> Bool {
    try checkOpen()
    let (from, to) = (try Self.keyBytes(source), try Self.keyBytes(target))
    guard from != to else {
      throw BlobStorageError(.invalidArgument, "The key “\(source)” has that name already.", key: source)
    }
    try check(.absent, on: to)
    var ref = RefOptions(PutOptions(replacement: .archiveCurrent, condition: .absent))
    return try commitVersions(on: [from, to], durability) {
      (commit, unsynced) throws(BlobStorageError) in
      guard let name = try commit.transaction.nameRow(from), name.versionCount > 0 else { return nil }
      let versions = try commit.transaction.versions(of: name)
      for version in versions { _ = try commit.mayReferToBlob(of: version.row, &unsynced) }
      guard unsynced.isEmpty else { return nil }
      for version in versions.reversed() {
        ref.metadata = version.row.metadata
        _ = try commit.appendRef(
          to, version.row.digest, version.row.byteCount, ref, created: version.row.created)
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
    // A caller that drops wants to free room, so dropping must not need room.
    return try folder.withReserve { () throws(BlobStorageError) in
      try commitVersions(on: [key], durability) { (commit, _) throws(BlobStorageError) in
        guard let name = try commit.transaction.nameRow(key),
          try commit.transaction.versionRow(of: name, id.stamp) != nil
        else { return nil }
        try commit.drop([id.stamp], of: key)
        return true
      }
    } ?? false
  }

  /// Commits what `body` appends, once the packs are on the medium that it finds not to be: then it returns nil.
  private func commitVersions<T>(
    on keys: [[UInt8]], _ durability: Durability,
    _ body: (inout WriterSession.Commit, inout Set<PackName>) throws(BlobStorageError) -> T?
  ) throws(BlobStorageError) -> T? {
    for _ in 0..<8 {
      var unsynced: Set<PackName> = []
      let (result, watermark) = try writer.commit(on: keys) { (commit) throws(BlobStorageError) in
        unsynced = []
        commit.isPromised = durability == .durable
        return try body(&commit, &unsynced)
      }
      guard !unsynced.isEmpty else {
        if result != nil { try makeDurable(durability, watermark) }
        return result
      }
      _ = try writer.publisher.secure(unsynced, of: writer)
    }
    throw BlobStorageError(
      .busy, "A version is not on the medium yet, because another process is writing it: try again.")
  }
}

extension WriterSession.Commit {
  /// Whether the commit may refer to what a visible version refers to. If not yet, adds the pack to sync first.
  ///
  /// What lies before a ref, and what it refers to elsewhere, is on the medium if the ref is (H1).
  ///
  /// - Throws: `corrupted` if it is not known which blob that is.
  fileprivate func mayReferToBlob(
    of row: VersionRow, _ unsynced: inout Set<PackName>
  ) throws(BlobStorageError) -> Bool {
    guard !row.digest.isUnknown else {
      throw BlobStorageError(.corrupted, "A version's blob cannot be found any more: run verify.")
    }
    if try canRefer(to: row.place) { return true }
    if let pack = try transaction.packRow(row.place.pack) { unsynced.insert(pack.name) }
    return false
  }
}
