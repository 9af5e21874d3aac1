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
      try engine.watched("gc", progress) { (progress) throws(BlobStorageError) in
        try engine.trimAndCollectGarbage(options, progress: progress)
      }
    }
  }

  /// Reads everything back and checks each checksum and digest.
  ///
  /// `isQuick` looks at the structure only: it reads manifests and lists of chunks, but no chunks of data.
  ///
  /// `readsBlobs` also compares each blob of several chunks with its own digest, which reads every such blob once more.
  /// Damage is in the report, not thrown.
  public func verify(
    isQuick: Bool = false, readsBlobs: Bool = false, progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> VerificationReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.watched("verify", progress) { (progress) throws(BlobStorageError) in
        try Verifier(engine, progress).run(isQuick: isQuick, readsBlobs: readsBlobs)
      }
    }
  }

  /// Rebuilds the catalog from the packs, and sets damaged packs aside after saving what is whole in them, so that
  /// the next put of the same bytes heals what was lost.
  ///
  /// - Parameter acceptsLosses: whether what stays lost is accepted, for good. Then versions that cannot be read are
  ///   dropped, their keys answer with the version before them, if there is one, and ``losses()`` is empty.
  /// - Durability: what was accepted is on the medium on return.
  public func repair(
    acceptsLosses: Bool = false, progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> RepairReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.watched("repair", progress) { (progress) throws(BlobStorageError) in
        try Repairer(engine, progress).run(acceptsLosses: acceptsLosses)
      }
    }
  }

  /// What the store has lost, unless it was accepted. While there is anything, answers may be out of date.
  ///
  /// A store whose packs are objects has no losses here; ``verify(isQuick:progress:)`` finds what it lacks.
  public func losses() async throws(BlobStorageError) -> StoreLosses {
    try await run { (engine) throws(BlobStorageError) in try engine.losses() }
  }

  /// Puts the file `store` of a store's folder back if it is missing, damaged or another store's; the store can be
  /// opened then. False when nothing was wrong with it.
  ///
  /// - Throws: `noStore`, `notAStore` when nothing there tells what it was.
  public static func restoreStoreFile(at path: String) async throws(BlobStorageError) -> Bool {
    try await OperationPool.shared.run { () throws(BlobStorageError) in
      try Engine.restoreHeader(at: path)
    }
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

  /// Who holds a key's blobs, a blob or a chunk, who shares parts of it, and what dropping it would free; nil when it is
  /// not in the store.
  ///
  /// - Parameter listCountMax: how many holders and sharers are listed; all are counted.
  /// - Complexity: follows every version of the store to its chunks.
  public func usage(
    of subject: Usage.Subject, listCountMax: Int = 100
  ) async throws(BlobStorageError) -> Usage? {
    try await run { (engine) throws(BlobStorageError) in
      try UsageSearch(engine, subject, listCountMax: listCountMax).run()
    }
  }

  /// Where the space is, what saved it, and which keys take most.
  ///
  /// - Parameter keyCountMax: how many keys are listed.
  /// - Complexity: follows every version to its chunks three times; memory grows with the number of chunks, by some
  ///   bits for each, and not with that of keys.
  public func report(
    keyCountMax: Int = 20, progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> StoreReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.watched("report", progress) { (progress) throws(BlobStorageError) in
        try Reporter(engine, keyCountMax: keyCountMax, progress).run()
      }
    }
  }

  /// Stores files and whole trees of files. See ``ImportOptions``.
  ///
  /// - Throws: only what ends the whole import; a file that cannot be read is in the report.
  public func importFiles(
    _ paths: [String], options: ImportOptions = ImportOptions(), progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> ImportReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.watched("import", on: paths.joined(separator: ", "), progress) {
        (progress) throws(BlobStorageError) in try Importer(engine, options, progress).run(paths)
      }
    }
  }

  /// Writes the current versions of keys as files below a folder. See ``ExportOptions``.
  public func exportFiles(
    to folder: String, options: ExportOptions = ExportOptions(), progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> ExportReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.watched("export", on: folder, progress) { (progress) throws(BlobStorageError) in
        try Exporter(engine, options, progress).run(folder)
      }
    }
  }

  /// The long work that processes do on the store at a path at this moment, this one included: imports, exports,
  /// collections, verifications, and puts of much.
  ///
  /// The store is not opened. Only processes of the same user are seen, and none that could not write its activity
  /// file, for example on a full disk.
  ///
  /// - Throws: `noStore`, `notAStore`.
  public static func activities(at path: String) async throws(BlobStorageError) -> [Activity] {
    try await OperationPool.shared.run { () throws(BlobStorageError) in try Engine.activities(at: path) }
  }
}
