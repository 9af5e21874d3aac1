import Benchmark
import BlobStorage
import Foundation

// Small parts, measured one by one: `swift package --package-path tools/benchmarks/Package --disable-sandbox benchmark`.
// The store's benchmarks work in a temporary folder. Counts of allocations read 0: see Package.swift.
let benchmarks: @Sendable () -> Void = {
  Benchmark.defaultConfiguration = .init(
    metrics: [.wallClock, .cpuTotal, .throughput], warmupIterations: 3, maxDuration: .seconds(2),
    maxIterations: 1_000_000)
  kernels()
  stores()
}

/// Bytes whose encoding pays: words of a small vocabulary in random order.
func text(byteCount: Int, seed: UInt64 = 1) -> [UInt8] {
  var numbers = SplitMix64(state: seed)
  let words = (0..<2_000).map { _ in
    (0..<Int.random(in: 2...9, using: &numbers)).map { _ in UInt8.random(in: 97...122, using: &numbers) } + [
      32
    ]
  }
  var bytes: [UInt8] = []
  bytes.reserveCapacity(byteCount + 10)
  while bytes.count < byteCount { bytes += words[Int.random(in: 0..<words.count, using: &numbers)] }
  return Array(bytes.prefix(byteCount))
}

/// Bytes whose encoding does not pay.
func noise(byteCount: Int, seed: UInt64 = 1) -> [UInt8] {
  var numbers = SplitMix64(state: seed)
  return (0..<byteCount).map { _ in UInt8.random(in: 0...255, using: &numbers) }
}

/// Repeatable numbers (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
struct SplitMix64: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
    return mixed ^ (mixed >> 31)
  }
}
