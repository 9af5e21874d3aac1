import SystemPackage

/// Packs in the store's own folder.
package struct LocalFolder: PackLocation {
  package init() {}

  package func prepare(_ folder: StoreFolder) {}

  package func open(_ setting: StoreSetting) throws(BlobStorageError) -> OpenedPacks {
    let folder = setting.folder
    guard !setting.header.flags.contains(.stateOnly) else {
      throw BlobStorageError(
        .notAStore, "\(folder.path) is the state folder of a store elsewhere: open that store.",
        path: folder.path.string)
    }
    let backend = FolderBackend(
      folder: folder.packs, asideFolder: folder.aside, files: folder.files,
      weaknesses: setting.environment.weaknesses, census: folder.census)
    try backend.removeLeftovers()
    return OpenedPacks(backend: backend) { parts in LocalSharing(catalog: parts.catalog) }
  }
}

/// A store whose packs are its own: all processes of the machine see the same folder, and the census knows each pack.
package struct LocalSharing: Sharing {
  let catalog: Catalog

  package var place: (path: String, collectingMachine: String?)? { nil }
  package var fencing: BlobStorageError? { nil }
  package func begin(_ engine: Engine) {}
  package func close() {}
  package func publisher(of writer: UInt64, leases: LeaseFile?) -> any PackPublisher { LocalPublisher() }

  package func synchronize(_ session: WriterSession) throws(BlobStorageError) {
    if let watermark = try session.commit(on: [], { _ in }).watermark { try session.synchronize(watermark) }
  }

  package func extend() -> ExtensionReport { ExtensionReport() }
  package func extendForMissing() -> Bool { false }
  package func completeCatalog() -> Bool { false }

  package func resolveGone(_ pack: PackName, _ reason: String) throws(BlobStorageError) {
    // It has been renamed, and the next snapshot says so. Only a private catalog has to be made anew.
    try catalog.renewOwn()
  }

  package func collect(
    _ engine: Engine, _ options: CollectionOptions, _ progress: ProgressHandler?
  ) -> CollectionReport? { nil }

  package func missingPacks(_ rows: [PackRow]) -> Set<PackName>? { nil }
  package func readAnew(_ pack: PackName) -> Bool { true }
}

/// A pack in a folder is durable once it is synced, which its session does.
package struct LocalPublisher: PackPublisher {
  package func join(_ session: WriterSession) {}
  package func admit(_ session: WriterSession) {}

  package func joinStream(_ session: WriterSession, _ leases: LeaseFile) -> UInt64? { nil }

  package func add(_ pack: PackName, _ file: any File, byteCount: Int64, of session: WriterSession) -> Int64 {
    byteCount
  }

  package func precedes(_ pack: PackName, _ session: WriterSession) -> Bool { false }
  package func keeps(_ place: Place, _ transaction: ReadTransaction, _ session: WriterSession) -> Bool {
    true
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
