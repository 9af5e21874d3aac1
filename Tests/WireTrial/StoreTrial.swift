import BlobStorage
import BlobStorageS3
import Foundation

/// A store on an S3 service, used by one process.
struct StoreTrial {
  let place: S3Configuration
  let state: String

  /// Reads random 64 KiB of a blob, one after the other.
  func readRanges(of key: String, count: Int) async throws {
    let store = try await BlobStore.open(place, state: state)
    guard let reader = try await store.reader(forKey: key) else { fail("there is no key '\(key)'") }
    let byteCount = Int64(64 << 10)
    guard reader.byteCount > byteCount else { fail("'\(key)' is too short") }
    var seconds: [Double] = []
    for _ in 0..<count {
      let offset = Int64.random(in: 0...(reader.byteCount - byteCount))
      let begin = ContinuousClock.now
      let data = try await reader.read(offset..<offset + byteCount)
      seconds.append((ContinuousClock.now - begin) / .seconds(1))
      guard data.count == Int(byteCount) else { fail("a range came back shorter") }
    }
    reader.close()
    try await store.close()
    seconds.sort()
    say([("ranges", "\(count)"), ("medianms", String(format: "%.2f", seconds[count / 2] * 1000))])
  }

  /// Makes a store of about so many chunks of 1 KiB, in large blobs of random bytes.
  func fill(chunkCount: Int) async throws {
    let store = try await BlobStore.create(
      in: place, state: state, options: StoreOptions(chunkByteCountAverage: 1 << 10, codec: .none))
    // Chunks come out about a seventh longer than their average.
    let block = randomData(16 << 20)
    var left = chunkCount * 1_170
    var index: UInt8 = 0
    while left > 0 {
      // Other bytes in every blob: no chunk is there already.
      let other = Data(block.prefix(left).map { $0 ^ index })
      try await store.put("blob/\(index)", .data(other), options: .relaxed)
      left -= other.count
      index += 1
    }
    let statistics = try await store.statistics()
    try await store.close()
    say([("chunks", "\(statistics.chunkCount)")])
  }
}
