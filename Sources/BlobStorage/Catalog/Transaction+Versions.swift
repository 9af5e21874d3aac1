/// Versions that can be seen, newest first, and those that are masked.
extension ReadTransaction {
  /// A version with its place in the order.
  package typealias StampedVersion = (stamp: Stamp, row: VersionRow)

  package func versionRow(key: UInt64, _ stamp: Stamp) throws(BlobStorageError) -> VersionRow? {
    guard let value = try value(.versions, fixed: Self.versionKey(key, stamp)) else { return nil }
    return try VersionRow(value, algorithm: algorithm)
  }

  /// Calls `body` with the versions of a key, newest first, until it returns false.
  package func forEachVersion(
    key: UInt64,
    _ body: (StampedVersion) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let first = Self.versionKey(key, Stamp(time: .max, writer: .max))
    try withUnsafeBytes(of: first) { (first) throws(BlobStorageError) in
      try scan(.versions, from: first) { (bytes, value) throws(BlobStorageError) in
        let (found, stamp) = try Self.keyAndStamp(bytes)
        guard found == key else { return false }
        return try body((stamp, try VersionRow(value, algorithm: algorithm)))
      }
    }
  }

  /// The versions of a key, newest first.
  func versions(key: UInt64) throws(BlobStorageError) -> [StampedVersion] {
    var versions: [StampedVersion] = []
    try forEachVersion(key: key) { version in
      versions.append(version)
      return true
    }
    return versions
  }

  /// The current version of a key: the newest.
  package func currentVersion(key: UInt64) throws(BlobStorageError) -> StampedVersion? {
    var current: StampedVersion?
    try forEachVersion(key: key) { version in
      current = version
      return false
    }
    return current
  }

  /// The current version of a key; nil when it has none.
  package func currentVersion(ofKey key: [UInt8]) throws(BlobStorageError) -> StampedVersion? {
    guard let name = try nameRow(key) else { return nil }
    return try currentVersion(key: name.key)
  }

  /// The digest of a key's version, or of its current one.
  func digest(ofKey key: [UInt8], _ stamp: Stamp?) throws(BlobStorageError) -> Digest? {
    guard let name = try nameRow(key) else { return nil }
    if let stamp { return try versionRow(key: name.key, stamp)?.digest }
    return try currentVersion(key: name.key)?.row.digest
  }

  /// Calls `body` with every version of every key, keys in no order.
  package func forEachVersion(
    _ body: (_ key: UInt64, _ stamp: Stamp, _ row: VersionRow) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    try scan(.versions) { (bytes, value) throws(BlobStorageError) in
      let (key, stamp) = try Self.keyAndStamp(bytes)
      try body(key, stamp, try VersionRow(value, algorithm: algorithm))
      return true
    }
  }

  package func maskRow(key: UInt64, _ stamp: Stamp) throws(BlobStorageError) -> MaskRow? {
    guard let value = try value(.masks, fixed: Self.versionKey(key, stamp)) else { return nil }
    return try MaskRow(value)
  }

  /// Calls `body` with the versions of a key that something hides, newest first.
  func forEachHidden(key: UInt64, _ body: (Stamp) throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    let first = withUnsafeBytes(of: Self.versionKey(key, Stamp(time: .max, writer: .max))) { Array($0) }
    try scan(.masks, from: first) { (bytes, _) throws(BlobStorageError) in
      let (found, stamp) = try Self.keyAndStamp(bytes)
      guard found == key else { return false }
      try body(stamp)
      return true
    }
  }

  /// Stamps are stored turned over, so that the newest comes first.
  fileprivate static func versionKey(_ key: UInt64, _ stamp: Stamp) -> (UInt64, UInt64, UInt64) {
    (key.bigEndian, (~stamp.time).bigEndian, (~stamp.writer).bigEndian)
  }

  fileprivate static func keyAndStamp(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) -> (
    UInt64, Stamp
  ) {
    guard bytes.count == 24 else {
      throw BlobStorageError(.catalogDamaged, "The catalog has a version without a stamp.")
    }
    func field(_ offset: Int) -> UInt64 {
      UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    }
    return (field(0), Stamp(time: ~field(8), writer: ~field(16)))
  }
}

extension WriteTransaction {
  func setVersionRow(key: UInt64, _ stamp: Stamp, _ row: VersionRow?) throws(BlobStorageError) {
    if let row {
      try put(.versions, fixed: Self.versionKey(key, stamp), row)
    } else {
      try remove(.versions, fixed: Self.versionKey(key, stamp))
    }
  }

  func setMaskRow(key: UInt64, _ stamp: Stamp, _ row: MaskRow?) throws(BlobStorageError) {
    if let row {
      try put(.masks, fixed: Self.versionKey(key, stamp), row)
    } else {
      try remove(.masks, fixed: Self.versionKey(key, stamp))
    }
  }
}
