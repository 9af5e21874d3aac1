import CLMDB

/// Reads and changes rows: those of the database, in the only write transaction of all processes, or those that tails
/// add to a snapshot.
package final class WriteTransaction: ReadTransaction {
  /// Changes rows of tails over a snapshot.
  convenience init(_ rows: TailRows, over snapshot: ReadTransaction) {
    self.init(snapshot.handle, of: snapshot.database, rows: rows)
  }
}

extension WriteTransaction {
  func put(
    _ table: Table, fixed key: some BitwiseCopyable, _ value: some TableValue
  ) throws(BlobStorageError) {
    try withUnsafeBytes(of: key) { (bytes) throws(BlobStorageError) in try put(table, bytes, value) }
  }

  /// Puts a number, or removes the row if the number is nil.
  func setNumber(
    _ table: Table, _ key: UnsafeRawBufferPointer, _ number: (some FixedWidthInteger)?
  ) throws(BlobStorageError) {
    if let number {
      try withUnsafeBytes(of: number.littleEndian) { (value) throws(BlobStorageError) in
        try put(table, key, bytes: value)
      }
    } else {
      try remove(table, key)
    }
  }

  @discardableResult
  func remove(_ table: Table, fixed key: some BitwiseCopyable) throws(BlobStorageError) -> Bool {
    try withUnsafeBytes(of: key) { (bytes) throws(BlobStorageError) in try remove(table, bytes) }
  }

  func put(
    _ table: Table, _ key: UnsafeRawBufferPointer, _ value: some TableValue
  ) throws(BlobStorageError) {
    try put(table, key, byteCount: value.encodedByteCount) { memory in
      var filler = ByteFiller(memory)
      value.encode(into: &filler)
      precondition(filler.remainingByteCount == 0, "a value is as long as it says")
    }
  }

  package func put(
    _ table: Table, _ key: UnsafeRawBufferPointer, bytes value: UnsafeRawBufferPointer
  ) throws(BlobStorageError) {
    try put(table, key, byteCount: value.count) { $0.copyMemory(from: value) }
  }

  /// Puts a value that `fill` writes in place.
  private func put(
    _ table: Table, _ key: UnsafeRawBufferPointer, byteCount: Int,
    by fill: (UnsafeMutableRawBufferPointer) -> Void
  ) throws(BlobStorageError) {
    if let rows { return rows.set(table, key, byteCount: byteCount, by: fill) }
    if let keyByteCount = table.packedKeyByteCount {
      precondition(key.count == keyByteCount, "keys of a packed table have one length")
      return try withUnsafeTemporaryAllocation(byteCount: keyByteCount + byteCount + 2, alignment: 8) {
        (row) throws(BlobStorageError) in
        row.copyMemory(from: key)
        let value = UnsafeMutableRawBufferPointer(rebasing: row[keyByteCount..<keyByteCount + byteCount])
        fill(value)
        row.storeBytes(
          of: Self.guardValue(key, CRC32C.checksum(value.bytes)), toByteOffset: keyByteCount + byteCount,
          as: UInt16.self)
        try withHandle(table) { (handle) throws(BlobStorageError) in
          try PackedCursor(handle: handle, table: table, keyByteCount: keyByteCount)
            .put(UnsafeRawBufferPointer(row))
        }
      }
    }
    var keyValue = MDB_val(mv_size: key.count, mv_data: UnsafeMutableRawPointer(mutating: key.baseAddress))
    var place = MDB_val(mv_size: byteCount + 2, mv_data: nil)
    try Database.check(
      mdb_put(handle, number(of: table), &keyValue, &place, UInt32(MDB_RESERVE)), "write to")
    guard let data = place.mv_data else { throw Database.failure(Database.outOfMemory, "write to") }
    let value = UnsafeMutableRawBufferPointer(start: data, count: byteCount)
    fill(value)
    data.storeBytes(
      of: Self.guardValue(key, CRC32C.checksum(value.bytes)), toByteOffset: byteCount,
      as: UInt16.self)
  }

  package func put(_ table: Table, _ key: [UInt8], _ value: [UInt8]) throws(BlobStorageError) {
    try bridge(key) { (key) throws(BlobStorageError) in
      try bridge(value) { (value) throws(BlobStorageError) in try put(table, key, bytes: value) }
    }
  }

  /// Removes the row under `key`; false if there was none.
  @discardableResult
  func remove(_ table: Table, _ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool {
    if let rows {
      guard try value(table, key) != nil else { return false }
      rows.remove(table, key)
      return true
    }
    guard table.hasOuterRows, let outer = database.outerRows else { return try removeOwn(table, key) }
    // The key stays in `removed` when the row is put again, because the database has priority.
    let isOwn = try removeOwn(table, key)
    if try isRemoved(table, key) { return isOwn }
    guard try outer.row(table, key) != nil else { return isOwn }
    try table.withNumbered(key) { (key) throws(BlobStorageError) in
      try put(.removed, key, bytes: UnsafeRawBufferPointer(start: nil, count: 0))
    }
    return true
  }

  /// Removes the database's own row under `key`; false if there was none.
  private func removeOwn(_ table: Table, _ key: UnsafeRawBufferPointer) throws(BlobStorageError) -> Bool {
    if let keyByteCount = table.packedKeyByteCount {
      return try withHandle(table) { (handle) throws(BlobStorageError) in
        try PackedCursor(handle: handle, table: table, keyByteCount: keyByteCount).remove(key)
      }
    }
    var keyValue = MDB_val(mv_size: key.count, mv_data: UnsafeMutableRawPointer(mutating: key.baseAddress))
    let code = mdb_del(handle, number(of: table), &keyValue, nil)
    if code == MDB_NOTFOUND { return false }
    try Database.check(code, "write to")
    return true
  }

  /// Removes all rows of a table without outer rows.
  package func removeAll(_ table: Table) throws(BlobStorageError) {
    precondition(!table.hasOuterRows && rows == nil)
    try Database.check(mdb_drop(handle, number(of: table), 0), "write to")
  }

  @discardableResult
  package func remove(_ table: Table, _ key: [UInt8]) throws(BlobStorageError) -> Bool {
    try bridge(key) { (bytes) throws(BlobStorageError) in try remove(table, bytes) }
  }

  // MARK: Single values and packs

  package func setMeta(_ name: Meta, _ value: UInt64) throws(BlobStorageError) {
    try setNumber(.meta, name.bytes, value)
  }

  package func increment(_ name: Meta) throws(BlobStorageError) -> UInt64 {
    let number = try meta(name) + 1
    try setMeta(name, number)
    return number
  }

  /// Advances the clock to the time of a stamp that was found, unless it lies too far ahead of the present. A single
  /// wrong stamp must not use up the times of all later stamps.
  package func raiseClock(_ time: UInt64) throws(BlobStorageError) {
    if Stamp.isFarAhead(time, wallClock: database.clock.now()) { return }
    if time > (try meta(.clock)) { try setMeta(.clock, time) }
  }

  package func bumpEpoch() throws(BlobStorageError) { _ = try increment(.epoch) }

  // MARK: Packs

  package func setPackRow(_ number: UInt32, _ row: PackRow) throws(BlobStorageError) {
    try setPackRow(number, row, insteadOf: try packRow(number))
  }

  /// - Parameter known: the current row.
  func setPackRow(_ number: UInt32, _ row: PackRow, insteadOf known: PackRow?) throws(BlobStorageError) {
    try countUnsettled(insteadOf: known, row)
    try put(.packs, fixed: number.bigEndian, row)
  }

  private func countUnsettled(insteadOf known: PackRow?, _ row: PackRow?) throws(BlobStorageError) {
    try count(.unsettledPacks, known?.isSettled == false, row?.isSettled == false)
  }

  /// Keeps the number of things for which something is true.
  func count(_ name: Meta, _ was: Bool, _ isNow: Bool) throws(BlobStorageError) {
    guard was != isNow else { return }
    let count = try meta(name)
    try setMeta(name, isNow ? count + 1 : count - min(count, 1))
  }

  /// Changes the row of a pack; false if the catalog does not know the pack.
  @discardableResult
  package func updatePack(
    _ name: PackName, _ change: (inout PackRow) -> Void
  ) throws(BlobStorageError) -> Bool {
    guard let number = try packNumber(name) else { return false }
    return try updatePack(number, change)
  }

  /// The same for a pack by its number.
  @discardableResult
  package func updatePack(
    _ number: UInt32, _ change: (inout PackRow) -> Void
  ) throws(BlobStorageError) -> Bool {
    guard let known = try packRow(number) else { return false }
    var row = known
    change(&row)
    try setPackRow(number, row, insteadOf: known)
    return true
  }

  /// Adds a pack to the catalog, with none of its records applied, and returns its number.
  package func addPack(_ row: PackRow) throws(BlobStorageError) -> UInt32 {
    let number = UInt32(try increment(.nextPack))
    try withUnsafeBytes(of: RowKey.pack(row.name)) { (key) throws(BlobStorageError) in
      try setNumber(.packNumbers, key, number)
    }
    try setPackRow(number, row, insteadOf: nil)
    try raiseClock(row.created)
    return number
  }

  /// Marks a pack as poisoned: it may not have reached the medium, even if a later sync succeeds. Writers share nothing
  /// in it.
  package func poison(_ name: PackName) throws(BlobStorageError) {
    try updatePack(name) { $0.isPoisoned = true }
  }

  package func setGarbageByteCount(_ pack: UInt32, _ byteCount: Int64) throws(BlobStorageError) {
    try withUnsafeBytes(of: pack.bigEndian) { (key) throws(BlobStorageError) in
      try setNumber(.packGarbage, key, byteCount > 0 ? byteCount : nil)
    }
  }

  package func addGarbage(_ pack: UInt32, _ byteCount: Int64) throws(BlobStorageError) {
    try setGarbageByteCount(pack, try garbageByteCount(pack) + byteCount)
  }

  /// Removes a pack whose records have all been retracted.
  package func removePack(_ number: UInt32, _ name: PackName) throws(BlobStorageError) {
    try countUnsettled(insteadOf: try packRow(number), nil)
    try remove(.packNumbers, fixed: RowKey.pack(name))
    try remove(.packs, fixed: number.bigEndian)
    try remove(.packGarbage, fixed: number.bigEndian)
  }

  // MARK: Keys

  /// Changes the row of `key`. Creates a missing row, and removes a row that is not needed.
  func updateName(
    _ key: [UInt8], _ change: (inout NameRow) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var parent: UInt64 = 0
    var start = 0
    while key.count - start > RowKey.namePartByteCount {
      let part = start..<start + RowKey.namePartByteCount
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
    // Rows of a long key's first parts stay. They are few, and a rebuild drops them.
    try setNameRow(parent, key, start..<key.count, row.isKey || row.child != 0 ? row : nil)
  }

  private func setNameRow(
    _ parent: UInt64, _ key: [UInt8], _ part: Range<Int>, _ row: NameRow?
  ) throws(BlobStorageError) {
    try RowKey.withName(parent, key, part) { (place) throws(BlobStorageError) in
      if let row { try put(.names, place, row) } else { try remove(.names, place) }
    }
  }

  // MARK: Versions

  /// Adds or changes a visible version.
  func setVersion(_ name: inout NameRow, _ version: StampedVersion) throws(BlobStorageError) {
    guard let current = name.current, current.stamp != version.stamp else {
      name.current = version
      return
    }
    let isNewer = current.stamp < version.stamp
    let archived = isNewer ? current : version
    try put(.versions, fixed: RowKey.version(try number(&name), archived.stamp), archived)
    if isNewer { name.current = version }
  }

  /// Removes a visible version.
  func removeVersion(_ name: inout NameRow, _ stamp: Stamp) throws(BlobStorageError) {
    guard name.current?.stamp == stamp else {
      try remove(.versions, fixed: RowKey.version(name.number, stamp))
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
    if let next { try remove(.versions, fixed: RowKey.version(name.number, next.stamp)) }
  }

  func setMaskRow(_ name: inout NameRow, _ stamp: Stamp, _ row: MaskRow?) throws(BlobStorageError) {
    if let row {
      try put(.masks, fixed: RowKey.version(try number(&name), stamp), row)
    } else {
      try remove(.masks, fixed: RowKey.version(name.number, stamp))
    }
  }

  /// The number of a key; assigns one if it has none.
  private func number(_ name: inout NameRow) throws(BlobStorageError) -> UInt64 {
    if name.number == 0 { name.number = try increment(.nextKey) }
    return name.number
  }

  // MARK: Chunks and manifests

  /// Sets the row of a chunk, or removes it if `row` is nil.
  ///
  /// - Parameter old: the current row.
  package func setChunkRow(
    _ digest: BlobDigest, _ row: ChunkRow?, insteadOf old: ChunkRow?
  ) throws(BlobStorageError) {
    if let old, old.base != nil, row?.base == nil || row?.place != old.place {
      try remove(.chunkBases, fixed: RowKey.base(old.place))
    }
    if let row, let base = row.base, row.place != old?.place || base != old?.base {
      try base.withUnsafeBytes { (base) throws(BlobStorageError) in
        try withUnsafeBytes(of: RowKey.base(row.place)) { (key) throws(BlobStorageError) in
          try put(.chunkBases, key, bytes: base)
        }
      }
    }
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      if let row { try put(.chunks, key, row) } else { try remove(.chunks, key) }
    }
    if row?.isSuspect == true, try !hasSuspects() { try setMeta(.hasSuspects, 1) }
  }

  /// Marks a chunk as damaged, or removes the mark. The next put of the same bytes stores a damaged chunk again.
  package func setSuspect(
    _ digest: BlobDigest, _ row: ChunkRow, _ isSuspect: Bool = true
  ) throws(BlobStorageError) {
    var suspect = row
    suspect.isSuspect = isSuspect
    try setChunkRow(digest, suspect, insteadOf: row)
  }

  package func setManifestRow(_ digest: BlobDigest, _ row: ManifestRow?) throws(BlobStorageError) {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      if let row { try put(.manifests, key, row) } else { try remove(.manifests, key) }
    }
  }

  /// Adds a chunk to the possible bases of new chunks.
  func insert(_ features: SIMD3<UInt32>, of digest: BlobDigest) throws(BlobStorageError) {
    for index in 0..<3 {
      let key = FeatureBucket.key(index, features[index])
      var bucket = FeatureBucket(try value(.features, key))
      if bucket.insert(features[index], digest) { try put(.features, key, bucket.bytes) }
    }
  }

  func remove(_ features: SIMD3<UInt32>, of digest: BlobDigest) throws(BlobStorageError) {
    for index in 0..<3 {
      let key = FeatureBucket.key(index, features[index])
      var bucket = FeatureBucket(try value(.features, key))
      guard bucket.remove(features[index], digest) else { continue }
      if bucket.bytes.isEmpty { try remove(.features, key) } else { try put(.features, key, bucket.bytes) }
    }
  }

  func countBase(_ digest: BlobDigest, by change: Int64) throws(BlobStorageError) {
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      // The count of another machine may be any number.
      let count = change &+ (try number(.bases, key) ?? 0)
      try setNumber(.bases, key, count > 0 ? count : nil)
    }
  }

  // MARK: Counts

  /// Counts all existing versions, and from now on each that is added or removed.
  package func beginCountingVersions() throws(BlobStorageError) {
    guard try !countsVersions() else { return }
    try setMeta(.countsVersions, 1)
    try forEachKey(prefix: [], after: nil, includesInternal: true) { (_, name) throws(BlobStorageError) in
      try forEachVersion(of: name) { (version) throws(BlobStorageError) in
        try countVersion(of: version.row.digest, by: 1)
        return true
      }
      return true
    }
  }

  func countVersion(of digest: BlobDigest, by change: Int) throws(BlobStorageError) {
    guard try countsVersions() else { return }
    let count = try versionCount(of: digest) + change
    guard count >= 0 else {
      throw BlobStorageError(.catalogDamaged, "The catalog has counted more versions gone than there were.")
    }
    try digest.withUnsafeBytes { (key) throws(BlobStorageError) in
      try setNumber(.blobs, key, count > 0 ? UInt32(count) : nil)
    }
  }
}
