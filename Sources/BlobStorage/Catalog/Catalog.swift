import Foundation
import Logging
import Synchronization
import SystemPackage

/// The derived database over the packs, as this process has it open.
///
/// Its folder holds `state`, a folder with the locks `lock` and `users`, and one folder per generation with LMDB's files.
/// Invariants:
/// 1. A write transaction holds `lock` shared. A rebuild, the first write after `clean`, and the recovery of dead
///    writers' packs hold it exclusively.
/// 2. `state` names the generation in use, its file, and the boot and the mounts that have written to it. A generation
///    of another boot or mount may be torn. It is used only if it was left clean and matches its checksum, or if a
///    process that trusts it has it open.
/// 3. `state` is replaced by a new file. A process with the old file open sees that it lost its name. On a full disk
///    the first write after `clean` overwrites `state` in place instead.
/// 4. Opening, reading and closing try to take a lock, and continue without it. They wait for `lock` only if the
///    catalog needs a rebuild, the live table is not valid, or a process died in a commit.
/// 5. A process holds `users` shared before it writes, and tries to take it when it opens. The last user to close
///    leaves the catalog clean.
/// 6. A clean catalog contains only what is on the medium. It stays dirty while the pack of a killed writer is open, or
///    while a pack waits to be published.
/// 7. A process that cannot write, or cannot get `lock` in time for a rebuild, reads a private catalog in a temporary
///    file.
package final class Catalog: Sendable {
  let folder: FilePath
  let files: any FileSystem
  package let anchor: FolderAnchor?
  let store: StoreHeader
  let identity: MediumIdentity
  let generations: Generations
  let mapByteCount: Int
  let logger: Logger
  /// Nil if the store cannot be written.
  let lockFile: (any File)?
  let usersFile: (any File)?
  /// Why the store cannot be written; nil if it can.
  let refusal = Mutex<BlobStorageError?>(nil)
  let current = Mutex<Current?>(nil)
  /// Orders the writes of this process, whose threads share the one lock of the lock file.
  let writeTurn = IOLock<Void>(())
  /// Whether this process holds `users`. False if another process was leaving the catalog clean when this one opened
  /// it.
  let isUser = Mutex(false)
  /// Orders the commits of this process, whose threads share the locks of the live table.
  let stripeTurns = StripeTurns()
  /// Orders the commits that have their stripes: one that must be alone excludes all others.
  let publishingTurns = StripeTurns()
  /// Holds the live table. Without a table every commit settles at once.
  package let live: LiveHolder
  /// The records of open packs that the catalog lacks.
  package let tails: Tails
  /// Whether all packs of the store lie in its folder. Where machines publish packs, a private catalog would lack those
  /// of other machines, and a pack that waits to be published need not be on the medium.
  let hasAllPacks: Bool
  /// Sent after each commit of this process, once it is visible.
  package let changeSignal = ChangeSignal()
  /// When this process last checked that the live table still has its name.
  let lastLook = Atomic<UInt64>(0)
  /// By ``PassingTime/coarseMilliseconds()``.
  let openedAt = PassingTime.coarseMilliseconds()
  /// Up to this length a file is always read for its checksum when the catalog is closed.
  static let checkedByteCount: Int64 = 32 << 20
  /// Whether dead writers' packs must still be recovered: another process held `lock`.
  let mustRecover = Atomic<Bool>(true)

  /// The database in use.
  struct Current: Sendable {
    var database: Database
    var generation: String
    /// The `state` that named it; nil for a private catalog.
    var state: Generations.OpenState?
    /// The count of replacements of `state` when it was read; nil if `state` must be checked.
    var stateCount: StateCount?
  }

  /// Switches to another database. The closure returns the old one, so that it closes outside the mutex.
  func use(_ new: Current) {
    _ = current.withLock { current -> Current? in
      defer { current = new }
      return current
    }
  }

  /// A live table's count of replacements of `state`.
  typealias StateCount = (table: LiveTable, count: UInt64)

  let randomNumber: @Sendable () -> UInt64
  let clock: WallClock
  /// Runs before a rebuild of a catalog in use, without a lock.
  let prepare: @Sendable () throws(BlobStorageError) -> Void
  /// Fills an empty database from the packs.
  let fill: Fill
  /// Opens the catalog's outer rows; nil if the database has all rows.
  let outerRowsSource: (any OuterRowsSource)?
  /// How long a reader waits for another process's rebuild.
  let patienceSeconds: Double
  /// How long a commit waits for another process's commit to the same key.
  let stripePatienceSeconds: Double
  package typealias Fill = @Sendable (Database, _ mends: Bool) throws(BlobStorageError) -> Void
  package typealias Recovery =
    @Sendable (
      Database, _ willWrite: () throws(BlobStorageError) -> Void
    ) throws(BlobStorageError) -> Void
  let recoverDeadPacks: Recovery

  /// Opens the catalog in `folder`. Creates a missing catalog, and rebuilds an unusable one with `fill`.
  ///
  /// - Parameters:
  ///   - prepare: downloads what a later `fill` needs, before any lock is taken.
  ///   - fill: applies all packs. Recovers dead writers' packs if its second argument is true; else changes no pack.
  ///   - recoverDeadPacks: applies what a usable catalog lacks, while no other process writes. It calls its second
  ///     argument before it writes. It throws `catalogDamaged` to request a rebuild.
  package init(
    folder: FilePath, files: any FileSystem, store: StoreHeader, identity: MediumIdentity, mapByteCount: Int,
    logger: Logger, randomNumber: @escaping @Sendable () -> UInt64 = randomUInt64,
    clock: WallClock = .system, patienceSeconds: Double = 10,
    stripePatienceSeconds: Double = 30,
    live: LiveHolder, tails: Tails, hasAllPacks: Bool,
    outerRowsSource: (any OuterRowsSource)? = nil,
    prepare: @escaping @Sendable () throws(BlobStorageError) -> Void = {},
    fill: @escaping Fill,
    recoverDeadPacks: @escaping Recovery
  ) throws(BlobStorageError) {
    self.folder = folder
    self.files = files
    anchor = files.anchor
    self.store = store
    self.identity = identity
    self.mapByteCount = mapByteCount
    self.logger = logger
    self.randomNumber = randomNumber
    self.clock = clock
    self.patienceSeconds = patienceSeconds
    self.stripePatienceSeconds = stripePatienceSeconds
    self.live = live
    self.tails = tails
    self.hasAllPacks = hasAllPacks
    self.outerRowsSource = outerRowsSource
    self.prepare = prepare
    self.fill = fill
    self.recoverDeadPacks = recoverDeadPacks
    var refusal: BlobStorageError?
    var locks: (lock: any File, users: any File)?
    var place: UInt64 = 0
    do throws(BlobStorageError) {
      try StoreFolder(folder, files: files).makePart(folder)
      place = try files.status(of: folder)?.inode ?? 0
      let part = Generations.locks(in: folder, place)
      try StoreFolder(folder, files: files).makePart(part)
      locks = (
        try files.open(part.entry("lock"), .openOrCreate), try files.open(part.entry("users"), .openOrCreate)
      )
    } catch {
      guard error.isRefusal, hasAllPacks else { throw error }
      refusal = error
    }
    lockFile = locks?.lock
    usersFile = locks?.users
    generations = Generations(
      folder: folder, files: files, identity: identity, live: live, logger: logger, place: place)
    if refusal == nil {
      do throws(BlobStorageError) { try openShared() } catch {
        guard error.isRefusal, hasAllPacks else { throw error }
        refusal = error
      }
    }
    guard let refusal else { return }
    self.refusal.withLock { $0 = refusal }
    try makeOwn()
  }

  /// Runs `body` on a view: a snapshot plus the tails. Never waits for writers.
  package func read<T>(_ body: (ReadTransaction) throws(BlobStorageError) -> T) throws(BlobStorageError) -> T
  {
    try mended(isPatient: false) { () throws(BlobStorageError) in
      if let outcome = try readAtOnce(body) { return outcome }
      // A newer snapshot is soon available.
      for _ in 0..<100_000 {
        let table = live.table
        let catalogCount = table?.catalogCount ?? 0
        let database = try database()
        // Nil if another thread changed to another catalog meanwhile.
        let hasState = current.withLock { $0?.database === database ? $0?.state != nil : nil }
        guard let hasState, live.table === table else { continue }
        let outcome = try database.read { (snapshot) throws(BlobStorageError) -> T? in
          guard let table, hasState else { return try body(snapshot) }
          guard let view = try tails.view(snapshot, of: database, table, catalogCount: catalogCount) else {
            return nil
          }
          return try body(view)
        }
        if let outcome { return outcome }
      }
      throw BlobStorageError(.busy, "The store changes faster than it can be read: try again.")
    }
  }

  /// Runs `body` on a view if only this process has changed the store since the last view. Otherwise returns nil
  /// without running `body`.
  ///
  /// Waits for no other process. Does no I/O except a look every tenth of a second, and reads of pages of the
  /// catalog that are not in memory.
  ///
  /// - Throws: also `catalogDamaged`, for which ``read(_:)`` rebuilds the catalog.
  package func readAtOnce<T>(
    _ body: (ReadTransaction) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T? {
    let now = current.withLock { $0.map { ($0.database, $0.stateCount) } }
    guard let (database, stateCount) = now, let stateCount, database.outerRows == nil,
      try isUnchanged(stateCount)
    else { return nil }
    return try database.read { (snapshot) throws(BlobStorageError) -> T? in
      let view = try tails.view(
        snapshot, of: database, stateCount.table, catalogCount: stateCount.count, isAtOnce: true)
      return try view.map { (view) throws(BlobStorageError) in try body(view) }
    }
  }

  /// Runs `body` on a snapshot without the tails: settled records only, even if a tail cannot be read.
  func readSettled<T>(
    _ body: (ReadTransaction) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    try mended(isPatient: false) { () throws(BlobStorageError) in try database().read(body) }
  }

  /// Runs `body` in the only write transaction of all processes, and commits its changes unless it throws.
  ///
  /// Settles all tails first.
  ///
  /// - Parameters:
  ///   - undo: called if nothing was committed, before any other thread of the process can write. `body` may run again:
  ///     after a rebuild, after the map has grown, or when the disk is full.
  ///   - done: called after the commit, before any process can rebuild the catalog.
  package func write<T>(
    _ body: (WriteTransaction) throws(BlobStorageError) -> T, undo: (BlobStorageError) -> Void = { _ in },
    done: () -> Void = {}
  ) throws(BlobStorageError) -> T {
    try mended { () throws(BlobStorageError) in try writeOnce(body, undo, done) }
  }

  /// Runs `body`. If it finds the catalog damaged, rebuilds the catalog and runs `body` once more. If it still does,
  /// the third catalog has no outer rows.
  func mended<T>(
    isPatient: Bool = true, _ body: () throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    do { return try body() } catch {
      guard error.code == .catalogDamaged else { throw error }
      try rebuild(because: error, isPatient: isPatient, unlessRebuiltSince: generation)
    }
    do { return try body() } catch {
      guard error.code == .catalogDamaged, let outer = current.withLock({ $0?.database.outerRows }) else {
        throw Self.final(error)
      }
      outer.distrust()
      try rebuild(because: error, isPatient: isPatient)
    }
    do { return try body() } catch { throw Self.final(error) }
  }

  /// The error when even a catalog that was just rebuilt cannot be used.
  static func final(_ error: BlobStorageError) -> BlobStorageError {
    guard error.code == .catalogDamaged else { return error }
    return BlobStorageError(
      .io, "The catalog was rebuilt and still cannot be used: \(error.message) Check the medium.",
      path: error.path, errno: error.errno)
  }

  func writeOnce<T>(
    _ body: (WriteTransaction) throws(BlobStorageError) -> T, _ undo: (BlobStorageError) -> Void,
    _ done: () -> Void
  ) throws(BlobStorageError) -> T {
    try inTurn { () throws(BlobStorageError) in
      defer { unlock() }
      let database = try lockedToWrite()
      do throws(BlobStorageError) {
        let result = try settlingFirst(database, body, undo)
        done()
        changeSignal.send()
        return result
      } catch {
        undo(error)
        throw error
      }
    }
  }

  private func settlingFirst<T>(
    _ database: Database, _ body: (WriteTransaction) throws(BlobStorageError) -> T,
    _ undo: (BlobStorageError) -> Void
  ) throws(BlobStorageError) -> T {
    guard let table = live.table else { return try database.write(body, undo: undo) }
    do throws(BlobStorageError) {
      let result = try database.write(
        { (transaction) throws(BlobStorageError) in
          try tails.settle(transaction, table)
          return try body(transaction)
        }, undo: undo)
      tails.resetCounts()
      return result
    } catch {
      guard error.code == .noSpace, !tails.isEmpty else { throw error }
      // `body` runs once more, and must not find what its first run appended.
      undo(error)
    }
    // On a full disk it settles a few records at a time: LMDB reuses the pages that each transaction frees.
    var count = 1_000
    while true {
      do throws(BlobStorageError) {
        let isAll = try database.write { (transaction) throws(BlobStorageError) in
          try tails.settle(transaction, table, atMost: count)
        }
        if isAll { break }
      } catch {
        guard error.code == .noSpace, count > 1 else { throw error }
        count /= 8
      }
    }
    tails.resetCounts()
    return try database.write(body, undo: undo)
  }

  /// Applies all tails to the catalog.
  package func settle() throws(BlobStorageError) {
    guard live.table != nil else { return }
    try write { _ in }
  }

  // MARK: Commits that are published

  /// Runs `body` while no other thread and no other process commits to the keys.
  ///
  /// - Parameters:
  ///   - keys: nil for all keys.
  ///   - publishes: whether the commit may become visible by a length in the live table.
  ///   - isAlone: whether no other thread commits meanwhile, whatever its keys.
  package func inCommitTurn<T>(
    _ keys: [[UInt8]]?, publishes: Bool, isAlone: Bool, _ body: () throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    if publishes { try leaveRemovedTable() }
    let stripes = LiveTable.stripes(keys)
    let begin = ContinuousClock.now
    // Last, so that a commit that must be alone waits for none that another process holds up.
    func atLast() throws(BlobStorageError) -> T {
      try publishingTurns.withTurn(isAlone ? nil : []) { (_) throws(BlobStorageError) in try body() }
    }
    let done = try stripeTurns.withTurn(stripes) { (number) throws(BlobStorageError) in
      guard publishes, let live = live.table else { return try atLast() }
      // A thread subtracts the time that it waited for other threads, which a stopped process may have held up.
      let waited = (ContinuousClock.now - begin) / .seconds(1)
      return try live.locked(
        stripes, withinSeconds: max(1, stripePatienceSeconds - waited),
        waiting: { (wait) throws(BlobStorageError) in try stripeTurns.heldUp(number, wait) }, atLast)
    }
    guard publishes else { return done }
    // If a program removed the table meanwhile, no new process sees what was published there.
    do throws(BlobStorageError) { try leaveRemovedTable() } catch {
      logger.warning("A change is not seen by all yet.", metadata: ["reason": "\(error.message)"])
    }
    return done
  }

  /// Claims a slot for a pack that this process begins; nil if all are taken.
  func claimSlot(_ pack: PackName) throws(BlobStorageError) -> LiveTable.Slot? {
    guard let live = live.table else { return nil }
    if let slot = try live.claim(pack) { return slot }
    try reap(try database())
    if let slot = try live.claim(pack) { return slot }
    // A pack that was given up after a failed write keeps its slot until a write recovers the pack.
    mustRecover.store(true, ordering: .relaxed)
    return nil
  }

  /// Waits until every commit that may rely on packs condemned before has ended.
  ///
  /// - Parameter recovered: packs of dead writers that were recovered since.
  /// - Returns: the pack of another writer that died in a commit and must be recovered first; nil if none did.
  /// - Throws: `busy` if a commit does not end in time.
  func awaitCommits(
    seconds: Double, ignoring recovered: Set<PackName>
  ) throws(BlobStorageError) -> PackName? {
    guard let live = live.table else { return nil }
    let epoch = live.beginEpoch()
    let end = ContinuousClock.now.advanced(by: .seconds(seconds))
    while true {
      var waited: LiveTable.Entry?
      for entry in live.entries()
      where entry.epoch != 0 && entry.epoch != epoch && !recovered.contains(entry.pack) {
        guard try live.isDead(entry) else {
          waited = entry
          continue
        }
        return entry.pack
      }
      guard let entry = waited else { return nil }
      guard ContinuousClock.now < end else {
        throw BlobStorageError(
          .busy,
          "A program has been inside a change for too long (\(entry.name)): end it, or collect again later.",
          pack: entry.pack.description)
      }
      Thread.sleep(forTimeInterval: 0.000_5)
    }
  }

  /// Discards the catalog and rebuilds it from the packs. Other processes wait with their writes.
  ///
  /// - Parameters:
  ///   - isPatient: whether to wait for `lock` without limit. A reader uses a private catalog instead.
  ///   - damaged: a damaged generation. The catalog of another thread or process that has replaced it will do.
  package func rebuild(
    because reason: BlobStorageError?, isPatient: Bool = true, unlessRebuiltSince damaged: String? = nil
  ) throws(BlobStorageError) {
    if isReadOnly { return try makeOwn() }
    if let outer = current.withLock({ $0?.database.outerRows }), outer.isDamaged { outer.distrust() }
    try prepare()
    try inTurn { () throws(BlobStorageError) in
      defer { unlock() }
      guard isPatient ? try lock(.exclusive, wait: true) : try lockWithPatience() else {
        return try makeOwn()
      }
      if let damaged, (try? adopt(isAlone: true)) != nil, generation != damaged { return }
      if let reason {
        logger.warning("The catalog is damaged and is rebuilt.", metadata: ["reason": "\(reason.message)"])
      }
      do throws(BlobStorageError) { try rebuildLocked() } catch { throw Self.final(error) }
    }
  }

  /// Fills a second, temporary catalog, and calls `body` with the catalog in use and the second one.
  package func withSecond(
    fill: (Database) throws(BlobStorageError) -> Void,
    _ body: (_ inUse: Database, _ second: Database) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    try settle()
    let inUse = try database()
    let second = try Database.temporary(for: self)
    try fill(second)
    try body(inUse, second)
  }

  /// Runs `body` while no other process writes to the catalog, rebuilds it or recovers packs.
  package func maintain(
    _ body: (Database) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    try mended { () throws(BlobStorageError) in
      try inTurn { () throws(BlobStorageError) in
        if isReadOnly { throw refused() }
        _ = try lock(.exclusive, wait: true)
        defer { unlock() }
        try becomeUser(wait: true)
        let database = try ownDatabase()
        try markWritten()
        mustRecover.store(false, ordering: .relaxed)
        try body(database)
        endReplacement()
        try reap(database)
      }
    }
  }

  /// Recovers the packs of dead writers.
  func recoverDead() throws(BlobStorageError) {
    try maintain { (database) throws(BlobStorageError) in try recoverDeadPacks(database) {} }
  }

  /// Closes the catalog. The last user leaves it clean, so that a later boot need not rebuild it.
  package func close() {
    let last = current.withLock { current in
      defer { current = nil }
      return current
    }
    guard let last else { return }
    do throws(BlobStorageError) {
      try inTurn { () throws(BlobStorageError) in try cleanUp(last) }
    } catch {
      // Not clean is safe: the next boot rebuilds it.
      logger.warning("The catalog was not closed cleanly.", metadata: ["reason": "\(error.message)"])
    }
    live.close()
    lockFile?.close()
    usersFile?.close()
  }

  /// Bytes that the catalog takes on the medium, without outer rows.
  package func allocatedByteCount() throws(BlobStorageError) -> Int64 {
    try mended { () throws(BlobStorageError) in try database().byteCount() }
  }

  /// All packs, in the order in which this catalog added them.
  package func packRows() throws(BlobStorageError) -> [(number: UInt32, row: PackRow)] {
    try read { (transaction) throws(BlobStorageError) in try transaction.packRows() }
  }

  /// The row of a pack; nil if the catalog does not know the pack.
  package func packRow(_ name: PackName) throws(BlobStorageError) -> PackRow? {
    try read { (transaction) throws(BlobStorageError) in try transaction.pack(name)?.row }
  }

  /// The name of the generation in use. Numbers of packs and keys are valid only within one generation.
  package var generation: String? { current.withLock { $0?.generation } }

  /// Whether the catalog in use relies on outer rows.
  var hasOuterRows: Bool { current.withLock { $0?.database }?.outerRows != nil }

  /// The root of the outer rows that the catalog in use relies on; nil if it has all rows itself.
  package func outerRoot() throws(BlobStorageError) -> [UInt8]? { try database().outerRows?.root }

  /// The number of the database in use; nil once the catalog is closed.
  var databaseNumber: UInt64? { current.withLock { $0?.database.number } }

  /// Frees the reader slots of dead processes.
  package func clearDeadReaders() throws(BlobStorageError) {
    try mended { () throws(BlobStorageError) in try database().clearDeadReaders() }
  }

  func unlock() {
    // A lock that cannot be released ends with the file.
    do { try lockFile?.unlock() } catch { logger.error("The catalog's lock cannot be given back.") }
  }

  func inTurn<T>(_ body: () throws(BlobStorageError) -> T) throws(BlobStorageError) -> T {
    try writeTurn.withLock { (_) throws(BlobStorageError) in try body() }
  }

  // MARK: Walks over whole tables, with a short snapshot for each page

  /// Calls `body` with every chunk, in the order of digests, until it returns false. Each page has a snapshot of its
  /// own.
  package func forEachChunk(
    _ body: (BlobDigest, ChunkRow, ReadTransaction) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let pageCountMax = 20_000
    var last: BlobDigest?
    while true {
      try CancellationFlag.check()
      var pageCount = 0
      var goesOn = true
      try read { (transaction) throws(BlobStorageError) in
        try transaction.forEachChunk(after: last) {
          (digest, row) throws(BlobStorageError) in
          // If it finds the catalog damaged, the rebuilt one continues with this chunk.
          goesOn = try body(digest, row, transaction)
          last = digest
          pageCount += 1
          return goesOn && pageCount < pageCountMax
        }
      }
      if !goesOn || pageCount < pageCountMax { return }
    }
  }

  /// Calls `body` with pages of the manifests, each from a snapshot of its own.
  package func forEachManifestPage(
    _ body: ([(digest: BlobDigest, row: ManifestRow)]) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var last: BlobDigest?
    repeat {
      try CancellationFlag.check()
      let page = try read {
        (transaction) throws(BlobStorageError) -> [(digest: BlobDigest, row: ManifestRow)] in
        // In here, because the closure runs again if it finds the catalog damaged.
        var page: [(digest: BlobDigest, row: ManifestRow)] = []
        try transaction.forEachManifest(after: last) { (digest, row) in
          page.append((digest, row))
          return page.count < 32_768
        }
        return page
      }
      try body(page)
      last = page.last?.digest
    } while last != nil
  }

  /// The approximate number of keys. Long keys count several times, some removed keys count, and outer rows do not.
  package func keyCountMax() throws(BlobStorageError) -> Int {
    try read { (transaction) throws(BlobStorageError) in try transaction.count(.names) }
  }
}
