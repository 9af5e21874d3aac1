import BlobStorage

extension Catalog {
  /// The root of the index that the current catalog relies on; nil if the catalog has all rows itself.
  package func indexRoot() throws(BlobStorageError) -> IndexRoot? {
    guard let root = try outerRoot() else { return nil }
    return try IndexRoot(root)
  }
}

extension ReadTransaction {
  /// Whether the catalog has every pack that an index knows.
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
  /// Copies those rows of an index that each catalog has itself.
  ///
  /// - Throws: `catalogDamaged` for numbers that are too high to continue from.
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
    // Offset the numbers of new packs, so that they differ from those of another catalog with the same index. Then an
    // old number finds no pack.
    let next = try meta(.nextPack) + chance % (1 << 16)
    if try meta(.settledPack) == meta(.nextPack) { try setMeta(.settledPack, next) }
    try setMeta(.nextPack, next)
  }

  /// The single values about packs. The others describe the machine that wrote the index.
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
