import Logging

/// Maintenance operations of an engine, without a `BlobStore`.
extension Engine {
  /// Plans and runs one collection of garbage. In a cache it copies no more at once than the cache's limits allow.
  package func collectGarbage(
    _ options: GarbageCollectionOptions = GarbageCollectionOptions(), progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    var options = options
    if let limits = try cacheSettings()?.limits {
      options.batchByteCountMax = limits.copiedByteCountMax
      // In a small cache, restoring a used reserve would evict values.
      options.keepsReserve = limits.byteLimit >= 64 << 20
    }
    let report = try sharing.collect(self, options, progress)
    metrics?.record(.collected(report))
    return report
  }

  /// Collects garbage, and then recompresses chunks if `options` ask for it.
  package func collectGarbage(
    _ options: GarbageCollectionOptions, _ progress: ProgressHandler?, by removal: any PackRemoval
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    let recompression =
      options.recompresses ? try Recompression(self, options, progress, by: removal) : nil
    var report = try Collector(self, options, progress, removal: removal).run()
    if report.obstacles.isEmpty { try recompression?.run(&report) }
    return report
  }

  /// Reads the store back.
  package func verify(
    _ depth: VerificationDepth = .chunks
  ) throws(BlobStorageError) -> VerificationReport {
    try Verifier(self, nil).run(depth)
  }

  /// Rewrites the census without repetitions, if that makes it much shorter, or if a line is damaged or stands alone.
  /// The caller holds the collection lock.
  func shortenCensus() {
    do throws(BlobStorageError) {
      let census = try backend.census.read()
      let lineCount = 2 * census.events.count
      guard census.damagedLineCount > 0 || !(lineCount...64 + 2 * lineCount ~= census.lineCount) else {
        return
      }
      try backend.census.replace(by: census)
    } catch {
      logger.warning("The census could not be shortened.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Repairs what can be repaired.
  package func repair(
    waitSeconds: Double = 60, acceptsLosses: Bool = false
  ) throws(BlobStorageError) -> RepairReport {
    try Repairer(self, nil, waitSeconds: waitSeconds).run(acceptsLosses: acceptsLosses)
  }
}

extension BlobStorageError {
  /// The error for a pack that the catalog knows and whose file is gone.
  static func missing(_ pack: PackName) -> Self {
    Self(.corrupted, "Pack \(pack) is missing.", pack: pack.description)
  }
}

extension LocalSharing {
  package func collect(
    _ engine: Engine, _ options: GarbageCollectionOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    guard options.fencedWriters.isEmpty else {
      throw BlobStorageError(
        .invalidArgument, "Only writers of a store in a bucket can be fenced: end the process instead.")
    }
    return try engine.collectGarbage(options, progress, by: LocalRemoval())
  }

  package func finishLastCollection(_ engine: Engine) throws(BlobStorageError) -> Bool {
    do throws(BlobStorageError) {
      let lock = try CollectionLock(engine, waitSeconds: 0)
      defer { withExtendedLifetime(lock) {} }
      try engine.folder.withReserve { () throws(BlobStorageError) in
        try Collector(engine, GarbageCollectionOptions(), nil).finishLast()
      }
      return true
    } catch {
      guard error.code == .busy else { throw error }
      return false
    }
  }
}
