import Benchmark
import BlobStorage
import Foundation
import Numbers

// Small parts, measured one by one: `swift package --package-path tools/benchmarks/Package --disable-sandbox benchmark`.
// The store's benchmarks work in a temporary folder. Counts of allocations read 0: see Package.swift.
let benchmarks: @Sendable () -> Void = {
  Benchmark.defaultConfiguration = .init(
    metrics: metrics, warmupIterations: 3, maxDuration: .seconds(2), maxIterations: 1_000_000)
  kernels()
  stores()
}

let metrics: [BenchmarkMetric] = [.wallClock, .cpuTotal, .throughput]

/// For work that a store has to be made for: a thousand times in each store.
var inOneStore: Benchmark.Configuration {
  .init(
    metrics: metrics, warmupIterations: 1, scalingFactor: .kilo, maxDuration: .seconds(2), maxIterations: 20)
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
