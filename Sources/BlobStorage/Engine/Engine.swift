import Dispatch
import Foundation
import Logging
import Synchronization
import SystemPackage

/// What one process does on one store: everything blocking and synchronous, on the caller's thread.
package final class Engine: Sendable {
  package let folder: StoreFolder
  package let header: StoreHeader
  package let sizes: ChunkSizes
  package let codec: CodecChoice
  package let backend: any Backend
  package let catalog: Catalog
  package let codecs: CodecPool
  package let packs: PackFiles
  package let chunks: ChunkSource
  package let blobs: BlobSource
  package let leases: LeaseFile
  package let writer: WriterSession
  /// Plans what is put, by the store's codec.
  package let planner: ChunkPlanner
  package let work: WorkPool
  package let clock: WallClock
  package let logger: Logger
  package let weaknesses: Weaknesses
  let streamHeadByteCount: Int
  /// What it was opened with, for the engine that collects on a shared store.
  let environment: Environment
  /// Packs of dead processes that could not be published yet.
  let hasLeftSpool = Atomic<Bool>(false)
  let marks: MemberMarks
  private let packByteCountTarget: Int64
  private let randomNumber: @Sendable () -> UInt64
  private let isClosed = Atomic<Bool>(false)
  /// Only where packs are published.
  package let publishedPacks: CatchUp?
  /// For requests that are under way beside the reading.
  let readAhead: WorkPool?
  let remote: Remote?
  let makesThreads: Bool
  let uncertain = UncertainKeys()
  private let timer = Mutex<(any DispatchSourceTimer)?>(nil)

  /// What tests put in place of the system.
  package struct Environment: Sendable {
    package var files: any FileSystem = SystemFiles()
    /// The catalog's files, as far as this library itself opens, locks and replaces them; LMDB opens its own.
    package var catalogFiles: any FileSystem = SystemFiles()
    /// Where the catalog is kept, when not in the store's folder: LMDB needs real files.
    package var catalogFolder: FilePath?
    package var clock = WallClock.system
    package var time = PassingTime.system
    package var bootIdentity = BootIdentity.current()
    /// As the store's files tell it, if nil.
    package var mountIdentity: String?
    package var mapByteCount = 1 << 30
    /// So long a reader waits for a catalog that another process is making.
    package var patienceSeconds = 10.0
    /// So long a collection waits for a commit that has begun before it condemned packs.
    package var commitPatienceSeconds = 10.0
    package var packByteCountTarget = Limits.packByteCountTarget
    package var weaknesses: Weaknesses = []
    /// Content that streams in and ends before so many bytes is put like content in memory.
    package var streamHeadByteCount = Engine.inMemoryByteCountMax
    /// Of what streams in, so much is cut and looked up at once.
    package var streamBatchByteCount = 1 << 20
    /// Where names and writer identities come from.
    package var randomNumber: @Sendable () -> UInt64 = randomUInt64
    /// After so many seconds without a word a writer of a shared store looks whether it was fenced, before it writes.
    package var silenceSecondsMax = 30.0
    /// Whether it is for collecting on a shared store only: what lies in condemned packs is looked at like the rest.
    package var isForCollector = false
    /// Does the work of the pool on the caller's thread, so that what happens has one order.
    package var worksInline = false
    /// Records that a transaction takes when packs are taken in.
    package var recordCountOfBatch = 20_000

    package init() {}
  }

  /// Makes an empty store.
  package static func create(
    at path: String, options: StoreOptions, environment: Environment = Environment()
  ) throws(BlobStorageError) {
    try StoreFolder(try absolute(path), files: environment.files).create(try newHeader(options, environment))
  }

  static func newHeader(
    _ options: StoreOptions, _ environment: Environment
  ) throws(BlobStorageError) -> StoreHeader {
    let sizes = try ChunkSizes(average: options.chunkByteCountAverage)
    let codec = try CodecChoice(options.codec, level: options.level)
    return StoreHeader(
      flags: options.usesSimilarity ? .similarity : [], digestAlgorithm: options.digestAlgorithm,
      codecNumber: codec.kind.rawValue, level: Int8(codec.level),
      chunkByteCountAverage: UInt32(sizes.average),
      storeID: withUnsafeBytes(
        of: (environment.randomNumber(), environment.randomNumber())
      ) { Array($0) },
      created: environment.clock.now())
  }

  package static func storeExists(at path: String) -> Bool {
    do throws(BlobStorageError) {
      return try StoreFolder(try absolute(path), files: SystemFiles()).files.status(
        of: FilePath(path).appending("store"))?.kind == .regular
    } catch { return false }
  }

  /// What processes do on the store at a path; it is not opened.
  package static func activities(at path: String) throws(BlobStorageError) -> [Activity] {
    let folder = StoreFolder(try absolute(path), files: SystemFiles())
    _ = try folder.readHeader()
    return try Activity.all(folder)
  }

  /// Opens a store.
  ///
  /// - Parameters:
  ///   - path: the store's folder, or the state folder of one whose packs are objects.
  ///   - remote: where the packs are when they are objects.
  package init(
    path: String, configuration: StoreConfiguration, environment: Environment = Environment(),
    remote: Remote? = nil
  ) throws(BlobStorageError) {
    let folder = StoreFolder(try Self.absolute(path), files: environment.files)
    var remote = remote
    if let given = remote { remote?.extra = try StateFolder(folder, given.objects).prepare() }
    let header = try folder.readHeader()
    guard remote != nil || !header.flags.contains(.stateOnly) else {
      throw BlobStorageError(
        .notAStore, "\(path) is the state folder of a store elsewhere: open that store.", path: path)
    }
    guard let kind = CodecKind(rawValue: header.codecNumber) else {
      throw BlobStorageError(
        .unsupportedFormat,
        "The store at \(path) uses a codec that this build does not know: use a later build.",
        path: path)
    }
    try folder.finishCreation()
    self.folder = folder
    self.header = header
    sizes = try ChunkSizes(average: Int(header.chunkByteCountAverage))
    codec = try CodecChoice(kind, level: Int(header.level))
    logger = configuration.logger
    clock = environment.clock
    self.environment = environment
    weaknesses = environment.weaknesses
    let backend = Self.backend(folder, header, environment, remote)
    self.backend = backend
    self.remote = remote
    makesThreads = !environment.worksInline
    codecs = CodecPool()
    for part in [folder.packs, folder.leases] { try folder.makePart(part) }
    try backend.removeLeftovers()
    let identity = MediumIdentity(
      boot: environment.bootIdentity,
      mount: environment.mountIdentity ?? folder.files.mountIdentity(of: folder.path))
    marks = MemberMarks(folder: folder.members, files: folder.files, bootIdentity: identity.text)
    if let backend = backend as? RemoteBackend {
      try SpoolAdoption.setAsideTorn(backend, marks, codecs, logger)
    }
    let live = LiveHolder()
    let builder = CatalogBuilder(
      backend: backend, codecs: codecs, store: header, logger: configuration.logger, weaknesses: weaknesses,
      recordCountOfBatch: environment.recordCountOfBatch, live: live)
    let tails =
      remote == nil
      ? Tails(backend: backend, codecs: codecs, store: header, time: environment.time) : nil
    catalog = try folder.withReserve { () throws(BlobStorageError) in
      try Catalog(
        folder: environment.catalogFolder ?? folder.catalog, files: environment.catalogFiles, store: header,
        identity: identity, mapByteCount: environment.mapByteCount,
        logger: configuration.logger, randomNumber: environment.randomNumber, clock: environment.clock,
        isPublished: remote != nil, patienceSeconds: environment.patienceSeconds, live: live, tails: tails,
        prepare: { () throws(BlobStorageError) in try builder.prepareFilling() },
        fill: { (database, mends) throws(BlobStorageError) in
          if mends { try builder.fill(database) } else { try builder.look(database) }
        },
        catchUp: { (database, willWrite) throws(BlobStorageError) in
          try builder.catchUp(database, willWrite: willWrite)
        })
    }
    let packs = PackFiles(backend: backend)
    self.packs = packs
    (backend as? RemoteBackend)?.whenRoomIsMade { [weak packs] names in packs?.forget(names) }
    let catchUp = (backend as? any PublishingBackend).map { [catalog] in
      CatchUp(
        catalog: catalog, builder: builder, backend: $0, packs: packs, time: environment.time,
        logger: configuration.logger)
    }
    publishedPacks = catchUp
    chunks = ChunkSource(
      catalog: catalog, packs: packs, codecs: codecs,
      cache: ChunkCache(byteCountMax: configuration.cacheByteCountMax),
      otherCopies: OtherCopies(catalog: catalog, backend: backend, codecs: codecs, store: header),
      looksUpAgain: !weaknesses.contains(.looksUpOnce), catchUp: catchUp)
    blobs = BlobSource(catalog: catalog, packs: packs, chunks: chunks)
    packByteCountTarget = environment.packByteCountTarget
    streamHeadByteCount = environment.streamHeadByteCount
    randomNumber = environment.randomNumber
    let writerID = randomNumber()
    leases = LeaseFile(folder: folder.leases, writer: writerID, files: environment.files)
    writer = WriterSession(
      writerID: writerID, store: header, backend: backend, catalog: catalog, codecs: codecs,
      clock: environment.clock,
      packByteCountTarget: environment.packByteCountTarget, weaknesses: environment.weaknesses,
      logger: configuration.logger, syncs: PackSyncs(),
      publisher: Self.publisher(
        writerID, backend, remote, makesThreads: makesThreads, codecs, configuration.logger),
      member: (backend as? RemoteBackend).map { [catalog, leases, marks, randomNumber] in
        SharedMember(
          backend: $0, catalog: catalog, marks: marks,
          leases: leases, silenceSecondsMax: environment.silenceSecondsMax, time: environment.time,
          newNumber: randomNumber)
      })
    planner = ChunkPlanner(
      catalog: catalog, writer: writer, leases: leases, blobs: blobs, sizes: sizes,
      algorithm: header.digestAlgorithm,
      search: BaseSearch(
        codec, codecs: codecs, chunks: chunks, usesSimilarity: header.flags.contains(.similarity)))
    readAhead = remote.map { _ in WorkPool(width: environment.worksInline ? 0 : 4) }
    let cores = ProcessInfo.processInfo.activeProcessorCount
    work = WorkPool(
      width: environment.worksInline ? 0 : configuration.threadCount > 0 ? configuration.threadCount : cores)
    // Also what a repair of another process finds.
    catalog.onRenewal { [backend, uncertain] in
      guard let keys = try? backend.census?.read().uncertainKeys else { return }
      uncertain.set(keys)
    }
    if let summary = try losses().summary {
      logger.error(
        "The store has lost something, and answers may be out of date: run repair.",
        metadata: ["loss": "\(summary)"])
    }
    if let remote {
      try catchUp?.run()
      try adoptSpool()
      let seconds = remote.configuration.intervalSeconds
      if seconds > 0, makesThreads { timer.withLock { $0 = startBeating(seconds: seconds) } }
    }
  }

  private static func backend(
    _ folder: StoreFolder, _ header: StoreHeader, _ environment: Environment, _ remote: Remote?
  ) -> any Backend {
    guard let remote else {
      return FolderBackend(
        folder: folder.packs, asideFolder: folder.aside, files: environment.files,
        weaknesses: environment.weaknesses, census: folder.census)
    }
    return RemoteBackend(
      objects: remote.objects, storeID: header.storeID, folder: folder.path, asideFolder: folder.aside,
      files: environment.files, cacheByteCountMax: max(remote.configuration.cacheByteCountMax, 64 << 20),
      width: environment.worksInline ? 0 : 8, weaknesses: environment.weaknesses,
      countsOnCondemned: environment.isForCollector)
  }

  private static func publisher(
    _ writer: UInt64, _ backend: any Backend, _ remote: Remote?, makesThreads: Bool,
    _ codecs: CodecPool, _ logger: Logger
  ) -> Publisher? {
    guard let remote, let backend = backend as? any PublishingBackend else { return nil }
    return Publisher(
      writer: writer, backend: backend, waitingCountMax: remote.configuration.waitingPackCountMax,
      hasThread: makesThreads, codecs: codecs,
      logger: logger)
  }

  deinit {
    if !isClosed.load(ordering: .relaxed) { letGo() }
  }

  package func close() throws(BlobStorageError) {
    guard isClosed.compareExchange(expected: false, desired: true, ordering: .acquiringAndReleasing).exchanged
    else {
      return
    }
    defer { letGo() }
    try writer.close()
  }

  private func letGo() {
    writer.letGo()
    timer.withLock { $0.take() }?.cancel()
    leases.close()
    catalog.close()
    work.close()
    readAhead?.close()
  }

  /// A session with packs of its own, for work that must not share a pack with puts; to be closed where packs are
  /// published.
  package func newSession() -> WriterSession {
    let writerID = randomNumber()
    return WriterSession(
      writerID: writerID, store: header, backend: backend, catalog: catalog, codecs: codecs,
      clock: clock,
      packByteCountTarget: writer.packByteCountTarget.load(ordering: .relaxed), weaknesses: weaknesses,
      logger: logger, syncs: writer.syncs,
      publisher: Self.publisher(writerID, backend, remote, makesThreads: makesThreads, codecs, logger),
      member: (backend as? RemoteBackend).map {
        SharedMember(
          backend: $0, catalog: catalog, marks: marks,
          leases: nil, silenceSecondsMax: .infinity, time: environment.time, newNumber: randomNumber)
      })
  }

  /// Has packs that are begun from now on be full at `byteCount`, if that is less than usual.
  package func limitPacks(to byteCount: Int64) {
    writer.packByteCountTarget.store(min(byteCount, packByteCountTarget), ordering: .relaxed)
  }

  package func checkOpen() throws(BlobStorageError) {
    if isClosed.load(ordering: .acquiring) { throw BlobStorageError(.closed, "The store was closed.") }
  }

  package var information: StoreInformation {
    StoreInformation(
      path: remote?.objects.place ?? folder.path.string, id: Hex.text(header.storeID),
      digestAlgorithm: header.digestAlgorithm,
      chunkSizes: sizes, codec: codec.kind, level: codec.level,
      usesSimilarity: header.flags.contains(.similarity),
      created: Date(timeIntervalSince1970: Double(header.created) / 1_000),
      // What is said there in another way than this build knows is told when something is collected.
      collectingMachine: (try? remote?.maintainer())?.machine)
  }

  /// The bytes of a key, if it can be one.
  package static func keyBytes(_ key: String) throws(BlobStorageError) -> [UInt8] {
    let bytes = Array(key.utf8)
    guard 1...Limits.keyByteCountMax ~= bytes.count, !bytes.contains(0) else {
      throw BlobStorageError(
        .invalidArgument,
        bytes.isEmpty
          ? "A key must not be empty."
          : "The key “\(key.prefix(40))…” has \(bytes.count) bytes, or a NUL: a key has 1 to \(Limits.keyByteCountMax).",
        key: key)
    }
    return bytes
  }

  static func absolute(_ path: String) throws(BlobStorageError) -> FilePath {
    guard !path.isEmpty else {
      throw BlobStorageError(.invalidArgument, "The path of a store must not be empty.")
    }
    let file = FilePath(path)
    if file.isAbsolute { return file }
    return FilePath(FileManager.default.currentDirectoryPath).pushing(file)
  }
}
