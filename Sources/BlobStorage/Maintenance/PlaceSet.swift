/// A set of places of records: one bit per record.
package struct PlaceSet: Sendable {
  private var packs: [UInt32: Bits] = [:]

  package init() {}

  package var isEmpty: Bool { packs.isEmpty }

  package func contains(_ place: Place) -> Bool { packs[place.pack]?.contains(place.ordinal) ?? false }

  /// Returns false if the set had the place before.
  @discardableResult
  package mutating func insert(_ place: Place) -> Bool {
    packs[place.pack, default: Bits()].insert(place.ordinal)
  }
}
