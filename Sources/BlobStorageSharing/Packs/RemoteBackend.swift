import BlobStorage
import Synchronization
import SystemPackage

/// Keeps packs as objects, each named `packs/NAME.pack`.
///
/// A writer fills and seals a pack in a local folder, the *spool*, and publishes it with one conditional put. From then
/// on the pack never changes, and every machine reads it by ranges. After a crash, the next process that opens the
/// state folder publishes the packs in the spool.
package final class RemoteBackend: Backend {
  package let objects: any ObjectStore
  package let storeID: [UInt8]
  package let census: any CensusLog = PublishedCensus()
  /// A pack is durable once it is published.
  package var isDurableOnceSynced: Bool { false }
  let spool: FolderBackend
  private let spoolFolder: FilePath
  let footers: FooterCopies
  let fetches: RangeFetches
  let index: SharedIndex
  /// The index that the next rebuild adopts.
  private let foundIndex = Mutex<IndexRoot?>(nil)
  /// Whether the last listing of the log lacked the last entry that this machine has read.
  let lacksLog = Atomic<Bool>(false)
  /// Whether packs were removed, and only a catalog of all packs finds the copies of their chunks.
  private let needsAllPacks = Atomic<Bool>(false)
  /// The number of concurrent requests. With 0, the caller's thread sends them one by one.
  let width: Int
  /// Prefetches in parallel to the reading thread.
  private let readAhead: WorkPool
  let weaknesses: Weaknesses
  /// Whether changes name published packs. That requires conditional put.
  let hasChanges: Bool
  let knownChange = Mutex<UInt32>(0)
  /// The last sequence of each writer that changes have named.
  let named = Mutex<[UInt64: UInt32]>([:])
  /// Packs that are stored but not yet named in a change.
  private let unnamed = Mutex<Set<PackName>>([])
  /// The lengths of packs that this process has listed, published or checked.
  private let lengths = Mutex<[PackName: Int64]>([:])
  /// The newest state of the log that this process has read.
  private let knownCollections: Mutex<Collections>
  private let logFile: LogFile
  private let listing = Mutex<StoreListing?>(nil)
  /// Published packs whose objects are gone, as of the last extension. New puts do not rely on them.
  private let lost = Mutex<Set<PackName>>([])
  /// Objects with names of packs that are packs of other stores.
  let strays = Mutex<Set<PackName>>([])
  /// Published packs whose copies in the spool are not read: a power cut may have torn them.
  private let torn = Mutex<Set<PackName>>([])
  /// Whether puts may rely on condemned packs. A collector's do, because it copies live records out of them.
  private let countsOnCondemned: Bool
  /// Whether to list all packs each time, including those that only the registration of their writer names.
  let isForCollector: Bool

  /// The bytes at a pack's end that the first request fetches. Most footers are shorter.
  static let tailByteCount = 256 << 10

  /// - Parameters:
  ///   - folder: the state folder, in which `packs`, `footers`, `incoming`, `ranges` and `index` exist.
  ///   - asideFolder: receives packs that cannot be published.
  package init(
    objects: any ObjectStore, storeID: [UInt8], folder: FilePath, asideFolder: FilePath,
    files: any FileSystem, cacheByteLimit: Int64, indexByteLimit: Int64 = 64 << 20, width: Int = 8,
    weaknesses: Weaknesses = [], hasChanges: Bool = true, isForCollector: Bool = false
  ) {
    logFile = LogFile(.checkpoint, in: folder, files, storeID: storeID)
    var known = Collections()
    do throws(BlobStorageError) { known = try logFile.read()?.state ?? known } catch {
      // Then the next read of the log reads all of it.
    }
    knownCollections = Mutex(known)
    self.hasChanges = hasChanges
    self.isForCollector = isForCollector
    countsOnCondemned = isForCollector || weaknesses.contains(.pardonsSharedPacks)
    self.objects = objects
    self.storeID = storeID
    self.width = width
    readAhead = WorkPool(width: width / 2)
    self.weaknesses = weaknesses
    spoolFolder = folder.entry("packs")
    spool = FolderBackend(
      folder: spoolFolder, asideFolder: asideFolder, files: files, weaknesses: weaknesses,
      synchronizes: false, census: PublishedCensus())
    footers = FooterCopies(state: folder, files: files)
    fetches = RangeFetches(
      objects: objects,
      cache: RangeCache(folder: folder.entry("ranges"), files: files, byteCountMax: cacheByteLimit))
    index = SharedIndex(
      objects, storeID: storeID, folder: folder.entry("index"), files: files, cacheByteLimit: indexByteLimit)
  }

  deinit { close() }

  /// Ends the prefetching threads.
  func close() { readAhead.close() }

  /// A record of an unknown format counts as damage, because another machine may have a later build.
  package func isDamage(_ error: BlobStorageError) -> Bool {
    error.code == .corrupted || error.code == .unsupportedFormat
  }

  // MARK: Names

  package func localPackNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName]) {
    var names = try spool.packNames()
    torn.withLock { torn in names.live.removeAll { torn.contains($0) } }
    return names
  }

  /// The packs with files in the spool, including torn ones.
  func spooledPackNames() throws(BlobStorageError) -> [PackName] { try spool.packNames().live }

  package func distrustLocal(_ name: PackName) { torn.withLock { _ = $0.insert(name) } }

  package func packNames() throws(BlobStorageError) -> (live: [PackName], retired: [PackName]) {
    let local = try localPackNames()
    let published = try publishedPacks().packs
    return (local.live + published.keys.filter { !local.live.contains($0) }.sorted(), local.retired)
  }

  /// Lists all published packs with their lengths, and reads the log.
  ///
  /// The result has every pack that was published before the call, unless it was removed. Its `packs` contain no fence,
  /// and no pack behind one.
  ///
  /// - Parameter asksWriters: whether to look for packs that only the registration of their writer names. Costs one
  ///   more listing, and one get for each registered writer.
  package func publishedPacks(asksWriters: Bool = false) throws(BlobStorageError) -> StoreListing {
    // Before the listing, which then has all packs that a registration or a change names.
    let lastChange = try newestChange()
    var published = named.withLock { $0 }
    if asksWriters || isForCollector {
      let registered = try Membership.publishedSequences(
        objects, storeID: storeID, of: Membership.writers(objects))
      published.merge(registered) { max($0, $1) }
    }
    var listing = try StoreListing.read(
      objects, storeID: storeID, known: collections, published: published,
      strays: strays.withLock { $0 })
    if !listing.fences.isEmpty {
      listing.packs = listing.packs.filter { $0.key.sequence < listing.fences[$0.key.writer] ?? .max }
    }
    listing.lastChange = lastChange
    let packs = listing.packs
    lengths.withLock { $0 = packs }
    remember(&listing)
    return listing
  }

  /// Remembers a listing. A partial one shows only new fences, so it inherits the earlier ones.
  func remember(_ listing: inout StoreListing) {
    if listing.isPartial {
      listing.fences.merge(lastListing?.fences ?? [:]) { min($0, $1) }
    }
    self.listing.withLock { [listing] in $0 = listing }
    // Another thread may have read a later entry.
    adopt(listing.collections)
  }

  package func knownPackNames() throws(BlobStorageError) -> Set<PackName> {
    let removed = collections.removed
    let listed = lengths.withLock { Set($0.keys) }
    return try listed.union(footers.names()).filter { !removed.contains($0) }
  }

  /// The last listing; nil before the first.
  package var lastListing: StoreListing? { listing.withLock { $0 } }

  /// The length of a pack; nil if it is not known to be published.
  func publishedByteCount(_ name: PackName) -> Int64? { lengths.withLock { $0[name] } }

  func setPublished(_ name: PackName, _ byteCount: Int64) { lengths.withLock { $0[name] = byteCount } }

  /// Forgets which packs were there, so that puts look for them again.
  func forgetPublished() { if hasChanges { lengths.withLock { $0 = [:] } } }

  package func isCountedOn(_ name: PackName) -> Bool {
    if lost.withLock({ $0.contains(name) }) { return false }
    return countsOnCondemned
      || knownCollections.withLock { !$0.condemned.contains(name) && !$0.removed.contains(name) }
  }

  package func countsOnAll(settledLog: UInt64) -> Bool {
    let (collections, isNoneLost) = (collections, lost.withLock { $0.isEmpty })
    guard isNoneLost, collections.condemned.isEmpty else { return false }
    // A catalog that agrees with the log has none that was removed, and every drop from before that.
    return settledLog > UInt64(collections.number)
  }

  package func isRemoved(_ name: PackName) -> Bool {
    knownCollections.withLock { $0.removed.contains(name) }
  }

  /// Ignores packs of other stores from now on.
  func ignore(_ names: Set<PackName>) {
    strays.withLock { $0.formUnion(names) }
    for name in names { footers.forget(name) }
  }

  /// Remembers which published packs are gone.
  func setLost(_ names: Set<PackName>) { lost.withLock { $0 = names } }

  /// The newest state of the log that this process has read.
  package var collections: Collections { knownCollections.withLock { $0 } }

  /// Adopts `newer`, unless it is older than the known state.
  package func adopt(_ newer: Collections) {
    let isNew = knownCollections.withLock { known in
      guard known.number < newer.number else { return false }
      known = newer
      return true
    }
    guard isNew else { return }
    do throws(BlobStorageError) { try logFile.keep(newer.encoded(.checkpoint, storeID: storeID)) } catch {
      // Then the next process reads more of the log.
    }
  }

  // MARK: Packs

  package var hasRoomAhead: Bool { spool.hasRoomAhead }

  package func createPack(_ name: PackName, header: [UInt8]) throws(BlobStorageError) -> any File {
    try spool.createPack(name, header: header)
  }

  package func openPack(_ name: PackName) throws(BlobStorageError) -> (any File)? {
    if let file = try openLocalPack(name) { return file }
    if let footer = try footers.open(name) { return remoteFile(name, byteCount: footer.byteCount, footer) }
    if index.isInUse {
      // Do not keep its footer: all footers would take as much space as the rows of the index.
      let known = publishedByteCount(name)
      let found =
        if let known { known } else { try objects.tail(SharedNames.pack(name), byteCount: 1)?.byteCount }
      return found.flatMap { Fence.hasLength($0) ? nil : remoteFile(name, byteCount: $0, nil) }
    }
    guard let byteCount = try fetchFooter(name) else { return nil }
    return remoteFile(name, byteCount: byteCount, try footers.open(name))
  }

  package func openLocalPack(_ name: PackName) throws(BlobStorageError) -> (any File)? {
    torn.withLock { $0.contains(name) } ? nil : try spool.openPack(name)
  }

  private func remoteFile(_ name: PackName, byteCount: Int64, _ footer: FooterCopy?) -> RemoteFile {
    RemoteFile(name: name, byteCount: byteCount, fetches: fetches, footer: footer)
  }

  package func adoptPack(_ name: PackName) throws(BlobStorageError) -> (any File)? {
    try spool.adoptPack(name)
  }

  package func synchronizeNames() throws(BlobStorageError) { try spool.synchronizeNames() }

  package func removeLeftovers() throws(BlobStorageError) {
    try spool.removeLeftovers()
    try footers.removeLeftovers()
  }

  package func removeNewPack(_ name: PackName) throws(BlobStorageError) { try spool.removeNewPack(name) }

  package func setAsidePack(_ name: PackName) throws(BlobStorageError) -> String {
    try spool.setAsidePack(name)
  }

  package func isUnpublishable(_ name: PackName) throws(BlobStorageError) -> Bool { try spool.hasAside(name) }

  package func retirePacks(_ names: [PackName]) throws(BlobStorageError) {
    guard !names.isEmpty else { return }
    throw BlobStorageError(
      .invalidArgument, "A pack in \(objects.place) can be removed only by a collection.")
  }

  package func removeRetiredPack(_ name: PackName) throws(BlobStorageError) { forget(name) }

  /// Deletes the local footer and cached parts of a removed pack.
  package func forget(_ name: PackName) {
    lengths.withLock { $0[name] = nil }
    footers.forget(name)
    fetches.cache.forget(name)
  }

  package func forgetEnds(_ name: PackName) {
    footers.forget(name)
    fetches.cache.forget(name)
  }

  /// Drops a pack's cached parts, so that the next reads go to the object store.
  package func forgetRecords(_ name: PackName) { fetches.cache.forget(name) }

  /// Whether length, header or footer of a published pack differ from the local copies.
  ///
  /// The local copies stay, because no other machine may have them.
  package func hasOtherFooter(_ name: PackName) throws(BlobStorageError) -> Bool {
    guard let copy = try footers.open(name) else { return false }
    defer { copy.file.close() }
    if let byteCount = publishedByteCount(name), byteCount != copy.byteCount { return true }
    for range in [0..<Int64(PackHeader.byteCount), copy.footerOffset..<copy.byteCount] {
      var offset = range.lowerBound
      while offset < range.upperBound {
        let end = min(range.upperBound, offset + Int64(FooterCopies.stepByteCount))
        let kept = try [UInt8](filling: Int(end - offset)) { (buffer) throws(BlobStorageError) in
          try copy.read(into: buffer, at: offset) ? buffer.count : 0
        }
        guard !kept.isEmpty, try objects.get(SharedNames.pack(name), offset..<end) == kept else {
          return true
        }
        offset = end
      }
    }
    return false
  }

  // MARK: Publishing

  /// Publishes the sealed pack in `file`, and names it in a change. Idempotent.
  ///
  /// - Throws: if the outcome is unknown. Then try again.
  package func publish(
    _ name: PackName, _ file: any File, byteCount: Int64
  ) throws(BlobStorageError) -> Publication.Outcome {
    if !unnamed.withLock({ $0.contains(name) }) {
      let outcome = try Publication.publish(
        name, .file(file, byteCount: byteCount), objects, storeID: storeID, known: collections,
        weaknesses: weaknesses)
      guard outcome == .published else { return outcome }
      unnamed.withLock { _ = $0.insert(name) }
      setPublished(name, byteCount)
    }
    do throws(BlobStorageError) { try announce(name) } catch {
      if !weaknesses.contains(.reportsBeforeChange) { throw error }
    }
    unnamed.withLock { _ = $0.remove(name) }
    do throws(BlobStorageError) {
      try footers.make(name, byteCount: byteCount) { (range) throws(BlobStorageError) in
        try file.bytesThere(at: range.lowerBound, Int(range.upperBound - range.lowerBound))
      }
    } catch {
      // The next read fetches the footer.
    }
    return .published
  }

  /// Moves a pack that the catalog knows as published from the spool to the cache, or deletes it if the cache cannot
  /// keep it whole.
  package func settle(_ name: PackName) throws(BlobStorageError) {
    guard let file = try spool.openPack(name) else { return }
    defer { file.close() }
    try fetches.cache.adopt(
      spoolFolder.entry(name.fileName), name, byteCount: try file.status().byteCount)
  }

  // MARK: Prefetch

  /// Chunks to prefetch together when a blob is read in order.
  package var readAheadCount: Int { 128 }
  /// Fetching a gap of up to this length costs less than another request.
  private static let gapByteCountMax: Int64 = 128 << 10
  private static let requestByteCountMax: Int64 = 4 << 20

  package func prefetch(_ parts: [(file: any File, ranges: [Range<Int64>])]) {
    var begun: [@Sendable () -> Void] = []
    for (file, ranges) in parts {
      guard let file = file as? RemoteFile else { continue }
      for range in Self.merged(ranges) {
        begun.append(readAhead.run { do throws(BlobStorageError) { try file.prefetch(range) } catch {} })
      }
    }
    // This thread runs the last one, or all of them if there is no other thread.
    begun.last?()
    if readAhead.width == 0 { for run in begun { run() } }
  }

  /// Joins ranges that lie close together.
  private static func merged(_ ranges: [Range<Int64>]) -> [Range<Int64>] {
    var merged: [Range<Int64>] = []
    for range in ranges.sorted(by: { $0.lowerBound < $1.lowerBound }) {
      if let last = merged.last, range.lowerBound <= last.upperBound + gapByteCountMax,
        range.upperBound - last.lowerBound <= requestByteCountMax
      {
        merged[merged.count - 1] = last.lowerBound..<max(last.upperBound, range.upperBound)
      } else {
        merged.append(range)
      }
    }
    return merged
  }

  // MARK: Footers

  /// The newest usable index, which the next rebuild adopts. A collector relies on footers alone: it must not remove
  /// anything because of an index.
  func findIndex() throws(BlobStorageError) -> IndexRoot? {
    let mayUse = hasChanges && !isForCollector && !needsAllPacks.load(ordering: .relaxed)
    let found = mayUse ? try index.newest() : nil
    foundIndex.withLock { $0 = found }
    return found
  }

  /// Makes this process's rebuilds read all packs.
  func leaveIndex() { needsAllPacks.store(true, ordering: .relaxed) }

  package func prefetchFooters() throws(BlobStorageError) {
    if try findIndex() != nil { return }
    try forEachPublished(try publishedPacks().packs.keys.sorted()) { _, _ in }
  }

  /// Calls `body` with each published pack in order, with nil for a pack that is gone. Prefetches several footers at
  /// once.
  package func forEachPublished(
    _ names: [PackName], _ body: (PackName, (any File)?) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let ahead = FetchAhead(count: names.count, width: width) { [self] (index) throws(BlobStorageError) in
      try fetchFooter(names[index])
    }
    defer { ahead.stop() }
    for (index, name) in names.enumerated() {
      guard let byteCount = try ahead.waitForValue(index) else {
        try body(name, nil)
        continue
      }
      let file = remoteFile(name, byteCount: byteCount, try footers.open(name))
      defer { file.close() }
      try body(name, file)
    }
  }

  /// Copies a pack's header and footer to this machine. Returns the pack's length, or nil if it is gone.
  private func fetchFooter(_ name: PackName) throws(BlobStorageError) -> Int64? {
    if let copy = try footers.open(name) { return copy.byteCount }
    let object = SharedNames.pack(name)
    guard let (tail, byteCount) = try objects.tail(object, byteCount: Self.tailByteCount),
      !Fence.hasLength(byteCount)
    else { return nil }
    setPublished(name, byteCount)
    var isGone = false
    var failure: BlobStorageError?
    do throws(BlobStorageError) {
      try footers.make(name, byteCount: byteCount, tail: tail) { [objects] (range) throws(BlobStorageError) in
        do throws(BlobStorageError) {
          if let bytes = try objects.get(object, range) { return bytes }
          isGone = true
        } catch { failure = error }
        throw BlobStorageError(.packGone, "Pack \(name) cannot be fetched.", pack: name.description)
      }
    } catch {
      // The disk may be full, or a process that has just opened the folder may have deleted the temporary file. Reads
      // then go to the object store.
    }
    if let failure { throw failure }
    return isGone ? nil : byteCount
  }
}

extension RemoteBackend: OuterRowsSource {
  package func open(_ root: [UInt8]) throws(BlobStorageError) -> any OuterRows {
    do throws(BlobStorageError) { return index.open(try IndexRoot(root)) } catch {
      throw BlobStorageError(.catalogDamaged, "The catalog relies on an index that cannot be read.")
    }
  }

  package func adopt(into database: Database) throws(BlobStorageError) -> Set<PackName> {
    guard let root = foundIndex.withLock({ $0.take() }) else { return [] }
    let found = index.open(root)
    do throws(BlobStorageError) {
      return try database.adopt(found) { (transaction) throws(BlobStorageError) in
        try transaction.adopt(found, clock: database.clock)
        return try Set(transaction.packRows().map(\.row.name))
      }
    } catch {
      if error.code == .catalogDamaged || error.code == .corrupted { found.distrust() }
      throw error
    }
  }
}

/// The census of published packs, which stays empty. The bucket's listing and the collection log show which packs
/// belong to the store.
package struct PublishedCensus: CensusLog {
  package init() {}

  package func read() -> Census { Census() }
  package func append(_ events: [Census.Event], durably: Bool) {}
  package func replace(by census: Census) {}
}
