/// A hold on keys: no change drops their versions until it is released. Format.md, "Internal keys".
package struct KeyHold: Hashable, Sendable {
  private static let tag: [UInt8] = [0x48, 0x4c, 0x44, 0x31]  // HLD1

  package var name: String
  /// What the keys begin with; with `isExact` the key.
  package var prefix: [UInt8]
  package var isExact = false
  /// The number of a state that is held: then only keys count that had a version by then.
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
    let key = String(decoding: key, as: UTF8.self)
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

  /// - Throws: `unsupportedFormat` or `corrupted` for what is no hold.
  package init(_ version: InternalVersion) throws(BlobStorageError) {
    let metadata = version.row.metadata
    guard metadata.starts(with: Self.tag) else {
      throw BlobStorageError(.unsupportedFormat, "A hold was written by a later build.")
    }
    name = String(decoding: version.key.dropFirst(2), as: UTF8.self)
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
  /// A hold protects what was to be dropped.
  public static let held = Self(rawValue: "held")
}

extension Engine {
  /// All holds on keys and states.
  package func keyHolds() throws(BlobStorageError) -> [KeyHold] {
    try internalVersions(InternalKey.Purpose.hold.prefix).map { (version) throws(BlobStorageError) in
      try KeyHold(version)
    }
  }

  /// - Throws: `held` if a hold protects one of the keys.
  func checkHolds(on keys: [[UInt8]]) throws(BlobStorageError) {
    let holds = try keyHolds()
    if holds.isEmpty { return }
    try catalog.read { (transaction) throws(BlobStorageError) in
      for key in keys {
        let oldest = try transaction.oldestVersion(ofKey: key)
        if oldest == nil { continue }
        if let hold = holds.first(where: { $0.covers(key, oldest: oldest) }) { throw hold.refusal(of: key) }
      }
    }
  }

  /// - Throws: `held` if a hold protects a key that begins so.
  func checkHolds(onPrefix prefix: [UInt8]) throws(BlobStorageError) {
    for hold in try keyHolds() where hold.prefix.starts(with: prefix) || prefix.starts(with: hold.prefix) {
      let longer = hold.prefix.count > prefix.count ? hold.prefix : prefix
      try catalog.read { (transaction) throws(BlobStorageError) in
        try transaction.forEachKey(prefix: longer, after: nil) { (key, _) throws(BlobStorageError) in
          guard hold.covers(key, oldest: try transaction.oldestVersion(ofKey: key)) else { return true }
          throw hold.refusal(of: key)
        }
      }
    }
  }

  /// The keys that no hold protects.
  func withoutHeld(_ keys: [[UInt8]]) throws(BlobStorageError) -> [[UInt8]] {
    let holds = try keyHolds()
    if holds.isEmpty { return keys }
    return try catalog.read { (transaction) throws(BlobStorageError) in
      var free: [[UInt8]] = []
      for key in keys {
        let oldest = try transaction.oldestVersion(ofKey: key)
        if !holds.contains(where: { $0.covers(key, oldest: oldest) }) { free.append(key) }
      }
      return free
    }
  }

  /// Drops versions of keys in one commit, relaxed.
  package func drop(_ versions: [(key: [UInt8], stamps: [Stamp])]) throws(BlobStorageError) {
    guard !versions.isEmpty else { return }
    try folder.withReserve { () throws(BlobStorageError) in
      _ = try writer.commit(on: versions.map(\.key)) { (commit) throws(BlobStorageError) in
        for (key, stamps) in versions {
          guard let name = try commit.transaction.nameRow(key) else { continue }
          var present: [Stamp] = []
          for stamp in stamps where try commit.transaction.versionRow(of: name, stamp) != nil {
            present.append(stamp)
          }
          if !present.isEmpty { try commit.drop(present, of: key) }
        }
      }
    }
  }
}

extension ReadTransaction {
  /// The oldest version of a key, also one that an import has replaced; nil if it has none.
  fileprivate func oldestVersion(ofKey key: [UInt8]) throws(BlobStorageError) -> Stamp? {
    var oldest: Stamp?
    for key in [InternalKey.Purpose.replaced.key(key), key] {
      guard let name = try nameRow(key), let last = try versions(of: name).last else { continue }
      if oldest.map({ last.stamp < $0 }) ?? true { oldest = last.stamp }
    }
    return oldest
  }
}
