/// Places of records: one bit a record.
struct PlaceSet: Sendable {
  private var packs: [UInt32: Bits] = [:]

  var isEmpty: Bool { packs.isEmpty }

  func contains(_ place: Place) -> Bool { packs[place.pack]?.contains(place.ordinal) ?? false }

  /// False when it was in it before.
  @discardableResult
  mutating func insert(_ place: Place) -> Bool { packs[place.pack, default: Bits()].insert(place.ordinal) }
}
