import Foundation

extension BlobStore {
  /// Collects garbage: removes what no version needs. Safe at any time beside readers and writers of any process.
  ///
  /// A store with a cache is trimmed first by `trimAndCollectGarbage` of `BlobStorageCache`.
  ///
  /// - Throws: `busy` when another process has been collecting for longer than `options.timeout`.
  public func collectGarbage(
    _ options: GarbageCollectionOptions = GarbageCollectionOptions(), progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> GarbageCollectionReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.watched("gc", progress) { (progress) throws(BlobStorageError) in
        try engine.collectGarbage(options, progress: progress)
      }
    }
  }

  /// Reads everything back and checks each checksum and digest. Damage is in the report, not thrown.
  ///
  /// Records in the folder which packs were found undamaged, and when. In a folder that cannot be written it does not.
  ///
  /// - Parameters:
  ///   - depth: how much is read.
  ///   - share: the part of the store to read; nil for all of it. What is missing is always looked for.
  ///   - maximumAge: reads only packs that were not found undamaged within that time on this machine, or have changed
  ///     since. Nil for all packs. The structure is no verification in this sense, and blobs are always compared.
  ///   - progress: receives the bytes that were read, and the total.
  public func verify(
    _ depth: VerificationDepth = .chunks, share: VerificationShare? = nil, maximumAge: Duration? = nil,
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> VerificationReport {
    try await run { (engine) throws(BlobStorageError) in
      try engine.watched("verify", progress) { (progress) throws(BlobStorageError) in
        try Verifier(engine, progress).run(depth, share, maximumAge: maximumAge)
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
  /// Of a store in a bucket it says what this machine knows; ``verify(_:share:maximumAge:progress:)`` looks again.
  public func losses() async throws(BlobStorageError) -> StoreLosses {
    try await run { (engine) throws(BlobStorageError) in try engine.losses() }
  }

  /// Restores the file `store` of a store's folder if it is missing, damaged or another store's, so that the store can
  /// be opened. False when the file was right.
  ///
  /// - Throws: `noStore`, `notAStore` when no pack says what the file contained.
  public static func restoreStoreFile(at path: some PathConvertible) async throws(BlobStorageError) -> Bool {
    let path = try path.pathText()
    return try await OperationPool.shared.run { () throws(BlobStorageError) in
      try Engine.restoreHeader(at: path)
    }
  }

  /// The long work that processes, this one included, currently do on the store at a path: imports, exports,
  /// collections, verifications, and long puts.
  ///
  /// The store is not opened. Only processes of the same user are seen, and none that could not write its activity
  /// file, for example on a full disk.
  ///
  /// - Throws: `noStore`, `notAStore`.
  public static func activities(at path: some PathConvertible) async throws(BlobStorageError)
    -> [StoreActivity]
  {
    let path = try path.pathText()
    return try await OperationPool.shared.run { () throws(BlobStorageError) in try Engine.activities(at: path)
    }
  }

  /// Makes durable what was stored with ``Durability/relaxed``: by this value, before the call.
  ///
  /// - Durability: on the medium; published, where packs are shared by several machines.
  public func synchronize() async throws(BlobStorageError) {
    try await run { (engine) throws(BlobStorageError) in try engine.synchronize() }
  }

  /// Applies what other machines have published before the call, and returns how many packs that were. For a store in a
  /// folder there is nothing to do, because all processes see the same.
  @discardableResult
  public func catchUp() async throws(BlobStorageError) -> Int {
    try await run { (engine) throws(BlobStorageError) in try engine.catchUp().newPackCount }
  }
}
