import BlobStorage
import Logging
import Synchronization

/// Publishes the packs of one session, and makes collectors wait for it until all its packs are published.
final class SharedWriter: PackPublisher {
  let publisher: Publisher
  let member: SharedMember
  private let life: LifeSigns
  /// Lists all packs, and returns those that are lost.
  private let listLost: @Sendable () throws(BlobStorageError) -> [PackName]
  private let logger: Logger
  private var backend: RemoteBackend { publisher.backend }
  private let kept = Mutex(Kept())
  private let checking = Turn()

  private struct Kept: Sendable {
    /// Packs that imports rely on without a check that their objects exist.
    var names: Set<PackName> = []
    /// How often a check has found such a pack missing or cut, and the last time.
    var lossCount = 0
    var loss: BlobStorageError?
  }

  init(
    _ publisher: Publisher, _ member: SharedMember, _ life: LifeSigns, _ logger: Logger,
    listLost: @escaping @Sendable () throws(BlobStorageError) -> [PackName]
  ) {
    self.listLost = listLost
    self.publisher = publisher
    self.member = member
    self.life = life
    self.logger = logger
  }

  func join(_ session: WriterSession) throws(BlobStorageError) {
    publisher.serve(session)
    // Renewals must begin before the first one is due.
    life.add(self)
    try member.join(session.writerID)
  }

  /// Shows collectors that the writer lives. Does nothing once the writer has ended, so that no collector waits for it.
  func renewRegistration() throws(BlobStorageError) {
    guard !publisher.hasEnded else { return }
    try member.renewRegistration(publishedSequence: publisher.publishedSequence)
  }

  func admit(_ session: WriterSession) throws(BlobStorageError) {
    try join(session)
    guard session.beginsPack else { return }
    try renewIfFenced(session)
    try publisher.waitForRoom()
  }

  func joinStream(_ session: WriterSession, _ leases: LeaseFile) throws(BlobStorageError) -> UInt64? {
    // Begin the put first: from then on the writer keeps its number.
    let put = try leases.beginPut(from: session.currentSequence)
    do throws(BlobStorageError) { try join(session) } catch {
      leases.endPut(put)
      throw error
    }
    return put
  }

  /// Does not sync the pack: no durable call has returned yet, and a process that finds the pack after a power cut
  /// verifies it.
  func seal(_ writer: PackWriter, of session: WriterSession) throws(BlobStorageError) -> Int64 {
    let byteCount = try writer.seal(synchronizes: false)
    publisher.add(
      Publisher.Item(name: writer.name, file: writer.file, byteCount: byteCount))
    return 0
  }

  /// Poisons the session: the pack blocks all later ones until the next opening seals it.
  func giveUp(_ writer: PackWriter, _ cause: BlobStorageError, of session: WriterSession) -> Int64 {
    session.poison(
      BlobStorageError(
        .poisoned,
        "Pack \(writer.name) cannot be written (\(cause.message)): open the store again, which publishes the rest.",
        pack: writer.name.description, path: cause.path, errno: cause.errno))
    writer.file.close()
    return 0
  }

  func precedes(_ pack: PackName, _ session: WriterSession) -> Bool { pack.writer == session.writerID }

  func keeps(
    _ place: Place, _ transaction: ReadTransaction, _ session: WriterSession, isChecked: Bool
  ) throws(BlobStorageError) -> Bool {
    guard let row = try transaction.packRow(place.pack) else { return false }
    if precedes(row.name, session) { return true }
    // A condemned pack counts too: its live records are copied before it goes.
    guard row.durableByteCount > place.offset, !row.isLost, !backend.isReplaced(row) else { return false }
    if !isChecked, !backend.isThere(row) { kept.withLock { _ = $0.names.insert(row.name) } }
    return true
  }

  func isThere(_ pack: PackRow) -> Bool { backend.isThere(pack) }

  /// Checks packs that this process has not checked yet. Returns one that is missing or cut. The catalog then marks a
  /// missing one as lost.
  func secure(_ packs: Set<PackName>, of session: WriterSession) throws(BlobStorageError) -> PackName? {
    let names = try rows(packs, session).filter { !backend.isThere($0) }.map(\.name)
    guard !names.isEmpty else { return nil }
    let areThere = names.count > Self.askedCountMax ? false : try backend.areThere(names)
    if !areThere { _ = try listLost() }
    let absent = try firstAbsent(of: Set(names), session)
    // Keep the names of lost and cut ones, so that `checkKept` ends the imports that rely on them.
    if areThere, absent == nil { kept.withLock { $0.names.subtract(names) } }
    return absent
  }

  /// The first of these packs that is missing or cut, after a look at all of them. The periodic work may have forgotten
  /// meanwhile that one is there.
  private func firstAbsent(
    of names: Set<PackName>, _ session: WriterSession
  ) throws(BlobStorageError) -> PackName? {
    for row in try rows(names, session) where !backend.isThere(row) {
      if try !backend.ask(row) { return row.name }
    }
    return nil
  }

  /// The rows of packs, in order, without those that have left the store.
  private func rows(
    _ packs: Set<PackName>, _ session: WriterSession
  ) throws(BlobStorageError) -> [PackRow] {
    if packs.isEmpty { return [] }
    return try session.catalog.read { (transaction) throws(BlobStorageError) -> [PackRow] in
      var rows: [PackRow] = []
      for name in packs.sorted() {
        if let row = try transaction.pack(name)?.row { rows.append(row) }
      }
      return rows
    }
  }

  /// From this number on, one listing of all packs costs less than checking each.
  private static let askedCountMax = 1_000

  var keptLossCount: Int { kept.withLock { $0.lossCount } }

  /// Checks the packs that unchanged files rely on, and all others, which may have their chunks. Imports share these
  /// packs, so a loss that one import finds ends all that run.
  ///
  /// - Parameter lossCount: ``keptLossCount`` when the import began.
  /// - Throws: `corrupted` if one is missing, or if one that unchanged files rely on was cut. Later puts do not rely on
  ///   it. Unchanged files in a cut one make imports of other processes fail, too.
  func checkKept(of session: WriterSession, since lossCount: Int) throws(BlobStorageError) {
    try checking.acquire()
    defer { checking.release() }
    let (names, loss) = kept.withLock { ($0.names, $0.lossCount == lossCount ? nil : $0.loss) }
    if let loss { throw loss }
    let lost = try firstLost(of: names, session)
    kept.withLock { $0.names.subtract(names) }
    guard let lost else { return }
    let error = BlobStorageError(
      .corrupted,
      "Pack \(lost) was published, and its object was deleted or cut: repeat what you began, which stores it again; "
        + "if that fails, too, run repair --accept-loss first.", pack: "\(lost)")
    kept.withLock { kept in
      kept.lossCount += 1
      kept.loss = error
    }
    throw error
  }

  private func firstLost(
    of names: Set<PackName>, _ session: WriterSession
  ) throws(BlobStorageError) -> PackName? {
    guard try rows(names, session).contains(where: { !backend.isThere($0) }) else { return nil }
    if let lost = try listLost().first { return lost }
    return try firstAbsent(of: names, session)
  }

  /// Seals the pack of a commit, and waits until it is published. Concurrent callers share a pack: group commit.
  func publish(
    _ watermark: WriterSession.Watermark, of session: WriterSession
  ) throws(BlobStorageError) {
    if publisher.hasPublished(watermark.pack) { return }
    try session.inPublishingTurn { () throws(BlobStorageError) in
      if publisher.hasPublished(watermark.pack) { return }
      try session.seal(watermark.pack)
      // The session may have ended meanwhile. Once the wait returns, the catalog reflects that.
      do throws(BlobStorageError) { try publisher.wait(for: watermark.pack) } catch {
        throw error.code == .cancelled ? error : session.ending ?? error
      }
    }
  }

  func publishSealed(of session: WriterSession) throws(BlobStorageError) {
    if let last = session.lastSealedPack() { try publisher.wait(for: last) }
    publisher.recordLeft()
  }

  /// Continues under another number if a collector fenced this one while the writer had nothing to publish.
  ///
  /// A concurrent write either comes first, and the number stays, or finds the new number registered.
  func renewIfFenced(_ session: WriterSession) throws(BlobStorageError) {
    guard let next = session.nextPack(ifPublished: publisher.isDone(before:)),
      try member.isFenced(before: next)
    else { return }
    let isRenewed = try member.renew { (writer) in
      session.renumber(writer, from: next, ifPublished: publisher.isDone(before:)) {
        publisher.begin(as: writer)
      }
    }
    if isRenewed {
      logger.info("Another machine has fenced this writer; it continues under a new number.")
    }
  }

  func close(_ session: WriterSession) throws(BlobStorageError) {
    let closed = BlobStorageError(.closed, "The store was closed.")
    do throws(BlobStorageError) {
      repeat { try session.rollOver() } while !session.end(closed, ifPublished: publisher.isDone(before:))
    } catch {
      // The writer publishes nothing more, so no collector needs to wait for it.
      if error.code == .fenced { leave(publishedSequence: 0) }
      throw error
    }
    leave(publishedSequence: publisher.publishedSequence)
  }

  private func leave(publishedSequence: UInt32) {
    do throws(BlobStorageError) { try member.leave(publishedSequence: publishedSequence) } catch {
      // The next opening of the state folder, or a collector, ends the registration.
      logger.warning("The writer is still registered.", metadata: ["reason": "\(error.message)"])
    }
  }
}
