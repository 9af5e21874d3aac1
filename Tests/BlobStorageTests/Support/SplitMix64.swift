import BlobStorageTestSupport

/// A random number generator that a test can seed, print and repeat (Steele et al., OOPSLA 2014).
struct SplitMix64: RandomNumberGenerator {
  private var state: UInt64

  init(seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
    return mixed ^ mixed >> 31
  }

  /// So many bytes, the low ones of each number first.
  mutating func bytes(_ count: Int) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(count + 8)
    while bytes.count < count {
      let word = next().littleEndian
      withUnsafeBytes(of: word) { bytes.append(contentsOf: $0) }
    }
    bytes.removeLast(bytes.count - count)
    return bytes
  }

  /// Lengths that add up to `count`, each from 0 to `max`.
  mutating func split(_ count: Int, max: Int) -> [Int] {
    var lengths: [Int] = []
    var rest = count
    while rest > 0 {
      let length = Int.random(in: 0...min(max, rest), using: &self)
      lengths.append(length)
      rest -= length
    }
    return lengths
  }

  /// A generator with a seed that is printed.
  static func announced(_ test: String = #function) -> SplitMix64 {
    SplitMix64(seed: TestSeed.announce(test))
  }
}
