import BlobStorage
import BlobStorageReports
import BlobStorageS3
import Foundation
import Synchronization

/// Many small blobs, each put by itself, then got in random order from the store opened anew:
/// small BLOBS STORE relaxed|durable THREADS blocking|checksum|async
func measureSmall(_ words: [String]) async throws -> [String: Any] {
  let names = try order(of: words[1])
  let blobs = try names.sorted().map {
    (key: $0, data: try Data(contentsOf: URL(filePath: "\(words[1])/\($0)")))
  }
  let options = words[3] == "durable" ? PutOptions() : .relaxed
  let threadCount = try number(words[4])
  let isAsync = words[5] == "async"
  let verification = words[5] == "checksum" ? Verification.checksum : .digest
  var store = try BlockingBlobStore.create(at: words[2])
  var (puts, gets, whole) = (Durations(), Durations(), Durations())
  if threadCount > 1 {
    puts = try whole.time {
      try onThreads(threadCount) { [store] thread in
        var puts = Durations()
        for index in stride(from: thread, to: blobs.count, by: threadCount) {
          _ = try puts.time { try store.put(.data(blobs[index].data), forKey: blobs[index].key, options: options) }
        }
        return puts
      }
    }
  } else {
    try await whole.time {
      for (key, data) in blobs {
        if isAsync {
          _ = try await puts.time { try await store.store.put(.data(data), forKey: key, options: options) }
        } else {
          _ = try puts.time { try store.put(.data(data), forKey: key, options: options) }
        }
      }
    }
  }
  try store.close()
  store = try BlockingBlobStore.open(at: words[2])
  var byteCount = 0
  for key in names {
    let data =
      isAsync
      ? try await gets.time { try await store.store.data(forKey: key) }
      : try gets.time { try store.data(forKey: key, verification: verification) }
    byteCount += data?.count ?? 0
  }
  try store.close()
  guard byteCount == blobs.reduce(0, { $0 + $1.data.count }) else {
    throw Failure(reason: "what was got is not what was put")
  }
  return ["put": puts.microseconds, "get": gets.microseconds, "putSeconds": whole.sum]
}

/// Runs a body on threads of their own, more than there are cores if asked for, and returns all durations.
private func onThreads(_ count: Int, _ body: @escaping @Sendable (Int) throws -> Durations) throws
  -> Durations
{
  let outcomes = Mutex<[Result<Durations, any Error>]>([])
  let group = DispatchGroup()
  for thread in 0..<count {
    group.enter()
    Thread.detachNewThread {
      let outcome = Result { try body(thread) }
      outcomes.withLock { $0.append(outcome) }
      group.leave()
    }
  }
  group.wait()
  return Durations(seconds: try outcomes.withLock { try $0.flatMap { try $0.get().seconds } })
}

private func order(of folder: String) throws -> [String] {
  try String(contentsOfFile: "\(folder)/order", encoding: .utf8).split(separator: "\n").map(String.init)
}

/// Gets small blobs again and again, for some seconds, and puts one durably after each hundred gets.
func getAgain(_ folder: String, path: String, seconds: Int) throws -> [String: Any] {
  let keys = try order(of: folder)
  let store = try BlockingBlobStore.open(at: path)
  let end = ContinuousClock.now + .seconds(seconds)
  var (gets, puts, numbers) = (Durations(), Durations(), SplitMix64(state: .random(in: 0...(.max))))
  while ContinuousClock.now < end {
    let key = keys[gets.seconds.count % keys.count]
    guard try gets.time({ try store.data(forKey: key) }) != nil else {
      throw Failure(reason: "there is no \(key)")
    }
    if gets.seconds.count % 100 == 1 {
      _ = try puts.time { try store.put(.data(numbers.data(byteCount: 1_000)), forKey: "beside") }
    }
  }
  try store.close()
  return ["get": gets.microseconds, "put": puts.microseconds]
}

/// Fills a store with so many chunks of 1 KiB on average: large blobs of random bytes, and for every hundred chunks
/// a small one. As text the bytes are letters, such that encoding pays, and similarity gives every chunk features.
func fill(_ place: String, chunkCount: Int, isText: Bool, state: String?) async throws -> [String: Any] {
  let options = StoreOptions(
    averageChunkByteCount: 1 << 10, codec: isText ? .zstd : .none, usesSimilarity: isText)
  let store =
    if let state {
      try await BlobStore.create(
        in: S3Configuration(location: S3Location(place)), state: state, options: options)
    } else { try await BlobStore.create(at: place, options: options) }
  let smallCount = chunkCount / 100
  var filling = Durations()
  var numbers = SplitMix64(state: 1)
  // Chunks come out about a seventh longer than their average.
  for left in stride(from: (chunkCount - smallCount) * 1_170, to: 0, by: -(64 << 20)) {
    var data = numbers.data(byteCount: min(left, 64 << 20))
    // Five bits of eight: letters, so to speak.
    if isText { for index in data.indices { data[index] = 0x60 | data[index] & 0x1f } }
    _ = try await filling.time { try await store.put(.data(data), forKey: "large/\(left)", options: .relaxed) }
  }
  for start in stride(from: 0, to: smallCount, by: 1_000) {
    let items = (start..<min(start + 1_000, smallCount)).map {
      PutItem(key: "small/\($0)", data: smallData($0))
    }
    _ = try await filling.time { try await store.put(items, options: .relaxed) }
  }
  try await filling.time { try await store.close() }
  return ["seconds": filling.sum]
}

/// Makes a store with that many keys of 40 bytes, in no order, each with one version. All have the same blob: the catalog
/// has rows of keys, and of hardly anything else.
func putKeys(_ path: String, count: Int) async throws -> [String: Any] {
  let store = try await BlobStore.create(at: path)
  var numbers = SplitMix64(state: 1)
  let shuffled = (0..<count).shuffled(using: &numbers)
  var filling = Durations()
  for start in stride(from: 0, to: count, by: 10_000) {
    let items = shuffled[start..<min(start + 10_000, count)].map { number in
      let digits = String(number + 1_000_000_000)
      return PutItem(key: "photographs/2024/holidays/img-\(digits)", data: Data([1, 2, 3]))
    }
    _ = try await filling.time { try await store.put(items, options: .relaxed) }
  }
  // The last process to close the catalog writes it anew, in full pages.
  try await filling.time { try await store.close() }
  return ["seconds": filling.sum]
}

private func smallData(_ index: Int) -> Data {
  var numbers = SplitMix64(state: UInt64(index) &* 77)
  return numbers.data(byteCount: 200)
}

/// What everyday work costs in a filled store.
func measureGrowth(_ path: String) async throws -> [String: Any] {
  var (opening, listing, gets, duplicates) = (Durations(), Durations(), Durations(), Durations())
  var (puts, marking, numbers) = (Durations(), Durations(), SplitMix64(state: 3))
  for _ in 0..<5 { try opening.time { try BlockingBlobStore.open(at: path) }.close() }
  let store = try BlockingBlobStore.open(at: path)
  let statistics = try await marking.time { try await store.store.statistics() }
  var listedCount = 0
  try await listing.time { for try await _ in store.store.keys() { listedCount += 1 } }
  for turn in 0..<1_000 {
    let index = Int.random(in: 0..<statistics.chunkCount / 200, using: &numbers)
    let old = smallData(index)
    guard try gets.time({ try store.data(forKey: "small/\(index)") }) == old else {
      throw Failure(reason: "a blob came back wrong")
    }
    // The same bytes under another key: nothing is stored but the ref.
    _ = try duplicates.time { try store.put(.data(old), forKey: "again/\(turn)", options: .relaxed) }
    let new = numbers.data(byteCount: old.count)
    _ = try puts.time { try store.put(.data(new), forKey: "new/\(turn)", options: .relaxed) }
  }
  try store.close()
  return [
    "open": opening.microseconds, "get": gets.microseconds, "put": puts.microseconds,
    "duplicate": duplicates.microseconds, "listSeconds": listing.sum, "listedCount": listedCount,
    "markSeconds": marking.sum, "chunkCount": statistics.chunkCount,
  ]
}
