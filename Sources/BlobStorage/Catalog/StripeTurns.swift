import Dispatch
import Synchronization

/// Orders the commits of one open store. Its threads share the locks of the live table, so they take turns here first.
///
/// A commit waits for the earlier ones whose stripes overlap with its own, and for no others. So commits to one key run
/// in the order in which they came. A commit of all stripes waits only for those that came before it.
///
/// Another process can hold up a commit, and with it those behind it. Their threads lend their places to others
/// meanwhile, and changes that would only wait for them too do not begin (``isDeferred(_:patienceSeconds:_:)``).
package final class StripeTurns: Sendable {
  private let queue = Mutex(StripeQueue())
  private let time = PassingTime.system

  package init() {}

  /// Runs `body` while no other thread runs a commit with overlapping stripes.
  ///
  /// - Parameters:
  ///   - stripes: nil to exclude all other commits, even those without keys.
  ///   - body: is given the number of the commit.
  package func withTurn<T>(
    _ stripes: [Range<Int64>]?, _ body: (_ number: UInt64) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let (number, turn) = queue.withLock { $0.enter(stripes, OperationPool.current) }
    turn?.wait()
    do throws(BlobStorageError) {
      let result = try body(number)
      leave(number, nil)
      return result
    } catch {
      leave(number, error)
      throw error
    }
  }

  /// Ends a commit, and lets those go on that waited for it.
  private func leave(_ number: UInt64, _ error: BlobStorageError?) {
    let (turns, resumed) = queue.withLock { queue in
      let turns = queue.leave(number, hasFailed: error != nil)
      return (turns, queue.resumed(at: time.now(), hasFailed: error?.code == .busy))
    }
    for next in turns { next.signal() }
    resume(resumed, error)
  }

  private func resume(_ resumed: StripeQueue.Resumed, _ error: BlobStorageError?) {
    for change in resumed.free { change(nil) }
    for change in resumed.late { change(error) }
  }

  /// Runs `body`, in which the commit waits for another process. Returns whether the wait succeeded.
  ///
  /// If it did not, those behind the commit stay held up: they wait for the same process.
  package func heldUp(
    _ number: UInt64, _ body: () throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) -> Bool {
    queue.withLock { $0.beginWait(number) }
    guard try body() else { return false }
    resume(
      queue.withLock { queue in
        queue.endWait(number)
        return queue.resumed(at: 0, hasFailed: false)
      }, nil)
    return true
  }

  /// Whether a commit waits for its turn.
  package var isWaiting: Bool { queue.withLock { $0.isWaiting } }

  /// Whether a change with these stripes would only wait for another process. Then keeps it until it can begin.
  ///
  /// - Parameter resume: called once, with an error if the change has waited for longer than `patienceSeconds`.
  package func isDeferred(
    _ stripes: [Range<Int64>], patienceSeconds: Double,
    _ resume: @escaping @Sendable (BlobStorageError?) -> Void
  ) -> Bool {
    queue.withLock { $0.isDeferred(stripes, until: time.now() + patienceSeconds, resume) }
  }
}

/// The commits of one open store in the order in which they came, running and waiting.
package struct StripeQueue: Sendable {
  package typealias Resume = @Sendable (BlobStorageError?) -> Void

  private struct Ticket: Sendable {
    var number: UInt64
    /// Nil excludes all other commits, even those without keys.
    var stripes: [Range<Int64>]?
    /// Nil while the commit runs.
    var turn: DispatchSemaphore?
    /// The pool of the thread.
    var pool: OperationPool?
    /// Whether the commit waits for another process, or behind a commit that does.
    var isHeldUp = false {
      didSet {
        guard isHeldUp != oldValue else { return }
        if isHeldUp { pool?.lendPlace() } else { pool?.takePlaceBack() }
      }
    }

    func overlaps(_ other: Ticket) -> Bool {
      guard let stripes, let others = other.stripes else { return true }
      return stripes.contains { stripe in others.contains { $0.overlaps(stripe) } }
    }
  }

  /// A change that has not begun.
  private struct Deferred: Sendable {
    /// As of a ticket.
    var commit: Ticket
    /// When it fails.
    var end: Double
    var resume: Resume
  }

  /// Changes that wait no longer.
  struct Resumed {
    /// Those that can begin.
    var free: [Resume] = []
    /// Those that have waited for too long.
    var late: [Resume] = []
  }

  private var commits: [Ticket] = []
  private var count: UInt64 = 0
  private var deferred: [Deferred] = []

  package init() {}

  /// Whether a commit waits for its turn.
  var isWaiting: Bool { commits.contains { $0.turn != nil } }

  /// Adds a commit.
  ///
  /// - Parameter pool: the pool of its thread.
  /// - Returns: its number, and the semaphore to wait for; nil if the commit runs at once.
  package mutating func enter(
    _ stripes: [Range<Int64>]?, _ pool: OperationPool? = nil
  ) -> (number: UInt64, turn: DispatchSemaphore?) {
    count += 1
    var commit = Ticket(number: count, stripes: stripes, pool: pool)
    for earlier in commits where commit.overlaps(earlier) {
      if commit.turn == nil { commit.turn = DispatchSemaphore(value: 0) }
      if earlier.isHeldUp {
        commit.isHeldUp = true
        break
      }
    }
    commits.append(commit)
    return (count, commit.turn)
  }

  /// Removes a commit that has ended.
  ///
  /// - Parameter hasFailed: whether those behind it stay held up if it was.
  /// - Returns: the semaphores to signal, of the commits that run from now on.
  package mutating func leave(_ number: UInt64, hasFailed: Bool = false) -> [DispatchSemaphore] {
    if !hasFailed { endWait(number) }
    if let index = commits.firstIndex(where: { $0.number == number }) {
      commits[index].isHeldUp = false
      commits.remove(at: index)
    }
    guard commits.contains(where: { $0.turn != nil }) else { return [] }
    var turns: [DispatchSemaphore] = []
    for index in commits.indices {
      guard let turn = commits[index].turn, !commits[..<index].contains(where: commits[index].overlaps)
      else { continue }
      commits[index].turn = nil
      turns.append(turn)
    }
    return turns
  }

  /// Marks a commit, and those behind it, as held up by another process.
  mutating func beginWait(_ number: UInt64) {
    guard let first = commits.firstIndex(where: { $0.number == number }) else { return }
    commits[first].isHeldUp = true
    for index in commits.indices[(first + 1)...] where isBehindHeldUp(index) {
      commits[index].isHeldUp = true
    }
  }

  /// Ends the wait of a commit for another process, and of those that are behind no other such commit.
  mutating func endWait(_ number: UInt64) {
    guard let first = commits.firstIndex(where: { $0.number == number }), commits[first].isHeldUp else {
      return
    }
    commits[first].isHeldUp = false
    for index in commits.indices[(first + 1)...] where commits[index].turn != nil {
      commits[index].isHeldUp = isBehindHeldUp(index)
    }
  }

  private func isBehindHeldUp(_ index: Int) -> Bool {
    commits[index].turn != nil
      && commits[..<index].contains { $0.isHeldUp && $0.overlaps(commits[index]) }
  }

  /// Keeps a change that would wait behind a commit that is held up; false if there is no such commit.
  mutating func isDeferred(_ stripes: [Range<Int64>], until end: Double, _ resume: @escaping Resume) -> Bool {
    let change = Deferred(commit: Ticket(number: 0, stripes: stripes), end: end, resume: resume)
    guard mustWait(change) else { return false }
    deferred.append(change)
    return true
  }

  private func mustWait(_ change: Deferred) -> Bool {
    commits.contains { $0.isHeldUp && $0.overlaps(change.commit) }
  }

  /// Removes the changes that can begin and, if a commit has failed, those that have waited as long as it has.
  mutating func resumed(at now: Double, hasFailed: Bool) -> Resumed {
    var resumed = Resumed()
    var rest: [Deferred] = []
    for change in deferred {
      if !mustWait(change) {
        resumed.free.append(change.resume)
      } else if hasFailed, change.end <= now {
        resumed.late.append(change.resume)
      } else {
        rest.append(change)
      }
    }
    deferred = rest
    return resumed
  }
}

/// The locks by which the processes of one machine take turns.
extension LiveTable {
  private static let stripeCount: Int64 = 4_096
  private static let firstStripe: Int64 = 1 << 20
  /// The byte whose lock holds commits back while a commit of all stripes waits.
  private static let gate: Range<Int64> = firstStripe - 1..<firstStripe

  /// The stripes of keys, in ascending order; the whole range for many keys, and for a hold, which may concern any key.
  package static func stripes(_ keys: [[UInt8]]?) -> [Range<Int64>] {
    guard let keys, keys.count <= 16, !keys.contains(where: isHold) else {
      return [firstStripe..<firstStripe + stripeCount]
    }
    if keys.count == 1 { return [stripe(keys[0])] }
    return Set(keys.map(stripe)).sorted { $0.lowerBound < $1.lowerBound }
  }

  private static func isHold(_ key: [UInt8]) -> Bool {
    InternalKey.isInternal(key) && key.starts(with: InternalKey.Purpose.hold.prefix)
  }

  private static func stripe(_ key: [UInt8]) -> Range<Int64> {
    let hash = hash(key)
    let stripe = firstStripe + Int64((hash ^ hash >> 32) % UInt64(stripeCount))
    return stripe..<stripe + 1
  }

  /// Runs `body` while no other process commits to keys of these stripes. Only one thread of a process at a time may
  /// use a stripe.
  ///
  /// Commits of a few keys leave hardly a moment in which all stripes are free. So a commit of all stripes closes a
  /// gate, and other commits wait in front of it until that commit has its stripes.
  ///
  /// - Parameters:
  ///   - seconds: how long to wait for the gate, and for each stripe.
  ///   - waiting: runs a wait for another process, and returns what that returns.
  /// - Throws: `busy` when another process keeps a stripe for that long; it may be stopped. `body` did not run.
  package func locked<T>(
    _ stripes: [Range<Int64>], withinSeconds seconds: Double = 30,
    waiting: (() throws(BlobStorageError) -> Bool) throws(BlobStorageError) -> Bool = {
      (wait) throws(BlobStorageError) in try wait()
    },
    _ body: () throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    func lock(_ bytes: Range<Int64>) throws(BlobStorageError) {
      if try file.lock(bytes: bytes, wait: false) { return }
      let isLocked = try waiting { () throws(BlobStorageError) in
        try file.lock(bytes: bytes, withinSeconds: seconds)
      }
      guard isLocked else { throw try heldUp() }
    }
    var count = 0
    defer {
      // A lock that cannot be released ends with the file.
      for stripe in stripes[..<count] { do { try file.unlock(bytes: stripe) } catch {} }
    }
    let isWhole = stripes.first?.count == Int(Self.stripeCount)
    // A gate that a dead process left closed costs a lock. Only a commit of all stripes opens the gate: another thread
    // could open one that a process has just closed.
    if isWhole || !stripes.isEmpty && isGateClosed {
      try lock(Self.gate)
      if isWhole { memory[Word.gate.rawValue] = 1 } else { try file.unlock(bytes: Self.gate) }
    }
    do {
      defer { if isWhole { openGate() } }
      for stripe in stripes {
        try lock(stripe)
        count += 1
      }
    }
    return try body()
  }

  /// Whether a commit of all stripes waits for them.
  package var isGateClosed: Bool { memory[Word.gate.rawValue] == 1 }

  private func openGate() {
    memory[Word.gate.rawValue] = 0
    // A lock that cannot be released ends with the file.
    do { try file.unlock(bytes: Self.gate) } catch {}
  }
}
