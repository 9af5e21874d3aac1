import Foundation
import Synchronization
import SystemPackage

/// Collecting on a store that machines share. The order of the steps, and why it is safe, stands in "Many machines".
///
/// The engine is one that only collects, with a state folder of its own: its catalog knows nothing but what is published.
/// What a process of this machine has dropped or copied, and not published yet, may never be.
extension Collector {
  /// Between looks at the acks.
  private static let pauseSeconds = 0.2
  /// Writers pass at an interval of theirs: they are waited for longer than another collection.
  private static let waitFactor = 3.0

  /// Condemns what was planned, and removes that and what others have condemned.
  func removeShared(_ planned: [Candidate]) throws(BlobStorageError) {
    guard let backend = engine.backend as? RemoteBackend,
      !planned.isEmpty || !backend.said.condemned.isEmpty
    else { return }
    let session = engine.newSession()
    guard let member = session.member else { return }
    try member.join()
    do throws(BlobStorageError) {
      try removeShared(planned, backend, session)
    } catch {
      // What was published stays; the next collection goes on. A fenced one has nothing left to give up.
      if error.code != .fenced { try member.leave() }
      throw error
    }
    try member.leave()
  }

  private func removeShared(
    _ planned: [Candidate], _ backend: RemoteBackend, _ session: WriterSession
  ) throws(BlobStorageError) {
    let log = CollectionLog(backend.objects, storeID: backend.storeID)
    let said = backend.said
    let names = planned.map(\.row.name).filter { !said.removed.contains($0) }
    guard let mine = try log.condemn(names, after: said, by: session.writerID) else { throw Self.another }
    backend.note(mine)
    try engine.catalog.write { (transaction) throws(BlobStorageError) in
      try CatalogBuilder.note(mine, in: transaction)
    }
    let fenced = try waitForAll(mine, backend, own: [session.writerID, engine.writer.writerID])
    let missing = try backend.publishedPacks().missing
    try engine.catchUp()
    guard backend.said == mine else { throw Self.another }
    let gone = try evacuated(mine, missing, session)
    guard !gone.isEmpty else { return }
    guard let done = try log.remove(gone.map(\.row.name), after: mine, by: session.writerID) else {
      throw Self.another
    }
    backend.note(done)
    try engine.catchUp()
    for candidate in gone { try backend.objects.delete(SharedNames.pack(candidate.row.name)) }
    for writer in fenced { try backend.objects.delete(SharedNames.writer(writer)) }
    try Membership.removeAcks(before: mine.epoch + 1, backend.objects)
    account(gone)
  }

  /// Copies what is live in condemned packs, and returns those in which nothing is any more.
  private func evacuated(
    _ mine: Collections, _ missing: [PackName], _ session: WriterSession
  ) throws(BlobStorageError) -> [Candidate] {
    report.obstacles += missing.map { "Pack \($0) is not there, and nobody has removed it." }
    let rows = try packRows()
    var all: [Candidate] = []
    for (number, row) in rows where mine.condemned.contains(row.name) && row.isSealed && !row.isDamaged {
      let content = try PackContent(
        engine, number: number, row: row, marks: marker.marks, small: dictionary?.chunks)
      all.append(Candidate(number: number, row: row, content: content))
    }
    all = try confirm(all)
    noteObstacles(rows)
    // What is needed and not there may need anything that is condemned.
    report.obstacles += marker.missing.map { "Chunk or manifest \($0) is needed and not there." }
    guard report.obstacles.isEmpty else { return [] }
    if all.contains(where: \.content.hasSmall) { try storeDictionary(in: session) }
    for (index, candidate) in all.enumerated() where !candidate.content.kept.isEmpty {
      try CancellationFlag.check()
      progress(WorkProgress(phase: "compacting", doneCount: index, totalCount: all.count))
      do throws(BlobStorageError) {
        gains[candidate.row.name] = try Compaction.copy(
          candidate.content.kept, of: candidate.row.name, engine: engine, to: session, dictionary)
      } catch {
        guard error.code == .corrupted else { throw error }
        report.obstacles.append(error.message)
      }
    }
    // Published, all of it: else this throws.
    try session.rollOver()
    var gone: [Candidate] = []
    for candidate in all where try isEmpty(candidate) { gone.append(candidate) }
    return gone
  }

  /// Whether nothing that is live points into a pack any more.
  private func isEmpty(_ candidate: Candidate) throws(BlobStorageError) -> Bool {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try checkGeneration()
      return try !isNeeded(candidate, transaction)
    }
  }

  /// Until each writer has passed, has left, or is fenced. Returns the fenced.
  private func waitForAll(
    _ mine: Collections, _ backend: RemoteBackend, own: Set<UInt64>
  ) throws(BlobStorageError) -> [UInt64] {
    let objects = backend.objects
    var waited = Set(try Membership.writers(objects)).subtracting(own)
    var signs: [UInt64: WriterRegistration] = [:]
    for writer in waited {
      signs[writer] = try Membership.registration(of: writer, objects, storeID: backend.storeID)
    }
    let end = Date().addingTimeInterval(options.waitSeconds * Self.waitFactor)
    while true {
      try CancellationFlag.check()
      progress(WorkProgress(phase: "waiting", doneCount: signs.count - waited.count, totalCount: signs.count))
      try waiting()
      waited.subtract(try Membership.passed(mine.epoch, objects))
      if waited.isEmpty { return [] }
      // Who has left has published everything.
      waited.formIntersection(try Membership.writers(objects))
      if waited.isEmpty { return [] }
      guard Date() < end else { break }
      Thread.sleep(forTimeInterval: Self.pauseSeconds)
    }
    for writer in waited {
      let now = try Membership.registration(of: writer, objects, storeID: backend.storeID)
      guard now == signs[writer] else {
        throw BlobStorageError(
          .busy,
          "\(now.map { $0.machine } ?? "A machine") still writes what it began before: collect again later, which goes on."
        )
      }
    }
    for writer in waited.sorted() {
      let outcome = try Fencing.fence(
        writer, removed: mine.removed, by: mine.collector, objects, storeID: backend.storeID)
      guard case .fenced = outcome else {
        throw BlobStorageError(.busy, "A machine writes on and on: collect again later, which goes on.")
      }
    }
    return waited.sorted()
  }

  private static var another: BlobStorageError {
    BlobStorageError(.busy, "Another machine collects garbage at the same time: try again later.")
  }
}

extension Engine {
  /// Collects on a shared store, by an engine with a state folder of its own.
  func collectShared(
    _ options: CollectionOptions, _ progress: ProgressHandler?, _ remote: Remote
  ) throws(BlobStorageError) -> CollectionReport {
    var configuration = remote.configuration
    configuration.intervalSeconds = 0
    configuration.cacheByteCountMax = 0
    let engine = try Engine(
      path: folder.path.appending("collector").string,
      configuration: StoreConfiguration(logger: logger, cacheByteCountMax: 0),
      environment: collectorEnvironment(),
      remote: Remote(objects: remote.objects, configuration: configuration))
    let collector = try Collector(engine, options, progress)
    // Its own process is a writer like any other.
    collector.waiting = { [self] () throws(BlobStorageError) in
      try catchUp()
      try passCollections()
    }
    let result: Result<CollectionReport, BlobStorageError>
    do throws(BlobStorageError) { result = .success(try collector.run()) } catch { result = .failure(error) }
    if case .success = result { try engine.close() }
    return try result.get()
  }

  private func collectorEnvironment() -> Environment {
    var environment = Environment()
    environment.clock = clock
    environment.weaknesses = weaknesses
    environment.packByteCountTarget = writer.packByteCountTarget.load(ordering: .relaxed)
    environment.worksInline = !makesThreads
    return environment
  }
}
