import Benchmark
import BlobStorage

/// Chunker, digest, codec and features: no I/O, one thread.
func kernels() {
  let plain = text(byteCount: 64 << 10)
  let random = noise(byteCount: 64 << 10)
  let long = noise(byteCount: 8 << 20)
  let image = noise(byteCount: 10_000)

  Benchmark("chunker, 8 MiB") { benchmark in
    for _ in benchmark.scaledIterations {
      var chunker = Chunker(sizes: .standard)
      long.withUnsafeBytes { raw in
        var start = 0
        while start < raw.count {
          start += chunker.nextCut(in: UnsafeRawBufferPointer(rebasing: raw[start...])).byteCount
        }
      }
      blackHole(chunker.finish())
    }
  }
  for (name, bytes) in [("10 KB", image), ("64 KiB", random), ("8 MiB", long)] {
    Benchmark("digest BLAKE3, \(name)") { benchmark in
      for _ in benchmark.scaledIterations { blackHole(Digest.of(bytes)) }
    }
  }
  Benchmark("digest SHA-256, 64 KiB") { benchmark in
    for _ in benchmark.scaledIterations { blackHole(Digest.of(random, by: .sha256)) }
  }
  Benchmark("features, 64 KiB") { benchmark in
    for _ in benchmark.scaledIterations { plain.withUnsafeBytes { blackHole(SuperFeatures.of($0)) } }
  }
  for (name, bytes) in [("text", plain), ("noise", random)] {
    for (codec, choice) in [("zstd", CodecChoice.zstd), ("zlib", CodecChoice.zlib)] {
      Benchmark("encode \(codec), 64 KiB of \(name)") { benchmark in
        let encoder = ChunkEncoder()
        for _ in benchmark.scaledIterations {
          bytes.withUnsafeBytes { raw in blackHole(try? encoder.withEncoded(raw, by: choice) { $1.count }) }
        }
      }
    }
  }
  for (codec, choice) in [("zstd", CodecChoice.zstd), ("zlib", CodecChoice.zlib)] {
    Benchmark("decode \(codec), 64 KiB of text") { benchmark in
      let encoder = ChunkEncoder()
      let stored = try plain.withUnsafeBytes { try encoder.withEncoded($0, by: choice) { Array($1) } }
      let decoder = ChunkDecoder()
      var output = [UInt8](repeating: 0, count: plain.count)
      benchmark.startMeasurement()
      for _ in benchmark.scaledIterations {
        try output.withUnsafeMutableBytes { target in
          try stored.withUnsafeBytes { try decoder.decode($0, by: choice.kind, into: target) }
        }
      }
      benchmark.stopMeasurement()
      blackHole(output)
    }
  }
}
