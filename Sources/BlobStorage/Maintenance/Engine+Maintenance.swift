/// Maintenance from the engine on, for those who have no `BlobStore`.
extension Engine {
  /// Plans and executes one collection of garbage.
  package func collectGarbage(
    _ options: CollectionOptions = CollectionOptions(), progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> CollectionReport { try Collector(self, options, progress).run() }

  /// Reads the store back.
  package func verify(isQuick: Bool = false) throws(BlobStorageError) -> VerificationReport {
    try Verifier(self, nil).run(isQuick: isQuick)
  }

  /// Mends what can be mended.
  package func repair() throws(BlobStorageError) -> RepairReport { try Repairer(self, nil).run() }

  /// What is in the store.
  package func statistics() throws(BlobStorageError) -> StoreStatistics { try StoreStatistics.take(self) }
}
