import Foundation

/// Seconds that `body` takes, and what it returns.
func timed<T>(_ body: () throws -> T) rethrows -> (seconds: Double, value: T) {
  let clock = ContinuousClock()
  let start = clock.now
  let value = try body()
  return ((clock.now - start).inSeconds, value)
}

func timedAsync<T>(_ body: () async throws -> T) async rethrows -> (seconds: Double, value: T) {
  let clock = ContinuousClock()
  let start = clock.now
  let value = try await body()
  return ((clock.now - start).inSeconds, value)
}

/// Seconds of this thread's CPU that `body` takes: what disturbs the machine does not count.
func cpuTimed(_ body: () -> Void) -> Double {
  var start = timespec()
  var end = timespec()
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start)
  body()
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end)
  return Double(end.tv_sec - start.tv_sec) + Double(end.tv_nsec - start.tv_nsec) * 1e-9
}

extension Duration {
  var inSeconds: Double { Double(components.seconds) + Double(components.attoseconds) * 1e-18 }
}

/// How long each of many equal pieces of work took.
struct Durations {
  var seconds: [Double] = []

  func at(_ share: Double) -> Double {
    let sorted = seconds.sorted()
    guard !sorted.isEmpty else { return 0 }
    return sorted[min(sorted.count - 1, Int(Double(sorted.count) * share))]
  }

  /// Median, mean and 99th percentile in microseconds.
  var microseconds: [String: Double] {
    [
      "median": at(0.5) * 1e6, "p99": at(0.99) * 1e6,
      "mean": seconds.reduce(0, +) / Double(max(1, seconds.count)) * 1e6,
    ]
  }
}

/// Memory of this process in bytes: its own, and mapped pages of files.
func memory() -> (own: Int, mapped: Int) {
  var own = 0
  var mapped = 0
  let text = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
  for line in text.split(separator: "\n") {
    let words = line.split(whereSeparator: { $0 == " " || $0 == "\t" })
    guard words.count >= 2, let kilobytes = Int(words[1]) else { continue }
    if words[0] == "RssAnon:" { own = kilobytes << 10 }
    if words[0] == "RssFile:" { mapped = kilobytes << 10 }
  }
  return (own, mapped)
}
