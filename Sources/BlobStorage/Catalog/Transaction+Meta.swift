/// Single values of the catalog, and its packs.
extension ReadTransaction {
  /// The single values.
  package struct Meta {
    /// The row's key, in ASCII.
    let key: StaticString

    /// The greatest time of any stamp that was not far ahead of the present.
    package static let clock = Meta(key: "clock")
    /// Counts up whenever gc condemns packs or a pack of a dead writer is recovered.
    package static let epoch = Meta(key: "epoch")
    /// The next number for a pack.
    package static let nextPack = Meta(key: "nextPack")
    /// The next number for a key, or for the rest of a long key.
    package static let nextKey = Meta(key: "nextKey")
    /// The greatest tick of a cache's order.
    package static let cacheTick = Meta(key: "cacheTick")
    /// Whether the cache's tables are whole.
    package static let cacheIndexed = Meta(key: "cacheIndexed")
    /// Whether the versions of each blob are counted.
    package static let countsVersions = Meta(key: "countsVersions")
    /// Whether packs were taken out whose chunks may lie in others too, where a rebuild finds them.
    package static let lacksCopies = Meta(key: "lacksCopies")
    /// Whether any chunk was ever found damaged.
    package static let hasSuspects = Meta(key: "hasSuspects")
    /// The last page of the file when it was last written anew in full pages, and the rows that it had.
    package static let fullPages = Meta(key: "fullPages")
    package static let fullRows = Meta(key: "fullRows")

    var bytes: UnsafeRawBufferPointer {
      UnsafeRawBufferPointer(start: key.utf8Start, count: key.utf8CodeUnitCount)
    }
  }

  package func meta(_ name: Meta) throws(BlobStorageError) -> UInt64 {
    try number(.meta, name.bytes) ?? 0
  }

  /// The greatest time of any stamp that is not far ahead of the present.
  package func clock() throws(BlobStorageError) -> UInt64 { try meta(.clock) }

  /// Changes whenever what a writer looked up before may have gone away.
  package func epoch() throws(BlobStorageError) -> UInt64 { try meta(.epoch) }

  /// Whether the keys of the cache were noted since the catalog was made.
  package func cacheIndexState() throws(BlobStorageError) -> CacheIndexState {
    CacheIndexState(rawValue: try meta(.cacheIndexed)) ?? .none
  }

  // MARK: Packs

  package func packRow(_ number: UInt32) throws(BlobStorageError) -> PackRow? {
    guard let value = try value(.packs, fixed: number.bigEndian) else { return nil }
    return try PackRow(value)
  }

  /// The number of a pack in this catalog, or nil when the catalog does not know it.
  package func packNumber(_ name: PackName) throws(BlobStorageError) -> UInt32? {
    try withUnsafeBytes(of: Self.key(name)) { (key) throws(BlobStorageError) in
      try number(.packNumbers, key)
    }
  }

  /// A pack, or nil when the catalog does not know it.
  package func pack(_ name: PackName) throws(BlobStorageError) -> (number: UInt32, row: PackRow)? {
    guard let number = try packNumber(name), let row = try packRow(number) else { return nil }
    return (number, row)
  }

  /// All packs, in the order in which this catalog came to know them.
  package func packRows() throws(BlobStorageError) -> [(number: UInt32, row: PackRow)] {
    var rows: [(UInt32, PackRow)] = []
    try scan(.packs) { (key, value) throws(BlobStorageError) in
      guard key.count == 4 else {
        throw BlobStorageError(.catalogDamaged, "The catalog has a pack without a number.")
      }
      rows.append((UInt32(bigEndian: key.loadUnaligned(as: UInt32.self)), try PackRow(value)))
      return true
    }
    return rows
  }

  /// Bytes of a pack's records that have become garbage, as far as was noticed.
  package func garbageByteCount(_ pack: UInt32) throws(BlobStorageError) -> Int64 {
    try withUnsafeBytes(of: pack.bigEndian) { (key) throws(BlobStorageError) in
      try number(.packGarbage, key) ?? 0
    }
  }

  /// Whether the packs have all that is known of them even after a power cut.
  ///
  /// - Parameter forcesSealed: whether what is sealed is on the medium: not where it is published instead.
  func countsOnMediumOnly(forcesSealed: Bool) throws(BlobStorageError) -> Bool {
    try packRows().allSatisfy {
      forcesSealed && $0.row.isSealed || $0.row.appliedByteCount <= $0.row.durableByteCount
    }
  }

  fileprivate static func key(_ name: PackName) -> (UInt64, UInt32) {
    (name.writer.bigEndian, name.sequence.bigEndian)
  }
}

extension WriteTransaction {
  package func setMeta(_ name: Meta, _ value: UInt64) throws(BlobStorageError) {
    try setNumber(.meta, name.bytes, value)
  }

  package func increment(_ name: Meta) throws(BlobStorageError) -> UInt64 {
    let number = try meta(name) + 1
    try setMeta(name, number)
    return number
  }

  /// Advances the clock to the time of a stamp that was found, unless it lies too far ahead of the present. A single
  /// wrong stamp must not take the rest of the clock from every later one.
  package func raiseClock(_ time: UInt64) throws(BlobStorageError) {
    if Stamp.isFarAhead(time, wallClock: environment.clock.now()) { return }
    try advanceClock(to: time)
  }

  /// Advances the clock to the time of a stamp that was taken from it.
  package func advanceClock(to time: UInt64) throws(BlobStorageError) {
    if time > (try meta(.clock)) { try setMeta(.clock, time) }
  }

  /// Notes that a process has died, perhaps before it noted its keys.
  func setCacheLacksKeys() throws(BlobStorageError) {
    if try cacheIndexState() == .complete { try setMeta(.cacheIndexed, CacheIndexState.lacksKeys.rawValue) }
  }

  package func bumpEpoch() throws(BlobStorageError) { _ = try increment(.epoch) }

  // MARK: Packs

  package func setPackRow(_ number: UInt32, _ row: PackRow) throws(BlobStorageError) {
    try put(.packs, fixed: number.bigEndian, row)
  }

  /// Changes what the catalog knows of a pack; false when it does not know the pack.
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
    guard var row = try packRow(number) else { return false }
    change(&row)
    try setPackRow(number, row)
    return true
  }

  /// Takes a pack into the catalog, with none of its records applied.
  package func addPack(_ row: PackRow) throws(BlobStorageError) -> UInt32 {
    let number = UInt32(try increment(.nextPack))
    try withUnsafeBytes(of: Self.key(row.name)) { (key) throws(BlobStorageError) in
      try setNumber(.packNumbers, key, number)
    }
    try setPackRow(number, row)
    try raiseClock(row.created)
    return number
  }

  /// Marks a pack as poisoned: it may not have reached the medium, whatever a later sync says. Writers share nothing in
  /// it.
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

  /// Forgets a pack whose records have all been taken out.
  package func removePack(_ number: UInt32, _ name: PackName) throws(BlobStorageError) {
    try remove(.packNumbers, fixed: Self.key(name))
    try remove(.packs, fixed: number.bigEndian)
    try remove(.packGarbage, fixed: number.bigEndian)
  }
}

/// Whether the cache's tables are complete.
package enum CacheIndexState: UInt64 {
  case none = 0
  /// All but the latest keys, which their processes still have to note.
  case complete = 1
  /// A process may have died before it noted its keys.
  case lacksKeys = 2
}
