/// Places of records: one bit a record.
package struct PlaceSet: Sendable {
  private var packs: [UInt32: Bits] = [:]

  package init() {}

  package var isEmpty: Bool { packs.isEmpty }

  package func contains(_ place: Place) -> Bool { packs[place.pack]?.contains(place.ordinal) ?? false }

  /// False when it was in it before.
  @discardableResult
  package mutating func insert(_ place: Place) -> Bool {
    packs[place.pack, default: Bits()].insert(place.ordinal)
  }
}
