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
      if end == key.count { return row.isKey ? row : nil }
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
    let head = first.prefix(first.count - start.count)
    try scan(.names, from: first) { (key, value) throws(BlobStorageError) in
      let part = key.dropFirst(head.count)
      guard key.starts(with: head), part.starts(with: prefixRest) else { return false }
      let row = try NameRow(value, algorithm: algorithm)
      let whole = path + part
      let isAfter = after.map { $0.lexicographicallyPrecedes(whole) } ?? true
      if row.isKey, isAfter, whole.starts(with: prefix) {
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
      return try NameRow(value, algorithm: algorithm)
    }
  }

  /// Calls `body` with the table's key of one part of a key: how many bytes the parent's number has, those bytes, the
  /// most significant first, and the part.
  fileprivate static func withNameKey<T>(
    _ parent: UInt64, _ key: [UInt8], _ part: Range<Int>,
    _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let numberByteCount = (71 - parent.leadingZeroBitCount) / 8
    return try withUnsafeTemporaryAllocation(byteCount: 1 + numberByteCount + part.count, alignment: 8) {
      (memory) throws(BlobStorageError) in
      var filler = ByteFiller(memory)
      filler.integer(UInt8(numberByteCount))
      for index in 0..<numberByteCount {
        filler.integer(UInt8(truncatingIfNeeded: parent >> (8 * UInt64(numberByteCount - 1 - index))))
      }
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
    try change(&row)
    if row.versionCount <= 1, row.maskCount == 0 { row.number = 0 }
    // Rows of a long key's first parts stay: they are few, and a rebuild does without them.
    try setNameRow(parent, key, start..<key.count, row.isKey || row.child != 0 ? row : nil)
  }

  private func setNameRow(
    _ parent: UInt64, _ key: [UInt8], _ part: Range<Int>, _ row: NameRow?
  ) throws(BlobStorageError) {
    try Self.withNameKey(parent, key, part) { (place) throws(BlobStorageError) in
      if let row { try put(.names, place, row) } else { try remove(.names, place) }
    }
  }
}

/// Versions that can be seen, newest first, and those that are masked. The newest is in the key's own row.
extension ReadTransaction {
  package func versionRow(of name: NameRow, _ stamp: Stamp) throws(BlobStorageError) -> VersionRow? {
    if let current = name.current, current.stamp == stamp { return current.row }
    guard name.versionCount > 1,
      let value = try value(.versions, fixed: Self.versionKey(name.number, stamp))
    else { return nil }
    return try StampedVersion(stamp, value, algorithm: algorithm).row
  }

  /// Calls `body` with the versions of a key, newest first, until it returns false.
  package func forEachVersion(
    of name: NameRow, _ body: (StampedVersion) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    guard let current = name.current, try body(current), name.versionCount > 1 else { return }
    try forEachArchived(of: name, body)
  }

  fileprivate func forEachArchived(
    of name: NameRow, _ body: (StampedVersion) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let first = Self.versionKey(name.number, Stamp(time: .max, writer: .max))
    try withUnsafeBytes(of: first) { (first) throws(BlobStorageError) in
      try scan(.versions, from: first) { (bytes, value) throws(BlobStorageError) in
        let (found, stamp) = try Self.keyAndStamp(bytes)
        guard found == name.number else { return false }
        return try body(try StampedVersion(stamp, value, algorithm: algorithm))
      }
    }
  }

  /// The versions of a key, newest first.
  package func versions(of name: NameRow) throws(BlobStorageError) -> [StampedVersion] {
    var versions: [StampedVersion] = []
    try forEachVersion(of: name) { version in
      versions.append(version)
      return true
    }
    return versions
  }

  /// The current version of a key, the newest; nil when it has none.
  package func currentVersion(ofKey key: [UInt8]) throws(BlobStorageError) -> StampedVersion? {
    try nameRow(key)?.current
  }

  /// The digest of a key's version, or of its current one.
  func digest(ofKey key: [UInt8], _ stamp: Stamp?) throws(BlobStorageError) -> Digest? {
    guard let name = try nameRow(key) else { return nil }
    if let stamp { return try versionRow(of: name, stamp)?.digest }
    return name.current?.row.digest
  }

  package func maskRow(of name: NameRow, _ stamp: Stamp) throws(BlobStorageError) -> MaskRow? {
    guard name.maskCount > 0, let value = try value(.masks, fixed: Self.versionKey(name.number, stamp))
    else { return nil }
    return try MaskRow(value)
  }

  /// Calls `body` with the versions of a key that something hides, newest first.
  package func forEachHidden(
    of name: NameRow, _ body: (Stamp) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    guard name.maskCount > 0 else { return }
    let first = withUnsafeBytes(of: Self.versionKey(name.number, Stamp(time: .max, writer: .max))) {
      Array($0)
    }
    try scan(.masks, from: first) { (bytes, _) throws(BlobStorageError) in
      let (found, stamp) = try Self.keyAndStamp(bytes)
      guard found == name.number else { return false }
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
  /// Adds a version that can be seen, or changes it.
  func setVersion(_ name: inout NameRow, _ version: StampedVersion) throws(BlobStorageError) {
    guard let current = name.current, current.stamp != version.stamp else {
      name.current = version
      return
    }
    let isNewer = current.stamp < version.stamp
    let archived = isNewer ? current : version
    try put(.versions, fixed: Self.versionKey(try number(&name), archived.stamp), archived)
    if isNewer { name.current = version }
  }

  /// Removes a version that can be seen.
  func removeVersion(_ name: inout NameRow, _ stamp: Stamp) throws(BlobStorageError) {
    guard name.current?.stamp == stamp else {
      try remove(.versions, fixed: Self.versionKey(name.number, stamp))
      return
    }
    var next: StampedVersion?
    if name.versionCount > 1 {
      try forEachArchived(of: name) { version in
        next = version
        return false
      }
    }
    name.current = next
    if let next { try remove(.versions, fixed: Self.versionKey(name.number, next.stamp)) }
  }

  func setMaskRow(_ name: inout NameRow, _ stamp: Stamp, _ row: MaskRow?) throws(BlobStorageError) {
    if let row {
      try put(.masks, fixed: Self.versionKey(try number(&name), stamp), row)
    } else {
      try remove(.masks, fixed: Self.versionKey(name.number, stamp))
    }
  }

  /// The number of a key, which gets one when it has none.
  private func number(_ name: inout NameRow) throws(BlobStorageError) -> UInt64 {
    if name.number == 0 { name.number = try increment(.nextKey) }
    return name.number
  }
}
