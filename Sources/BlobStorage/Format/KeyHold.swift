/// A hold on keys: no change drops their versions until it is released. Format.md, "Internal keys".
package struct KeyHold: Hashable, Sendable {
  private static let tag: [UInt8] = [0x48, 0x4c, 0x44, 0x31]  // HLD1

  /// The longest prefix that fits into a version's metadata, beside a state's number and time.
  package static let prefixByteCountMax = 999

  package var name: String
  /// The prefix of the held keys; with `isExact` or `isPath` a key itself.
  package var prefix: [UInt8]
  package var isExact = false
  /// Whether the key itself is held, and those below it.
  package var isPath = false
  /// The number of a held state. Then only keys that had a version at `time` are held.
  package var state: UInt64?
  package var time: UInt64 = .max

  package init(
    name: String, prefix: [UInt8], isExact: Bool = false, isPath: Bool = false, state: UInt64? = nil,
    time: UInt64 = .max
  ) {
    self.name = name
    self.prefix = prefix
    self.isExact = isExact
    self.isPath = isPath
    self.state = state
    self.time = time
  }

  /// - Parameter oldest: the key's oldest version.
  package func covers(_ key: [UInt8], oldest: Stamp?) -> Bool {
    guard !InternalKey.isInternal(key), key.starts(with: prefix) else { return false }
    if isExact || isPath, key.count > prefix.count {
      guard isPath, key[prefix.count] == UInt8(ascii: "/") else { return false }
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
    writer.varint((isExact ? 1 : 0) | (state == nil ? 0 : 2) | (isPath ? 4 : 0) as UInt64)
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
    (prefix, isExact, isPath, state, time) = try bridge(metadata) { (raw) throws(BlobStorageError) in
      var reader = ByteReader(raw)
      _ = try reader.bytes(Self.tag.count)
      let flags = try reader.varint(atMost: 7)
      let prefix = Array(try reader.bytes(try reader.varint(atMost: BlobLimits.maximumKeyByteCount)))
      guard flags & 2 != 0 else { return (prefix, flags & 1 != 0, flags & 4 != 0, nil, .max) }
      return (prefix, flags & 1 != 0, flags & 4 != 0, try reader.integer(UInt64.self), try reader.varint())
    }
  }
}

extension BlobStorageError.Code {
  /// A hold protects what the call would drop.
  public static let held = Self(rawValue: "held")
}
