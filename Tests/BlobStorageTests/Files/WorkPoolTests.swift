import BlobStorage
import Dispatch
import Foundation
import Synchronization
import Testing

@Suite("A pool for work that computes")
struct WorkPoolTests {
  private final class Token: Sendable {}

  @Test("keeps nothing of work that is done, with threads or without", arguments: [0, 2])
  func keepsNothing(width: Int) throws {
    let pool = WorkPool(width: width)
    defer { pool.close() }
    weak var kept: Token?
    var sum = 0
    do {
      let token = Token()
      kept = token
      var next = 0
      try pool.orderedMap(
        inFlightMax: 3,
        next: {
          next += 1
          return next <= 10 ? next : nil
        },
        transform: { number in withExtendedLifetime(token) { number } },
        consume: { sum += $0 })
    }
    #expect(sum == 55)
    // A thread lets go of its last piece of work after it has handed over what came of it.
    while width > 0, kept != nil {}
    #expect(kept == nil)
  }

  /// Counts how many of it there are.
  private final class Counted: Sendable {
    static let living = Atomic<Int>(0)

    init() { Self.living.add(1, ordering: .relaxed) }
    deinit { Self.living.subtract(1, ordering: .relaxed) }
  }

  @Test("holds no more than is under way while its thread is busy, and the waiting caller does the work")
  func boundedWhileBusy() throws {
    let pool = WorkPool(width: 1)
    defer { pool.close() }
    let gate = DispatchSemaphore(value: 0)
    _ = pool.run { gate.wait() }
    defer { gate.signal() }
    var count = 0
    var most = 0
    try pool.orderedMap(
      inFlightMax: 3,
      next: {
        count += 1
        return count <= 200 ? Counted() : nil
      },
      transform: { _ in () },
      consume: { most = max(most, Counted.living.load(ordering: .relaxed)) })
    #expect(most <= 4)
  }

  @Test("hands over what came of the inputs in their order, whichever is done first", arguments: [0, 1, 4])
  func order(width: Int) throws {
    let pool = WorkPool(width: width)
    defer { pool.close() }
    var next = 0
    var outputs: [Int] = []
    try pool.orderedMap(
      inFlightMax: 8,
      next: {
        next += 1
        return next <= 200 ? next : nil
      },
      transform: { (number: Int) -> Int in
        // One of them is always late.
        if number % 8 == 1 { Thread.sleep(forTimeInterval: 0.000_5) }
        return number
      },
      consume: { outputs.append($0) })
    #expect(outputs == Array(1...200))
  }

  @Test(
    "takes no more inputs after the first error, and all that was under way is done then", arguments: [0, 3])
  func firstError(width: Int) throws {
    let pool = WorkPool(width: width)
    defer { pool.close() }
    let done = CallCount()
    var taken = 0
    var outputs: [Int] = []
    let error = failure {
      try pool.orderedMap(
        inFlightMax: 4,
        next: { () throws(BlobStorageError) -> Int? in
          taken += 1
          return taken
        },
        transform: { (number: Int) throws(BlobStorageError) -> Int in
          defer { _ = done.next() }
          if number == 5 { throw BlobStorageError(.io, "The fifth fails.") }
          return number
        },
        consume: { outputs.append($0) })
    }
    #expect(error?.message == "The fifth fails.")
    #expect(outputs == [1, 2, 3, 4])
    #expect(taken == 8)
    #expect(done.value == 8)
  }
}
