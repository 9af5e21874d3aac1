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
    // Publish first: the collector's catalog has no unpublished drops.
    if !options.isDryRun { try engine.writer.rollOver() }
    // Fence before losses end this: `acceptLosses` may refuse the loss of a registered writer's packs.
    if !options.isDryRun, !options.fencedWriters.isEmpty {
      try withCollector(engine) { (own, store) throws(BlobStorageError) in
        for writer in options.fencedWriters.sorted() { try store.fence(writer, for: own) }
      }
    }
    // The collector's catalog lacks packs that were lost before it could read them.
    let lost = try losses().lostPacks
    if !lost.isEmpty {
      var report = GarbageCollectionReport()
      report.isDryRun = options.isDryRun
      report.obstacles = lost.map { .missing($0.description) }
      return report
    }
    let report = try withCollector(engine, recompresses: options.recompresses) {
      (own, store) throws(BlobStorageError) in
      let report = try collect(by: own, store, engine, options, progress)
      if !options.isDryRun { store.keepIndex() }
      return report
    }
    if !options.isDryRun { try engine.extend() }
    return report
  }

  /// Appends a log entry that makes all machines treat lost packs, and damaged packs that were replaced, as removed.
  /// The caller holds the collection lock.
  ///
  /// A late put of such a pack is a leftover, as for any removed pack.
  ///
  /// - Throws: `corrupted` if a stray object makes packs look lost; `invalidArgument` if only another state folder may
  ///   write the log; `busy` if other machines keep collecting.
  package func acceptLosses(_ engine: Engine, replaced: Set<PackName>) throws(BlobStorageError) {
    try checkCollects(engine)
    let known = try Set(catalogExtension.run(isFull: true).missing).union(replaced)
    try withCollector(engine) { (own, store) throws(BlobStorageError) in
      try store.repeatEntry(of: own)
      let log = try store.log(of: own)
      for _ in 0..<Self.attemptCountMax {
        // List the gaps again, because a pack may have returned.
        let listing = try store.backend.publishedPacks()
        let lost = known.filter { replaced.contains($0) || listing.isMissing($0) }
          .filter { !listing.collections.removed.contains($0) }
        guard !lost.isEmpty || !listing.gaps.isEmpty else { return }
        try store.checkPublished(lost, listing, engine)
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

  /// Checks that a writer which may go on has published all of these lost packs: no pack can get a removed name.
  ///
  /// A stray object under a later name makes all names before it look lost. A damaged pack was published if its header
  /// can be read: no stray object has it.
  ///
  /// - Parameter engine: the packs that its catalog has as published count, too.
  /// - Throws: `corrupted`, with the stray object's name.
  private func checkPublished(
    _ lost: Set<PackName>, _ listing: StoreListing, _ engine: Engine
  ) throws(BlobStorageError) {
    var lastLost: [UInt64: UInt32] = [:]
    for name in lost { lastLost[name.writer] = max(lastLost[name.writer] ?? 0, name.sequence) }
    for gap in listing.gaps {
      lastLost[gap.writer] = max(lastLost[gap.writer] ?? 0, gap.sequences.upperBound)
    }
    let writers = try Membership.writers(backend.objects).filter {
      lastLost[$0] != nil && listing.fences[$0] == nil
    }
    guard !writers.isEmpty else { return }
    var published = try Membership.publishedSequences(
      backend.objects, storeID: backend.storeID, of: writers)
    if let named = engine.shared?.backend.named.withLock({ $0 }) { published.merge(named) { max($0, $1) } }
    for (_, row) in try engine.catalog.packRows()
    where row.durableByteCount > 0 && (!row.isDamaged || row.created > 0) {
      published[row.name.writer] = max(published[row.name.writer] ?? 0, row.name.sequence)
    }
    for writer in writers.sorted() {
      let last = published[writer] ?? 0
      guard let sequence = lastLost[writer], sequence > last else { continue }
      let stray = listing.packs.keys.filter { $0.writer == writer && $0.sequence > last }.min()
      let object = SharedNames.pack(stray ?? PackName(writer: writer, sequence: sequence))
      throw BlobStorageError(
        .corrupted,
        "The object \(object) in \(backend.objects.place) lies behind the last pack that its writer, which is still"
          + " registered, is known to have published: delete the object if no machine has put it, or repair again when"
          + " the writer has closed the store, or after `gc --fence \(Hex.text(writer))` if its process has died.",
        path: object)
    }
  }

  /// The log as a collector writes it. Without conditional puts it keeps each entry before it puts it.
  func log(of collector: Engine) throws(BlobStorageError) -> CollectionLog {
    let file = try remote.maintainer() == nil ? nil : entryFile(of: collector)
    return CollectionLog(
      backend.objects, storeID: backend.storeID, checkpointInterval: remote.checkpointInterval
    ) { (bytes) throws(BlobStorageError) in try file?.keep(bytes) }
  }

  /// Without conditional puts, puts the saved entry again if the log lacks it: its put may still take effect.
  func repeatEntry(of collector: Engine) throws(BlobStorageError) {
    guard try remote.maintainer() != nil, let kept = try entryFile(of: collector).read(),
      kept.state.number > backend.collections.number
    else { return }
    _ = try backend.objects.put(
      SharedNames.collection(kept.state.number), .bytes(kept.bytes), ifAbsent: true)
    try collector.extend()
  }

  private func entryFile(of collector: Engine) -> LogFile {
    LogFile(.collection, in: collector.folder.path, collector.folder.files, storeID: backend.storeID)
  }

  /// - Throws: `invalidArgument` if only another state folder may write the log.
  private func checkCollects(_ engine: Engine) throws(BlobStorageError) {
    let place = remote.objects.place
    if let maintainer = try remote.maintainer(),
      try !engine.folder.isOf(maintainer)
    {
      throw BlobStorageError(
        .invalidArgument,
        "Only the machine \(maintainer.machine) collects garbage in \(place), because the object store"
          + " lacks conditional put: run gc there, with the state folder that created the store.",
        path: place)
    }
  }

  /// The cache for the packs that recompression reads, because it does not read them in pack order.
  private static let recompressionCacheByteCount: Int64 = 256 << 20

  /// Calls `body` with a separate engine for collecting, which has its own state folder.
  ///
  /// - Parameter recompresses: whether the engine needs a cache for recompression.
  private func withCollector<T>(
    _ engine: Engine, recompresses: Bool = false, _ body: (Engine, SharedStore) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    var remote = remote
    remote.configuration.cacheByteLimit = recompresses ? Self.recompressionCacheByteCount : 0
    remote.life = life
    let own = try Engine(
      path: engine.folder.path.entry("collector").string,
      configuration: StoreConfiguration(logger: logger, cacheByteLimit: 0),
      environment: collectorEnvironment(engine), remote: remote)
    guard let store = own.shared else { preconditionFailure("packs as objects are shared") }
    let outcome = Result { () throws(BlobStorageError) in try body(own, store) }
    do throws(BlobStorageError) { try own.close() } catch {
      // Its published packs stay, and the next collection continues.
      logger.warning("A collection did not finish.", metadata: ["reason": "\(error.message)"])
    }
    return try outcome.get()
  }

  private func collect(
    by own: Engine, _ store: SharedStore, _ engine: Engine, _ options: GarbageCollectionOptions,
    _ progress: ProgressHandler?
  ) throws(BlobStorageError) -> GarbageCollectionReport {
    let removal = SharedRemoval(store: store) { [self] (collections) throws(BlobStorageError) in
      // This process is also a writer, and must acknowledge.
      backend.adopt(collections)
      try acknowledgeCondemnation(engine)
    }
    // Look again before losses end the collection: a damaged pack may be whole again.
    for (_, row) in try own.catalog.packRows() where row.isDamaged {
      guard try store.canBeRead(row.name) else { continue }
      try own.catalog.rebuild(because: nil)
      try own.extend()
      break
    }
    let removed = store.backend.collections.removed
    do throws(BlobStorageError) { return try own.collectGarbage(options, progress, by: removal) } catch {
      guard error.code == .packGone else { throw error }
      // Another collector may have removed a pack that this one was reading, while it planned, or after it was fenced.
      try own.extend()
      if store.backend.collections.removed != removed { throw Collector.another }
      throw BlobStorageError(
        .corrupted, "\(error.message) No collection has removed it: run verify.", pack: error.pack)
    }
  }

  /// Whether footer and records of a published pack can all be read anew.
  private func canBeRead(_ name: PackName) throws(BlobStorageError) -> Bool {
    backend.forgetEnds(name)
    do throws(BlobStorageError) {
      guard let file = try backend.openPack(name) else { return false }
      defer { file.close() }
      let scanner = try PackScanner(
        file: file, name: name, codecs: parts.setting.codecs, store: parts.setting.header)
      let outcome = try scanner.scan { _ in }
      return outcome.gaps.isEmpty && !outcome.lacksTrailer
    } catch {
      guard backend.isDamage(error) || error.code == .packGone else { throw error }
      return false
    }
  }

  /// Ends a writer at the user's request, even if it lives: it can publish nothing more, and no collector waits for it.
  ///
  /// - Parameter text: the writer's number, as messages show it.
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
    // Extend first: all packs removed by now were published.
    try collector.extend()
    let published = try Membership.publishedSequences(
      remote.objects, storeID: backend.storeID, of: [writer])[writer]
    let end = try Fencing.fence(
      writer, published: published ?? 0, removed: backend.collections.removed, by: collector.writer.writerID,
      remote.objects, storeID: backend.storeID)
    guard end != nil else {
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

extension SharedStore {
  /// Rebuilds the catalog from the store's index, if the catalog is new or longer than this machine's limit. Requires
  /// an index as new as the log entries that this machine has read.
  func adoptIndex() throws(BlobStorageError) {
    let isNew = try parts.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.meta(.nextChange) == 0
    }
    if !isNew, try parts.catalog.allocatedByteCount() <= limitOfCatalog { return }
    guard let newest = try backend.findIndex(), newest.log >= backend.collections.number,
      try parts.catalog.indexRoot()?.run != newest.run
    else { return }
    try parts.catalog.rebuild(because: nil)
  }

  /// Half of the limit is for this machine's own rows, the other half for cached parts of the index.
  private var limitOfCatalog: Int64 { remote.configuration.catalogByteLimit / 2 }

  /// If a collector's catalog is longer than the limit, puts an index with all of its rows. If the newest index still
  /// serves, puts at most a new root for it.
  ///
  /// Logs a failure: the index saves space and time, and nothing else depends on it.
  func keepIndex() {
    do throws(BlobStorageError) {
      guard backend.hasChanges, try parts.catalog.allocatedByteCount() > limitOfCatalog else { return }
      try catalogExtension.run()
      let newest = try backend.index.newest()
      // Use one snapshot for all steps.
      let root = try parts.catalog.read { (transaction) throws(BlobStorageError) -> IndexRoot? in
        guard let now = try settledRoot(transaction) else { return nil }
        guard var known = newest, try serves(known, now, transaction) else {
          return try write(now, transaction)
        }
        if known.log == now.log { return nil }
        // The index's rows also agree with the newest log entry.
        known.log = now.log
        return known
      }
      if let root { try backend.index.put(root) }
    } catch {
      logger.warning("The store's index was not renewed.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// The most changes after an index that a machine reads one by one.
  private static let changeCountMax: UInt32 = 4_096

  /// Whether machines can still use an index. All of its packs must still exist. The rows of later records must fit in
  /// half of the room that a machine has for its own rows.
  private func serves(
    _ index: IndexRoot, _ now: IndexRoot, _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> Bool {
    guard index.log <= now.log, index.change <= now.change, now.change - index.change <= Self.changeCountMax,
      index.recordCount <= now.recordCount
    else { return false }
    let byteCountOfRecord = Double(index.byteCount) / Double(max(1, index.recordCount))
    guard Double(now.recordCount - index.recordCount) * byteCountOfRecord <= Double(limitOfCatalog / 2) else {
      return false
    }
    if index.log == now.log { return true }
    do throws(BlobStorageError) { return try transaction.hasPacks(of: backend.index.look(index)) } catch {
      guard error.code == .catalogDamaged else { throw error }
      return false
    }
  }

  /// Writes the parts of an index, and returns its root.
  private func write(
    _ root: IndexRoot, _ transaction: ReadTransaction
  ) throws(BlobStorageError) -> IndexRoot {
    let (folder, files) = (parts.setting.folder.incoming, parts.setting.folder.files)
    let path = folder.entry("run-\(Hex.text(root.run))")
    defer { files.discard(path) }
    var writer = RowRunWriter(root, keyCount: try transaction.filteredRowCount()) {
      (_) throws(BlobStorageError) in
      files.discard(path)
      return try files.open(path, .create)
    } end: { [objects = backend.objects] (part, file, byteCount) throws(BlobStorageError) in
      defer { file.close() }
      let name = SharedNames.indexPart(root.partName(part))
      _ = try objects.put(name, .file(file, byteCount: byteCount), ifAbsent: false)
    }
    try transaction.forEachIndexedRow { (table, key, value) throws(BlobStorageError) in
      try writer.add(table, key, value)
    }
    return try writer.finish()
  }

  /// A root for the catalog's rows. Nil if a pack is incomplete, damaged or condemned, or if the catalog does not agree
  /// with the log.
  private func settledRoot(_ transaction: ReadTransaction) throws(BlobStorageError) -> IndexRoot? {
    let collections = backend.collections
    let nextChange = try transaction.meta(.nextChange)
    guard nextChange > 0, collections.condemned.isEmpty, try transaction.meta(.unsettledPacks) == 0,
      try transaction.meta(.settledLog) == UInt64(collections.number) + 1,
      try transaction.meta(.settledPack) == transaction.meta(.nextPack)
    else { return nil }
    let rows = try transaction.packRows().map(\.row)
    guard
      rows.allSatisfy({ $0.state == .live && !$0.isDamaged && !$0.isLost && !$0.isPoisoned })
    else { return nil }
    return IndexRoot(
      storeID: backend.storeID, layout: CatalogState.layout, log: collections.number,
      change: UInt32(clamping: nextChange - 1), recordCount: rows.reduce(0) { $0 + UInt64($1.recordCount) },
      run: environment.randomNumber())
  }
}
