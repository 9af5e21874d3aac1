import BlobStorage
import Foundation

// readback STORE RANGES SEED: reads all versions of all keys once, then so many random ranges of 64 KiB, in one process,
// so that the time to start one is not measured. One JSON object.

struct Result: Encodable {
  var byteCount: Int64 = 0
  var seconds = 0.0
  var processorSeconds = 0.0
  var rangeMicroseconds = 0.0
  var rangeMicrosecondsOfNinetieth = 0.0
}

struct Generator: RandomNumberGenerator {
  var state: UInt64
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
}

func seconds(_ body: () async throws -> Void) async throws -> Double {
  let start = ContinuousClock.now
  try await body()
  let duration = ContinuousClock.now - start
  return Double(duration.components.seconds) + Double(duration.components.attoseconds) * 1e-18
}

let arguments = CommandLine.arguments
guard arguments.count == 4, let rangeCount = Int(arguments[2]), let seed = UInt64(arguments[3]) else {
  FileHandle.standardError.write(Data("usage: readback STORE RANGES SEED\n".utf8))
  exit(64)
}
let store = try await BlobStore.open(at: arguments[1])
var result = Result()
var versions: [BlobVersion] = []
for try await entry in store.keys() { versions += try await store.versions(of: entry.key) }
let before = clock()
result.seconds = try await seconds {
  for version in versions {
    guard let reader = try await store.reader(forKey: version.key, version: version.id) else { continue }
    result.byteCount += reader.byteCount
    if reader.byteCount > 1 << 20 {
      try await reader.stream { _ in }
    } else {
      _ = try await reader.read(0..<reader.byteCount)
    }
    reader.close()
  }
}
result.processorSeconds = Double(clock() - before) / 1e6  // by POSIX, whatever the clock
try await store.close()

// Anew, so that nothing is in memory but what the system has.
let fresh = try await BlobStore.open(at: arguments[1])
var generator = Generator(state: seed)
var times: [Double] = []
let large = versions.filter { $0.byteCount >= 128 << 10 }
if rangeCount > 0, !large.isEmpty {
  var readers: [BlobReader] = []
  for version in large.prefix(64) {
    if let reader = try await fresh.reader(forKey: version.key, version: version.id) {
      readers.append(reader)
    }
  }
  for _ in 0..<rangeCount {
    let reader = readers[Int.random(in: 0..<readers.count, using: &generator)]
    let start = Int64.random(in: 0..<reader.byteCount - (64 << 10), using: &generator)
    times.append(try await seconds { _ = try await reader.read(start..<start + (64 << 10)) })
  }
  times.sort()
  result.rangeMicroseconds = times[times.count / 2] * 1e6
  result.rangeMicrosecondsOfNinetieth = times[times.count * 9 / 10] * 1e6
  for reader in readers { reader.close() }
}
try await fresh.close()
print(String(decoding: try JSONEncoder().encode(result), as: UTF8.self))
