import SystemPackage

/// Packs in the store's own folder.
package struct LocalFolder: PackLocation {
  package init() {}

  package func prepare(_ folder: StoreFolder) {}

  package func open(_ setting: StoreSetting) throws(BlobStorageError) -> OpenedPacks {
    let folder = setting.folder
    guard !setting.header.flags.contains(.stateOnly) else {
      throw BlobStorageError(
        .notAStore, "\(folder.path) is the state folder of a store in a bucket: open that store.",
        path: folder.path.string)
    }
    let backend = FolderBackend(
      folder: folder.packs, asideFolder: folder.aside, files: folder.files,
      weaknesses: setting.environment.weaknesses, census: folder.census)
    try backend.removeLeftovers()
    return OpenedPacks(backend: backend) { parts in LocalSharing(parts: parts) }
  }
}

/// Sharing for a store in a folder: all processes of the machine see the same packs, and the census knows each pack.
package struct LocalSharing: Sharing {
  let parts: StoreParts

  package var path: String { parts.setting.folder.path.string }
  package var collectingMachine: String? { nil }
  package var collectsBesideCommits: Bool { true }
  package var keepsDamagedPacks: Bool { false }
  package func requireOwnPacks(_ refusal: @autoclosure () -> String) {}
  package var fencing: BlobStorageError? { nil }
  package func begin(_ engine: Engine) {}
  package func close() {}
  package func publisher(of writer: UInt64, leases: LeaseFile?) -> any PackPublisher { LocalPublisher() }

  package func synchronize(_ session: WriterSession) throws(BlobStorageError) {
    if let watermark = try session.commit(on: [], { _ in }).watermark { try session.synchronize(watermark) }
  }

  package func synchronizeFound(
    _ session: WriterSession, exceptFailed known: Set<PackName>
  ) throws(BlobStorageError) {
    try session.synchronizeOpenPacks(exceptFailed: known)
  }

  package func keptLossCount(of session: WriterSession) -> Int { 0 }
  package func checkKept(of session: WriterSession, since lossCount: Int) {}
  package func extend() -> ExtensionReport { ExtensionReport() }
  package func extendForMissing() -> Bool { false }
  package func completeCatalog() -> Bool { false }

  package func resolveGone(_ pack: PackName, _ reason: String) throws(BlobStorageError) {
    // The pack was renamed, and the next snapshot shows that. Only a private catalog must be rebuilt.
    try parts.catalog.renewOwn()
    // A collection removes the file of a pack whose row says so. A private catalog may lag behind.
    guard let row = try parts.catalog.packRow(pack), row.state != .retired,
      try parts.backend.openPack(pack).map({ $0.close() }) == nil
    else { return }
    throw BlobStorageError(.corrupted, reason, pack: "\(pack)")
  }

  package func losses() throws(BlobStorageError) -> KnownLosses {
    try parts.builder.compareCensus(with: parts.catalog)
  }

  package func acceptLosses(_ engine: Engine, replaced: Set<PackName>) throws(BlobStorageError) {
    let losses = try losses()
    guard !losses.isEmpty else {
      // The sync of an earlier acceptance may have failed.
      return try parts.backend.census.append(try parts.backend.census.read().acceptances, durably: true)
    }
    let unreadable = Set(try parts.backend.census.read().unreadablePacks)
    try parts.backend.census.append(
      losses.lostPacks.map { .setAside($0) }
        + losses.damagedPacks.filter { unreadable.contains($0) }.map { .accepted($0) }, durably: true)
    if !losses.lostPacks.isEmpty { try parts.catalog.rebuild(because: nil) }
  }

  package func restoreLog() {}

  package func missingPacks(_ rows: [PackRow]) throws(BlobStorageError) -> Set<PackName> {
    Set(try losses().lostPacks)
  }

  package func distrust(_ pack: UInt32, except whole: Set<Int64>) -> Set<BlobDigest>? { nil }
  package func readAnew(_ pack: PackName) -> Bool { true }
}

/// Publisher for a store in a folder: a pack is durable once its session has synced it.
package struct LocalPublisher: PackPublisher {
  package func join(_ session: WriterSession) {}
  package func admit(_ session: WriterSession) {}

  package func joinStream(_ session: WriterSession, _ leases: LeaseFile) -> UInt64? { nil }

  package func seal(_ writer: PackWriter, of session: WriterSession) throws(BlobStorageError) -> Int64 {
    try session.makeWhole(writer)
  }

  package func giveUp(_ writer: PackWriter, _ cause: BlobStorageError, of session: WriterSession) -> Int64 {
    writer.writtenByteCount
  }

  package func precedes(_ pack: PackName, _ session: WriterSession) -> Bool { false }
  package func keeps(
    _ place: Place, _ transaction: ReadTransaction, _ session: WriterSession, isChecked: Bool
  ) -> Bool { true }

  package func isThere(_ pack: PackRow) -> Bool { true }

  package func secure(
    _ packs: Set<PackName>, of session: WriterSession
  ) throws(BlobStorageError) -> PackName? {
    var lost: PackName?
    for name in packs where try !session.synchronizeOther(name) { lost = name }
    return lost
  }

  package func publish(
    _ watermark: WriterSession.Watermark, of session: WriterSession
  ) throws(BlobStorageError) { try session.synchronizeShared(watermark) }

  package func publishSealed(of session: WriterSession) {}
  package func close(_ session: WriterSession) throws(BlobStorageError) {
    do throws(BlobStorageError) { try session.rollOver() } catch {
      try session.closePublished(because: error)
    }
  }
}
