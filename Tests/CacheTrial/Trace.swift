import Foundation

/// What a trial does: requests for keys of very different popularity, the same for the same seed.
struct Trace: Sendable {
  var keyCount: Int
  /// Zipf's exponent: how much more popular the popular keys are.
  var skew: Double
  var seed: UInt64
  /// How many of a hundred requests put a new value without asking for the old one.
  var putPercentage = 20

  private let cumulated: [Double]

  init(keyCount: Int, skew: Double, seed: UInt64) {
    self.keyCount = keyCount
    self.skew = skew
    self.seed = seed
    var sum = 0.0
    cumulated = (0..<keyCount).map { index in
      sum += 1 / pow(Double(index + 1), skew)
      return sum
    }
  }

  struct Request: Sendable {
    var key: Int
    var isPut: Bool
  }

  /// The request with that number.
  func request(_ number: Int) -> Request {
    var random = Noise(seed: seed &+ UInt64(number) &* 0x9E37_79B9_7F4A_7C15)
    let point = Double(random.next() >> 11) / Double(1 << 53) * (cumulated.last ?? 0)
    var (low, high) = (0, keyCount - 1)
    while low < high {
      let middle = (low + high) / 2
      if cumulated[middle] < point { low = middle + 1 } else { high = middle }
    }
    return Request(key: low, isPut: random.next() % 100 < UInt64(putPercentage))
  }

  /// The length of a key's values: 1 to 200 KB.
  func byteCount(_ key: Int) -> Int {
    var random = Noise(seed: seed ^ UInt64(key + 1) &* 0xD6E8_FEB8_6659_FD93)
    return 1_000 + Int(random.next() % 199_001)
  }

  /// A value of a key: begins with the key and `generation`, which determine the other bytes.
  func value(_ key: Int, _ generation: Int) -> Data {
    var bytes = [UInt64]()
    let count = byteCount(key)
    bytes.reserveCapacity(count / 8 + 1)
    bytes.append(UInt64(key))
    bytes.append(UInt64(generation))
    var random = Noise(seed: UInt64(key) << 32 ^ UInt64(generation))
    while bytes.count * 8 < count { bytes.append(random.next()) }
    return bytes.withUnsafeBytes { Data($0.prefix(count)) }
  }

  /// Whether the bytes are one of the key's values.
  func isValue(_ data: Data, of key: Int) -> Bool {
    guard data.count == byteCount(key) else { return false }
    let (owner, generation) = data.withUnsafeBytes {
      ($0.loadUnaligned(as: UInt64.self), $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }
    return owner == UInt64(key) && generation < 1 << 48 && value(key, Int(generation)) == data
  }
}

/// SplitMix64.
struct Noise {
  private var state: UInt64

  init(seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
}

/// What a cache would do that holds exactly so many bytes of values and drops the least recently used.
struct ExactLRU {
  private let byteCountMax: Int
  private var byteCount = 0
  /// Keys with their neighbours, from the least to the most recently used; -1 ends it.
  private var next: [Int]
  private var previous: [Int]
  private var lengths: [Int]
  private var first = -1
  private var last = -1

  init(byteCountMax: Int, keyCount: Int) {
    self.byteCountMax = byteCountMax
    next = Array(repeating: -1, count: keyCount)
    previous = next
    lengths = Array(repeating: 0, count: keyCount)
  }

  /// Uses a key, put if it is missing; says whether it was there.
  mutating func use(_ key: Int, byteCount length: Int) -> Bool {
    let isHit = lengths[key] > 0
    if isHit { unlink(key) } else { byteCount += length }
    lengths[key] = length
    link(key)
    while byteCount > byteCountMax {
      let victim = first
      byteCount -= lengths[victim]
      unlink(victim)
      lengths[victim] = 0
    }
    return isHit
  }

  private mutating func link(_ key: Int) {
    previous[key] = last
    next[key] = -1
    if last >= 0 { next[last] = key } else { first = key }
    last = key
  }

  private mutating func unlink(_ key: Int) {
    if previous[key] >= 0 { next[previous[key]] = next[key] } else { first = next[key] }
    if next[key] >= 0 { previous[next[key]] = previous[key] } else { last = previous[key] }
  }
}
