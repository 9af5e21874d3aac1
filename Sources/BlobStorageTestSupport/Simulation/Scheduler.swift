import BlobStorage
import Dispatch
import Foundation
import Synchronization

/// Runs actors, each on a thread of its own, one at a time. A policy decides at each call which one continues.
///
/// The same decisions repeat a run. Actors must not wait for each other except through locks that call the scheduler
/// (``waitForWake()``, ``wake()``).
package final class Scheduler: Sendable {
  /// What happens next.
  package enum Decision: Sendable, Hashable {
    case run(Int)
    /// The actor's process dies: the actor runs, all its calls fail, and no other actor has a turn until it has ended
    /// or started again.
    case kill(Int)
  }

  /// What a decision can depend on.
  package struct Situation: Sendable {
    /// Actors that can continue, in order; never empty.
    package var ready: [Int]
    /// Actors that have not ended, including those that wait.
    package var living: [Int]
    /// The actor that ran last, if it can continue.
    package var current: Int?
    /// The number of calls of all actors so far.
    package var stepCount: Int
  }

  private struct Actor: Sendable {
    var turn = DispatchSemaphore(value: 0)
    var isWaiting = false
    var hasEnded = false
  }

  private struct State: Sendable {
    var actors: [Actor] = []
    var running: Int?
    var stepCount = 0
    var isDeadlocked = false
  }

  private let state = Mutex(State())
  private let allEnded = DispatchSemaphore(value: 0)
  private let decide: @Sendable (Situation) -> Decision
  private let kill: @Sendable (Int) -> Void

  /// - Parameters:
  ///   - decide: called with the scheduler's lock held; must not use anything that waits for it.
  ///   - kill: ends the process of an actor.
  package init(
    decide: @escaping @Sendable (Situation) -> Decision, kill: @escaping @Sendable (Int) -> Void = { _ in }
  ) {
    self.decide = decide
    self.kill = kill
  }

  /// The number of calls so far.
  package var stepCount: Int { state.withLock { $0.stepCount } }
  /// The actor that runs now.
  package var running: Int? { state.withLock { $0.running } }
  /// Whether all remaining actors waited for a lock, so that the scheduler killed them.
  package var isDeadlocked: Bool { state.withLock { $0.isDeadlocked } }

  /// Runs the bodies, each as the actor with its index, until all have ended.
  package func run(_ bodies: [@Sendable () -> Void]) {
    guard !bodies.isEmpty else { return }
    state.withLock { state in
      precondition(state.running == nil, "a scheduler runs once at a time")
      state.actors = bodies.map { _ in Actor() }
    }
    for (index, body) in bodies.enumerated() {
      let turn = state.withLock { $0.actors[index].turn }
      // Released after the run, because a thread's object may outlive the thread.
      let rest = Mutex<(@Sendable () -> Void)?>(body)
      let thread = Thread { [self] in
        turn.wait()
        rest.withLock { $0.take() }?()
        end()
      }
      thread.stackSize = 4 << 20
      thread.start()
    }
    giveTurn()
    allEnded.wait()
  }

  /// An actor calls this before each of its calls: others may run before it returns.
  package func waitForTurn() {
    let turn = state.withLock { state -> DispatchSemaphore? in
      guard let running = state.running else { return nil }
      state.stepCount += 1
      return state.actors[running].turn
    }
    guard let turn else { return }
    giveTurn()
    turn.wait()
  }

  /// An actor calls this when it cannot continue until another calls ``wake()``.
  package func waitForWake() {
    state.withLock { state in
      if let running = state.running { state.actors[running].isWaiting = true }
    }
    waitForTurn()
  }

  /// Lets all waiting actors try again.
  package func wake() {
    state.withLock { state in
      for index in state.actors.indices { state.actors[index].isWaiting = false }
    }
  }

  private func end() {
    let isLast = state.withLock { state in
      if let running = state.running { state.actors[running].hasEnded = true }
      state.running = nil
      return state.actors.allSatisfy(\.hasEnded)
    }
    if isLast { allEnded.signal() } else { giveTurn() }
  }

  private func giveTurn() {
    let (turn, killed) = state.withLock { state -> (DispatchSemaphore, Int?) in
      var ready = state.actors.indices.filter { !state.actors[$0].hasEnded && !state.actors[$0].isWaiting }
      var decision: Decision
      if ready.isEmpty {
        // Deadlock: the actors die one after the other, and the test fails.
        state.isDeadlocked = true
        ready = state.actors.indices.filter { !state.actors[$0].hasEnded }
        decision = .kill(ready[0])
      } else {
        let current = state.running.flatMap { ready.contains($0) ? $0 : nil }
        let living = state.actors.indices.filter { !state.actors[$0].hasEnded }
        decision = decide(
          Situation(ready: ready, living: living, current: current, stepCount: state.stepCount))
      }
      switch decision {
      case .run(let next):
        precondition(ready.contains(next), "actor \(next) cannot go on")
        state.running = next
        return (state.actors[next].turn, nil)
      case .kill(let next):
        precondition(!state.actors[next].hasEnded, "actor \(next) has ended")
        state.running = next
        state.actors[next].isWaiting = false
        return (state.actors[next].turn, next)
      }
    }
    if let killed { kill(killed) }
    turn.signal()
  }
}
