import BlobStorage
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
}
