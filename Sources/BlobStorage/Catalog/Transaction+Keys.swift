/// Keys. LMDB takes keys of 511 bytes, ours have up to 4,096: a long key is cut into parts of 480 bytes, each
/// found under the number of the one before. Parts are shorter than 480 only at a key's end, so walking parts in
/// byte order walks keys in byte order.
extension ReadTransaction {
  static let partByteCount = 480

  /// What hangs on `key`, or nil when the catalog does not know it.
  package func nameRow(_ key: [UInt8]) throws(BlobStorageError) -> NameRow? {
    var parent: UInt64 = 0
    var start = 0
    while true {
      let end = min(start + Self.partByteCount, key.count)
      guard let row = try nameRow(parent, key, start..<end) else { return nil }
      if end == key.count { return row.key == 0 ? nil : row }
      guard row.child != 0 else { return nil }
      parent = row.child
      start = end
    }
  }

  /// Calls `body` with the keys that begin with `prefix` and come after `after`, and their rows, in byte order, until
  /// it returns false. Leaves out keys without a visible version, unless `includesHidden`.
  package func forEachKey(
    prefix: [UInt8], after: [UInt8]?, includesHidden: Bool = false,
    _ body: (_ key: [UInt8], _ row: NameRow) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    _ = try walk(parent: 0, path: [], prefix: prefix, after: after) { (key, row) throws(BlobStorageError) in
      guard includesHidden || row.versionCount > 0 else { return true }
      return try body(key, row)
    }
  }

  /// Walks the parts under `parent`; `path` holds the parts before. False when `body` returned false.
  private func walk(
    parent: UInt64, path: [UInt8], prefix: [UInt8], after: [UInt8]?,
    _ body: (_ key: [UInt8], _ row: NameRow) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) -> Bool {
    // The least part that can matter: what prefix and `after` leave of this level.
    func rest(_ bytes: [UInt8]) -> ArraySlice<UInt8>? {
      guard bytes.count > path.count, bytes.starts(with: path) else { return nil }
      return bytes[path.count...].prefix(Self.partByteCount)
    }
    let prefixRest = rest(prefix) ?? []
    var start = Array(prefixRest)
    if let after, let afterRest = rest(after), start.lexicographicallyPrecedes(afterRest) {
      start = Array(afterRest)
    }
    var goOn = true
    let first = try Self.withNameKey(parent, start, start.indices) { (place) in Array(place) }
    try scan(.names, from: first) { (key, value) throws(BlobStorageError) in
      guard key.count >= 8, UInt64(bigEndian: key.loadUnaligned(as: UInt64.self)) == parent,
        key.dropFirst(8).starts(with: prefixRest)
      else { return false }
      let row = try NameRow(value)
      let whole = path + key.dropFirst(8)
      let isAfter = after.map { $0.lexicographicallyPrecedes(whole) } ?? true
      if row.key != 0, isAfter, whole.starts(with: prefix) {
        goOn = try body(whole, row)
      }
      if goOn, row.child != 0 {
        goOn = try walk(parent: row.child, path: whole, prefix: prefix, after: after, body)
      }
      return goOn
    }
    return goOn
  }

  /// What hangs on one part of a key, under that of the parts before it.
  fileprivate func nameRow(
    _ parent: UInt64, _ key: [UInt8], _ part: Range<Int>
  ) throws(BlobStorageError) -> NameRow? {
    try Self.withNameKey(parent, key, part) { (place) throws(BlobStorageError) in
      guard let value = try value(.names, place) else { return nil }
      return try NameRow(value)
    }
  }

  /// Calls `body` with the table's key of one part of a key.
  fileprivate static func withNameKey<T>(
    _ parent: UInt64, _ key: [UInt8], _ part: Range<Int>,
    _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    try withUnsafeTemporaryAllocation(byteCount: 8 + part.count, alignment: 8) {
      (memory) throws(BlobStorageError) in
      var filler = ByteFiller(memory)
      filler.integer(parent.byteSwapped)
      key.withUnsafeBytes { filler.raw(UnsafeRawBufferPointer(rebasing: $0[part])) }
      return try body(UnsafeRawBufferPointer(memory))
    }
  }
}

extension WriteTransaction {
  /// Changes what hangs on `key`, made when it is not there, forgotten when nothing hangs on it any more.
  func updateName(
    _ key: [UInt8], _ change: (inout NameRow) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var parent: UInt64 = 0
    var start = 0
    while key.count - start > Self.partByteCount {
      let part = start..<start + Self.partByteCount
      var row = try nameRow(parent, key, part) ?? NameRow()
      if row.child == 0 {
        row.child = try increment(.nextKey)
        try setNameRow(parent, key, part, row)
      }
      parent = row.child
      start = part.upperBound
    }
    var row = try nameRow(parent, key, start..<key.count) ?? NameRow()
    if row.key == 0 { row.key = try increment(.nextKey) }
    try change(&row)
    // Rows of a long key's first parts stay: they are few, and a rebuild does without them.
    if row.versionCount == 0, row.maskCount == 0 { row.key = 0 }
    try setNameRow(parent, key, start..<key.count, row.key == 0 && row.child == 0 ? nil : row)
  }

  private func setNameRow(
    _ parent: UInt64, _ key: [UInt8], _ part: Range<Int>, _ row: NameRow?
  ) throws(BlobStorageError) {
    try Self.withNameKey(parent, key, part) { (place) throws(BlobStorageError) in
      if let row { try put(.names, place, row) } else { try remove(.names, place) }
    }
  }
}

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
