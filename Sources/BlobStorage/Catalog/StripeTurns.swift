import Dispatch
import Synchronization

/// Orders the commits of one open store. Its threads share the locks of the live table, so they take turns here first.
///
/// A commit waits for the earlier ones whose stripes overlap with its own, and for no others. So commits to one key run
/// in the order in which they came, and those to other keys do not overtake a commit of all stripes for ever.
package final class StripeTurns: Sendable {
  private let queue = Mutex(StripeQueue())

  package init() {}

  /// Runs `body` while no other thread runs one whose stripes overlap.
  ///
  /// - Parameter stripes: nil to run beside no other commit, not even one without keys.
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
  private struct Commit: Sendable {
    var number: UInt64
    /// Nil: all, and beside no commit without keys.
    var stripes: [Range<Int64>]?
    /// Nil while the commit runs.
    var turn: DispatchSemaphore?

    func overlaps(_ other: Commit) -> Bool {
      guard let stripes, let others = other.stripes else { return true }
      return stripes.contains { stripe in others.contains { $0.overlaps(stripe) } }
    }
  }

  private var commits: [Commit] = []
  private var count: UInt64 = 0

  package init() {}

  /// Adds a commit.
  ///
  /// - Returns: its number, and what it waits for; nil if it runs at once.
  package mutating func enter(_ stripes: [Range<Int64>]?) -> (number: UInt64, turn: DispatchSemaphore?) {
    count += 1
    var commit = Commit(number: count, stripes: stripes)
    if commits.contains(where: commit.overlaps) { commit.turn = DispatchSemaphore(value: 0) }
    commits.append(commit)
    return (count, commit.turn)
  }

  /// Removes a commit that has ended.
  ///
  /// - Returns: what to signal: the commits that run from now on.
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
