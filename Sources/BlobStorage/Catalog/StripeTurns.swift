import Dispatch
import Synchronization

/// Orders the commits of one open store. Its threads share the locks of the live table, so they take turns here first.
///
/// A commit waits for the earlier ones whose stripes overlap with its own, and for no others. So commits to one key run
/// in the order in which they came. A commit of all stripes waits only for those that came before it.
package final class StripeTurns: Sendable {
  private let queue = Mutex(StripeQueue())

  package init() {}

  /// Runs `body` while no other thread runs a commit with overlapping stripes.
  ///
  /// - Parameter stripes: nil to exclude all other commits, even those without keys.
  package func withTurn<T>(
    _ stripes: [Range<Int64>]?, _ body: () throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let (number, turn) = queue.withLock { $0.enter(stripes) }
    turn?.wait()
    defer { for next in queue.withLock({ $0.leave(number) }) { next.signal() } }
    return try body()
  }
}

/// The commits of one open store in the order in which they came, running and waiting.
package struct StripeQueue: Sendable {
  private struct Ticket: Sendable {
    var number: UInt64
    /// Nil excludes all other commits, even those without keys.
    var stripes: [Range<Int64>]?
    /// Nil while the commit runs.
    var turn: DispatchSemaphore?

    func overlaps(_ other: Ticket) -> Bool {
      guard let stripes, let others = other.stripes else { return true }
      return stripes.contains { stripe in others.contains { $0.overlaps(stripe) } }
    }
  }

  private var commits: [Ticket] = []
  private var count: UInt64 = 0

  package init() {}

  /// Adds a commit.
  ///
  /// - Returns: its number, and the semaphore to wait for; nil if the commit runs at once.
  package mutating func enter(_ stripes: [Range<Int64>]?) -> (number: UInt64, turn: DispatchSemaphore?) {
    count += 1
    var commit = Ticket(number: count, stripes: stripes)
    if commits.contains(where: commit.overlaps) { commit.turn = DispatchSemaphore(value: 0) }
    commits.append(commit)
    return (count, commit.turn)
  }

  /// Removes a commit that has ended.
  ///
  /// - Returns: the semaphores to signal, of the commits that run from now on.
  package mutating func leave(_ number: UInt64) -> [DispatchSemaphore] {
    commits.removeAll { $0.number == number }
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
  /// - Parameter seconds: how long to wait for the gate, and for each stripe.
  /// - Throws: `busy` when another process keeps a stripe for that long; it may be stopped. `body` did not run.
  package func locked<T>(
    _ stripes: [Range<Int64>], withinSeconds seconds: Double = 30, _ body: () throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    var count = 0
    defer {
      // A lock that cannot be released ends with the file.
      for stripe in stripes[..<count] { do { try file.unlock(bytes: stripe) } catch {} }
    }
    let isWhole = stripes.first?.count == Int(Self.stripeCount)
    // A gate that a dead process left closed costs a lock. Only a commit of all stripes opens the gate: another thread
    // could open one that a process has just closed.
    if isWhole || !stripes.isEmpty && isGateClosed {
      guard try file.lock(bytes: Self.gate, withinSeconds: seconds) else { throw try heldUp() }
      if isWhole { memory[Word.gate.rawValue] = 1 } else { try file.unlock(bytes: Self.gate) }
    }
    do {
      defer { if isWhole { openGate() } }
      for stripe in stripes {
        guard try file.lock(bytes: stripe, withinSeconds: seconds) else { throw try heldUp() }
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
