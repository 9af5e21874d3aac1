import BlobStorage
import Foundation
import Numbers
import Synchronization

/// The small blobs of a store that grows: one for every hundred chunks.
enum SmallBlob {
  static let byteCount = 200

  static func key(_ index: Int) -> String { "small/\(index)" }

  static func data(_ index: Int) -> Data {
    var numbers = SplitMix64(state: UInt64(index) &* 77)
    return numbers.data(byteCount: byteCount)
  }
}

/// Fills a store with so many chunks of 1 KiB on average: large blobs of random bytes, and some small blobs.
///
/// With similarity the bytes are such that encoding pays, and every chunk gets features.
struct GrowthFill {
  let path: String
  let chunkCount: Int
  let usesSimilarity: Bool

  init(_ arguments: inout Arguments) throws {
    path = try arguments.text("store")
    chunkCount = try arguments.number("chunks")
    usesSimilarity = arguments.has("similarity") ? try arguments.text("similarity") == "on" : false
  }

  func run() async throws -> [String: Any] {
    let store = try await BlobStore.create(
      at: path,
      options: StoreOptions(
        chunkByteCountAverage: 1 << 10, codec: usesSimilarity ? .zstd : .none, usesSimilarity: usesSimilarity)
    )
    let smallCount = chunkCount / 100
    let filling = try await timedAsync {
      // Chunks come out about a seventh longer than their average.
      var left = (chunkCount - smallCount) * 1_170
      var index = 0
      while left > 0 {
        let byteCount = min(left, 64 << 20)
        let source = RandomStream(seed: UInt64(index + 1), byteCount: byteCount, isText: usesSimilarity)
        try await store.put("large/\(index)", .stream({ source.next() }), options: .relaxed)
        left -= byteCount
        index += 1
      }
      for start in stride(from: 0, to: smallCount, by: 1_000) {
        let items = (start..<min(start + 1_000, smallCount)).map {
          PutItem(key: SmallBlob.key($0), data: SmallBlob.data($0))
        }
        try await store.put(items, options: .relaxed)
      }
    }
    try await store.close()
    return ["seconds": filling.seconds, "smallCount": smallCount]
  }
}

/// Random bytes or letters, a megabyte at a time.
final class RandomStream: Sendable {
  private let state: Mutex<(numbers: SplitMix64, left: Int)>
  private let isText: Bool

  init(seed: UInt64, byteCount: Int, isText: Bool) {
    self.isText = isText
    state = Mutex((SplitMix64(state: seed &* 1_000_003), byteCount))
  }

  func next() -> Data? {
    state.withLock { state in
      guard state.left > 0 else { return nil }
      let byteCount = min(state.left, 1 << 20)
      state.left -= byteCount
      var data = state.numbers.data(byteCount: byteCount)
      // Five bits of eight: letters, so to speak.
      if isText { for index in data.indices { data[index] = 0x60 | data[index] & 0x1f } }
      return data
    }
  }
}

/// What everyday work costs in a filled store.
struct GrowthMeasure {
  let path: String

  init(_ arguments: inout Arguments) throws { path = try arguments.text("store") }

  func run() async throws -> [String: Any] {
    var opens = Durations()
    for _ in 0..<5 {
      let opening = try timed { try BlockingBlobStore.open(at: path) }
      opens.seconds.append(opening.seconds)
      try opening.value.close()
    }
    let store = try BlockingBlobStore.open(at: path)
    let listing = try timed { try Self.keyCount(store) }
    let small = try timed { try Self.keyCount(store, prefix: "small/") }
    let smallCount = small.value
    guard smallCount > 0 else { throw UsageError(reason: "the store was not filled by “fill”") }
    var numbers = SplitMix64(state: 3)
    var gets = Durations()
    var duplicates = Durations()
    var puts = Durations()
    for turn in 0..<1_000 {
      let index = Int.random(in: 0..<smallCount, using: &numbers)
      let got = try timed { try store.data(forKey: SmallBlob.key(index)) }
      guard got.value == SmallBlob.data(index) else { throw UsageError(reason: "a blob came back wrong") }
      gets.seconds.append(got.seconds)
      // The same bytes under another key: nothing is stored but the ref.
      let old = SmallBlob.data(index)
      duplicates.seconds.append(
        try timed { try store.put("again/\(turn)", .data(old), options: .relaxed) }.seconds)
      let new = numbers.data(byteCount: SmallBlob.byteCount)
      puts.seconds.append(
        try timed { try store.put("new/\(turn)", .data(new), options: .relaxed) }.seconds)
    }
    let before = memory()
    let marking = try await timedAsync { try await store.store.statistics() }
    let after = memory()
    // As it was, for the next run.
    _ = try store.delete(prefix: "again/", durability: .relaxed)
    _ = try store.delete(prefix: "new/", durability: .relaxed)
    try store.close()
    return [
      "open": opens.microseconds, "get": gets.microseconds, "put": puts.microseconds,
      "duplicate": duplicates.microseconds, "listSeconds": listing.seconds, "listedCount": listing.value,
      "markSeconds": marking.seconds, "chunkCount": marking.value.chunkCount,
      "diskByteCount": marking.value.diskByteCount, "ownMemory": before.own,
      "ownMemoryMarking": after.own, "mappedMemory": after.mapped,
    ]
  }

  private static func keyCount(_ store: BlockingBlobStore, prefix: String = "") throws -> Int {
    var count = 0
    var last: String?
    while true {
      let page = try store.keys(prefix: prefix, after: last, limit: 1_000)
      count += page.count
      guard page.count == 1_000 else { return count }
      last = page.last?.key
    }
  }
}
