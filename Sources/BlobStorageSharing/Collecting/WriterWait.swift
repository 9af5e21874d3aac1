import BlobStorage

/// Waits until each writer of a shared store has acknowledged a condemnation, has left, or is fenced.
///
/// The wait is a courtesy: a writer that renews its registration meanwhile is never fenced.
struct WriterWait {
  /// Multiplies the wait for writers. They acknowledge at their own interval, so they get more time than another
  /// collection.
  private static let patience = 3.0
  /// The pause between listings of the acks.
  private static let pauseSeconds = 0.1...2.0

  private var mine: Collections
  private let backend: RemoteBackend
  private let own: UInt64
  private let canFence: Bool
  private let fencePatienceSeconds: Double
  private let time: PassingTime
  /// Writers that have neither acknowledged nor left, with their registrations from the beginning of the wait.
  private var waited: [UInt64: WriterRegistration?] = [:]
  private var fenced: Set<UInt64> = []
  /// The collector for which ``yield(seconds:progress:)`` waited in vain.
  private var silent: [UInt64: WriterRegistration] = [:]

  /// - Parameters:
  ///   - known: the current state of the log.
  ///   - own: the collector's own number.
  ///   - canFence: whether the object store has conditional puts.
  ///   - fencePatienceSeconds: the seconds to wait before a writer is fenced.
  init(
    _ known: Collections, _ backend: RemoteBackend, own: UInt64, canFence: Bool, fencePatienceSeconds: Double,
    time: PassingTime
  ) {
    self.canFence = canFence
    self.fencePatienceSeconds = fencePatienceSeconds
    self.time = time
    mine = known
    self.backend = backend
    self.own = own
  }

  /// Waits until the collector of an unfinished collection finishes or changes its registration, for `seconds` times
  /// the patience.
  ///
  /// Condemning meanwhile would end a collection that may take longer than the time between two.
  ///
  /// - Throws: `busy` if the collector lives, or if the wait is too short to fence it.
  mutating func yield(seconds: Double, progress: ProgressHandler) throws(BlobStorageError) {
    guard mine.isStanding, mine.collector != own, let before = try registration(mine.collector) else {
      return
    }
    var now: WriterRegistration? = before
    let time = time
    let hasChanged = try Self.retry(time, seconds) { () throws(BlobStorageError) in
      progress(WorkProgress(phase: "waiting", doneCount: 0, totalCount: 1))
      now = try registration(mine.collector)
      return now != before
    }
    guard let now else { return }
    guard hasChanged else {
      guard mayFence(after: seconds) else { throw Self.unanswered(now) }
      silent[mine.collector] = before
      return
    }
    throw BlobStorageError(
      .busy, "\(now.process.text) is collecting garbage: collect again when it has finished.")
  }

  /// Whether the wait is long enough to distinguish a silent writer from a living one.
  private func mayFence(after seconds: Double) -> Bool { seconds * Self.patience >= fencePatienceSeconds }

  private static func unanswered(_ writer: WriterRegistration) -> BlobStorageError {
    BlobStorageError(
      .busy,
      "\(writer.process.text) has not answered yet, and was not waited for long enough to be fenced: collect again,"
        + " and wait for longer.")
  }

  private static func retry(
    _ time: PassingTime, _ seconds: Double, _ isOver: () throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) -> Bool {
    try time.retry(
      withinSeconds: seconds * patience, pauseSeconds: pauseSeconds, failed: CancellationFlag.check, isOver)
  }

  /// Waits, then fences silent writers. Returns all fenced writers, including those that other collectors fenced.
  ///
  /// - Throws: `busy` if a writer has not acknowledged and lives, was not waited for long enough, or cannot be fenced.
  mutating func run(
    _ condemned: Collections, seconds: Double, progress: ProgressHandler,
    _ waiting: (Collections) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Set<UInt64> {
    mine = condemned
    // List fences after the condemnation: fences of packs removed by then do not count.
    let fences = try backend.publishedPacks().fences
    for writer in try Membership.writers(backend.objects) where writer != own {
      if fences[writer] != nil {
        fenced.insert(writer)
      } else {
        waited.updateValue(try registration(writer), forKey: writer)
      }
    }
    for (writer, before) in silent where waited[writer] != nil { waited.updateValue(before, forKey: writer) }
    let (totalCount, time) = (waited.count, time)
    _ = try Self.retry(time, seconds) { () throws(BlobStorageError) in
      guard !waited.isEmpty else { return true }
      progress(
        WorkProgress(phase: "waiting", doneCount: totalCount - waited.count, totalCount: totalCount))
      try waiting(mine)
      for writer in try Membership.passed(mine.epoch, backend.objects) { waited[writer] = nil }
      // A writer that has left has published everything.
      let registered = waited.isEmpty ? [] : Set(try Membership.writers(backend.objects))
      waited = waited.filter { registered.contains($0.key) }
      // The collector that ``yield(seconds:progress:)`` waited for gets no more time.
      return waited.keys.allSatisfy { silent[$0] != nil }
    }
    try fenceTheSilent(after: seconds)
    for writer in fenced.sorted() { try backend.announceEnd(of: writer) }
    return fenced
  }

  private mutating func fenceTheSilent(after seconds: Double) throws(BlobStorageError) {
    for (writer, before) in waited.sorted(by: { $0.key < $1.key }) {
      guard let now = try registration(writer) else {
        waited[writer] = nil
        continue
      }
      guard now == before else {
        throw BlobStorageError(
          .busy,
          "\(now.process.text) is still writing what it began before the collection: collect again later to continue,"
            + " or end it with `gc --fence \(Hex.text(writer))`."
        )
      }
      guard mayFence(after: seconds) else {
        throw Self.unanswered(now)
      }
    }
    for writer in waited.keys.sorted() {
      guard canFence else {
        throw BlobStorageError(
          .busy,
          "\(waited[writer].flatMap { $0 }?.process.text ?? "A machine") is registered and does not answer: "
            + "run it once more and collect again, or delete \(SharedNames.writer(writer)) in"
            + " \(backend.objects.place) if it is gone for good."
        )
      }
      let end = try Fencing.fence(
        writer, published: waited[writer].flatMap { $0 }?.publishedSequence ?? 0, removed: mine.removed,
        by: mine.collector, backend.objects, storeID: backend.storeID)
      guard end != nil else {
        throw BlobStorageError(.busy, "A machine keeps publishing: collect again later to continue.")
      }
      fenced.insert(writer)
    }
  }

  /// The registration of a writer; nil if it has left.
  private func registration(_ writer: UInt64) throws(BlobStorageError) -> WriterRegistration? {
    try Membership.registration(of: writer, backend.objects, storeID: backend.storeID)
  }
}
