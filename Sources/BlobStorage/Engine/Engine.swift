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
  package let work: WorkPool
  package let clock: WallClock
  package let logger: Logger
  package let weaknesses: Weaknesses
  let streamHeadByteCount: Int
  let dictionaryTrials = DictionaryTrials()
  private let packByteCountTarget: Int64
  private let randomNumber: @Sendable () -> UInt64
  private let isClosed = Atomic<Bool>(false)

  /// What tests put in place of the system.
  package struct Environment: Sendable {
    package var files: any FileSystem = SystemFiles()
    /// The catalog's files, as far as this library itself opens, locks and replaces them; LMDB opens its own.
    package var catalogFiles: any FileSystem = SystemFiles()
    /// Where the catalog is kept, when not in the store's folder: LMDB needs real files.
    package var catalogFolder: FilePath?
    package var clock = WallClock.system
    package var bootIdentity = BootIdentity.current()
    package var mapByteCount = 1 << 30
    package var packByteCountTarget = Limits.packByteCountTarget
    package var weaknesses: Weaknesses = []
    /// Content that streams in and ends before so many bytes is put like content in memory.
    package var streamHeadByteCount = Engine.inMemoryByteCountMax
    /// Where names and writer identities come from.
    package var randomNumber: @Sendable () -> UInt64 = randomUInt64
    /// Does the work of the pool on the caller's thread, so that what happens has one order.
    package var worksInline = false

    package init() {}
  }

  /// Makes an empty store.
  package static func create(
    at path: String, options: StoreOptions, environment: Environment = Environment()
  ) throws(BlobStorageError) {
    let sizes = try ChunkSizes(average: options.chunkByteCountAverage)
    let codec = try CodecChoice(options.codec, level: options.level)
    let header = StoreHeader(
      flags: options.usesSimilarity ? .similarity : [], digestAlgorithm: options.digestAlgorithm,
      codecNumber: codec.kind.rawValue, level: Int8(codec.level),
      chunkByteCountAverage: UInt32(sizes.average),
      storeID: withUnsafeBytes(
        of: (environment.randomNumber(), environment.randomNumber())
      ) { Array($0) },
      created: environment.clock.now())
    try StoreFolder(try absolute(path), files: environment.files).create(header)
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
  package init(
    path: String, configuration: StoreConfiguration, environment: Environment = Environment()
  ) throws(BlobStorageError) {
    let folder = StoreFolder(try Self.absolute(path), files: environment.files)
    let header = try folder.readHeader()
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
    weaknesses = environment.weaknesses
    let backend = FolderBackend(
      folder: folder.packs, asideFolder: folder.aside, files: environment.files, weaknesses: weaknesses)
    self.backend = backend
    codecs = CodecPool()
    for part in [folder.packs, folder.leases] { try folder.makePart(part) }
    try backend.removeLeftovers()
    let builder = CatalogBuilder(
      backend: backend, codecs: codecs, store: header, logger: configuration.logger, weaknesses: weaknesses)
    catalog = try folder.withReserve { () throws(BlobStorageError) in
      try Catalog(
        folder: environment.catalogFolder ?? folder.catalog, files: environment.catalogFiles, store: header,
        bootIdentity: environment.bootIdentity, mapByteCount: environment.mapByteCount,
        logger: configuration.logger, randomNumber: environment.randomNumber,
        fill: { (database) throws(BlobStorageError) in try builder.fill(database) },
        catchUp: { (database, willWrite) throws(BlobStorageError) in
          try builder.catchUp(database, willWrite: willWrite)
        })
    }
    packs = PackFiles(backend: backend)
    chunks = ChunkSource(
      catalog: catalog, packs: packs, codecs: codecs,
      cache: ChunkCache(byteCountMax: configuration.cacheByteCountMax),
      looksUpAgain: !weaknesses.contains(.looksUpOnce))
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
      logger: configuration.logger)
    let cores = ProcessInfo.processInfo.activeProcessorCount
    work = WorkPool(
      width: environment.worksInline ? 0 : configuration.threadCount > 0 ? configuration.threadCount : cores)
  }

  deinit {
    if !isClosed.load(ordering: .relaxed) {
      leases.close()
      catalog.close()
      work.close()
    }
  }

  package func close() throws(BlobStorageError) {
    guard isClosed.compareExchange(expected: false, desired: true, ordering: .acquiringAndReleasing).exchanged
    else {
      return
    }
    defer {
      leases.close()
      catalog.close()
      work.close()
    }
    try writer.rollOver()
  }

  /// A session with packs of its own, for work that must not share a pack with puts.
  package func newSession() -> WriterSession {
    WriterSession(
      writerID: randomNumber(), store: header, backend: backend, catalog: catalog, codecs: codecs,
      clock: clock,
      packByteCountTarget: writer.packByteCountTarget.load(ordering: .relaxed), weaknesses: weaknesses,
      logger: logger)
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
      path: folder.path.string, id: Hex.text(header.storeID), digestAlgorithm: header.digestAlgorithm,
      chunkSizes: sizes, codec: codec.kind, level: codec.level,
      usesSimilarity: header.flags.contains(.similarity),
      created: Date(timeIntervalSince1970: Double(header.created) / 1_000))
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

  private static func absolute(_ path: String) throws(BlobStorageError) -> FilePath {
    guard !path.isEmpty else {
      throw BlobStorageError(.invalidArgument, "The path of a store must not be empty.")
    }
    let file = FilePath(path)
    if file.isAbsolute { return file }
    return FilePath(FileManager.default.currentDirectoryPath).pushing(file)
  }
}
