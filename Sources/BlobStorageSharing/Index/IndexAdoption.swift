import BlobStorage

extension Catalog {
  /// The index that the catalog in use relies on; nil if it has all rows itself.
  package func indexRoot() throws(BlobStorageError) -> IndexRoot? {
    guard let root = try outerRoot() else { return nil }
    return try IndexRoot(root)
  }
}

extension ReadTransaction {
  /// Whether the catalog has each pack that the rows of an index know.
  func hasPacks(of index: RowIndex) throws(BlobStorageError) -> Bool {
    var walk = try index.walk(.packNumbers, from: UnsafeRawBufferPointer(start: nil, count: 0))
    while let row = walk.row {
      if try value(.packNumbers, row.key) == nil { return false }
      try walk.advance()
    }
    return true
  }
}

extension WriteTransaction {
  /// Takes over the rows of an index that each catalog has itself.
  ///
  /// - Throws: `catalogDamaged` for numbers that cannot go on.
  func adopt(_ index: RowIndex, clock: WallClock) throws(BlobStorageError) {
    let chance = try meta(.nextPack)
    for table in Table.allCases where table.isCopied {
      var walk = try index.walk(table, from: UnsafeRawBufferPointer(start: nil, count: 0))
      while let (key, value) = walk.row {
        if let value, table != .meta || Self.isAdopted(key) { try put(table, key, bytes: value) }
        try walk.advance()
      }
    }
    try checkAdopted(clock)
    // Numbers of packs that come now differ from those of another catalog with the same index, so that an old number finds
    // no pack.
    let next = try meta(.nextPack) + chance % (1 << 16)
    if try meta(.settledPack) == meta(.nextPack) { try setMeta(.settledPack, next) }
    try setMeta(.nextPack, next)
  }

  /// Single values that say something of the packs; the others are about the machine that wrote the index.
  private static let adopted: [Meta] = [
    .epoch, .nextPack, .nextKey, .lacksCopies, .orphanedMasks, .nextChange, .unsettledPacks, .settledLog,
    .settledPack, .hasSuspects, .clock,
  ]

  private static func isAdopted(_ key: UnsafeRawBufferPointer) -> Bool {
    adopted.contains { SortedRows.order($0.bytes, key) == 0 }
  }

  private func checkAdopted(_ clock: WallClock) throws(BlobStorageError) {
    for value in Self.adopted {
      guard try meta(value) < UInt64(Int64.max) else { throw Self.unusable }
    }
    guard try meta(.nextPack) < UInt64(UInt32.max) - 1 << 24 else { throw Self.unusable }
    if Stamp.isFarAhead(try meta(.clock), wallClock: clock.now()) { try setMeta(.clock, 0) }
  }

  private static var unusable: BlobStorageError {
    BlobStorageError(.catalogDamaged, "The store's index has numbers that cannot go on.")
  }
}
