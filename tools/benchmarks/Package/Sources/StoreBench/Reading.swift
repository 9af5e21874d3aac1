import BlobStorage
import Foundation
import Numbers
import Synchronization

/// Random ranges of one blob that lies in the page cache.
struct RangeReads {
  let path: String
  let key: String
  let count: Int
  let length: Int64

  init(_ arguments: inout Arguments) throws {
    path = try arguments.text("store")
    key = try arguments.text("key")
    count = try arguments.number("count", default: 2_000)
    length = Int64(try arguments.number("length", default: 64 << 10))
  }

  func run() async throws -> [String: Any] {
    let store = try await BlobStore.open(at: path)
    guard let reader = try await store.reader(forKey: key) else {
      throw UsageError(reason: "the store has no key \(key)")
    }
    // Warm: every pack has been read once.
    try await reader.stream(to: { _ in })
    var numbers = SplitMix64(state: 1)
    var durations = Durations()
    for _ in 0..<count {
      let offset = Int64.random(in: 0..<max(1, reader.byteCount - length), using: &numbers)
      let got = try await timedAsync { try await reader.read(offset..<offset + length) }
      durations.seconds.append(got.seconds)
      guard got.value.count == Int(length) else { throw UsageError(reason: "a range came back short") }
    }
    reader.close()
    try await store.close()
    return ["range": durations.microseconds]
  }
}

/// A whole blob, read from front to back and thrown away.
struct WholeRead {
  let path: String
  let key: String

  init(_ arguments: inout Arguments) throws {
    path = try arguments.text("store")
    key = try arguments.text("key")
  }

  func run() async throws -> [String: Any] {
    let store = try await BlobStore.open(at: path)
    guard let reader = try await store.reader(forKey: key) else {
      throw UsageError(reason: "the store has no key \(key)")
    }
    let byteCount = Mutex(0)
    let reading = try await timedAsync {
      try await reader.stream { bytes in byteCount.withLock { $0 += bytes.count } }
    }
    guard byteCount.withLock({ $0 }) == Int(reader.byteCount) else {
      throw UsageError(reason: "the blob came back short")
    }
    reader.close()
    try await store.close()
    return ["seconds": reading.seconds, "byteCount": reader.byteCount]
  }
}

/// BLAKE3 of a file in memory, piece by piece, on one thread.
struct DigestRate {
  let file: String
  let length: Int

  init(_ arguments: inout Arguments) throws {
    file = try arguments.text("file")
    length = try arguments.number("length")
  }

  func run() throws -> [String: Any] {
    let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
    var first: UInt8 = 0
    var seconds: [Double] = []
    for _ in 0..<3 {
      seconds.append(
        cpuTimed {
          bytes.withUnsafeBytes { raw in
            for start in stride(from: 0, to: raw.count, by: length) {
              let piece = UnsafeRawBufferPointer(rebasing: raw[start..<min(raw.count, start + length)])
              Digest.of(piece).withUnsafeBytes { first ^= $0[0] }
            }
          }
        })
    }
    return [
      "bytesPerSecond": Double(bytes.count) / (seconds.min() ?? 1), "seconds": seconds.min() ?? 0,
      "firstBytes": Int(first),
    ]
  }
}

/// A file or folder imported into a new store, with similarity or without.
struct Import {
  let path: String
  let usesSimilarity: Bool
  let sources: [String]

  init(_ arguments: inout Arguments) throws {
    path = try arguments.text("store")
    usesSimilarity = try arguments.text("similarity") == "on"
    sources = arguments.rest
  }

  func run() async throws -> [String: Any] {
    let store = try await BlobStore.create(
      at: path, options: StoreOptions(usesSimilarity: usesSimilarity))
    let report = try await store.importFiles(sources)
    let statistics = try await store.statistics()
    try await store.close()
    return [
      "seconds": report.seconds, "chunkCount": statistics.chunkCount, "byteCount": report.byteCount,
      "storedByteCount": statistics.storedByteCount, "keyCount": statistics.keyCount,
    ]
  }
}
