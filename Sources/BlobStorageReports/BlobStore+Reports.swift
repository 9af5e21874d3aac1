import BlobStorage

extension BlobStore {
  /// The contents of the store and the space they take.
  ///
  /// - Complexity: follows every version to its chunks.
  public func statistics(
    progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> StoreStatistics {
    try await work { (engine) throws(BlobStorageError) in
      let marking = try engine.marking(progress)
      return try StoreStatistics.countWithPacks(engine, progress: marking).statistics
    }
  }

  /// How a version is stored; nil when there is no such version.
  ///
  /// - Complexity: follows every version of the store to its chunks, to tell what is exclusive.
  public func blobInformation(
    forKey key: String, version: BlobVersion.ID? = nil, progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> BlobInformation? {
    try await work { (engine) throws(BlobStorageError) in
      try BlobInformation.find(engine, key, version, progress: try engine.marking(progress))
    }
  }

  /// The holders of a key's blobs, a blob or a chunk. Also the keys that share parts of it, and the bytes that dropping
  /// it would free. Nil when it is not in the store.
  ///
  /// - Parameter limit: the maximum number of holders and sharers to list. All are counted.
  /// - Complexity: follows every version of the store to its chunks.
  public func usage(
    of subject: BlobUsage.Subject, limit: Int = 100, progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> BlobUsage? {
    try await work { (engine) throws(BlobStorageError) in
      try UsageSearch(engine, subject, listCountMax: limit, progress: try engine.marking(progress)).run()
    }
  }

  /// Reports where the space went, what saved space, and which keys take most.
  ///
  /// - Parameter keyLimit: how many keys are listed.
  /// - Complexity: follows every version to its chunks three times. Memory grows by some bits for each chunk, and not
  ///   with the number of keys.
  public func report(
    keyLimit: Int = 20, progress: ProgressHandler? = nil
  ) async throws(BlobStorageError) -> StoreReport {
    try await work { (engine) throws(BlobStorageError) in
      try engine.watched("report", progress) { (progress) throws(BlobStorageError) in
        try Reporter(engine, keyCountMax: keyLimit, progress).run()
      }
    }
  }
}
