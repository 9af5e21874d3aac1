import BlobStorage
import BlobStorageS3
import Foundation

/// Measures the store inside one process, one piece of work a run, and prints a JSON object.
@main
enum StoreBench {
  static func main() async {
    do {
      let result = try await measure(Array(CommandLine.arguments.dropFirst()))
      FileHandle.standardOutput.write(try JSONSerialization.data(withJSONObject: result) + Data("\n".utf8))
    } catch {
      FileHandle.standardError.write(Data("StoreBench: \(error)\n".utf8))
      exit(1)
    }
  }

  static func measure(_ words: [String]) async throws -> [String: Any] {
    switch (words.first, words.count) {
    case ("small", 6): try await measureSmall(words)
    case ("gets", 4): try getAgain(words[1], path: words[2], seconds: number(words[3]))
    case ("range", 3...4): try await readRanges(words[1], count: number(words[2]), state: words.dropFirst(3).first)
    case ("members", 3): try await getMembers(words[1], count: number(words[2]))
    case ("readback", 2): try await readAll(words[1])
    case ("digest", 3): try measureDigest(words[1], length: number(words[2]))
    case ("fill", 4...5):
      try await fill(
        words[1], chunkCount: number(words[2]), isText: words[3] == "on", state: words.dropFirst(4).first)
    case ("keys", 3): try await putKeys(words[1], count: number(words[2]))
    case ("growth", 2): try await measureGrowth(words[1])
    default: throw Failure(reason: "usage: tools/bench prints the command lines")
    }
  }
}

func number(_ word: String) throws -> Int {
  guard let value = Int(word), value > 0 else { throw Failure(reason: "\(word) is not a number above 0") }
  return value
}

struct Failure: Error {
  var reason: String
}

/// Opens the store at a path, or the one in a bucket for a machine that has its state in a folder.
func openStore(_ place: String, state: String?) async throws -> BlobStore {
  guard let state else { return try await BlobStore.open(at: place) }
  return try await BlobStore.open(S3Configuration(location: S3Location(place)), state: state)
}

/// How long each of many equal pieces of work took.
struct Durations {
  var seconds: [Double] = []

  /// Runs a piece of work, adds its duration, and returns its result.
  mutating func time<T>(_ body: () throws -> T) rethrows -> T {
    let start = ContinuousClock.now
    let value = try body()
    seconds.append((ContinuousClock.now - start) / .seconds(1))
    return value
  }

  mutating func time<T>(_ body: () async throws -> T) async rethrows -> T {
    let start = ContinuousClock.now
    let value = try await body()
    seconds.append((ContinuousClock.now - start) / .seconds(1))
    return value
  }

  var sum: Double { seconds.reduce(0, +) }

  var microseconds: [Double] { seconds.map { $0 * 1e6 } }
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

  mutating func data(byteCount: Int) -> Data {
    var words = [UInt64](repeating: 0, count: (byteCount + 7) / 8)
    for index in words.indices { words[index] = next() }
    return words.withUnsafeBytes { Data($0.prefix(byteCount)) }
  }
}

/// BLAKE3 of a file in memory, piece by piece, on one thread: bytes for each second of CPU time.
func measureDigest(_ path: String, length: Int) throws -> [String: Any] {
  let bytes = try Data(contentsOf: URL(filePath: path))
  var used = clock_t.max
  var sink: UInt8 = 0
  for _ in 0..<3 {
    let before = clock()
    bytes.withUnsafeBytes { raw in
      for start in stride(from: 0, to: raw.count, by: length) {
        let piece = UnsafeRawBufferPointer(rebasing: raw[start..<min(raw.count, start + length)])
        BlobDigest.of(piece).withUnsafeBytes { sink ^= $0[0] }
      }
    }
    used = min(used, clock() - before)
  }
  return ["bytesPerSecond": Double(bytes.count) * 1e6 / Double(used), "sink": Int(sink)]
}

/// Random 64 KiB of up to 64 versions that are long enough. In a folder they lie in the page cache, in a bucket this
/// machine reads them for the first time.
func readRanges(_ place: String, count: Int, state: String?) async throws -> [String: Any] {
  let length = Int64(64 << 10)
  let store = try await openStore(place, state: state)
  var readers: [BlobReader] = []
  for version in try await versions(in: store) where version.byteCount > 2 * length && readers.count < 64 {
    guard let reader = try await store.reader(forKey: version.key, version: version.id) else { continue }
    if state == nil { try await reader.stream { _ in } }
    readers.append(reader)
  }
  guard !readers.isEmpty else { throw Failure(reason: "no blob is long enough") }
  var numbers = SplitMix64(state: 1)
  var durations = Durations()
  for _ in 0..<count {
    let reader = readers[Int.random(in: 0..<readers.count, using: &numbers)]
    let offset = Int64.random(in: 0..<reader.byteCount - length, using: &numbers)
    let data = try await durations.time { try await reader.read(offset..<offset + length) }
    guard data.count == Int(length) else { throw Failure(reason: "a range came back short") }
  }
  for reader in readers { reader.close() }
  try await store.close()
  return ["range": durations.microseconds]
}

/// Blobs of about 4 KB that were imported with others, in random order, each twice in a row.
func getMembers(_ path: String, count: Int) async throws -> [String: Any] {
  let store = try BlockingBlobStore.open(at: path)
  var numbers = SplitMix64(state: 1)
  let keys = try await versions(in: store.store).filter { 3_500..<4_700 ~= $0.byteCount }.map(\.key)
    .shuffled(using: &numbers).prefix(count)
  guard !keys.isEmpty else { throw Failure(reason: "no blob has about 4 KB") }
  var (first, again) = (Durations(), Durations())
  for key in keys {
    let data = try first.time { try store.data(forKey: key) }
    guard try again.time({ try store.data(forKey: key) }) == data, data != nil else {
      throw Failure(reason: "a blob came back wrong")
    }
  }
  try store.close()
  return ["first": first.microseconds, "again": again.microseconds]
}

/// All versions of all keys, read once: the CPU time of it.
func readAll(_ path: String) async throws -> [String: Any] {
  let store = try await BlobStore.open(at: path)
  let versions = try await versions(in: store)
  let before = clock()
  for version in versions {
    guard let reader = try await store.reader(forKey: version.key, version: version.id) else { continue }
    try await reader.stream { _ in }
    reader.close()
  }
  let processorSeconds = Double(clock() - before) / 1e6  // by POSIX, whatever the clock
  try await store.close()
  return ["processorSeconds": processorSeconds]
}

private func versions(in store: BlobStore) async throws -> [BlobVersion] {
  var found: [BlobVersion] = []
  for try await entry in store.keys() { found += try await store.versions(of: entry.key) }
  return found
}
