/// Places of records: one bit a record.
struct PlaceSet: Sendable {
  private var bits: [UInt32: [UInt64]] = [:]

  var isEmpty: Bool { bits.isEmpty }

  func contains(_ place: Place) -> Bool {
    guard let words = bits[place.pack], words.count > place.ordinal / 64 else { return false }
    return words[place.ordinal / 64] & Self.bit(place) != 0
  }

  /// False when it was in it before.
  @discardableResult
  mutating func insert(_ place: Place) -> Bool {
    let word = place.ordinal / 64
    var words = bits.removeValue(forKey: place.pack) ?? []
    if words.count <= word { words.append(contentsOf: repeatElement(0, count: word + 1 - words.count)) }
    defer { bits[place.pack] = words }
    guard words[word] & Self.bit(place) == 0 else { return false }
    words[word] |= Self.bit(place)
    return true
  }

  private static func bit(_ place: Place) -> UInt64 { 1 << UInt64(place.ordinal % 64) }
}
