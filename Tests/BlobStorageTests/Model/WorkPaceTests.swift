import BlobStorage
import Testing

/// The time left, on a clock that the test moves.
@Suite("Work pace")
struct WorkPaceTests {
  private static let mebibyte: Int64 = 1 << 20

  /// Reports every tenth of a second while `step` says what is done, from `start` on.
  private func run(
    _ pace: inout WorkPace, from start: Double = 0, seconds: Double, _ step: (Double) -> WorkProgress
  ) -> Double {
    var now = start
    while now <= start + seconds {
      pace.update(step(now), at: now)
      now += 0.1
    }
    return now - 0.1
  }

  private func bytes(_ done: Double, of total: Int64, phase: String = "importing") -> WorkProgress {
    WorkProgress(phase: phase, doneByteCount: Int64(done), totalByteCount: total)
  }

  @Test("says nothing before there is something to go by")
  func silence() {
    var pace = WorkPace()
    #expect(pace.secondsLeft(at: 0) == nil)
    #expect(pace.bytesPerSecond == nil)
    let now = run(&pace, seconds: 1.9) { bytes($0 * 1e6, of: 100_000_000) }
    #expect(pace.secondsLeft(at: now) == nil)
    #expect(abs((pace.bytesPerSecond ?? 0) - 1e6) < 1e4)
    let later = run(&pace, from: now, seconds: 1) { bytes($0 * 1e6, of: 100_000_000) }
    #expect(pace.secondsLeft(at: later) != nil)
  }

  @Test("says nothing without a total, and nothing in the first moments of the next phase")
  func totals() {
    var pace = WorkPace()
    var now = run(&pace, seconds: 10) { WorkProgress(phase: "marking", doneCount: Int($0 * 1_000)) }
    #expect(pace.secondsLeft(at: now) == nil)
    #expect(abs((pace.countPerSecond ?? 0) - 1_000) < 20)
    pace.update(bytes(0, of: 1_000), at: now)
    now += 0.1
    pace.update(bytes(100, of: 1_000), at: now)
    #expect(pace.secondsLeft(at: now) == nil)
  }

  @Test("a rate is one that an integer holds, whatever lengths are claimed")
  func bound() {
    var pace = WorkPace()
    pace.update(bytes(0, of: .max), at: 0)
    pace.update(WorkProgress(phase: "importing", doneByteCount: .max, totalByteCount: .max), at: 0.1)
    #expect(pace.bytesPerSecond.map { Int64($0) } == 9_000_000_000_000_000_000)
  }

  @Test("steady work is estimated to within a twentieth")
  func steady() throws {
    var pace = WorkPace()
    let now = run(&pace, seconds: 20) { bytes($0 * 5e6, of: 1_000_000_000) }
    let left = try #require(pace.secondsLeft(at: now))
    #expect(abs(left - 180) < 9)
    // The answer gets smaller between reports, as the work goes on.
    #expect(try #require(pace.secondsLeft(at: now + 3)) < left - 2.9)
  }

  @Test("what was fast long ago does not count: after a change of rate the new one is believed")
  func change() throws {
    var pace = WorkPace()
    let now = run(&pace, seconds: 60) { bytes($0 * 50e6, of: 4_000_000_000) }
    let slow = run(&pace, from: now, seconds: 45) { bytes(3e9 + ($0 - now) * 1e6, of: 4_000_000_000) }
    let left = try #require(pace.secondsLeft(at: slow))
    // 955 s at the new rate; the average of all would say 33 s.
    #expect((300..<1_000).contains(left), "\(left)")
    let later = run(&pace, from: slow, seconds: 100) { bytes(3e9 + ($0 - now) * 1e6, of: 4_000_000_000) }
    #expect(abs(try #require(pace.secondsLeft(at: later)) - 855) < 60)
  }

  @Test("small files cost more than their bytes: neither they nor a large one at the end spoil the guess")
  func filesAndBytes() throws {
    // 1 ms a file and 10 ms a MiB, learned from a mixture; then 20,000 tiny files and 1 GiB are left.
    var pace = WorkPace()
    var (now, done, count) = (0.0, Int64(0), 0)
    var index = 0
    let (total, totalCount) = (Int64(200) * Self.mebibyte + 1_024 * Self.mebibyte, 2_000 + 20_000)
    while count < 2_000 {
      let isLarge = index % 20 == 0
      let step: (count: Int, bytes: Int64) = isLarge ? (1, 4 * Self.mebibyte) : (104, 0)
      count += step.count
      done += step.bytes
      now += Double(step.count) * 0.001 + Double(step.bytes / Self.mebibyte) * 0.01
      pace.update(
        WorkProgress(
          phase: "importing", doneByteCount: done, totalByteCount: total, doneCount: count,
          totalCount: totalCount), at: now)
      index += 1
    }
    let expected = 0.001 * Double(totalCount - count) + 0.01 * Double((total - done) / Self.mebibyte)
    let left = try #require(pace.secondsLeft(at: now))
    #expect(abs(left - expected) < expected * 0.1, "\(left) of \(expected)")
  }

  @Test("files that are all alike can be told from their number or their bytes")
  func alike() throws {
    var pace = WorkPace()
    let now = run(&pace, seconds: 10) {
      WorkProgress(
        phase: "importing", doneByteCount: Int64($0 * 100) * 10_000, totalByteCount: 100_000_000,
        doneCount: Int($0 * 100), totalCount: 10_000)
    }
    #expect(abs(try #require(pace.secondsLeft(at: now)) - 90) < 5)
  }

  @Test("stops make the guess longer, and a standstill ends it")
  func stalls() throws {
    var pace = WorkPace()
    // A second of work, a second of nothing.
    let now = run(&pace, seconds: 20) { now in
      bytes((Double(Int(now) / 2) + min(1, now.truncatingRemainder(dividingBy: 2))) * 1e7, of: 1_000_000_000)
    }
    #expect(abs(try #require(pace.secondsLeft(at: now)) - 180) < 30)
    let done = pace
    let stuck = run(&pace, from: now, seconds: 9) { _ in bytes(1e8, of: 1_000_000_000) }
    #expect(try #require(pace.secondsLeft(at: stuck)) > #require(done.secondsLeft(at: now)))
    let dead = run(&pace, from: stuck, seconds: 3) { _ in bytes(1e8, of: 1_000_000_000) }
    #expect(pace.secondsLeft(at: dead) == nil)
    #expect(done.secondsLeft(at: now + 11) == nil)
  }

  @Test("at the end nothing is left, and numbers that go back begin anew")
  func end() throws {
    var pace = WorkPace()
    let now = run(&pace, seconds: 10) { bytes($0 * 10, of: 100) }
    #expect(try #require(pace.secondsLeft(at: now)) < 0.2)
    pace.update(bytes(0, of: 100), at: now + 0.1)
    #expect(pace.bytesPerSecond == nil)
  }
}
