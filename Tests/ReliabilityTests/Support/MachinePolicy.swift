import BlobStorageTestSupport

/// Decides which actor goes on: mostly the one that runs already, at requests sometimes another, at calls on its disk
/// seldom. Some sleep for long, some are killed.
final class MachinePolicy: @unchecked Sendable {
  // Unchecked: called under the scheduler's lock, and set by the running actor.
  private var random: SplitMix64
  private let requestCountMax: Int
  private let percentSwitched: Int
  private let killsOneOf: Int
  private var sleepsUntil: [Int: Int] = [:]
  private var isOver = false
  private let over: () -> Void
  private(set) var requestCount = 0
  /// Whether the actor that gives its turn is about to make a request.
  private var isAtRequest = false

  init(seed: UInt64, requestCountMax: Int, over: @escaping () -> Void) {
    random = SplitMix64(seed: seed)
    self.requestCountMax = requestCountMax
    self.over = over
    percentSwitched = [3, 15, 50].randomElement(using: &random) ?? 15
    // Of requests and calls on the disk, which are many times as many.
    killsOneOf = [800, 4_000, 1_000_000].randomElement(using: &random) ?? 4_000
  }

  /// The running actor is about to make a request.
  func beginRequest() {
    requestCount += 1
    isAtRequest = true
  }

  private func happens(_ count: Int, of all: Int) -> Bool { Int.random(in: 0..<all, using: &random) < count }

  @Sendable func decide(_ situation: Scheduler.Situation) -> Scheduler.Decision {
    defer { isAtRequest = false }
    if requestCount >= requestCountMax {
      if !isOver { over() }
      isOver = true
      return .kill(situation.living[0])
    }
    // A kill at a request leaves its answer unknown.
    if happens(isAtRequest ? 8 : 1, of: killsOneOf) {
      return .kill(situation.living[Int.random(in: 0..<situation.living.count, using: &random)])
    }
    if isAtRequest, let current = situation.current, happens(1, of: 40) {
      sleepsUntil[current] = requestCount + Int.random(in: 10...400, using: &random)
    }
    let ready = situation.ready.filter { sleepsUntil[$0, default: 0] <= requestCount }
    if let current = situation.current, ready.contains(current),
      !happens(isAtRequest ? percentSwitched : 1, of: 100)
    {
      return .run(current)
    }
    let some = ready.isEmpty ? situation.ready : ready
    return .run(some[Int.random(in: 0..<some.count, using: &random)])
  }
}
