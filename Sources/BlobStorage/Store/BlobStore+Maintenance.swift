import Foundation

extension BlobStore {
  /// Collects garbage: removes what no version needs. Safe at any time beside readers and writers of any process.
  ///
  /// Trims a cache to its limits first.
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

  /// Rebuilds the catalog from the packs. Saves the whole records of damaged packs and sets those packs aside, so that
  /// the next put of the same bytes heals what was lost.
  ///
  /// `acceptsLosses` accepts losses for good: it drops versions that cannot be read. Their keys then answer with the
  /// version before, if there is one, and ``losses()`` is empty.
  ///
  /// - Durability: the acceptance is on the medium on return.
  public func repair(
    acceptsLosses: Bool = false, progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> RepairReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.watched("repair", progress) { (progress) throws(BlobStorageError) in
        try Repairer(engine, progress).run(acceptsLosses: acceptsLosses)
      }
    }
  }

  /// The losses that were not accepted. While there are any, answers may be out of date.
  ///
  /// Of a store in a bucket it says what this machine knows; ``verify(isQuick:readsBlobs:progress:)`` looks again.
  public func losses() async throws(BlobStorageError) -> StoreLosses {
    try await run { (engine) throws(BlobStorageError) in try engine.losses() }
  }

  /// Restores the file `store` of a store's folder if it is missing, damaged or another store's, so that the store can
  /// be opened. False when the file was right.
  ///
  /// - Throws: `noStore`, `notAStore` when no pack says what the file contained.
  public static func restoreStoreFile(at path: String) async throws(BlobStorageError) -> Bool {
    try await OperationPool.shared.run { () throws(BlobStorageError) in
      try Engine.restoreHeader(at: path)
    }
  }

  /// The contents of the store and the space they take.
  ///
  /// - Complexity: follows every version to its chunks.
  public func statistics() async throws(BlobStorageError) -> StoreStatistics {
    try await run { (engine) throws(BlobStorageError) in try StoreStatistics.count(engine) }
  }

  /// How a version is stored; nil when there is no such version.
  ///
  /// - Complexity: follows every version of the store to its chunks, to tell what is exclusive.
  public func blobInformation(
    forKey key: String, version: BlobVersion.ID? = nil
  ) async throws(BlobStorageError) -> BlobInformation? {
    try await run { (engine) throws(BlobStorageError) in try BlobInformation.find(engine, key, version) }
  }

  /// The holders of a key's blobs, a blob or a chunk. Also the keys that share parts of it, and the bytes that dropping
  /// it would free. Nil when it is not in the store.
  ///
  /// Lists at most `listCountMax` holders and as many sharers, and counts all.
  ///
  /// - Complexity: follows every version of the store to its chunks.
  public func usage(
    of subject: Usage.Subject, listCountMax: Int = 100
  ) async throws(BlobStorageError) -> Usage? {
    try await run { (engine) throws(BlobStorageError) in
      try UsageSearch(engine, subject, listCountMax: listCountMax).run()
    }
  }

  /// Where the space went, what saved space, and the `keyCountMax` keys that take most.
  ///
  /// - Complexity: follows every version to its chunks three times. Memory grows by some bits for each chunk, and not
  ///   with the number of keys.
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
  /// - Throws: errors that end the whole import. A file that cannot be read is in the report.
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

  /// The long work that processes, this one included, currently do on the store at a path: imports, exports,
  /// collections, verifications, and long puts.
  ///
  /// The store is not opened. Only processes of the same user are seen, and none that could not write its activity
  /// file, for example on a full disk.
  ///
  /// - Throws: `noStore`, `notAStore`.
  public static func activities(at path: String) async throws(BlobStorageError) -> [Activity] {
    try await OperationPool.shared.run { () throws(BlobStorageError) in try Engine.activities(at: path) }
  }
}
