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
      guard let value = try value(.names, Self.nameKey(parent, key[start..<end])) else { return nil }
      let row = try NameRow(value)
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
    try scan(.names, from: Self.nameKey(parent, start[...])) { (key, value) throws(BlobStorageError) in
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

  fileprivate static func nameKey(_ parent: UInt64, _ part: ArraySlice<UInt8>) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: 8 + part.count) { bytes, count in
      withUnsafeBytes(of: parent.bigEndian) { UnsafeMutableRawBufferPointer(bytes).copyMemory(from: $0) }
      count = 8 + part.count
      _ = UnsafeMutableBufferPointer(rebasing: bytes[8...]).initialize(from: part)
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
      let end = start + Self.partByteCount
      let place = Self.nameKey(parent, key[start..<end])
      var row = NameRow()
      if let value = try value(.names, place) { row = try NameRow(value) }
      if row.child == 0 {
        row.child = try increment(.nextKey)
        try put(.names, place, row.encoded())
      }
      parent = row.child
      start = end
    }
    let place = Self.nameKey(parent, key[start...])
    var row = NameRow()
    if let value = try value(.names, place) { row = try NameRow(value) }
    if row.key == 0 { row.key = try increment(.nextKey) }
    try change(&row)
    if row.versionCount == 0, row.maskCount == 0 {
      row.key = 0
      // Rows of a long key's first parts stay: they are few, and a rebuild does without them.
      if row.child == 0 {
        try remove(.names, place)
        return
      }
    }
    try put(.names, place, row.encoded())
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
    let first = withUnsafeBytes(of: Self.versionKey(key, Stamp(time: .max, writer: .max))) { Array($0) }
    try scan(.versions, from: first) { (bytes, value) throws(BlobStorageError) in
      let (found, stamp) = try Self.keyAndStamp(bytes)
      guard found == key else { return false }
      return try body((stamp, try VersionRow(value, algorithm: algorithm)))
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
      try put(.versions, fixed: Self.versionKey(key, stamp), row.encoded())
    } else {
      try remove(.versions, fixed: Self.versionKey(key, stamp))
    }
  }

  func setMaskRow(key: UInt64, _ stamp: Stamp, _ row: MaskRow?) throws(BlobStorageError) {
    if let row {
      try put(.masks, fixed: Self.versionKey(key, stamp), row.encoded())
    } else {
      try remove(.masks, fixed: Self.versionKey(key, stamp))
    }
  }
}
