import BlobStorage
import Logging
import Synchronization
import SystemPackage

extension SharedStore {
  /// Collects garbage with a separate engine and state folder, whose catalog knows only published packs.
  package func collect(
    _ engine: Engine, _ options: GarbageCollectionOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    try engine.checkOpen()
    try checkCollects(engine)
    // Lock before opening: two processes must not extend the collector's catalog at once.
    let lock = try CollectionLock(engine, waitSeconds: options.timeout.seconds, progress)
    defer { withExtendedLifetime(lock) {} }
    // Publish first: other machines do not know unpublished drops.
    if !options.isDryRun { try engine.writer.rollOver() }
    // The collector's own catalog knows nothing of packs that were lost before it could read them.
    let lost = try losses().lostPacks
    if !lost.isEmpty {
      var report = GarbageCollectionReport()
      report.isDryRun = options.isDryRun
      report.obstacles = lost.map { .missing($0.description) }
      return report
    }
    let report = try withCollector(engine, recompresses: options.recompresses) {
      (own) throws(BlobStorageError) in
      let report = try collect(by: own, engine, options, progress)
      if !options.isDryRun { own.shared?.keepIndex() }
      return report
    }
    if !options.isDryRun { try engine.extend() }
    return report
  }

  /// Puts a log entry by which all machines treat lost packs, and damaged ones that were replaced, as removed. The
  /// caller holds the collection lock.
  ///
  /// A late put of such a pack is a leftover, like one of any removed pack.
  package func acceptLosses(_ engine: Engine, replaced: Set<PackName>) throws(BlobStorageError) {
    try checkCollects(engine)
    let known = try Set(catalogExtension.run(isFull: true).missing).union(replaced)
    try withCollector(engine) { (own) throws(BlobStorageError) in
      guard let store = own.shared else { preconditionFailure("packs as objects are shared") }
      let log = try store.log(of: own)
      for _ in 0..<Self.attemptCountMax {
        // It lists the gaps anew: a pack may have come back.
        let listing = try store.backend.publishedPacks()
        let lost = known.filter { replaced.contains($0) || listing.isMissing($0) }
          .filter { !listing.collections.removed.contains($0) }
        guard !lost.isEmpty || !listing.gaps.isEmpty else { return }
        let accepted = try log.accept(
          lost, listing.gaps, after: listing.collections, by: own.writer.writerID)
        if accepted == nil { continue }
        store.keepIndex()
        return
      }
      throw BlobStorageError(.busy, "Other machines keep collecting garbage: accept the loss again later.")
    }
    try catalogExtension.run()
  }

  private static let attemptCountMax = 16

  /// The log as a collector writes it. Without conditional puts it keeps each entry before it puts it.
  func log(of collector: Engine) throws(BlobStorageError) -> CollectionLog {
    let file = try remote.maintainer() == nil ? nil : entryFile(of: collector)
    return CollectionLog(
      backend.objects, storeID: backend.storeID, checkpointInterval: remote.checkpointInterval
    ) { (bytes) throws(BlobStorageError) in try file?.keep(bytes) }
  }

  func entryFile(of collector: Engine) -> LogFile {
    LogFile(.collection, in: collector.folder.path, collector.folder.files, storeID: backend.storeID)
  }

  /// - Throws: `invalidArgument` if only another state folder may write the log.
  private func checkCollects(_ engine: Engine) throws(BlobStorageError) {
    let place = remote.objects.place
    if let maintainer = try remote.maintainer(),
      try !StateFolder(engine.folder, remote.objects).isOf(maintainer)
    {
      throw BlobStorageError(
        .invalidArgument,
        "Only the machine \(maintainer.machine) collects garbage in \(place), because the object store"
          + " lacks conditional put: run gc there, with the state folder that created the store.",
        path: place)
    }
  }

  /// What recompression keeps on the disk of the packs under way: it reads them in another order than theirs.
  private static let recompressionCacheByteCount: Int64 = 256 << 20

  /// Calls `body` with the engine that collects, which has a state folder of its own.
  ///
  /// - Parameter recompresses: whether it will read more than what it copies.
  private func withCollector<T>(
    _ engine: Engine, recompresses: Bool = false, _ body: (Engine) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    var remote = remote
    remote.configuration.cacheByteLimit = recompresses ? Self.recompressionCacheByteCount : 0
    remote.life = life
    let own = try Engine(
      path: engine.folder.path.entry("collector").string,
      configuration: StoreConfiguration(logger: logger, cacheByteLimit: 0),
      environment: collectorEnvironment(engine), remote: remote)
    let outcome = Result { () throws(BlobStorageError) in try body(own) }
    do throws(BlobStorageError) { try own.close() } catch {
      // Its published packs stay, and the next collection continues.
      logger.warning("A collection did not finish.", metadata: ["reason": "\(error.message)"])
    }
    return try outcome.get()
  }

  private func collect(
    by own: Engine, _ engine: Engine, _ options: GarbageCollectionOptions, _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    guard let store = own.shared else { preconditionFailure("packs as objects are shared") }
    if !options.isDryRun {
      for writer in options.fencedWriters.sorted() { try store.fence(writer, for: own) }
    }
    let removal = SharedRemoval(store: store) { [self] (collections) throws(BlobStorageError) in
      // This process is also a writer, and acknowledges.
      backend.adopt(collections)
      try acknowledgeCondemnation(engine)
    }
    let removed = store.backend.collections.removed
    do throws(BlobStorageError) { return try own.collectGarbage(options, progress, by: removal) } catch {
      guard error.code == .packGone else { throw error }
      // Another collector may have removed a pack that this one was reading: while it planned, or fenced while it copied.
      try own.extend()
      if store.backend.collections.removed != removed { throw Collector.another }
      throw BlobStorageError(
        .corrupted, "\(error.message) No collection has removed it: run verify.", pack: error.pack)
    }
  }

  /// Ends a writer because its user says so, although it may live: it publishes nothing more, and no collector waits
  /// for it.
  ///
  /// - Parameter text: its number, as messages name it.
  private func fence(_ text: String, for collector: Engine) throws(BlobStorageError) {
    guard try remote.maintainer() == nil else {
      throw BlobStorageError(
        .invalidArgument,
        "No writer can be fenced in \(remote.objects.place), which lacks conditional puts: end its process, and"
          + " delete \(SharedNames.writers + text) if it is gone for good.")
    }
    let writer = Hex.integer(UInt64.self, text)
    guard let writer, Hex.text(writer) == text,
      try remote.objects.tail(SharedNames.writer(writer), byteCount: 1) != nil
    else {
      throw BlobStorageError(
        .invalidArgument,
        "No writer \(text) is registered in \(remote.objects.place): name one as gc does, with 16 digits.")
    }
    // All that is removed by now was published.
    try collector.extend()
    let published = try Membership.publishedSequences(
      remote.objects, storeID: backend.storeID, of: [writer])[writer]
    let outcome = try Fencing.fence(
      writer, published: published ?? 0, removed: backend.collections.removed, by: collector.writer.writerID,
      remote.objects, storeID: backend.storeID)
    guard case .fenced = outcome else {
      throw BlobStorageError(.busy, "Writer \(text) keeps publishing: fence it again.")
    }
    try backend.announceEnd(of: writer)
    try remote.objects.delete(SharedNames.writer(writer))
  }

  private func collectorEnvironment(_ engine: Engine) -> Engine.Environment {
    var environment = self.environment
    environment.catalogFolder = environment.catalogFolder.map { FilePath($0.string + "-of-collector") }
    environment.packByteCountTarget = engine.writer.packByteCountTarget.load(ordering: .relaxed)
    return environment
  }
}
