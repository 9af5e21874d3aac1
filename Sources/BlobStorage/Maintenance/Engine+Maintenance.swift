import SystemPackage

/// Maintenance from the engine on, for those who have no `BlobStore`.
extension Engine {
  /// Plans and executes one collection of garbage.
  package func collectGarbage(
    _ options: CollectionOptions = CollectionOptions(), progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> CollectionReport {
    if let remote { return try collectShared(options, progress, remote) }
    return try Collector(self, options, progress).run()
  }

  /// Takes away these packs, by their numbers, after copying what is live in them.
  package func collectGarbage(in packs: Set<UInt32>) throws(BlobStorageError) -> CollectionReport {
    try Collector(self, CollectionOptions(garbageShareMin: 0, waitSeconds: 5), nil, scope: packs).run()
  }

  /// Takes in the packs of writers that are dead.
  func recoverDeadWriters() throws(BlobStorageError) {
    let builder = CatalogBuilder(
      backend: backend, codecs: codecs, store: header, logger: logger, weaknesses: weaknesses)
    try catalog.maintain { (environment) throws(BlobStorageError) in
      try builder.catchUp(environment) {}
    }
  }

  /// - Throws: `invalidArgument` where packs are shared by machines, none of which may take one away by itself.
  func checkPacksAreOwn(_ work: String) throws(BlobStorageError) {
    guard backend is any PublishingBackend else { return }
    throw BlobStorageError(
      .invalidArgument, "\(work) is not possible yet for a store of objects (\(information.path)).",
      path: information.path)
  }

  /// Removes a pack that a repair has set aside.
  func removeSetAside(_ path: String) throws(BlobStorageError) {
    try folder.files.remove(FilePath(path))
  }

  /// Reads the store back.
  package func verify(isQuick: Bool = false) throws(BlobStorageError) -> VerificationReport {
    try Verifier(self, nil).run(isQuick: isQuick)
  }

  /// Mends what can be mended.
  package func repair(waitSeconds: Double = 60) throws(BlobStorageError) -> RepairReport {
    try Repairer(self, nil, waitSeconds: waitSeconds).run()
  }

  /// What is in the store.
  package func statistics() throws(BlobStorageError) -> StoreStatistics { try StoreStatistics.take(self) }
}
