import BlobStorage

/// A damaged place, as JSON and as a line.
struct DamageOutput: Encodable {
  private let damage: Damage

  init(_ damage: Damage) { self.damage = damage }

  private enum CodingKeys: String, CodingKey {
    case digest, pack, offset, keys, reason
  }

  /// A digest that could not be read is null, so that the field is always there.
  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(damage.digest?.description, forKey: .digest)
    try container.encode(damage.pack, forKey: .pack)
    try container.encode(damage.offset, forKey: .offset)
    try container.encode(damage.keys, forKey: .keys)
    try container.encode(damage.reason, forKey: .reason)
  }

  var text: String {
    let name = damage.digest?.description ?? "a record"
    let keys = damage.keys.map { "“\($0.printable)”" }.joined(separator: ", ")
    // A missing chunk has no place.
    let place = damage.pack.isEmpty ? "" : " in pack \(damage.pack) at \(damage.offset)"
    return "damaged: \(name)\(place): \(damage.reason.printable)"
      + (keys.isEmpty ? "" : "; needed by \(keys)")
  }
}
