import Dispatch
import Foundation
import Logging
import Synchronization
import SystemPackage

/// The operations of one process on one store. All are synchronous and block the caller's thread.
package final class Engine: Sendable {
  package let folder: StoreFolder
  package let header: StoreHeader
  package let sizes: ChunkSizes
  package let codec: CodecChoice
  package let backend: any Backend
  package let catalog: Catalog
  let builder: CatalogBuilder
  package let codecs: CodecPool
  package let packs: PackFiles
  package let chunks: ChunkSource
  package let blobs: BlobSource
  package let leases: LeaseFile
  package let writer: WriterSession
  /// Plans puts with the store's codec.
  package let planner: ChunkPlanner
  package let memoryPut: MemoryPut
  package let work: WorkPool
  package let clock: WallClock
  package let logger: Logger
  package let metrics: (any StoreMetrics)?
  package let weaknesses: Weaknesses
  /// The environment that the engine was opened with.
  package let environment: Environment
  /// Run before the store closes. Each object that has one removes it in the end.
  package let closingHooks = Mutex<[ObjectIdentifier: @Sendable () -> Void]>([:])
  private let isClosed = Atomic<Bool>(false)
  package let sharing: any Sharing

  /// Parts of the system that tests replace, and limits.
  package struct Environment: Sendable {
    package var files: any FileSystem = SystemFiles()
    /// File system for the catalog's files that this library opens, locks and replaces. LMDB opens its own.
    package var catalogFiles: any FileSystem = SystemFiles()
    /// The catalog's folder, if it is not in the store's folder: LMDB needs real files.
    package var catalogFolder: FilePath?
    package var clock = WallClock.system
    package var time = PassingTime.system
    /// If nil, the system's.
    package var bootIdentity: String?
    /// If nil, the store's file system determines it.
    package var mountIdentity: String?
    package var mapByteCount = 1 << 30
    /// Seconds that a reader waits for a catalog that another process is rebuilding.
    package var patienceSeconds = 10.0
    /// Seconds that a collection waits for a commit that began before it condemned packs.
    package var commitPatienceSeconds = 10.0
    /// Seconds that a commit waits for another process's commit to the same key.
    package var stripePatienceSeconds = 30.0
    package var packByteCountTarget = BlobLimits.packByteCountTarget
    package var packRecordCountTarget = BlobLimits.packRecordCountTarget
    package var weaknesses: Weaknesses = []
    /// Streamed content that is shorter than this is put like content in memory.
    package var streamHeadByteCount = MemoryPut.byteCountMax
    /// Bytes of streamed content that are cut into chunks and looked up at once.
    package var streamBatchByteCount = FrameBuilder.longPlainByteCountMax
    #if DEBUG || WEAKNESSES
      /// Whether a put of several items joins them into frames, as an import does. For tests of frames.
      package var joinsItems = false
    #else
      var joinsItems: Bool { false }
    #endif
    /// The source of names and writer identities.
    package var randomNumber: @Sendable () -> UInt64 = randomUInt64
    /// Runs the pool's work on the caller's thread, so that tests have one order of events.
    package var worksInline = false
    /// Records that one transaction applies during a rebuild or recovery.
    package var recordCountOfBatch = 20_000

    package init() {}
  }

  /// Creates an empty store.
  package static func create(
    at path: String, options: StoreOptions, environment: Environment = Environment()
  ) throws(BlobStorageError) {
    let folder = try folder(at: path, environment.files)
    try folder.checkOutside()
    try folder.create(try newHeader(options, environment))
  }

  package static func newHeader(
    _ options: StoreOptions, _ environment: Environment
  ) throws(BlobStorageError) -> StoreHeader {
    let sizes = try ChunkSizes(average: options.averageChunkByteCount)
    let codec = try CodecChoice(options.codec, level: options.level)
    return StoreHeader(
      flags: options.usesSimilarity ? .similarity : [], digestAlgorithm: options.digestAlgorithm,
      codecNumber: codec.kind.rawValue, level: Int8(codec.level),
      averageChunkByteCount: UInt32(sizes.average),
      storeID: withUnsafeBytes(
        of: (environment.randomNumber(), environment.randomNumber())
      ) { Array($0) },
      created: environment.clock.now())
  }

  package static func storeExists(at path: String) -> Bool {
    do throws(BlobStorageError) {
      let folder = try folder(at: path, SystemFiles())
      return try folder.files.status(of: folder.header)?.kind == .regular
    } catch { return false }
  }

  /// Returns what processes are doing on the store at a path, without opening the store.
  package static func activities(at path: String) throws(BlobStorageError) -> [StoreActivity] {
    let folder = try folder(at: path, SystemFiles())
    _ = try folder.readHeader()
    return try StoreActivity.all(folder)
  }

  /// Opens a store.
  ///
  /// - Parameters:
  ///   - path: the store's folder, or the state folder of a store whose packs are elsewhere.
  ///   - location: where the packs are.
  package init(
    path: String, configuration: StoreConfiguration, environment: Environment = Environment(),
    location: any PackLocation = LocalFolder()
  ) throws(BlobStorageError) {
    var location = location
    try location.prepare(try Self.folder(at: path, environment.files))
    let folder = try Self.heldFolder(at: path, environment.files)
    let header = try folder.readHeader()
    folder.files.anchor?.expectStore(header.storeID)
    guard let kind = CodecKind(rawValue: header.codecNumber) else {
      throw BlobStorageError(
        .unsupportedFormat,
        "The store at \(path) uses a codec that this build does not know: use a later build.",
        path: path)
    }
    try folder.finishCreation()
    self.folder = folder
    self.header = header
    sizes = try ChunkSizes(average: Int(header.averageChunkByteCount))
    codec = try CodecChoice(kind, level: .number(Int(header.level)))
    logger = configuration.logger
    metrics = configuration.metrics
    clock = environment.clock
    self.environment = environment
    weaknesses = environment.weaknesses
    codecs = CodecPool()
    // A copied store may lack the empty folder. Syncs of packs do not make its name durable.
    if try folder.makePart(folder.packs) { try folder.files.syncDirectory(folder.path) }
    try folder.files.anchor?.holdPacks()
    do throws(BlobStorageError) { try folder.makePart(folder.leases) } catch {
      // A copied store may lack the empty folder. If it cannot be written, it needs no leases.
      guard error.isRefusal else { throw error }
    }
    var boot = environment.bootIdentity
    if boot == nil { boot = try BootIdentity.current() }
    let identity = MediumIdentity(
      boot: boot ?? "",
      mount: environment.mountIdentity ?? folder.files.mountIdentity(of: folder.path))
    let setting = StoreSetting(
      folder: folder, header: header, environment: environment, identity: identity, codecs: codecs,
      logger: configuration.logger)
    let opened = try location.open(setting)
    let backend = opened.backend
    self.backend = backend
    let live = LiveHolder()
    let tails = Tails(
      backend: backend, codecs: codecs, store: header, time: environment.time, weaknesses: weaknesses)
    builder = CatalogBuilder(
      backend: backend, codecs: codecs, store: header, logger: configuration.logger, weaknesses: weaknesses,
      recordCountOfBatch: environment.recordCountOfBatch, live: live, outerRowsSource: opened.outerRows)
    catalog = try folder.withReserve { [builder] () throws(BlobStorageError) in
      try Catalog(
        folder: environment.catalogFolder ?? folder.catalog,
        files: environment.catalogFolder == nil
          ? folder.files.anchor.map { environment.catalogFiles.anchored(by: $0) } ?? environment.catalogFiles
          : environment.catalogFiles, store: header,
        identity: identity, mapByteCount: environment.mapByteCount,
        logger: configuration.logger, randomNumber: environment.randomNumber, clock: environment.clock,
        patienceSeconds: environment.patienceSeconds,
        stripePatienceSeconds: environment.stripePatienceSeconds, live: live, tails: tails,
        hasAllPacks: backend.isDurableOnceSynced,
        outerRowsSource: opened.outerRows,
        prepare: { () throws(BlobStorageError) in try backend.prefetchFooters() },
        fill: { (database, mends) throws(BlobStorageError) in
          if mends { try builder.fill(database) } else { try builder.look(database) }
        },
        recoverDeadPacks: { (database, willWrite) throws(BlobStorageError) in
          try builder.recoverDeadPacks(database, willWrite: willWrite)
        })
    }
    let packs = PackFiles(backend: backend, codecs: codecs, store: header) { [catalog] in
      catalog.databaseNumber
    }
    self.packs = packs
    sharing = opened.sharing(
      StoreParts(setting: setting, backend: backend, catalog: catalog, builder: builder, packs: packs))
    let cores = ProcessInfo.processInfo.activeProcessorCount
    work = WorkPool(
      width: environment.worksInline ? 0 : configuration.threadCount > 0 ? configuration.threadCount : cores)
    chunks = ChunkSource(
      catalog: catalog, packs: packs, codecs: codecs,
      cache: ChunkCache(byteCountMax: configuration.cacheByteLimit),
      otherCopies: OtherCopies(catalog: catalog, packs: packs),
      looksUpAgain: !weaknesses.contains(.looksUpOnce), extender: sharing)
    blobs = BlobSource(catalog: catalog, backend: backend, packs: packs, chunks: chunks, work: work)
    let writerID = environment.randomNumber()
    leases = LeaseFile(folder: folder.leases, writer: writerID, files: folder.files)
    writer = WriterSession(
      writerID: writerID, store: header, backend: backend, catalog: catalog, codecs: codecs,
      clock: environment.clock,
      packByteCountTarget: environment.packByteCountTarget,
      packRecordCountTarget: environment.packRecordCountTarget, weaknesses: environment.weaknesses,
      logger: configuration.logger, syncs: PackSyncs(),
      publisher: sharing.publisher(of: writerID, leases: leases))
    planner = ChunkPlanner(
      catalog: catalog, writer: writer, leases: leases, blobs: blobs, sizes: sizes,
      algorithm: header.digestAlgorithm,
      search: BaseSearch(
        codec: codec, codecs: codecs, chunks: chunks, usesSimilarity: header.flags.contains(.similarity)))
    memoryPut = MemoryPut(planner: planner, writer: writer)
    if let summary = try losses().summary {
      logger.error(
        "The store has lost something, and answers may be out of date: run repair.",
        metadata: ["loss": "\(summary)"])
    }
    try sharing.begin(self)
  }

  deinit {
    if !isClosed.load(ordering: .relaxed) { letGo() }
  }

  package func close() throws(BlobStorageError) {
    for hook in closingHooks.withLock({ Array($0.values) }) { hook() }
    guard isClosed.compareExchange(expected: false, desired: true, ordering: .acquiringAndReleasing).exchanged
    else {
      return
    }
    defer { letGo() }
    try folder.files.anchor?.look()
    try writer.close()
  }

  /// Closes the store without writing anything: its folder is gone, and another one may be in its place.
  package func abandon() {
    guard isClosed.compareExchange(expected: false, desired: true, ordering: .acquiringAndReleasing).exchanged
    else { return }
    letGo()
  }

  private func letGo() {
    writer.letGo()
    sharing.close()
    leases.close()
    catalog.close()
    work.close()
    // An owner that opens the store again keeps this engine, but neither its open files nor its memory.
    packs.forgetAll()
    chunks.cache.removeAll()
    chunks.frames.removeAll()
    codecs.removeAll()
    folder.files.anchor?.close()
    catalog.changeSignal.send()
  }

  /// Creates a session with its own packs, for work apart from puts. Must be closed where packs are published.
  package func newSession(laterThan time: UInt64? = nil) -> WriterSession {
    let writerID = environment.randomNumber()
    return WriterSession(
      writerID: writerID, store: header, backend: backend, catalog: catalog, codecs: codecs,
      clock: clock,
      packByteCountTarget: writer.packByteCountTarget.load(ordering: .relaxed),
      packRecordCountTarget: writer.packRecordCountTarget, weaknesses: weaknesses,
      logger: logger, syncs: writer.syncs,
      publisher: sharing.publisher(of: writerID, leases: nil),
      packTimeMin: time.map { $0 &+ 1 } ?? 0)
  }

  /// Limits packs that are begun from now on to `byteCount`, if that is less than usual.
  package func limitPacks(to byteCount: Int64) {
    writer.packByteCountTarget.store(min(byteCount, environment.packByteCountTarget), ordering: .relaxed)
  }

  /// The prefix of the store's cache and its limits; nil if the store has no cache.
  package func cacheSettings() throws(BlobStorageError) -> (prefix: String, limits: CacheLimits)? {
    try CacheFile.read(folder).map { (String(decoding: $0.prefix, as: UTF8.self), $0.limits) }
  }

  /// Limits new packs as the store's cache needs, if it has one: a large pack can be emptied only as a whole.
  package func adoptCacheLimits() throws(BlobStorageError) {
    // Opening the cache reports damage of its file.
    if case (_, let limits)?? = try unlessCorrupted(try cacheSettings()) {
      limitPacks(to: limits.packByteCountTarget)
    }
  }

  package func checkOpen() throws(BlobStorageError) {
    if isClosed.load(ordering: .acquiring) { throw BlobStorageError(.closed, "The store was closed.") }
    try catalog.anchor?.checkNotEnded()
  }

  package var information: StoreInformation {
    StoreInformation(
      path: sharing.path, id: Hex.text(header.storeID),
      digestAlgorithm: header.digestAlgorithm,
      chunkSizes: sizes, codec: codec.kind, level: codec.level,
      usesSimilarity: header.flags.contains(.similarity),
      created: Date(timeIntervalSince1970: Double(header.created) / 1_000),
      collectingMachine: sharing.collectingMachine)
  }

  /// Extends the catalog by what other machines have published. Does nothing for a store in a folder.
  @discardableResult
  package func extend() throws(BlobStorageError) -> ExtensionReport {
    try checkOpen()
    return try sharing.extend()
  }

  /// Makes everything durable that the store's session has committed.
  package func synchronize() throws(BlobStorageError) {
    try checkOpen()
    try sharing.synchronize(writer)
  }

  /// The packs whose sync has failed. What an operation finds in these does not count.
  package func failedPacks() throws(BlobStorageError) -> Set<PackName> {
    Set(try catalog.packRows().lazy.filter(\.row.isPoisoned).map(\.row.name))
  }

  /// Returns the bytes of a key. Throws `invalidArgument` if the key is invalid.
  package static func keyBytes(_ key: String) throws(BlobStorageError) -> [UInt8] {
    let bytes = Array(key.utf8)
    guard 1...BlobLimits.maximumKeyByteCount ~= bytes.count, !bytes.contains(0) else {
      throw BlobStorageError(
        .invalidArgument,
        bytes.isEmpty
          ? "A key must not be empty."
          : bytes.contains(0)
            ? "The key “\(key.prefix(40))” has a NUL: a key has none."
            : "The key “\(key.prefix(40))…” has \(bytes.count) bytes: a key has at most \(BlobLimits.maximumKeyByteCount).",
        key: key)
    }
    return bytes
  }

  /// The folder of a store to open, which its files hold from now on.
  private static func heldFolder(
    at path: String, _ files: any FileSystem
  ) throws(BlobStorageError) -> StoreFolder {
    let folder = try folder(at: path, files)
    guard files.canBeAnchored else { return folder }
    while true {
      do throws(BlobStorageError) {
        let anchor = try FolderAnchor(try absolute(path), root: folder.path)
        return StoreFolder(folder.path, files: files.anchored(by: anchor))
      } catch {
        // It says what is there instead of a folder.
        _ = try folder.readHeader()
        // Another process may have created the store since.
        guard error.isMissingName else { throw error }
      }
    }
  }

  /// The folder at a path. Resolves links once.
  package static func folder(
    at path: String, _ files: any FileSystem
  ) throws(BlobStorageError) -> StoreFolder {
    StoreFolder(files.resolved(try absolute(path)), files: files)
  }

  package static func absolute(_ path: String) throws(BlobStorageError) -> FilePath {
    guard !path.isEmpty else {
      throw BlobStorageError(.invalidArgument, "The path of a store must not be empty.")
    }
    let file = FilePath(path)
    if file.isAbsolute { return file }
    return FilePath(FileManager.default.currentDirectoryPath).pushing(file)
  }
}

extension Engine {
  /// Runs long work and shows its progress to other processes, too.
  package func watched<T>(
    _ operation: String, on subject: String = "", byteCountMin: Int64 = 0, _ progress: ProgressHandler?,
    _ body: (@escaping ProgressHandler) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let file = ActivityFile(folder, clock, operation, subject, byteCountMin: byteCountMin)
    defer { file.end() }
    return try body { report in
      file.update(report)
      progress?(report)
    }
  }

  /// Runs `body`, and records the event that `event` makes of its result, if the store has metrics.
  func measured<T>(
    _ body: () throws(BlobStorageError) -> T, _ event: (T, Duration) -> StoreEvent
  ) throws(BlobStorageError) -> T {
    guard let metrics else { return try body() }
    let start = ContinuousClock.now
    let result = try body()
    metrics.record(event(result, .now - start))
    return result
  }

  func record(_ data: Data?, since start: ContinuousClock.Instant) {
    guard let data, let metrics else { return }
    metrics.record(.read(byteCount: Int64(data.count), duration: .now - start))
  }
}

extension StoreEvent {
  static func put(_ results: [PutResult], _ duration: Duration) -> StoreEvent {
    .put(
      byteCount: results.reduce(0) { $0 + $1.version.byteCount },
      newByteCount: results.reduce(0) { $0 + $1.newByteCount },
      storedByteCount: results.reduce(0) { $0 + $1.storedByteCount }, duration: duration)
  }
}

/// A version of an internal key.
package struct InternalVersion: Sendable {
  package let key: [UInt8]
  package let stamp: Stamp
  package let row: VersionRow
}

/// Values that the store keeps under internal keys. They are ordinary blobs: gc, verify, copies and rebuilds need not
/// know their contents.
extension Engine {
  /// The current versions of the internal keys that begin with `prefix`, or all their versions.
  package func internalVersions(
    _ prefix: [UInt8] = InternalKey.prefix, includesArchived: Bool = false
  ) throws(BlobStorageError) -> [InternalVersion] {
    try checkOpen()
    return try catalog.read { (transaction) throws(BlobStorageError) in
      var found: [InternalVersion] = []
      try transaction.forEachKey(prefix: prefix, after: nil) { (key, name) throws(BlobStorageError) in
        if includesArchived {
          for version in try transaction.versions(of: name) {
            found.append(InternalVersion(key: key, stamp: version.stamp, row: version.row))
          }
        } else if let current = name.current {
          found.append(InternalVersion(key: key, stamp: current.stamp, row: current.row))
        }
        return true
      }
      return found
    }
  }

  /// Stores a value under an internal key.
  ///
  /// - Throws: `limitExceeded` if the metadata are too long, `conditionFailed`.
  package func putInternal(
    _ key: [UInt8], _ content: BlobContent, metadata: [UInt8] = [], if condition: ChangeCondition = .always,
    _ durability: Durability = .durable
  ) throws(BlobStorageError) {
    try checkOpen()
    let options = PutOptions(durability: durability, condition: condition, metadata: metadata)
    try MemoryPut.check(options)
    _ = try store(key, content, options)
  }

  /// Drops internal keys.
  ///
  /// - Throws: `held` for a held state that is refused; nothing was changed.
  package func dropInternal(_ keys: [[UInt8]], held: HeldKeys = .skipped) throws(BlobStorageError) {
    guard !keys.isEmpty else { return }
    try checkOpen()
    _ = try drop(keys, keeping: nil, .durable, held: held)
  }

  /// Drops all states, and what imports keep for them, except held states and what those need.
  func dropStates() throws(BlobStorageError) {
    for purpose in [InternalKey.Purpose.state, .link, .replaced] {
      let keys = try internalVersions(purpose.prefix).map(\.key)
      try dropInternal(keys)
      // A held state needs its links and its versions.
      if try holds(on: keys).contains(where: { $0 != nil }) { return }
    }
    try dropAttributes()
  }

  /// Drops the attributes that imports have stored apart. Leaves them to a later `keep` while an import runs, because
  /// it stores them before the file, and if a key was put meanwhile, which may need them.
  private func dropAttributes() throws(BlobStorageError) {
    guard try !internalVersions(InternalKey.Purpose.attributes.prefix).isEmpty else { return }
    let imports = try folder.files.open(folder.statesLock, .openOrCreate)
    defer { imports.close() }
    guard try imports.lock(.exclusive, wait: false), try keys(.all, after: nil, limit: 1).isEmpty else {
      return
    }
    try dropInternal(try internalVersions(InternalKey.Purpose.attributes.prefix).map(\.key))
  }

  /// All holds on keys and states.
  package func keyHolds() throws(BlobStorageError) -> [KeyHold] {
    try checkOpen()
    return try catalog.read { (transaction) throws(BlobStorageError) in try transaction.keyHolds() }
  }

  /// For each key, the hold that protects it; nil if none does.
  package func holds(on keys: [[UInt8]]) throws(BlobStorageError) -> [KeyHold?] {
    try checkOpen()
    return try catalog.read { (transaction) throws(BlobStorageError) in
      let holds = try transaction.keyHolds()
      return try keys.map { (key) throws(BlobStorageError) in try transaction.hold(on: key, among: holds) }
    }
  }

  /// - Throws: `held` if a hold protects a key of a prefix.
  func checkHolds(on prefix: KeyPrefix) throws(BlobStorageError) {
    for hold in try keyHolds() where prefix.overlaps(hold.prefix) {
      let start = Array(prefix.start.utf8)
      let longer = hold.prefix.starts(with: start) ? hold.prefix : prefix.own.map { Array($0.utf8) } ?? start
      try catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.forEachKey(prefix: longer, after: nil) { (key, _) throws(BlobStorageError) in
          guard prefix.contains(key), try transaction.hold(on: key, among: [hold]) != nil else { return true }
          throw hold.refusal(of: key)
        }
      }
    }
  }
}

/// Losses, recovery and the reserve.
extension Engine {
  /// The losses that are not accepted yet. In a shared store these are the losses that its last extension found.
  package func losses() throws(BlobStorageError) -> StoreLosses { StoreLosses(try sharing.losses()) }

  /// Whether small chunks are joined when they are copied. Not in a cache: its values are read and evicted one by one.
  func joinsWhatItCopies() throws(BlobStorageError) -> Bool {
    guard codec.kind == .zstd else { return false }
    return try cacheSettings() == nil
  }

  /// Recovers the packs of dead writers.
  package func recoverDeadWriters() throws(BlobStorageError) { try catalog.recoverDead() }

  /// Restores the reserve if there is room for it.
  package func keepReserve() {
    do throws(BlobStorageError) { try folder.keepReserve() } catch {
      logger.warning("There is no room for the reserve.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Restores the file `store` of a folder. Returns false if nothing was wrong with it.
  package static func restoreHeader(
    at path: String, environment: Environment = Environment()
  ) throws(BlobStorageError) -> Bool {
    try folder(at: path, environment.files)
      .restoreHeader(defaults: try newHeader(StoreOptions(), environment))
  }
}
