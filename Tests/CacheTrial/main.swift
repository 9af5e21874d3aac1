import BlobStorage
import BlobStorageCache
import Foundation
import Logging

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

// A cache under load from several processes, watched from one more. Does the limit hold? How near is the hit rate to
// that of an exact LRU? Are the bytes read those that were put? A short form belongs to the daily tests.
//
//   swift run -c release CacheTrial run FOLDER 100000000 500000 4 20000 0.9 7
//
// takes some minutes and prints a line of JSON; exit 1 if anything is wrong. The numbers: the limit in bytes, requests,
// processes, keys, skew and seed. The processes run `CacheTrial work`, with their index at the end.

let words = CommandLine.arguments
guard words.count >= 9, let byteCountMax = Int64(words[3]), let requestCount = Int(words[4]),
  let processCount = Int(words[5]), let keyCount = Int(words[6]), let skew = Double(words[7]),
  let seed = UInt64(words[8])
else {
  FileHandle.standardError.write(
    Data("usage: CacheTrial run FOLDER BYTES REQUESTS PROCESSES KEYS SKEW SEED\n".utf8))
  exit(64)
}
let folder = words[2]
let trace = Trace(keyCount: keyCount, skew: skew, seed: seed)
/// While the cache is filled, hits are not counted.
let warmUpCount = requestCount / 5

if words[1] == "work", words.count == 10, let index = Int(words[9]) {
  try await work(index)
} else {
  try run()
}

/// One process's share of the requests.
func work(_ index: Int) async throws {
  let cache = try await BlobCache.open(
    at: folder, limits: CacheLimits(byteLimit: byteCountMax),
    configuration: CacheConfiguration(
      store: StoreConfiguration(
        // On standard error: why a value was refused.
        logger: Logger(label: "worker \(index)", factory: StreamLogHandler.standardError(label:)),
        cacheByteLimit: 0, threadCount: 1), memoryByteLimit: 0))
  var (hitCount, getCount, wrongCount, refusedCount, putByteCount) = (0, 0, 0, 0, 0)
  for number in stride(from: index, to: requestCount, by: processCount) {
    let request = trace.request(number)
    let name = "value/\(request.key)"
    if !request.isPut {
      let found = try await cache.data(forKey: name)
      if number >= warmUpCount {
        getCount += 1
        if found != nil { hitCount += 1 }
      }
      if let found {
        if !trace.isValue(found, of: request.key) { wrongCount += 1 }
        continue
      }
    }
    let value = trace.value(request.key, number)
    putByteCount += value.count
    if !(try await cache.set(value, forKey: name)) { refusedCount += 1 }
  }
  let counts = try await cache.statistics().counts
  try await cache.close()
  print(
    "worker \(hitCount) \(getCount) \(wrongCount) \(refusedCount) \(putByteCount) \(counts.copiedByteCount) \(counts.freedByteCount) \(counts.evictedCount)"
  )
}

/// Starts the workers, watches the folder, and compares.
func run() throws {
  let start = Date()
  var workers: [(process: Process, output: Pipe)] = []
  for index in 0..<processCount {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: words[0])
    process.arguments = ["work"] + words[2...8] + ["\(index)"]
    let output = Pipe()
    process.standardOutput = output
    try process.run()
    workers.append((process, output))
  }
  var (most, sampleCount, lastReport) = (Int64(0), 0, Date())
  while workers.contains(where: { $0.process.isRunning }) {
    let byteCount = allocatedByteCount(folder)
    most = max(most, byteCount)
    sampleCount += 1
    if Date().timeIntervalSince(lastReport) > 30 {
      lastReport = Date()
      FileHandle.standardError.write(
        Data("\(Int(Date().timeIntervalSince(start))) s, \(byteCount) bytes now, \(most) at most\n".utf8))
    }
    usleep(5_000)
  }
  var sums = [Int](repeating: 0, count: 8)
  var isWhole = true
  for (process, output) in workers {
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    let fields = text.split(whereSeparator: { $0 == " " || $0 == "\n" }).dropFirst().compactMap { Int($0) }
    process.waitUntilExit()
    guard process.terminationStatus == 0, fields.count == 8 else {
      isWhole = false
      continue
    }
    for (index, value) in fields.enumerated() { sums[index] += value }
  }
  var lru = ExactLRU(byteCountMax: Int(byteCountMax), keyCount: keyCount)
  var (exactHitCount, getCount) = (0, 0)
  for number in 0..<requestCount {
    let request = trace.request(number)
    let isHit = lru.use(request.key, byteCount: trace.byteCount(request.key))
    if !request.isPut, number >= warmUpCount {
      getCount += 1
      if isHit { exactHitCount += 1 }
    }
  }
  let hitRate = 100 * Double(sums[0]) / Double(max(1, sums[1]))
  let exactHitRate = 100 * Double(exactHitCount) / Double(max(1, getCount))
  let excess = 100 * Double(most - byteCountMax) / Double(byteCountMax)
  let ok = isWhole && sums[2] == 0 && excess <= 5 && exactHitRate - hitRate <= 2
  let result: [String: Any] = [
    "ok": ok, "byteCountMax": byteCountMax, "byteCountMost": most, "byteCountEnd": allocatedByteCount(folder),
    "excessPercentage": rounded(excess), "sampleCount": sampleCount, "hitRate": rounded(hitRate),
    "exactHitRate": rounded(exactHitRate), "wrongCount": sums[2], "refusedCount": sums[3],
    "putByteCount": sums[4], "copiedByteCount": sums[5], "freedByteCount": sums[6],
    "evictedCount": sums[7], "seconds": rounded(Date().timeIntervalSince(start)),
    "writeAmplification": rounded(Double(sums[4] + sums[5]) / Double(max(1, sums[4]))),
  ]
  let json = try JSONSerialization.data(withJSONObject: result, options: [.sortedKeys])
  print(String(decoding: json, as: UTF8.self))
  exit(ok ? 0 : 1)
}

func rounded(_ value: Double) -> Double { (value * 100).rounded() / 100 }

/// Bytes of the medium that everything in a folder takes, the folder included.
func allocatedByteCount(_ path: String) -> Int64 {
  var status = stat()
  guard lstat(path, &status) == 0 else { return 0 }
  var sum = Int64(status.st_blocks) * 512
  guard status.st_mode & S_IFMT == S_IFDIR, let directory = opendir(path) else { return sum }
  defer { closedir(directory) }
  while let entry = readdir(directory) {
    let name = withUnsafePointer(to: &entry.pointee.d_name) {
      $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
    }
    if name != ".", name != ".." { sum += allocatedByteCount("\(path)/\(name)") }
  }
  return sum
}
