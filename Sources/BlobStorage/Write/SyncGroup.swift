import Dispatch
import Synchronization

/// Group commit: of the threads that wait for a sync at the same time, one leads and syncs for all.
///
/// A sync covers what was appended before it began. Threads that come while it runs form the next group. When it ends,
/// its leader wakes the leader of the next group, and each thread whose bytes it has synced. All others sleep on.
///
/// Its methods only compute: threads share it under the lock around ``WriterState``.
package struct SyncGroup: Sendable {
  /// A thread that waits.
  package final class Member: Sendable {
    package let watermark: WriterSession.Watermark
    private let leads = Atomic<Bool>(false)
    private let turn = DispatchSemaphore(value: 0)

    package init(_ watermark: WriterSession.Watermark) { self.watermark = watermark }

    /// Waits for the end of a sync.
    ///
    /// - Returns: whether this thread leads the next one; otherwise its bytes are on the medium.
    package func wait() -> Bool {
      turn.wait()
      return leads.load(ordering: .relaxed)
    }

    package func wake(asLeader isLeader: Bool) {
      leads.store(isLeader, ordering: .relaxed)
      turn.signal()
    }
  }

  private var isLed = false
  /// In the order of arrival.
  private var members: [Member] = []

  package init() {}

  /// Adds a thread.
  ///
  /// - Returns: nil if the thread leads from now on.
  package mutating func join(_ watermark: WriterSession.Watermark) -> Member? {
    guard isLed else {
      isLed = true
      return nil
    }
    let member = Member(watermark)
    members.append(member)
    return member
  }

  /// Ends the turn of the leader, whether or not its sync succeeded.
  ///
  /// - Returns: the members to wake: the next leader, and those whose bytes are on the medium.
  package mutating func end(
    isDurable: (WriterSession.Watermark) -> Bool
  ) -> (leader: Member?, durable: [Member]) {
    let durable = members.filter { isDurable($0.watermark) }
    members.removeAll { isDurable($0.watermark) }
    guard !members.isEmpty else {
      isLed = false
      return (nil, durable)
    }
    return (members.removeFirst(), durable)
  }
}
