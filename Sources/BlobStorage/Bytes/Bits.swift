/// A bit set that grows to its highest bit.
struct Bits: Sendable {
  private var words: [UInt64] = []

  func contains(_ index: Int) -> Bool {
    words.count > index / 64 && words[index / 64] & Self.bit(index) != 0
  }

  /// Sets a bit; false if it was already set.
  mutating func insert(_ index: Int) -> Bool {
    let word = index / 64
    if words.count <= word { words.append(contentsOf: repeatElement(0, count: word + 1 - words.count)) }
    guard words[word] & Self.bit(index) == 0 else { return false }
    words[word] |= Self.bit(index)
    return true
  }

  mutating func remove(_ index: Int) {
    if words.count > index / 64 { words[index / 64] &= ~Self.bit(index) }
  }

  private static func bit(_ index: Int) -> UInt64 { 1 << UInt64(index % 64) }
}
