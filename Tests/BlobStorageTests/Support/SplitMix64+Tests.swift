import BlobStorageTestSupport

extension SplitMix64 {
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

  /// A number from 0 up to below `count`.
  mutating func below(_ count: Int) -> Int { Int.random(in: 0..<count, using: &self) }

  /// A generator with a seed that is printed.
  static func announced(_ test: String = #function) -> SplitMix64 {
    SplitMix64(seed: TestSeed.announce(test))
  }
}
