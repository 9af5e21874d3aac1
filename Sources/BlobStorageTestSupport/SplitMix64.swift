/// Random numbers that repeat for the same seed (Steele, Lea, Flood, OOPSLA 2014).
package struct SplitMix64: RandomNumberGenerator, Sendable {
  private var state: UInt64

  /// The sequence of a seed.
  package init(seed: UInt64) { state = seed }

  package mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }

  /// Random bytes, the low ones of each number first.
  package mutating func bytes(_ count: Int) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(count + 8)
    while bytes.count < count { withUnsafeBytes(of: next().littleEndian) { bytes.append(contentsOf: $0) } }
    bytes.removeLast(bytes.count - count)
    return bytes
  }
}
