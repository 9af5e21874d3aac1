import BlobStorage
import BlobStorageTransfer
import Synchronization
import Testing

@Suite struct RateLimiterTests {
  /// Time that passes only where a limiter waits.
  private final class Clock: Sendable {
    private let state = Mutex((now: 1_000.0, waits: [Double]()))
    var now: Double { state.withLock { $0.now } }
    var waits: [Double] { state.withLock { $0.waits } }
    func advance(_ seconds: Double) { state.withLock { $0.now += seconds } }
    var time: PassingTime {
      PassingTime(
        now: { self.now },
        wait: { seconds in
          self.state.withLock { state in
            state.now += seconds
            state.waits.append(seconds)
          }
        })
    }
  }

  @Test("lets no more than the rate pass, and after a pause a short burst")
  func rate() throws {
    let clock = Clock()
    let limiter = try RateLimiter(bytesPerSecond: 1_000, time: clock.time)
    for _ in 0..<50 { limiter.pace(100) }
    #expect(abs(clock.now - 1_005) < 0.001)
    #expect(clock.waits.allSatisfy { $0 > 0 && $0 <= 0.1 })
    limiter.pace(2_000)
    #expect(abs(clock.now - 1_007) < 0.001)
    clock.advance(60)
    let count = clock.waits.count
    limiter.pace(250)
    #expect(clock.waits.count == count)
    limiter.pace(100)
    #expect(abs(clock.now - 1_067.1) < 0.001)
  }

  @Test("does not wait without a limit, and refuses none at all")
  func limits() throws {
    let clock = Clock()
    try RateLimiter(bytesPerSecond: nil, time: clock.time).pace(1 << 60)
    #expect(clock.waits.isEmpty)
    for rate in [0, -1] as [Int64] {
      let error = #expect(throws: BlobStorageError.self) { try RateLimiter(bytesPerSecond: rate) }
      #expect(error?.code == .invalidArgument)
    }
  }

  @Test("waits no longer once its task is cancelled")
  func cancelled() throws {
    let flag = CancellationFlag()
    let clock = Clock()
    let time = PassingTime(
      now: { clock.now },
      wait: { seconds in
        clock.time.wait(seconds)
        if clock.waits.count == 3 { flag.cancel() }
      })
    let limiter = try RateLimiter(bytesPerSecond: 1, time: time)
    CancellationFlag.$current.withValue(flag) { limiter.pace(1_000_000) }
    #expect(clock.waits.count == 3)
  }
}
