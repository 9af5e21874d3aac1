import Foundation

/// Repeatable numbers (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
public struct SplitMix64: RandomNumberGenerator {
  private var state: UInt64

  public init(state: UInt64) { self.state = state }

  public mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
    return mixed ^ (mixed >> 31)
  }

  public mutating func data(byteCount: Int) -> Data {
    var words = [UInt64](repeating: 0, count: (byteCount + 7) / 8)
    for index in words.indices { words[index] = next() }
    return words.withUnsafeBytes { Data($0.prefix(byteCount)) }
  }
}
