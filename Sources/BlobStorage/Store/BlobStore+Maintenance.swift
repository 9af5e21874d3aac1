import Foundation

extension BlobStore {
  /// Removes what no version needs. Safe at any time beside readers and writers of any process.
  ///
  /// A store that has a cache is brought below the cache's limits first.
  ///
  /// - Throws: `busy` when another process has been collecting for longer than `options.waitSeconds`.
  public func collectGarbage(
    _ options: CollectionOptions = CollectionOptions(), progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> CollectionReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.trimAndCollectGarbage(options, progress: progress)
    }
  }

  /// Reads everything back and checks each checksum and digest; `isQuick` looks at the structure only.
  ///
  /// Damage is in the report, not thrown.
  public func verify(
    isQuick: Bool = false, progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> VerificationReport {
    try await run { (engine) throws(BlobStorageError) in try Verifier(engine, progress).run(isQuick: isQuick)
    }
  }

  /// Rebuilds the catalog from the packs, and sets damaged packs aside after saving what is whole in them, so that
  /// the next put of the same bytes heals what was lost.
  public func repair(progress: ProgressHandler? = nil) async throws(BlobStorageError) -> RepairReport {
    try await run { (engine) throws(BlobStorageError) in try Repairer(engine, progress).run() }
  }

  /// What is in the store and what it takes.
  ///
  /// - Complexity: follows every version to its chunks.
  public func statistics() async throws(BlobStorageError) -> StoreStatistics {
    try await run { (engine) throws(BlobStorageError) in try StoreStatistics.take(engine) }
  }

  /// How a version is stored; nil when there is no such version.
  ///
  /// - Complexity: follows every version of the store to its chunks, to tell what is exclusive.
  public func blobInformation(
    forKey key: String, version: BlobVersion.ID? = nil
  ) async throws(BlobStorageError) -> BlobInformation? {
    try await run { (engine) throws(BlobStorageError) in try BlobInformation.take(engine, key, version) }
  }

  /// Stores files and whole trees of files. See ``ImportOptions``.
  ///
  /// - Throws: only what ends the whole import; a file that cannot be read is in the report.
  public func importFiles(
    _ paths: [String], options: ImportOptions = ImportOptions(), progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> ImportReport {
    try await run { (engine) throws(BlobStorageError) in try Importer(engine, options, progress).run(paths) }
  }

  /// Writes the current versions of keys as files below a folder. See ``ExportOptions``.
  public func exportFiles(
    to folder: String, options: ExportOptions = ExportOptions(), progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> ExportReport {
    try await run { (engine) throws(BlobStorageError) in try Exporter(engine, options, progress).run(folder) }
  }
}
