import Benchmark
import BlobStorage
import Foundation
import Numbers

/// A store in a temporary folder, which goes with it.
final class TemporaryStore: Sendable {
  let store: BlockingBlobStore
  private let path: String

  init(_ options: StoreOptions = StoreOptions()) throws {
    path = FileManager.default.temporaryDirectory.appending(path: "micro-\(UUID())").path
    store = try BlockingBlobStore.create(at: path, options: options)
  }

  deinit {
    try? store.close()
    try? FileManager.default.removeItem(atPath: path)
  }
}

private func find(_ digest: Digest, _ catalog: Catalog) throws(BlobStorageError) -> Bool {
  try catalog.read { (transaction) throws(BlobStorageError) -> Bool in
    let row = try transaction.chunkRow(digest)
    return row != nil
  }
}

/// Catalog, put, get, range and mark.
func stores() {
  let imageCount = 2_000
  let images = (0..<imageCount).map { Data(noise(byteCount: 10_000, seed: UInt64($0 + 1))) }

  func filled() throws -> TemporaryStore {
    let temporary = try TemporaryStore()
    let items = images.enumerated().map { PutItem(key: "image/\($0)", data: $1) }
    try temporary.store.put(items, options: .relaxed)
    return temporary
  }

  Benchmark("catalog lookup of a chunk", configuration: inOneStore) { benchmark in
    let temporary = try filled()
    let digests = images.map { Digest.of($0) }
    let catalog = temporary.store.store.engine.catalog
    var index = 0
    benchmark.startMeasurement()
    for _ in benchmark.scaledIterations {
      index = (index + 7) % imageCount
      blackHole(try find(digests[index], catalog))
    }
    benchmark.stopMeasurement()
  }
  for (name, options) in [("relaxed", PutOptions.relaxed), ("durable", PutOptions())] {
    Benchmark("put 10 KB, \(name)", configuration: inOneStore) { benchmark in
      let temporary = try TemporaryStore()
      var index = 0
      benchmark.startMeasurement()
      for _ in benchmark.scaledIterations {
        var data = images[index % imageCount]
        withUnsafeBytes(of: index) { data.replaceSubrange(0..<8, with: $0) }
        try temporary.store.put("image/\(index)", .data(data), options: options)
        index += 1
      }
      benchmark.stopMeasurement()
    }
  }
  Benchmark("put 10 KB that are there, relaxed", configuration: inOneStore) { benchmark in
    let temporary = try filled()
    var index = 0
    benchmark.startMeasurement()
    for _ in benchmark.scaledIterations {
      try temporary.store.put("again/\(index)", .data(images[index % imageCount]), options: .relaxed)
      index += 1
    }
    benchmark.stopMeasurement()
  }
  Benchmark("get 10 KB", configuration: inOneStore) { benchmark in
    let temporary = try filled()
    var index = 0
    benchmark.startMeasurement()
    for _ in benchmark.scaledIterations {
      index = (index + 1_009) % imageCount
      blackHole(try temporary.store.data(forKey: "image/\(index)"))
    }
    benchmark.stopMeasurement()
  }
  for (name, bytes) in [("text", text(byteCount: 32 << 20)), ("noise", noise(byteCount: 32 << 20))] {
    Benchmark("range of 64 KiB of \(name)", configuration: inOneStore) { benchmark in
      let temporary = try TemporaryStore()
      try temporary.store.put("blob", .data(Data(bytes)), options: .relaxed)
      guard let reader = try temporary.store.reader(forKey: "blob") else { return benchmark.error("no blob") }
      var numbers = SplitMix64(state: 1)
      benchmark.startMeasurement()
      for _ in benchmark.scaledIterations {
        let offset = Int64.random(in: 0..<reader.byteCount - 65_536, using: &numbers)
        blackHole(try await reader.read(offset..<offset + 65_536))
      }
      benchmark.stopMeasurement()
    }
  }
  Benchmark(
    "mark 100,000 chunks", configuration: .init(metrics: metrics, maxDuration: .seconds(5), maxIterations: 5)
  ) { benchmark in
    let temporary = try TemporaryStore(StoreOptions(chunkByteCountAverage: 1 << 10, codec: CodecKind.none))
    try temporary.store.put(
      "blob", .data(Data(noise(byteCount: 117 << 20))), options: .relaxed)
    benchmark.startMeasurement()
    for _ in benchmark.scaledIterations { blackHole(try await temporary.store.store.statistics()) }
    benchmark.stopMeasurement()
  }
}
