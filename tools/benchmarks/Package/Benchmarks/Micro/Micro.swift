import Benchmark
import BlobStorage

let benchmarks: @Sendable () -> Void = {
  Benchmark("nothing") { benchmark in
    for _ in benchmark.scaledIterations { blackHole(1) }
  }
}
