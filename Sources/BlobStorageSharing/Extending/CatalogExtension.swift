import BlobStorage
import Logging
import Synchronization

/// Extends the catalog by packs that other machines published, and removes packs that a collector removed.
///
/// It reads the changes since the last run, or lists all packs, and fetches the footers of new ones. One thread of a
/// process runs at a time. A thread that waited for a run which began after its own call returns that run's result.
package final class CatalogExtension: Sendable {
  private struct Turns: Sendable {
    var begunCount = 0
    #if DEBUG || WEAKNESSES
      var waitingCount = 0
    #endif
    /// The last finished run, and the missing packs it found. Cancelling one waiting thread does not cancel the others.
    var last: (number: Int, isFull: Bool, missing: Result<[PackName], BlobStorageError>)?
  }

  /// The catalog's packs before the listing.
  private struct Known {
    /// Published packs whose records are all in the catalog.
    var complete: Set<PackName> = []
    /// Published packs whose records are applied in part.
    var partial: Set<PackName> = []
    var unpublished: Set<PackName> = []
    /// Published packs that an earlier listing lacked.
    var lost: Set<PackName> = []
    /// Published packs that the catalog got since its packs last agreed with the log.
    var recent: Set<PackName> = []
    /// The last change whose packs the catalog has; nil if it needs a listing.
    var lastChange: UInt32?
    var nextPack: UInt64
    var state: State
  }

  /// The state of a catalog whose packs are all settled.
  private struct Settled {
    /// The last change whose packs it has.
    var lastChange: UInt32
    /// The last log entry that its packs agree with.
    var log: UInt32
    var nextPack: UInt64
    var state: State
  }

  /// Identifies the catalog's packs. Changes when packs come or go.
  private struct State: Hashable, Sendable {
    var generation: String?
    var epoch: UInt64
  }

  private let catalog: Catalog
  private let builder: CatalogBuilder
  private let backend: RemoteBackend
  private let packs: PackFiles
  private let logger: Logger
  private let time: PassingTime
  private let turn = Turn()
  private let turns = Mutex(Turns())
  /// The last run that changed nothing: the catalog's state, and when the run began.
  private let quiet = Mutex<(state: State, begin: Double)?>(nil)
  private let knowsFenced = Atomic(false)
  private let toldMissing = Mutex<Set<PackName>>([])
  private static let attemptCountMax = 16

  init(_ parts: StoreParts, _ backend: RemoteBackend) {
    time = parts.setting.environment.time
    catalog = parts.catalog
    builder = parts.builder
    self.backend = backend
    packs = parts.packs
    logger = parts.setting.logger
  }

  /// Extends the catalog, or waits for a thread that does. Afterwards the catalog has all packs published before the
  /// call, and none that was removed before.
  ///
  /// - Parameter isFull: whether to list all packs, which also reveals lost packs and packs that no change names.
  /// - Throws: `cancelled` also while another thread runs; `busy` if other machines keep removing packs.
  /// - Complexity: one listing if nothing has changed. Otherwise a get for each change, and one to three requests for
  ///   each new pack, several at once. If it lists all packs, also one listing for each 1,000.
  @discardableResult
  package func run(isFull: Bool = false) throws(BlobStorageError) -> ExtensionReport {
    let asked = turns.withLock { $0.begunCount }
    #if DEBUG || WEAKNESSES
      turns.withLock { $0.waitingCount += 1 }
      defer { turns.withLock { $0.waitingCount -= 1 } }
    #endif
    try turn.acquire()
    defer { turn.release() }
    let (last, number) = turns.withLock { turns -> (Result<[PackName], BlobStorageError>?, Int) in
      if let last = turns.last, last.number > asked, last.isFull || !isFull { return (last.missing, 0) }
      turns.begunCount += 1
      return (nil, turns.begunCount)
    }
    if let last { return ExtensionReport(missing: try last.get()) }
    let result = Result { () throws(BlobStorageError) in try runInTurn(isFull: isFull) }
    if case .failure(let error) = result, error.code == .cancelled { throw error }
    turns.withLock { $0.last = (number, isFull, result.map(\.missing)) }
    return try result.get()
  }

  #if DEBUG || WEAKNESSES
    /// The number of callers in ``run(isFull:)``, for tests.
    package var waitingCount: Int { turns.withLock { $0.waitingCount } }
  #endif

  /// Extends the catalog because a read lacks data.
  ///
  /// - Returns: false without a run if the last run, a moment ago, changed nothing. Another run would find nothing
  ///   either.
  package func runForMissing() throws(BlobStorageError) -> Bool {
    let state = try catalog.read { (transaction) throws(BlobStorageError) in try catalogState(transaction) }
    let isQuiet = quiet.withLock { quiet in
      quiet.map { $0.state == state && time.now() - $0.begin < Self.quietSeconds } ?? false
    }
    if isQuiet { return false }
    try run()
    return true
  }

  /// Short, so that a user who restores the missing data from another machine soon sees it.
  private static let quietSeconds = 5.0

  /// Lists all packs if the last run did not, because a pack that no change names yet may exist. Rebuilds the catalog
  /// if packs were removed since it was built: other packs may have copies of their chunks.
  ///
  /// - Returns: whether the catalog has new packs, or this thread or another one has rebuilt it.
  package func completeCatalog() throws(BlobStorageError) -> Bool {
    let generation = catalog.generation
    try turn.acquire()
    defer { turn.release() }
    if backend.lastListing?.isPartial == true, try runInTurn(isFull: true).newPackCount > 0 { return true }
    let lacksCopies = try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.meta(.lacksCopies) > 0
    }
    guard lacksCopies else { return catalog.generation != generation }
    backend.leaveIndex()
    try catalog.rebuild(because: nil)
    _ = try runInTurn()
    return true
  }

  private func runInTurn(isFull: Bool = false) throws(BlobStorageError) -> ExtensionReport {
    var report = ExtensionReport()
    for attempt in 0..<Self.attemptCountMax {
      // From the third attempt on, list all packs: one that a change names may be lost.
      if try runOnce(&report, isFull: isFull || attempt > 1) { return report }
    }
    throw BlobStorageError(
      .busy, "Listed packs kept disappearing: try again, and verify the store.")
  }

  /// Returns false if it must run again. Listed packs are gone, and packs that the listing lacks may have copies of
  /// their records; packs belong to another store; or a torn pack made it rebuild the catalog.
  private func runOnce(_ report: inout ExtensionReport, isFull: Bool) throws(BlobStorageError) -> Bool {
    let begin = time.now()
    let settled = isFull ? nil : try settled()
    var news: StoreListing?
    if let settled {
      news = try backend.news(after: settled.lastChange)
      if let news, let isDone = try applyNews(news, settled, &report, begin) { return isDone }
    }
    let known = try known()
    // List the spool first. A pack that left it before was published, so the listing has it. With `settled`, the spool
    // was empty before the changes were read.
    let local = Set(try backend.localPackNames().live)
    let published = known.complete.union(known.partial).subtracting(local)
    var listing = try look(known, isFull: isFull, settled.map { ($0, news) })
    let isNamed = { [listing] (name: PackName) in
      listing.packs[name] != nil || listing.collections.removed.contains(name) || listing.isFenced(name)
    }
    if listing.isPartial, !known.recent.allSatisfy(isNamed) {
      // Changes have named the missing ones: the bucket was restored from an older copy.
      listing = try backend.publishedPacks()
    }
    if published.subtracting(known.lost).contains(where: { listing.isMissing($0) }) {
      // A pack counts as lost only if two listings lack it.
      listing = try backend.publishedPacks()
    }
    if try distrustTorn(local, listing) { return false }
    let lost = published.filter { listing.isMissing($0) }
    backend.setLost(lost)
    report.missing = lost.union(listing.missing).sorted()
    tell(report.missing)
    let listed = Set(listing.packs.keys)
    // The listing has the packs with the copies of their live records.
    let gone = known.complete.union(known.partial).filter {
      listing.collections.removed.contains($0) || listing.isFenced($0)
    }
    let isFenced = { [listing] (name: PackName) in listing.isFenced(name) }
    knowsFenced.store(known.unpublished.contains(where: isFenced), ordering: .relaxed)
    // Retire and mark before applying, so that records of new packs replace those of retired and lost ones.
    try retire(gone)
    try mark(lost, insteadOf: known.lost)
    // Includes packs that were applied in part, and packs whose process died between publishing and recording.
    var incomplete = listed.subtracting(known.complete).subtracting(local)
    if listing.isPartial { incomplete.formUnion(known.partial.subtracting(gone).subtracting(local)) }
    let begun = known.partial.union(known.unpublished)
    guard let addedCount = try apply(incomplete, begun: begun, &report) else { return false }
    try checkNothingLost(known.unpublished.subtracting(local).subtracting(listed))
    if !listing.collections.condemned.isEmpty { try catalog.condemnUncounted(backend) }
    if !gone.isEmpty { try remove(gone) }
    try showAgain()
    if report.missing.isEmpty { try setSettled(listing, known.state, nextPack: known.nextPack + addedCount) }
    try setQuiet(since: known.state, begin)
    return true
  }

  /// Distrusts copies in the spool that a power cut has torn, so that reads use the published packs. Rebuilds a catalog
  /// that has records of such a copy.
  ///
  /// Adoption does the same, but another process may be adopting them, or the object store may have failed meanwhile.
  ///
  /// - Returns: whether the catalog was rebuilt.
  private func distrustTorn(
    _ local: Set<PackName>, _ listing: StoreListing
  ) throws(BlobStorageError) -> Bool {
    var mustRebuild = false
    for name in local {
      // A living writer holds the lock.
      guard let listed = listing.packs[name], let file = try backend.adoptPack(name) else { continue }
      defer { file.close() }
      var byteCount: Int64? = listed
      // A change names no length.
      if listing.isPartial {
        byteCount = try backend.objects.tail(SharedNames.pack(name), byteCount: 1)?.byteCount
      }
      if byteCount == nil { continue }
      if try file.status().byteCount == byteCount { continue }
      backend.distrustLocal(name)
      packs.forget([name])
      // If the catalog knows the pack as published, its rows are not from the torn copy.
      if try catalog.packRow(name)?.durableByteCount ?? 0 == 0 { mustRebuild = true }
    }
    if mustRebuild { try catalog.rebuild(because: nil) }
    return mustRebuild
  }

  /// The catalog's settled state; nil if packs came or went since, or are not settled.
  private func settled() throws(BlobStorageError) -> Settled? {
    let settled = try catalog.read { (transaction) throws(BlobStorageError) -> Settled? in
      let (next, log) = (try transaction.meta(.nextChange), try transaction.meta(.settledLog))
      let nextPack = try transaction.meta(.nextPack)
      guard next > 0, log > 0, try transaction.meta(.unsettledPacks) == 0,
        try transaction.meta(.settledPack) == nextPack
      else { return nil }
      return Settled(
        lastChange: UInt32(clamping: next - 1), log: UInt32(clamping: log - 1), nextPack: nextPack,
        state: try catalogState(transaction))
    }
    // Packs in the spool are not settled, whatever the catalog says.
    guard let settled, try backend.localPackNames().live.isEmpty else { return nil }
    return settled
  }

  /// Applies the packs that changes name, without examining all packs of the catalog.
  ///
  /// - Returns: nil if that does not suffice, because packs were removed, condemned or fenced, or another process has
  ///   begun to apply these packs. Else the result of ``runOnce(_:isFull:)``.
  private func applyNews(
    _ news: StoreListing, _ settled: Settled, _ report: inout ExtensionReport, _ begin: Double
  ) throws(BlobStorageError) -> Bool? {
    guard news.collections.number == settled.log, !news.endsWriters else { return nil }
    let new = try catalog.read { (transaction) throws(BlobStorageError) -> Set<PackName>? in
      guard catalog.generation == settled.state.generation else { return nil }
      var new: Set<PackName> = []
      for name in news.packs.keys {
        guard let row = try transaction.pack(name)?.row else {
          new.insert(name)
          continue
        }
        guard row.isSettled else { return nil }
      }
      return new
    }
    guard let new else { return nil }
    backend.setLost([])
    knowsFenced.store(false, ordering: .relaxed)
    guard let addedCount = try apply(new, begun: [], &report) else { return false }
    try showAgain()
    try setSettled(news, settled.state, nextPack: settled.nextPack + addedCount)
    try setQuiet(since: settled.state, begin)
    return true
  }

  private func setQuiet(since before: State, _ begin: Double) throws(BlobStorageError) {
    let state = try catalog.read { (transaction) throws(BlobStorageError) in try catalogState(transaction) }
    quiet.withLock { $0 = state == before ? (state: state, begin: begin) : nil }
  }

  /// Reads the changes since the catalog was last extended, or lists all packs.
  ///
  /// - Parameter asked: the result of an earlier look at the changes, if any.
  private func look(
    _ known: Known, isFull: Bool, _ asked: (settled: Settled, news: StoreListing?)?
  ) throws(BlobStorageError) -> StoreListing {
    // Only a full listing shows that a lost pack has returned.
    guard !isFull, known.lost.isEmpty, let last = known.lastChange else {
      return try backend.publishedPacks()
    }
    let news: StoreListing?
    // Another process may have extended or rebuilt the catalog meanwhile.
    if let asked, asked.settled.lastChange == last, asked.settled.state.generation == known.state.generation {
      news = asked.news
    } else {
      news = try backend.news(after: last)
    }
    if let news { return news }
    return try backend.publishedPacks()
  }

  /// Records the last change whose packs the catalog has, and the log entry that its packs agree with.
  ///
  /// Another process may have rebuilt the catalog meanwhile, or added packs by its own, older view of the log.
  ///
  /// - Parameter nextPack: the catalog's value if only this run has added packs since `before`.
  private func setSettled(
    _ listing: StoreListing, _ before: State, nextPack: UInt64
  ) throws(BlobStorageError) {
    guard backend.hasChanges else { return }
    let (next, log) = (UInt64(listing.lastChange) + 1, UInt64(listing.collections.number) + 1)
    func isNew(_ transaction: ReadTransaction) throws(BlobStorageError) -> (change: Bool, log: Bool) {
      guard catalog.generation == before.generation else { return (false, false) }
      let pack = try transaction.meta(.nextPack)
      let (knownLog, knownPack) = (try transaction.meta(.settledLog), try transaction.meta(.settledPack))
      let isKnown = knownLog == log && knownPack == pack
      return (try transaction.meta(.nextChange) < next, !isKnown && pack == nextPack)
    }
    let found = try catalog.read { (transaction) throws(BlobStorageError) in try isNew(transaction) }
    guard found.change || found.log else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      let found = try isNew(transaction)
      if found.change { try transaction.setMeta(.nextChange, next) }
      guard found.log else { return }
      try transaction.setMeta(.settledLog, log)
      try transaction.setMeta(.settledPack, nextPack)
    }
  }

  /// Whether the last run found packs of this machine that a fence excludes. Collectors did not wait for them, so
  /// chunks that they need may be gone.
  package var hasFencedPacks: Bool { knowsFenced.load(ordering: .relaxed) }

  private func catalogState(_ transaction: ReadTransaction) throws(BlobStorageError) -> State {
    State(generation: catalog.generation, epoch: try transaction.epoch())
  }

  /// Logs each missing pack once.
  private func tell(_ missing: [PackName]) {
    let new = toldMissing.withLock { told in missing.filter { told.insert($0).inserted } }
    for name in new {
      logger.error(
        "Pack \(name) was published, and its object was deleted: gc removes nothing without it.")
    }
  }

  private func known() throws(BlobStorageError) -> Known {
    try catalog.read { (transaction) throws(BlobStorageError) in
      let next = try transaction.meta(.nextChange)
      var known = Known(
        lastChange: next > 0 ? UInt32(clamping: next - 1) : nil, nextPack: try transaction.meta(.nextPack),
        state: try catalogState(transaction))
      let settledPack = try transaction.meta(.settledPack)
      for (number, row) in try transaction.packRows() {
        if row.durableByteCount > 0, number > settledPack { known.recent.insert(row.name) }
        if row.isLost { known.lost.insert(row.name) }
        if row.durableByteCount == 0 {
          known.unpublished.insert(row.name)
        } else if row.isSealed {
          known.complete.insert(row.name)
        } else {
          known.partial.insert(row.name)
        }
      }
      return known
    }
  }

  /// Applies packs to the catalog. Some of them may be begun already.
  ///
  /// - Returns: the number of packs added to the catalog; nil if one was gone, or belongs to another store.
  private func apply(
    _ names: Set<PackName>, begun: Set<PackName>, _ report: inout ExtensionReport
  ) throws(BlobStorageError) -> UInt64? {
    guard !names.isEmpty else { return 0 }
    var intake = PublishedIntake(builder, into: catalog)
    try backend.forEachPublished(names.sorted()) { (name, file) throws(BlobStorageError) in
      guard let file else { return }
      do throws(BlobStorageError) { try intake.add(name, file) } catch {
        guard error.code == .packGone else { throw error }
      }
    }
    try intake.finish()
    for name in intake.damaged { backend.forgetEnds(name) }
    // Chunks may have moved, and missing chunks may now exist.
    try catalog.write { (transaction) throws(BlobStorageError) in try transaction.bumpEpoch() }
    if !intake.strays.isEmpty {
      // The gap before a pack of another store is not a gap.
      backend.ignore(intake.strays)
      return nil
    }
    report.newPackCount += intake.applied.subtracting(begun).count
    return intake.applied == names ? intake.addedCount : nil
  }

  /// Rebuilds the catalog if a pack that existed only on this machine is gone.
  private func checkNothingLost(_ names: Set<PackName>) throws(BlobStorageError) {
    guard !names.isEmpty else { return }
    let local = Set(try backend.localPackNames().live)
    let lost = try catalog.read { (transaction) throws(BlobStorageError) -> PackName? in
      for name in names where !local.contains(name) {
        guard try transaction.pack(name)?.row.durableByteCount == 0 else { continue }
        return name
      }
      return nil
    }
    guard let lost else { return }
    try catalog.rebuild(
      because: BlobStorageError(
        .catalogDamaged, "Pack \(lost) is in the catalog, but neither in the spool nor published."))
  }

  /// Marks lost packs, so that new puts store their chunks again. Unmarks packs that are listed again.
  private func mark(_ lost: Set<PackName>, insteadOf known: Set<PackName>) throws(BlobStorageError) {
    let changed = lost.symmetricDifference(known)
    guard !changed.isEmpty else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      for name in changed {
        try transaction.updatePack(name) { row in
          row.isLost = lost.contains(name)
          // A rebuild condemned the pack while it was lost.
          if !row.isLost, row.state == .condemned, backend.isCountedOn(name) { row.state = .live }
        }
      }
      try transaction.bumpEpoch()
    }
  }

  /// Marks removed packs as retired.
  private func retire(_ names: Set<PackName>) throws(BlobStorageError) {
    guard !names.isEmpty else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      for name in names {
        try transaction.updatePack(name) { $0.state = .retired }
      }
      try transaction.setMeta(.lacksCopies, 1)
      try transaction.bumpEpoch()
    }
  }

  /// Retracts the records of retired packs from the catalog.
  private func remove(_ names: Set<PackName>) throws(BlobStorageError) {
    // Removing rows one by one would fetch most of the index. A newer index already lacks them.
    if let known = try catalog.indexRoot(), let newest = try backend.findIndex(),
      newest.run != known.run,
      newest.log >= backend.collections.number
    {
      try catalog.rebuild(because: nil)
      try retire(names)
    }
    for name in names.sorted() {
      do throws(BlobStorageError) {
        guard try catalog.packRow(name) != nil else { continue }
        guard let file = try backend.openPack(name) else {
          throw BlobStorageError(
            .packGone, "Pack \(name) has gone, and there is no local copy of its footer.")
        }
        defer { file.close() }
        var retraction = PackRetraction(name, catalog: catalog, packs: packs)
        try retraction.run(file)
      } catch {
        guard error.code == .packGone || error.code == .corrupted else { throw error }
        // Without the footer, the records to remove are unknown.
        if try catalog.indexRoot() != nil { backend.leaveIndex() }
        try catalog.rebuild(because: error)
        break
      }
    }
    for name in names { backend.forget(name) }
    packs.forget(Set(names))
  }

  /// Rebuilds the catalog if it hides versions whose tombstones were only in packs that no longer count. So all
  /// machines see the same versions.
  private func showAgain() throws(BlobStorageError) {
    let count = try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.meta(.orphanedMasks)
    }
    if count > 0 { try catalog.rebuild(because: nil) }
  }
}

extension Catalog {
  /// Marks condemned packs: reads use them, new puts do not rely on them.
  func condemnUncounted(_ backend: RemoteBackend) throws(BlobStorageError) {
    try write { (transaction) throws(BlobStorageError) in
      try CatalogBuilder.condemnUncounted(backend, in: transaction)
    }
  }
}
