import BlobStorage
import Synchronization

/// Makes collectors of a shared store wait for one writer, from before its first lookup until all its packs are
/// published.
package final class SharedMember: Sendable {
  private struct State: Sendable {
    var membership: Membership?
    var mark: (any File)?
    var hasLeft = false
    /// Whether a renewal is under way.
    var isRenewing = false
    var passedEpoch: UInt32 = 0
    /// The last condemnation seen, and the last stream that had begun by then.
    var seenEpoch: UInt32 = 0
    var seenPut: UInt64 = 0
    /// When the writer registered, or last found no object at its next pack's name.
    var contact: Double?
  }

  private let backend: RemoteBackend
  private let catalog: Catalog
  private let locks: WriterLocks
  /// The leases of the writer's open streams; nil if it has no streams.
  private let leases: LeaseFile?
  private let newNumber: @Sendable () -> UInt64
  private let silenceSecondsMax: Double
  private let time: PassingTime
  private let clock: WallClock
  /// Held while the writer registers, changes its number or leaves. Renewals do not wait for it.
  private let change = IOLock<Void>(())
  private let state = Monitor(State())

  /// - Parameter silenceSecondsMax: seconds after which `isFenced` looks for a fence again.
  init(
    backend: RemoteBackend, catalog: Catalog, locks: WriterLocks, leases: LeaseFile?,
    silenceSecondsMax: Double, time: PassingTime, clock: WallClock,
    newNumber: @escaping @Sendable () -> UInt64
  ) {
    self.backend = backend
    self.catalog = catalog
    self.locks = locks
    self.leases = leases
    self.silenceSecondsMax = silenceSecondsMax
    self.time = time
    self.clock = clock
    self.newNumber = newNumber
  }

  /// Whether collectors wait for the writer.
  package var isJoined: Bool { state.withLock { $0.membership != nil && !$0.hasLeft } }
  package var passedEpoch: UInt32 { state.withLock { $0.passedEpoch } }

  /// Registers the writer, and keeps new puts from relying on condemned or removed packs. Idempotent.
  func join(_ writer: UInt64) throws(BlobStorageError) {
    try change.withLock { (_) throws(BlobStorageError) in
      let (isJoined, hasLeft, known) = state.withLock { ($0.membership != nil, $0.hasLeft, $0.mark) }
      if hasLeft { throw BlobStorageError(.closed, "The store was closed.") }
      if isJoined { return }
      // Keep the lock even if registering fails, so that no other process takes the writer for dead.
      var mark = known
      if mark == nil { mark = try locks.make(writer) }
      state.withLock { [mark] in $0.mark = mark }
      let new = try registered(writer, mark)
      state.withLock { $0 = new }
    }
  }

  private func registered(_ writer: UInt64, _ mark: (any File)?) throws(BlobStorageError) -> State {
    var state = State()
    state.mark = mark
    let (membership, collections) = try Membership.join(
      backend.objects, storeID: backend.storeID, writer: writer,
      process: .own(clock), known: backend.collections)
    backend.adopt(collections)
    if !collections.condemned.isEmpty || !collections.removed.isEmpty {
      try catalog.condemnUncounted(backend)
    }
    state.passedEpoch = collections.epoch
    state.membership = membership
    state.contact = time.now()
    return state
  }

  /// Renews the registration, unless the writer is known to be fenced. So collectors see that it lives. Waits only for
  /// the put.
  func renewRegistration(publishedSequence: UInt32) throws(BlobStorageError) {
    let membership = state.withLock { state -> Membership? in
      guard !state.hasLeft, !state.isRenewing, let writer = state.membership?.writer,
        backend.lastListing?.fences[writer] == nil
      else { return nil }
      state.isRenewing = true
      state.membership?.lifeCount += 1
      return state.membership
    }
    guard let membership else { return }
    defer {
      state.withLock { $0.isRenewing = false }
      state.wakeAll()
    }
    try membership.register(backend.collections, publishedSequence: publishedSequence)
  }

  /// The last stream that had begun when a condemnation was first seen. It may rely on condemned packs.
  func put(before epoch: UInt32, last: UInt64) -> UInt64 {
    state.withLock { state in
      if state.seenEpoch != epoch {
        state.seenEpoch = epoch
        state.seenPut = last
      }
      return state.seenPut
    }
  }

  /// Acknowledges a condemnation: nothing unpublished relies on a condemned pack.
  func pass(_ epoch: UInt32) throws(BlobStorageError) {
    guard let membership = state.withLock({ $0.hasLeft ? nil : $0.membership }) else { return }
    try membership.pass(epoch)
    state.withLock { $0.passedEpoch = max($0.passedEpoch, epoch) }
  }

  /// Whether a collector has fenced the writer, according to the last listing.
  ///
  /// If it has not looked for `silenceSecondsMax`, it also looks for an object named `next`, the writer's next pack.
  func isFenced(before next: PackName) throws(BlobStorageError) -> Bool {
    guard isJoined else { return false }
    if backend.lastListing?.fences[next.writer] != nil { return true }
    let isSilent = state.withLock { state in
      state.contact.map { time.now() - $0 >= silenceSecondsMax } ?? false
    }
    guard isSilent else { return false }
    let isTaken = try backend.objects.tail(SharedNames.pack(next), byteCount: Fence.byteCount) != nil
    if !isTaken { state.withLock { $0.contact = time.now() } }
    return isTaken
  }

  /// Registers a new number to replace a fenced one, unless a stream is open: a stream may rely on removed packs.
  ///
  /// - Parameter takeOver: moves the writer to the new number, and returns false if the old one has unpublished packs.
  /// - Returns: whether the writer has a new number.
  func renew(_ takeOver: (UInt64) -> Bool) throws(BlobStorageError) -> Bool {
    try change.withLock { (_) throws(BlobStorageError) in
      // A stream that begins now joins before its first lookup, and so waits for this lock.
      guard let old = state.withLock({ $0.hasLeft ? nil : $0.membership }),
        leases?.hasPuts(upTo: .max) != true
      else { return false }
      let writer = newNumber()
      let new = try registered(writer, locks.make(writer))
      let isRenewed = takeOver(writer)
      // A renewal under way must not register the old number again.
      if isRenewed { state.withLock(when: { !$0.isRenewing }) { $0 = new } }
      guard let unused = isRenewed ? old : new.membership else { return isRenewed }
      do throws(BlobStorageError) {
        try unused.leave(publishedSequence: 0)
        locks.remove(unused.writer)
      } catch {
        // No process publishes under that number any more, and a collector will fence it.
      }
      return isRenewed
    }
  }

  /// Ends the registration of a writer that writes nothing more. Its packs are published, or never can be.
  ///
  /// - Parameter publishedSequence: the last published sequence; 0 for none, or if the writer is fenced.
  func leave(publishedSequence: UInt32) throws(BlobStorageError) {
    try change.withLock { (_) throws(BlobStorageError) in
      // A renewal under way must not register the writer again.
      state.withLock { $0.hasLeft = true }
      let (membership, mark) = state.withLock(when: { !$0.isRenewing }) { ($0.membership, $0.mark) }
      guard let membership else { return }
      // Without an end mark if the log records the removal of the last pack.
      let last = PackName(writer: membership.writer, sequence: publishedSequence)
      try membership.leave(
        publishedSequence: backend.collections.removed.contains(last) ? 0 : publishedSequence)
      locks.remove(membership.writer)
      mark?.close()
    }
  }
}
