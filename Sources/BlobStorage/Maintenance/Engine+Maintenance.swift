import Logging
import SystemPackage

/// Maintenance operations of an engine, without a `BlobStore`.
extension Engine {
  /// Plans and executes one collection of garbage. Below the limit of a cache it copies no more at once than that allows.
  package func collectGarbage(
    _ options: GarbageCollectionOptions = GarbageCollectionOptions(), progress: ProgressHandler? = nil
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    var options = options
    if let limits = try cacheSettings()?.limits {
      options.batchByteCountMax = limits.copiedByteCountMax
      // In a small cache a reserve that has been used would push out values when it comes back.
      options.keepsReserve = limits.byteLimit >= 64 << 20
    }
    let report = try sharing.collect(self, options, progress)
    metrics?.record(.collected(report))
    return report
  }

  /// Collects garbage, and then encodes chunks once more if `options` ask for it.
  package func collectGarbage(
    _ options: GarbageCollectionOptions, _ progress: ProgressHandler?, by removal: any PackRemoval
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    let recompression =
      options.recompresses ? try Recompression(self, options, progress, by: removal) : nil
    var report = try Collector(self, options, progress, removal: removal).run()
    if report.obstacles.isEmpty { try recompression?.run(&report) }
    return report
  }

  /// Whether small chunks are joined when they are copied. Values of a cache are read one by one, and evicted one by one.
  func joinsWhatItCopies() throws(BlobStorageError) -> Bool {
    guard codec.kind == .zstd else { return false }
    return try cacheSettings() == nil
  }

  /// Recovers the packs of dead writers.
  package func recoverDeadWriters() throws(BlobStorageError) {
    try catalog.maintain { [builder] (database) throws(BlobStorageError) in
      try builder.recoverDeadPacks(database) {}
    }
  }

  /// Calls `body` with every record of a pack; nil when the pack is missing.
  @discardableResult
  package func scan(
    _ pack: PackName, _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> PackScanner.Outcome? {
    guard let file = try backend.openPack(pack) else { return nil }
    defer { file.close() }
    return try PackScanner(file: file, name: pack, codecs: codecs, store: header).scan(body)
  }

  /// Calls `body` with every chunk of the catalog, in the order of digests, until it returns false. Each batch has a
  /// snapshot of its own.
  package func forEachChunk(
    _ body: (BlobDigest, ChunkRow, ReadTransaction) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let pageCountMax = 20_000
    var last: BlobDigest?
    while true {
      try CancellationFlag.check()
      var pageCount = 0
      var goesOn = true
      try catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.forEachChunk(after: last) {
          (digest, row) throws(BlobStorageError) in
          last = digest
          pageCount += 1
          goesOn = try body(digest, row, transaction)
          return goesOn && pageCount < pageCountMax
        }
      }
      if !goesOn || pageCount < pageCountMax { return }
    }
  }

  /// Calls `body` with pages of the manifests, each from a snapshot of its own.
  func forEachManifestPage(
    _ body: ([(digest: BlobDigest, row: ManifestRow)]) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var last: BlobDigest?
    repeat {
      try CancellationFlag.check()
      var page: [(digest: BlobDigest, row: ManifestRow)] = []
      try catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.forEachManifest(after: last) { (digest, row) in
          page.append((digest, row))
          return page.count < 32_768
        }
      }
      try body(page)
      last = page.last?.digest
    } while last != nil
  }

  /// How many keys there are, about: long ones count several times, and so do some that are gone. Outer rows do not
  /// count.
  package func keyCountMax() throws(BlobStorageError) -> Int {
    try catalog.read { (transaction) throws(BlobStorageError) in try transaction.count(.names) }
  }

  /// Restores the reserve if there is room for it.
  package func keepReserve() {
    do throws(BlobStorageError) { try folder.keepReserve() } catch {
      logger.warning("There is no room for the reserve.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Reads the store back.
  package func verify(
    _ depth: VerificationDepth = .chunks
  ) throws(BlobStorageError) -> VerificationReport {
    try Verifier(self, nil).run(depth)
  }

  /// Repairs what can be repaired.
  package func repair(
    waitSeconds: Double = 60, acceptsLosses: Bool = false
  ) throws(BlobStorageError) -> RepairReport {
    try Repairer(self, nil, waitSeconds: waitSeconds).run(acceptsLosses: acceptsLosses)
  }

  /// Puts the file `store` of a folder back; false when nothing was wrong with it.
  package static func restoreHeader(
    at path: String, environment: Environment = Environment()
  ) throws(BlobStorageError) -> Bool {
    try folder(at: path, environment.files)
      .restoreHeader(defaults: try newHeader(StoreOptions(), environment))
  }
}

extension BlobStorageError {
  /// The error for a pack that the catalog knows and whose file is gone.
  static func missing(_ pack: PackName) -> Self {
    Self(.corrupted, "Pack \(pack) is missing.", pack: pack.description)
  }
}
