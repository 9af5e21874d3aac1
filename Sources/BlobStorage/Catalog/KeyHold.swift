/// A hold on keys: no change drops their versions until it is released. Format.md, "Internal keys".
package struct KeyHold: Hashable, Sendable {
  private static let tag: [UInt8] = [0x48, 0x4c, 0x44, 0x31]  // HLD1

  package var name: String
  /// The prefix of the held keys; with `isExact` the key itself.
  package var prefix: [UInt8]
  package var isExact = false
  /// The number of a held state. Then only keys that had a version at `time` are held.
  package var state: UInt64?
  package var time: UInt64 = .max

  package init(
    name: String, prefix: [UInt8], isExact: Bool = false, state: UInt64? = nil, time: UInt64 = .max
  ) {
    self.name = name
    self.prefix = prefix
    self.isExact = isExact
    self.state = state
    self.time = time
  }

  /// - Parameter oldest: the key's oldest version.
  package func covers(_ key: [UInt8], oldest: Stamp?) -> Bool {
    guard !InternalKey.isInternal(key), isExact ? key == prefix : key.starts(with: prefix) else {
      return false
    }
    return state == nil || (oldest?.time ?? .max) <= time
  }

  package func refusal(of key: [UInt8]) -> BlobStorageError {
    let key = InternalKey.shown(key)
    return BlobStorageError(
      .held, "“\(key)” is held by “\(name)”: release that hold first.", key: key)
  }

  package var key: [UInt8] { InternalKey.Purpose.hold.key(Array(name.utf8)) }

  package var metadata: [UInt8] {
    var writer = ByteWriter()
    writer.raw(Self.tag)
    writer.varint((isExact ? 1 : 0) | (state == nil ? 0 : 2) as UInt64)
    writer.varint(prefix.count)
    writer.raw(prefix)
    if let state {
      writer.integer(state)
      writer.varint(time)
    }
    return writer.bytes
  }

  /// - Throws: `unsupportedFormat` or `corrupted` if this is not a valid hold.
  package init(key: [UInt8], metadata: [UInt8]) throws(BlobStorageError) {
    guard metadata.starts(with: Self.tag) else {
      throw BlobStorageError(.unsupportedFormat, "A hold was written by a later build.")
    }
    name = String(decoding: key.dropFirst(2), as: UTF8.self)
    (prefix, isExact, state, time) = try bridge(metadata) { (raw) throws(BlobStorageError) in
      var reader = ByteReader(raw)
      _ = try reader.bytes(Self.tag.count)
      let flags = try reader.varint(atMost: 3)
      let prefix = Array(try reader.bytes(try reader.varint(atMost: BlobLimits.maximumKeyByteCount)))
      guard flags & 2 != 0 else { return (prefix, flags & 1 != 0, nil, .max) }
      return (prefix, flags & 1 != 0, try reader.integer(UInt64.self), try reader.varint())
    }
  }
}

extension BlobStorageError.Code {
  /// A hold protects what the call would drop.
  public static let held = Self(rawValue: "held")
}

extension ReadTransaction {
  /// All holds on keys and states.
  package func keyHolds() throws(BlobStorageError) -> [KeyHold] {
    var holds: [KeyHold] = []
    try forEachKey(prefix: InternalKey.Purpose.hold.prefix, after: nil) {
      (key, name) throws(BlobStorageError) in
      // A copy may bring a hold of a name that the store has already: both count.
      for version in try versions(of: name) {
        holds.append(try KeyHold(key: key, metadata: version.row.metadata))
      }
      return true
    }
    return holds
  }

  /// Returns the first of `holds` that protects a key or the record of a state; nil if none does.
  package func hold(on key: [UInt8], among holds: [KeyHold]) throws(BlobStorageError) -> KeyHold? {
    if holds.isEmpty { return nil }
    if key.starts(with: InternalKey.Purpose.state.prefix) {
      let number = key.dropFirst(2)
      return holds.first { $0.state.map { Hex.text($0).utf8.elementsEqual(number) } ?? false }
    }
    let replaced = InternalKey.Purpose.replaced.prefix
    let key = key.starts(with: replaced) ? Array(key.dropFirst(replaced.count)) : key
    guard let oldest = try oldestVersion(ofKey: key) else { return nil }
    return holds.first { $0.covers(key, oldest: oldest) }
  }

  /// The oldest version of a key, including versions that an import has replaced; nil if it has none.
  private func oldestVersion(ofKey key: [UInt8]) throws(BlobStorageError) -> Stamp? {
    var oldest: Stamp?
    for key in [InternalKey.Purpose.replaced.key(key), key] {
      guard let name = try nameRow(key), let last = try versions(of: name).last else { continue }
      if oldest.map({ last.stamp < $0 }) ?? true { oldest = last.stamp }
    }
    return oldest
  }
}
