import BlobStorage
import Logging
import Synchronization

/// Extends the catalog by packs that other machines published, and takes out packs that a collector removed.
///
/// It reads the changes since the last run, or lists all packs, and fetches the footers of new ones. One thread of a
/// process does it at a time. A thread that waited for a run that began after its own call returns that run's result.
package final class CatchUp: Sendable {
  private struct Turns: Sendable {
    var begunCount = 0
    var waitingCount = 0
    /// The last run that ended, and what it missed. Cancelling one waiting thread does not cancel the others.
    var last: (number: Int, isFull: Bool, missing: Result<[PackName], BlobStorageError>)?
  }

  /// The catalog's packs before the listing.
  private struct Known {
    /// Published packs whose records are all in the catalog.
    var complete: Set<PackName> = []
    /// Published packs that were applied in part.
    var partial: Set<PackName> = []
    var unpublished: Set<PackName> = []
    /// Published packs that an earlier listing lacked.
    var lost: Set<PackName> = []
    /// The last change whose packs the catalog has; nil if it needs a listing.
    var lastChange: UInt32?
    var state: State
  }

  /// The state of the catalog. It changes when packs come or go.
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
  /// The last run that changed nothing: its state and when it began.
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
  /// - Parameter isFull: whether to list all packs, which also shows those that are lost or that no change names.
  /// - Throws: `cancelled` also while another thread runs.
  /// - Complexity: one listing if nothing has changed. A get for each change, and one to three requests for each new pack,
  ///   several at once. If it lists all packs, also one listing for each 1,000.
  @discardableResult
  package func run(isFull: Bool = false) throws(BlobStorageError) -> ExtensionReport {
    let asked = turns.withLock { turns in
      turns.waitingCount += 1
      return turns.begunCount
    }
    defer { turns.withLock { $0.waitingCount -= 1 } }
    try turn.acquire(isPatient: false)
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

  /// The number of callers in ``run()``.
  package var waitingCount: Int { turns.withLock { $0.waitingCount } }

  /// Extends the catalog because a read misses something.
  ///
  /// - Returns: false without a run if the last one, a moment ago, changed nothing. Looking again is useless.
  package func runForMissing() throws(BlobStorageError) -> Bool {
    let state = try catalog.read { (transaction) throws(BlobStorageError) in try catalogState(transaction) }
    let isQuiet = quiet.withLock { quiet in
      quiet.map { $0.state == state && time.now() - $0.begin < Self.quietSeconds } ?? false
    }
    if isQuiet { return false }
    try run()
    return true
  }

  /// Short, so that a user who restores the missing data from another machine sees it soon.
  private static let quietSeconds = 5.0

  /// Lists all packs if the last run did not: a pack may be there that no change names yet. Rebuilds the catalog if packs
  /// were taken out of it since it was built: other packs may have copies of their chunks.
  ///
  /// - Returns: whether the catalog has more, or this thread or another one has rebuilt it.
  package func completeCatalog() throws(BlobStorageError) -> Bool {
    let generation = catalog.generation
    try turn.acquire(isPatient: false)
    defer { turn.release() }
    if backend.lastListing?.isPartial == true, try runInTurn(isFull: true).newPackCount > 0 { return true }
    let lacksCopies = try catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.meta(.lacksCopies) > 0
    }
    guard lacksCopies else { return catalog.generation != generation }
    try catalog.rebuild(because: nil)
    _ = try runInTurn()
    return true
  }

  private func runInTurn(isFull: Bool = false) throws(BlobStorageError) -> ExtensionReport {
    var report = ExtensionReport()
    for attempt in 0..<Self.attemptCountMax {
      // A pack that a change names may be lost.
      if try runOnce(&report, isFull: isFull || attempt > 1) { return report }
    }
    throw BlobStorageError(
      .busy, "Listed packs kept disappearing: try again, and verify the store.")
  }

  /// Returns false if listed packs have gone: copies of their records may be in packs that the listing lacks.
  private func runOnce(_ report: inout ExtensionReport, isFull: Bool) throws(BlobStorageError) -> Bool {
    let begin = time.now()
    let known = try known()
    // List the spool first: a pack that left it before was published, so the listing has it.
    let local = Set(try backend.localPackNames().live)
    let published = known.complete.union(known.partial).subtracting(local)
    var listing = try look(known, isFull: isFull)
    if !listing.isComplete(for: published.subtracting(known.lost)) {
      // A pack counts as lost only if two listings lack it.
      listing = try backend.publishedPacks()
    }
    let lost = published.filter { listing.isMissing($0) }
    backend.setLost(lost)
    report.missing = lost.union(listing.missing).sorted()
    tell(report.missing)
    let listed = Set(listing.packs.keys)
    // The listing has the packs with copies of their live records.
    let gone = known.complete.union(known.partial).filter {
      listing.collections.removed.contains($0) || listing.isFenced($0)
    }
    let isFenced = { [listing] (name: PackName) in listing.isFenced(name) }
    knowsFenced.store(known.unpublished.contains(where: isFenced), ordering: .relaxed)
    // Retire and mark before applying, so that new packs replace the places of retired and lost ones.
    try retire(gone)
    try mark(lost, insteadOf: known.lost)
    // Includes packs that were applied in part, and packs whose process published them without recording it.
    var incomplete = listed.subtracting(known.complete).subtracting(local)
    if listing.isPartial { incomplete.formUnion(known.partial.subtracting(gone).subtracting(local)) }
    let (applied, strays) = try apply(incomplete)
    if !strays.isEmpty {
      // Gaps before a pack of another store are none.
      backend.ignore(strays)
      return false
    }
    report.newPackCount += applied.subtracting(known.partial).subtracting(known.unpublished).count
    guard applied == incomplete else { return false }
    try checkNothingLost(known.unpublished.subtracting(local).subtracting(listed))
    if !listing.collections.condemned.isEmpty { try catalog.condemnUncounted(backend) }
    if !gone.isEmpty { try remove(gone) }
    try showAgain()
    if report.missing.isEmpty { try setLastChange(listing.lastChange, known) }
    let state = try catalog.read { (transaction) throws(BlobStorageError) in try catalogState(transaction) }
    quiet.withLock { $0 = state == known.state ? (state: state, begin: begin) : nil }
    return true
  }

  /// What has changed since the catalog was extended last, or all packs.
  private func look(_ known: Known, isFull: Bool) throws(BlobStorageError) -> StoreListing {
    // Only a listing of all shows that a lost pack is there again.
    if !isFull, known.lost.isEmpty, let last = known.lastChange, let news = try backend.news(after: last) {
      return news
    }
    return try backend.publishedPacks()
  }

  /// Records that the catalog has what changes up to this one name. Another process may have rebuilt it meanwhile.
  private func setLastChange(_ number: UInt32, _ known: Known) throws(BlobStorageError) {
    guard backend.hasChanges, known.lastChange.map({ $0 < number }) ?? true else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      guard catalog.generation == known.state.generation else { return }
      let next = UInt64(number) + 1
      if try transaction.meta(.nextChange) < next { try transaction.setMeta(.nextChange, next) }
    }
  }

  /// Whether the last run found packs of this machine that a fence keeps from being published. Collectors did not wait
  /// for them, so chunks they need may be gone.
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
        lastChange: next > 0 ? UInt32(clamping: next - 1) : nil, state: try catalogState(transaction))
      for (_, row) in try transaction.packRows() {
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

  /// Applies packs to the catalog, and returns those that still existed, and those of other stores.
  private func apply(
    _ names: Set<PackName>
  ) throws(BlobStorageError) -> (applied: Set<PackName>, strays: Set<PackName>) {
    guard !names.isEmpty else { return ([], []) }
    var intake = PublishedIntake(
      builder, into: catalog, afterGroup: { () throws(BlobStorageError) in try CancellationFlag.check() })
    try backend.forEachPublished(names.sorted()) { (name, file) throws(BlobStorageError) in
      guard let file else { return }
      do throws(BlobStorageError) { try intake.add(name, file) } catch {
        guard error.code == .packGone else { throw error }
      }
    }
    try intake.finish()
    // Chunks may have moved, and chunks that were missing may exist.
    try catalog.write { (transaction) throws(BlobStorageError) in try transaction.bumpEpoch() }
    return (intake.applied, intake.strays)
  }

  /// Rebuilds the catalog if a pack that exists only on this machine is gone.
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

  /// Marks lost packs, so that new puts store their chunks again, and unmarks packs that are listed again.
  private func mark(_ lost: Set<PackName>, insteadOf known: Set<PackName>) throws(BlobStorageError) {
    let changed = lost.symmetricDifference(known)
    guard !changed.isEmpty else { return }
    try catalog.write { (transaction) throws(BlobStorageError) in
      for name in changed {
        try transaction.updatePack(name) { row in
          row.isLost = lost.contains(name)
          // A rebuild while the pack was lost has condemned it.
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
    for name in names.sorted() {
      do throws(BlobStorageError) {
        guard let file = try backend.openPack(name) else {
          throw BlobStorageError(
            .packGone, "Pack \(name) has gone, and there is no local copy of its footer.")
        }
        defer { file.close() }
        var retraction = PackRetraction(name, catalog: catalog, codecs: builder.codecs, store: builder.store)
        try retraction.run(file)
      } catch {
        guard error.code == .packGone || error.code == .corrupted else { throw error }
        // Without its footer the records to remove are unknown.
        try catalog.rebuild(because: error)
        break
      }
    }
    for name in names { backend.forget(name) }
    try packs.forget { (name) in names.contains(name) }
  }

  /// Rebuilds the catalog if it still hides versions that only packs hid which do not count: all machines see the same.
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
