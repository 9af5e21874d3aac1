/// Syncs the versions that stay before a commit drops or replaces others, and says which versions may still be lost.
package struct KeptVersions {
  let session: WriterSession

  package init(_ session: WriterSession) { self.session = session }

  /// Runs a commit that replaces and keeps the current versions of keys. Syncs the packs of these versions first, so
  /// that none of them has to be archived instead. A killed process, or one that still writes, may have left its pack
  /// unsynced.
  ///
  /// - Parameter commit: calls the function that it is given at the beginning of the commit.
  func keepingReplaced<T>(
    of keys: [[UInt8]],
    _ commit: (_ check: (borrowing Commit) throws(BlobStorageError) -> Void) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    // In a bucket they are asked for when the commit is published.
    guard session.backend.isDurableOnceSynced, !keys.isEmpty else { return try commit { _ in } }
    for _ in 0..<Self.syncCountMax {
      try syncPacks(of: keys) { (_, name, _) in name.current.map { [$0.row.place] } ?? [] }
      do throws(BlobStorageError) {
        return try commit { (commit) throws(BlobStorageError) in try commit.checkKept(keys) }
      } catch {
        // Another process has moved a version to a pack of its own, or put a new one.
        guard error.code == .needsSync else { throw error }
      }
    }
    return try commit { _ in }
  }

  private static let syncCountMax = 8

  /// Syncs the packs of versions that stay while others of their keys are dropped. Otherwise a power cut could take the
  /// version that stays, and leave the drop of the version before it.
  ///
  /// Passes over versions that may be lost all the same: see ``isUncertain(_:_:)``. The caller must not count them.
  ///
  /// - Parameter places: where the versions of a key lie that stay. The key has an index in `keys`.
  /// - Throws: `poisoned` if the sync of such a pack has failed that is open.
  package func securePacks(
    of keys: [[UInt8]],
    _ places: (_ index: Int, NameRow, ReadTransaction) throws(BlobStorageError) -> [Place]
  ) throws(BlobStorageError) {
    // In a bucket, versions that are not published do not count.
    guard session.backend.isDurableOnceSynced else { return }
    while let lost = try syncPacks(of: keys, places) {
      guard try session.isRecovered(lost) else { throw .unsynced(lost) }
    }
  }

  /// Runs a commit that drops all but the newest `count` versions of keys. Syncs the packs of those that stay first.
  ///
  /// - Parameter commit: throws `needsSync` if it is told to and one of these packs has to be synced.
  /// - Throws: `poisoned` if the sync of such a pack has failed that is open; nothing was changed.
  func keepingNewest<T>(
    _ count: Int, of keys: [[UInt8]],
    _ commit: (_ needsSync: Bool) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    guard session.backend.isDurableOnceSynced, count > 0 else { return try commit(false) }
    for _ in 0..<Self.syncCountMax {
      try securePacks(of: keys) { (_, name, view) throws(BlobStorageError) in
        guard name.versionCount > count else { return [] }
        return try view.versions(of: name).prefix(count).map(\.row.place)
      }
      do throws(BlobStorageError) { return try commit(true) } catch {
        // Another process has moved a version to a pack of its own, or put a new one.
        guard error.code == .needsSync else { throw error }
      }
    }
    return try commit(false)
  }

  /// Whether a version may still be lost, so that nothing is dropped beside it. In a folder, a power cut may take it
  /// until gc has stored it again, because the sync of its sealed pack has failed. In a bucket, another process has not
  /// published it, and may never.
  package func isUncertain(_ place: Place, _ view: ReadTransaction) throws(BlobStorageError) -> Bool {
    guard let pack = try view.packRow(place.pack) else { return !session.backend.isDurableOnceSynced }
    if session.backend.isDurableOnceSynced {
      guard pack.isSealed, pack.isPoisoned else { return false }
      return try !session.canRefer(to: place, view)
    }
    return !session.publisher.precedes(pack.name, session)
      && (pack.durableByteCount <= place.offset || pack.isLost)
  }

  /// - Returns: a pack whose sync has failed.
  @discardableResult
  private func syncPacks(
    of keys: [[UInt8]],
    _ places: (_ index: Int, NameRow, ReadTransaction) throws(BlobStorageError) -> [Place]
  ) throws(BlobStorageError) -> PackName? {
    let unsynced = try session.catalog.read { (view) throws(BlobStorageError) -> Set<PackName> in
      var names: Set<PackName> = []
      for (index, key) in keys.enumerated() {
        guard let name = try view.nameRow(key) else { continue }
        for place in try places(index, name, view) where try !session.canRefer(to: place, view) {
          // Until gc has stored such a version again, it does not count.
          guard let pack = try view.packRow(place.pack), try !isUncertain(place, view) else {
            continue
          }
          names.insert(pack.name)
        }
      }
      return names
    }
    return unsynced.isEmpty ? nil : try session.publisher.secure(unsynced, of: session)
  }

  /// Whether a pack that versions need is missing, was cut or is not published. In a bucket a change looks for all
  /// packs that it counts on.
  package func lacksPack(of versions: [VersionRow], _ blobs: BlobSource) throws(BlobStorageError) -> Bool {
    var numbers: Set<UInt32> = []
    var isWhole = true
    for version in versions where !version.digest.isUnknown {
      guard let layout = try blobs.layout(version.digest) else { continue }
      numbers.insert(version.place.pack)
      try LiveWalk(blobs).forEachRow(of: layout) { (_, row) in
        if let row { numbers.insert(row.place.pack) } else { isWhole = false }
      }
      let manifest = try session.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.manifestRow(version.digest)
      }
      if let manifest { numbers.insert(manifest.place.pack) }
    }
    if !isWhole { return true }
    let names = try session.catalog.read { (transaction) throws(BlobStorageError) -> Set<PackName> in
      var names: Set<PackName> = []
      for number in numbers {
        guard let row = try transaction.packRow(number), !session.publisher.precedes(row.name, session) else {
          continue
        }
        names.insert(row.name)
      }
      return names
    }
    return try session.publisher.secure(names, of: session) != nil
  }
}
