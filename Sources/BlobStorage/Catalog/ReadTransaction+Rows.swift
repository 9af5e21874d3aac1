/// Looks rows up: packs, keys with their versions, chunks and blobs.
extension ReadTransaction {
  /// A named number in the table `meta`.
  package struct Meta {
    /// The row's key, in ASCII.
    let key: StaticString

    /// The greatest time of any stamp that was not far ahead of the present.
    package static let clock = Meta(key: "clock")
    /// Incremented when packs are condemned, retired or lost, when a pack of a dead writer is recovered, and when packs
    /// of other machines are applied.
    package static let epoch = Meta(key: "epoch")
    /// The next pack gets the number after this one.
    package static let nextPack = Meta(key: "nextPack")
    /// The next key, or the rest of a long key, gets the number after this one.
    package static let nextKey = Meta(key: "nextKey")
    /// The greatest tick of a cache's order.
    package static let cacheTick = Meta(key: "cacheTick")
    /// Whether the cache's tables are complete: ``CacheIndexState``.
    package static let cacheIndexed = Meta(key: "cacheIndexed")
    /// Whether the versions of each blob are counted.
    package static let countsVersions = Meta(key: "countsVersions")
    /// Whether packs were removed whose chunks may have copies in other packs, which only a rebuild finds.
    package static let lacksCopies = Meta(key: "lacksCopies")
    /// Number of hidden versions that packs have and no tombstone names. gc leaves none. Only a pack that was lost, or
    /// whose writer was fenced, goes before the versions that it hid. A rebuild shows them again.
    package static let orphanedMasks = Meta(key: "orphanedMasks")
    /// One more than the number of the last change of a shared store whose packs the catalog has; 0 to list all packs.
    package static let nextChange = Meta(key: "nextChange")
    /// Number of packs that are not settled: ``PackRow/isSettled``.
    package static let unsettledPacks = Meta(key: "unsettledPacks")
    /// One more than the number of the log's last entry when the packs last agreed with it, and ``nextPack`` at that
    /// time.
    package static let settledLog = Meta(key: "settledLog")
    package static let settledPack = Meta(key: "settledPack")
    /// Whether any chunk was found damaged since the catalog was made.
    package static let hasSuspects = Meta(key: "hasSuspects")
    /// How often a read has pointed the catalog at another copy of a damaged or lost record. That copy can lie in any
    /// pack, also in one that gc has already marked.
    static let movedRows = Meta(key: "movedRows")
    /// The last page and the number of rows of the file when it was last copied into full pages.
    package static let fullPages = Meta(key: "fullPages")
    package static let fullRows = Meta(key: "fullRows")

    package var bytes: UnsafeRawBufferPointer {
      UnsafeRawBufferPointer(start: key.utf8Start, count: key.utf8CodeUnitCount)
    }
  }

  package func meta(_ name: Meta) throws(BlobStorageError) -> UInt64 {
    try number(.meta, name.bytes) ?? 0
  }

  /// The greatest time of any stamp that is not far ahead of the present.
  package func clock() throws(BlobStorageError) -> UInt64 { try meta(.clock) }

  /// Changes whenever something that was found may be gone, and whenever something that was missing may be there.
  package func epoch() throws(BlobStorageError) -> UInt64 { try meta(.epoch) }

  /// How complete the cache's tables are.
  package func cacheIndexState() throws(BlobStorageError) -> CacheIndexState {
    CacheIndexState(rawValue: try meta(.cacheIndexed)) ?? .none
  }

  // MARK: Packs

  package func packRow(_ number: UInt32) throws(BlobStorageError) -> PackRow? {
    guard let value = try value(.packs, fixed: number.bigEndian) else { return nil }
    return try PackRow(value)
  }

  /// The number of a pack in this catalog; nil if the catalog does not know the pack.
  package func packNumber(_ name: PackName) throws(BlobStorageError) -> UInt32? {
    try withUnsafeBytes(of: RowKey.pack(name)) { (key) throws(BlobStorageError) in
      try number(.packNumbers, key)
    }
  }

  /// Returns a pack whose tail can count: the catalog knows it, and it is neither sealed nor condemned.
  func openPack(
    _ name: PackName
  ) throws(BlobStorageError) -> (number: UInt32, row: PackRow)? {
    guard let number = try packNumber(name), let row = try openPackRow(number) else { return nil }
    return (number, row)
  }

  /// The same by the pack's number.
  func openPackRow(_ number: UInt32) throws(BlobStorageError) -> PackRow? {
    guard let row = try packRow(number), row.state == .live, !row.isSealed else { return nil }
    return row
  }

  /// A pack with its number; nil if the catalog does not know the pack.
  package func pack(_ name: PackName) throws(BlobStorageError) -> (number: UInt32, row: PackRow)? {
    guard let number = try packNumber(name), let row = try packRow(number) else { return nil }
    return (number, row)
  }

  /// All packs, in the order in which this catalog added them; or those with at least the number `first`.
  package func packRows(
    from first: UInt32 = 0
  ) throws(BlobStorageError) -> [(number: UInt32, row: PackRow)] {
    var rows: [(UInt32, PackRow)] = []
    let start: [UInt8] = first == 0 ? [] : withUnsafeBytes(of: first.bigEndian) { Array($0) }
    try scan(.packs, from: start) { (key, value) throws(BlobStorageError) in
      guard key.count == 4 else {
        throw BlobStorageError(.catalogDamaged, "The catalog has a pack without a number.")
      }
      rows.append((UInt32(bigEndian: key.loadUnaligned(as: UInt32.self)), try PackRow(value)))
      return true
    }
    return rows
  }

  /// Bytes of a pack's records that are known to be garbage.
  package func garbageByteCount(_ pack: UInt32) throws(BlobStorageError) -> Int64 {
    try withUnsafeBytes(of: pack.bigEndian) { (key) throws(BlobStorageError) in
      try number(.packGarbage, key) ?? 0
    }
  }

  /// Whether a power cut cannot lose any record that the catalog has applied.
  ///
  /// - Parameter forcesSealed: whether sealed packs are on the medium, unless their sync failed. False for a store that
  ///   publishes its packs.
  func countsOnMediumOnly(forcesSealed: Bool) throws(BlobStorageError) -> Bool {
    try packRows().allSatisfy {
      forcesSealed && $0.row.isSealed && !$0.row.isPoisoned
        || $0.row.appliedByteCount <= $0.row.durableByteCount
    }
  }

  // MARK: Keys

  /// The row of `key`; nil if the catalog does not know the key.
  package func nameRow(_ key: [UInt8]) throws(BlobStorageError) -> NameRow? {
    var parent: UInt64 = 0
    var start = 0
    while true {
      let end = min(start + RowKey.namePartByteCount, key.count)
      guard let row = try nameRow(parent, key, start..<end) else { return nil }
      if end == key.count { return row.isKey ? row : nil }
      guard row.child != 0 else { return nil }
      parent = row.child
      start = end
    }
  }

  /// Calls `body` with the keys that begin with `prefix` and come after `after`, and their rows, in byte order, until
  /// it returns false. Leaves out keys without a visible version, unless `includesHidden`, and internal keys, unless
  /// `includesInternal` or the prefix is one of theirs.
  package func forEachKey(
    prefix: [UInt8], after: [UInt8]?, includesHidden: Bool = false, includesInternal: Bool = false,
    _ body: (_ key: [UInt8], _ row: NameRow) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    var after = after
    if prefix.isEmpty, !includesInternal, after?.lexicographicallyPrecedes(InternalKey.last) ?? true {
      after = InternalKey.last
    }
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
    // The first part to visit on this level, as `prefix` and `after` determine it.
    func rest(_ bytes: [UInt8]) -> ArraySlice<UInt8>? {
      guard bytes.count > path.count, bytes.starts(with: path) else { return nil }
      return bytes[path.count...].prefix(RowKey.namePartByteCount)
    }
    let prefixRest = rest(prefix) ?? []
    var start = Array(prefixRest)
    if let after, let afterRest = rest(after), start.lexicographicallyPrecedes(afterRest) {
      start = Array(afterRest)
    }
    var goOn = true
    let first = try RowKey.withName(parent, start, start.indices) { (place) in Array(place) }
    let head = first.prefix(first.count - start.count)
    try scan(.names, from: first) { (key, value) throws(BlobStorageError) in
      let part = key.dropFirst(head.count)
      guard key.starts(with: head), part.starts(with: prefixRest) else { return false }
      let row = try NameRow(value, algorithm: algorithm)
      let whole = path + part
      let isAfter = after.map { $0.lexicographicallyPrecedes(whole) } ?? true
      if row.isKey, isAfter, whole.starts(with: prefix) {
        guard 1...BlobLimits.maximumKeyByteCount ~= whole.count else { throw Self.invalidKey }
        goOn = try body(whole, row)
      }
      if goOn, row.child != 0 {
        // The rows of another machine may lead in a circle.
        guard part.count == RowKey.namePartByteCount, whole.count < BlobLimits.maximumKeyByteCount else {
          throw Self.invalidKey
        }
        goOn = try walk(parent: row.child, path: whole, prefix: prefix, after: after, body)
      }
      return goOn
    }
    return goOn
  }

  private static var invalidKey: BlobStorageError {
    BlobStorageError(.catalogDamaged, "The catalog has a key that is empty or too long.")
  }

  /// The row of one part of a key, under the number of the part before it.
  func nameRow(
    _ parent: UInt64, _ key: [UInt8], _ part: Range<Int>
  ) throws(BlobStorageError) -> NameRow? {
    try RowKey.withName(parent, key, part) { (place) throws(BlobStorageError) in
      guard let value = try value(.names, place) else { return nil }
      return try NameRow(value, algorithm: algorithm)
    }
  }

  // MARK: Versions

  package func versionRow(of name: NameRow, _ stamp: Stamp) throws(BlobStorageError) -> VersionRow? {
    if let current = name.current, current.stamp == stamp { return current.row }
    guard name.versionCount > 1,
      let value = try value(.versions, fixed: RowKey.version(name.number, stamp))
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

  func forEachArchived(
    of name: NameRow, _ body: (StampedVersion) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    try forEachStamp(.versions, of: name) { (stamp, value) throws(BlobStorageError) in
      try body(try StampedVersion(stamp, value, algorithm: algorithm))
    }
  }

  /// Calls `body` with a key's rows in a table, the newest stamp first, until it returns false.
  private func forEachStamp(
    _ table: Table, of name: NameRow,
    _ body: (Stamp, UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    let first = RowKey.version(name.number, Stamp(time: .max, writer: .max))
    try withUnsafeBytes(of: first) { (first) throws(BlobStorageError) in
      try scan(table, from: first) { (bytes, value) throws(BlobStorageError) in
        let (found, stamp) = try RowKey.numberAndStamp(bytes)
        guard found == name.number else { return false }
        return try body(stamp, value)
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

  /// The current version of a key, the newest; nil if it has none.
  package func currentVersion(ofKey key: [UInt8]) throws(BlobStorageError) -> StampedVersion? {
    try nameRow(key)?.current
  }

  /// The digest of a key's version, also of one that imports keep for their states, or of its current one.
  func digest(ofKey key: [UInt8], _ stamp: Stamp?) throws(BlobStorageError) -> BlobDigest? {
    if let stamp { return try readableVersion(ofKey: key, stamp)?.digest }
    return try nameRow(key)?.current?.row.digest
  }

  /// A version of a key: in its history, or kept for the states of imports.
  func readableVersion(ofKey key: [UInt8], _ stamp: Stamp) throws(BlobStorageError) -> VersionRow? {
    for key in [key, InternalKey.Purpose.replaced.key(key)] {
      if let name = try nameRow(key), let row = try versionRow(of: name, stamp) { return row }
    }
    return nil
  }

  package func maskRow(of name: NameRow, _ stamp: Stamp) throws(BlobStorageError) -> MaskRow? {
    guard name.maskCount > 0, let value = try value(.masks, fixed: RowKey.version(name.number, stamp))
    else { return nil }
    return try MaskRow(value)
  }

  /// Calls `body` with the hidden versions of a key, newest first.
  package func forEachHidden(
    of name: NameRow, _ body: (Stamp) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    guard name.maskCount > 0 else { return }
    try forEachStamp(.masks, of: name) { (stamp, _) throws(BlobStorageError) in
      try body(stamp)
      return true
    }
  }

  // MARK: Chunks and manifests

  package func chunkRow(_ digest: BlobDigest) throws(BlobStorageError) -> ChunkRow? {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      guard let value = try value(.chunks, key) else { return nil }
      return try chunkRow(value)
    }
  }

  private func chunkRow(_ value: UnsafeRawBufferPointer) throws(BlobStorageError) -> ChunkRow {
    try ChunkRow(value) { (place) throws(BlobStorageError) in
      guard let base = try self.value(.chunkBases, fixed: RowKey.base(place)) else { return nil }
      var reader = ByteReader(base)
      return BlobDigest(algorithm: algorithm, bytes: try reader.bytes(BlobDigest.byteCount))
    }
  }

  /// Calls `body` with each chunk's row; nil if the store does not have the chunk.
  ///
  /// Fastest in the order of digests: rows on the same page are found without descending the tree again.
  func forEachChunkRow(
    _ digests: some Sequence<BlobDigest>, _ body: (BlobDigest, ChunkRow?) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    try withHandle(.chunks) { (handle) throws(BlobStorageError) in
      let cursor = PackedCursor(handle: handle, table: .chunks, keyByteCount: BlobDigest.byteCount)
      var lookUp = PackedLookUp(cursor, self)
      for digest in digests {
        let row = try digest.withUnsafeBytes { (key) throws(BlobStorageError) -> ChunkRow? in
          guard let value = try lookUp.value(key) else { return nil }
          return try chunkRow(value)
        }
        try body(digest, row)
      }
    }
  }

  package func manifestRow(_ digest: BlobDigest) throws(BlobStorageError) -> ManifestRow? {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      guard let value = try value(.manifests, key) else { return nil }
      return try ManifestRow(value)
    }
  }

  /// Where the catalog has the chunk or manifest that a record holds; nil for another record, or if it has none.
  func place(of content: PackRecord.Content) throws(BlobStorageError) -> Place? {
    switch content {
    case .chunk(let chunk): try chunkRow(chunk.digest)?.place
    case .manifest(let manifest): try manifestRow(manifest.digest)?.place
    case .ref, .drop, .skipped: nil
    }
  }

  /// Where the catalog has a blob: its only chunk, or its manifest; nil if it has neither.
  package func place(ofBlob digest: BlobDigest) throws(BlobStorageError) -> Place? {
    if let row = try chunkRow(digest) { return row.place }
    return try manifestRow(digest)?.place
  }

  /// Calls `body` with every chunk after a digest, in the order of digests, until it returns false.
  ///
  /// - Parameter ownOnly: whether to leave out outer rows.
  package func forEachChunk(
    after last: BlobDigest? = nil, ownOnly: Bool = false,
    _ body: (BlobDigest, ChunkRow) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    try scanDigests(.chunks, after: last, ownOnly: ownOnly) { (digest, value) throws(BlobStorageError) in
      try body(digest, try chunkRow(value))
    }
  }

  /// Whether any chunk was found damaged since the catalog was made.
  package func hasSuspects() throws(BlobStorageError) -> Bool { try meta(.hasSuspects) != 0 }

  /// Whether a writer may rely on records in `pack`: the pack is live, not poisoned and not lost.
  package func isTrusted(_ pack: UInt32) throws(BlobStorageError) -> Bool {
    guard let row = try packRow(pack) else { return false }
    return row.state == .live && !row.isPoisoned && !row.isLost
  }

  /// Returns the chunk if a writer may deduplicate onto it: it and its base are undamaged and in trusted packs.
  package func chunkToShare(_ digest: BlobDigest) throws(BlobStorageError) -> ChunkRow? {
    guard let row = try chunkRow(digest), !row.isSuspect, try isTrusted(row.place.pack) else { return nil }
    if let base = row.base {
      guard let baseRow = try chunkRow(base), !baseRow.isSuspect, baseRow.base == nil,
        try isTrusted(baseRow.place.pack)
      else {
        return nil
      }
    }
    return row
  }

  /// Returns the manifest if a writer may deduplicate onto it.
  package func manifestToShare(_ digest: BlobDigest) throws(BlobStorageError) -> ManifestRow? {
    guard let row = try manifestRow(digest), try isTrusted(row.place.pack) else { return nil }
    return row
  }

  /// Returns a chunk that shares a feature and can be a base: the youngest one for the first feature that finds any.
  package func similarChunk(
    _ features: SIMD3<UInt32>
  ) throws(BlobStorageError) -> (digest: BlobDigest, row: ChunkRow)? {
    var found: (digest: BlobDigest, row: ChunkRow)?
    for index in 0..<3 where found == nil {
      guard let bucket = try value(.features, FeatureBucket.key(index, features[index])) else { continue }
      try FeatureBucket.forEachPrefix(of: features[index], in: bucket) { (prefix) throws(BlobStorageError) in
        if let (digest, row) = try chunk(prefix), row.base == nil, row.plainByteCount > 0 {
          found = (digest, row)
        }
        return found == nil
      }
    }
    return found
  }

  /// Returns the chunk if it can be a base: a writer may share it, and it has no base itself.
  package func baseToShare(_ digest: BlobDigest) throws(BlobStorageError) -> ChunkRow? {
    guard let row = try chunkToShare(digest), row.base == nil, row.plainByteCount > 0 else { return nil }
    return row
  }

  /// Returns the chunk whose digest begins with `prefix`, if a writer may share it.
  private func chunk(_ prefix: [UInt8]) throws(BlobStorageError) -> (digest: BlobDigest, row: ChunkRow)? {
    var digest: BlobDigest?
    // Chunks with features in this table have rows in the database. A look into outer rows may cost a request.
    try scan(.chunks, from: prefix, ownOnly: true) { (key, _) throws(BlobStorageError) in
      if key.count == BlobDigest.byteCount, key.starts(with: prefix) {
        digest = BlobDigest(algorithm: algorithm, bytes: key)
      }
      return false
    }
    guard let digest, let row = try chunkToShare(digest) else { return nil }
    return (digest, row)
  }

  /// Whether any record is encoded against the chunk, which then must not have a base itself. The counts include
  /// records that are not current or whose base is missing. So they do not depend on the order of packs.
  package func isBase(_ digest: BlobDigest) throws(BlobStorageError) -> Bool {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in try value(.bases, key) != nil }
  }

  // MARK: Counts

  /// Whether the versions of each blob are counted; if not, all counts are 0. Counting costs every put, so it begins
  /// when a cache first asks. A rebuilt catalog has no counts until a cache asks again.
  package func countsVersions() throws(BlobStorageError) -> Bool { try meta(.countsVersions) != 0 }

  /// The number of visible versions with this digest.
  package func versionCount(of digest: BlobDigest) throws(BlobStorageError) -> Int {
    let count: UInt32? = try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      try number(.blobs, key)
    }
    return Int(count ?? 0)
  }

  /// Calls `body` with every blob that has a manifest, in the order of digests after `last`, until it returns false.
  package func forEachManifest(
    after last: BlobDigest? = nil,
    _ body: (BlobDigest, ManifestRow) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) {
    try scanDigests(.manifests, after: last) { (digest, value) throws(BlobStorageError) in
      try body(digest, try ManifestRow(value))
    }
  }
}

/// Whether the cache's tables are complete.
package enum CacheIndexState: UInt64 {
  case none = 0
  /// All but the latest keys, which their processes have yet to add.
  case complete = 1
  /// A process may have died before it added its keys.
  case lacksKeys = 2
}

extension ReadTransaction {
  /// - Throws: `conditionFailed` when the condition does not hold for the key.
  func check(_ condition: ChangeCondition, on key: [UInt8]) throws(BlobStorageError) {
    let wanted: Stamp?
    switch condition {
    case .always: return
    case .current(let id): wanted = id.stamp
    case .absent: wanted = nil
    }
    let current = try currentVersion(ofKey: key)?.stamp
    guard current != wanted else { return }
    let text = String(decoding: key, as: UTF8.self)
    let found = current.map { "its current version is \(BlobVersion.ID($0))" } ?? "it has no version"
    var error = BlobStorageError(
      .conditionFailed, "The key “\(text)” is not as the change expects: \(found). Nothing was changed.",
      key: text)
    error.currentVersionText = current.map { BlobVersion.ID($0).description }
    throw error
  }

  /// Whether a visible version needs its ref at `place`. It does if its row points there, or into a removed pack while
  /// copies in other packs remain.
  func needs(_ ref: RefRecord, at place: Place) throws(BlobStorageError) -> Bool {
    guard let name = try nameRow(ref.key), let known = try versionRow(of: name, ref.version)?.place else {
      return false
    }
    if known.pack == place.pack { return known.offset == place.offset }
    return try packRow(known.pack) == nil
  }
}

/// Looks up the holds on keys.
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
