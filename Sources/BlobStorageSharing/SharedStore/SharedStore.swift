import BlobStorage
import Dispatch
import Foundation
import Logging
import Synchronization
import SystemPackage

/// Shares a store between machines: packs are objects, and each machine has a state folder.
package final class SharedStore: Sharing {
  let parts: StoreParts
  let backend: RemoteBackend
  let remote: Engine.Remote
  package let catalogExtension: CatalogExtension
  let locks: WriterLocks
  /// Renews the registrations of this store's writers. A collector uses that of the store that it collects for.
  let life: LifeSigns
  /// Whether packs of dead processes are still unpublished.
  private let hasLeftSpool = Atomic<Bool>(false)
  private let timer = Mutex<(any DispatchSourceTimer)?>(nil)

  var environment: Engine.Environment { parts.setting.environment }
  var logger: Logger { parts.setting.logger }

  init(_ remote: Engine.Remote, _ backend: RemoteBackend, _ locks: WriterLocks, _ parts: StoreParts) {
    self.remote = remote
    self.backend = backend
    self.locks = locks
    self.parts = parts
    catalogExtension = CatalogExtension(parts, backend)
    life =
      remote.life
      ?? LifeSigns(
        intervalSeconds: remote.configuration.interval.seconds,
        hasThread: !parts.setting.environment.worksInline, parts.setting.logger)
    backend.fetches.cache.whenRoomIsMade { [weak packs = parts.packs] names in packs?.forget(names) }
  }

  package var path: String { remote.objects.place }

  package var collectingMachine: String? {
    // A later build may encode the machine differently. Then only a collection reports it.
    (try? remote.maintainer())?.machine
  }

  /// False: the collector needs a catalog that does not change.
  package var collectsBesideCommits: Bool { false }

  /// True: no single machine may change or remove a published pack.
  package var keepsDamagedPacks: Bool { true }

  package func requireOwnPacks(_ refusal: @autoclosure () -> String) throws(BlobStorageError) {
    throw BlobStorageError(.invalidArgument, refusal(), path: path)
  }

  package var fencing: BlobStorageError? {
    catalogExtension.hasFencedPacks ? BlobStorageError(.fenced, Publisher.fenced) : nil
  }

  package func begin(_ engine: Engine) throws(BlobStorageError) {
    try adoptIndex()
    try catalogExtension.run()
    try adoptSpool()
    // A timer counts nanoseconds in 64 bits.
    let seconds = min(remote.configuration.interval.seconds, 1e9)
    guard seconds > 0, !environment.worksInline, !remote.isForCollector else { return }
    timer.withLock { $0 = Self.timer(of: engine, seconds: seconds) }
  }

  /// Starts a timer that runs an engine's periodic work while the engine lives.
  private static func timer(of engine: Engine, seconds: Double) -> any DispatchSourceTimer {
    let timer = DispatchSource.makeTimerSource(queue: .global(qos: .utility))
    timer.schedule(deadline: .now() + seconds, repeating: seconds, leeway: .seconds(1))
    timer.setEventHandler { [weak engine] in engine?.runPeriodicWork() }
    timer.resume()
    return timer
  }

  package func close() {
    timer.withLock { $0.take() }?.cancel()
    if remote.life == nil { life.close() }
    backend.close()
  }

  package func publisher(of writer: UInt64, leases: LeaseFile?) -> any PackPublisher {
    let publisher = Publisher(
      writer: writer, backend: backend, waitingCountMax: remote.configuration.waitingPackLimit,
      hasThread: !environment.worksInline, codecs: parts.setting.codecs, logger: logger)
    // A session without streams does short work, and looks for no fence at its next pack's name.
    let silenceSecondsMax = leases == nil ? .infinity : remote.silenceSecondsMax
    let member = SharedMember(
      backend: backend, catalog: parts.catalog, locks: locks, leases: leases,
      silenceSecondsMax: silenceSecondsMax, time: environment.time, clock: environment.clock,
      newNumber: environment.randomNumber)
    return SharedWriter(publisher, member, life, logger) { [catalogExtension] () throws(BlobStorageError) in
      try catalogExtension.run(isFull: true).missing
    }
  }

  // MARK: Publishing

  package func synchronize(_ session: WriterSession) throws(BlobStorageError) {
    try session.rollOver()
    if let failure = try adoptLeftSpool() { throw failure }
  }

  package func finishLastCollection(_ engine: Engine) -> Bool { false }

  package func synchronizeFound(
    _ session: WriterSession, exceptFailed known: Set<PackName>
  ) throws(BlobStorageError) {
    try session.rollOver()
  }

  package func keptLossCount(of session: WriterSession) -> Int {
    (session.publisher as? SharedWriter)?.keptLossCount ?? 0
  }

  package func checkKept(of session: WriterSession, since lossCount: Int) throws(BlobStorageError) {
    try (session.publisher as? SharedWriter)?.checkKept(of: session, since: lossCount)
  }

  /// Publishes packs that dead processes left. Returns the error if some could not be published. Those stay, and reads
  /// do not wait for them.
  @discardableResult
  private func adoptSpool() throws(BlobStorageError) -> BlobStorageError? {
    var adoption = SpoolAdoption(parts, backend, locks)
    try adoption.run()
    hasLeftSpool.store(adoption.failure != nil || adoption.hasLeftPacks, ordering: .relaxed)
    return adoption.failure
  }

  /// Tries again to publish packs of dead processes, if the last attempt left some.
  @discardableResult
  func adoptLeftSpool() throws(BlobStorageError) -> BlobStorageError? {
    hasLeftSpool.load(ordering: .relaxed) ? try adoptSpool() : nil
  }

  // MARK: Extending

  package func extend() throws(BlobStorageError) -> ExtensionReport { try catalogExtension.run() }
  package func extendForMissing() throws(BlobStorageError) -> Bool { try catalogExtension.runForMissing() }
  package func completeCatalog() throws(BlobStorageError) -> Bool { try catalogExtension.completeCatalog() }

  package func resolveGone(_ pack: PackName, _ reason: String) throws(BlobStorageError) {
    parts.packs.forget([pack])
    // The second run lists all packs, and marks a missing one as lost.
    for isFull in [false, true] {
      try catalogExtension.run(isFull: isFull)
      let isRemoved = try parts.catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.packNumber(pack) == nil
      }
      if isRemoved { return }
      if backend.lastListing?.isPartial != true { break }
    }
    throw BlobStorageError(.corrupted, "\(reason) It was not removed from the store.", pack: "\(pack)")
  }

  // MARK: Losses

  /// The packs that the last extension found missing or damaged.
  package func losses() throws(BlobStorageError) -> KnownLosses {
    var losses = KnownLosses()
    var lost = Set(backend.lastListing?.missing ?? [])
    for (_, row) in try parts.catalog.packRows() where row.isLost || row.isDamaged {
      if row.isLost { lost.insert(row.name) } else { losses.damagedPacks.append(row.name) }
    }
    losses.lostPacks = lost.sorted()
    losses.lacksLog = backend.lacksLog.load(ordering: .relaxed)
    losses.damagedPacks.sort()
    return losses
  }

  // MARK: Verifying

  package func restoreLog() throws(BlobStorageError) {
    let listing = try backend.publishedPacks(asksWriters: true)
    let known = listing.collections
    let (leads, holds) = (try backend.log.leads(to: known), try backend.log.holds(known))
    if leads, holds { return }
    // With this machine's state of the log, the next collection would remove packs that were restored.
    guard listing.leftovers.isEmpty, !leads else {
      throw BlobStorageError(
        .corrupted,
        "\(remote.objects.place) was brought back from an older copy: what this machine knows of it is not so any more."
          + " Move the state folder \(parts.setting.folder.path) away, and that of every machine that has used the store since.",
        path: parts.setting.folder.path.string)
    }
    try backend.log.restore(known)
  }

  package func missingPacks(_ rows: [PackRow]) throws(BlobStorageError) -> Set<PackName> {
    let published = rows.filter { $0.durableByteCount > 0 && $0.state != .retired }.map(\.name)
    let listing = try backend.publishedPacks(asksWriters: true)
    let leads = try backend.log.leads(to: listing.collections)
    guard leads, try backend.log.holds(listing.collections) else { throw otherLog }
    return Set(published.filter { listing.packs[$0] == nil && !listing.collections.removed.contains($0) })
      .union(listing.missing)
  }

  /// The error for a bucket whose log lacks entries that this machine has read.
  var otherLog: BlobStorageError {
    BlobStorageError(
      .corrupted,
      "The log in \(remote.objects.place) lacks entries that this machine has read, so answers may be out of date: run"
        + " `blobtool repair`.", path: path)
  }

  /// Stops relying on the damaged parts of a published pack. No single machine may change or remove such a pack.
  package func distrust(
    _ pack: UInt32, except whole: Set<Int64>
  ) throws(BlobStorageError) -> Set<BlobDigest>? {
    var chunks: [BlobDigest] = []
    var manifests: [BlobDigest] = []
    try parts.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.forEachChunk { (digest, row) in
        if row.place.pack == pack, !whole.contains(row.place.offset) { chunks.append(digest) }
        return true
      }
      try transaction.forEachManifest { (digest, row) in
        if row.place.pack == pack, !whole.contains(row.place.offset) { manifests.append(digest) }
        return true
      }
    }
    for part in chunks.parts(of: Self.distrustedCountOfCommit) {
      try parts.catalog.write { (transaction) throws(BlobStorageError) in
        for digest in part {
          guard let row = try transaction.chunkRow(digest), row.place.pack == pack else { continue }
          try transaction.setSuspect(digest, row)
        }
      }
    }
    for part in manifests.parts(of: Self.distrustedCountOfCommit) {
      try parts.catalog.write { (transaction) throws(BlobStorageError) in
        for digest in part {
          guard let row = try transaction.manifestRow(digest), row.place.pack == pack else { continue }
          try transaction.setManifestRow(digest, nil)
        }
      }
    }
    return Set(chunks)
  }

  private static let distrustedCountOfCommit = 1_000

  package func readAnew(_ pack: PackName) throws(BlobStorageError) -> Bool {
    backend.forgetRecords(pack)
    parts.packs.forget([pack])
    return try !backend.hasOtherFooter(pack)
  }
}

extension SharedStore {
  func runPeriodicWork(_ engine: Engine) {
    do throws(BlobStorageError) {
      try engine.checkOpen()
      backend.forgetPublished()
      let session = engine.writer
      var failure: BlobStorageError?
      // A machine that can publish nothing more still reads.
      do throws(BlobStorageError) { try session.rollOver() } catch { failure = error }
      try adoptIndex()
      try catalogExtension.run()
      // A writer that cannot publish must not acknowledge.
      if let failure { throw failure }
      if let writer = session.publisher as? SharedWriter { try writer.renewIfFenced(session) }
      try acknowledgeCondemnation(engine)
      try adoptLeftSpool()
    } catch {
      if error.code == .closed { return }
      logger.warning("The store's periodic work failed.", metadata: ["reason": "\(error.message)"])
    }
  }

  /// Acknowledges the last condemnation, unless a stream may rely on condemned packs.
  ///
  /// A stream relies on earlier lookups. So the acknowledgement waits for streams that began before the catalog had the
  /// condemnation. A commit relies only on its view, and goes to the pack that was open when it took the view. Rolling
  /// over publishes that pack, and a commit that finds another pack open takes another view.
  func acknowledgeCondemnation(_ engine: Engine) throws(BlobStorageError) {
    guard let member = (engine.writer.publisher as? SharedWriter)?.member, member.isJoined else { return }
    let collections = backend.collections
    guard collections.isStanding, collections.epoch > member.passedEpoch else { return }
    try engine.catalog.condemnUncounted(backend)
    guard !engine.leases.hasPuts(upTo: member.put(before: collections.epoch, last: engine.leases.lastPut))
    else {
      return
    }
    try engine.writer.rollOver()
    try member.pass(collections.epoch)
  }
}
