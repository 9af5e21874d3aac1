extension ReadTransaction {
  /// Whether the catalog has each pack that the rows of an index know.
  package func hasPacks(of index: RowIndex) throws(BlobStorageError) -> Bool {
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
  func adopt(_ index: RowIndex) throws(BlobStorageError) {
    let chance = try meta(.nextPack)
    for table in Table.allCases where table.isCopied {
      var walk = try index.walk(table, from: UnsafeRawBufferPointer(start: nil, count: 0))
      while let (key, value) = walk.row {
        if let value, table != .meta || Self.isAdopted(key) { try put(table, key, bytes: value) }
        try walk.advance()
      }
    }
    try checkAdopted()
    try put(.meta, RowIndex.metaKey, index.root.encoded)
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

  /// - Throws: `catalogDamaged` for numbers that cannot go on.
  private func checkAdopted() throws(BlobStorageError) {
    for value in Self.adopted {
      guard try meta(value) < UInt64(Int64.max) else { throw Self.unusable }
    }
    guard try meta(.nextPack) < UInt64(UInt32.max) - 1 << 24 else { throw Self.unusable }
    let clock = try meta(.clock)
    if Stamp.isFarAhead(clock, wallClock: environment.clock.now()) { try setMeta(.clock, 0) }
  }

  private static var unusable: BlobStorageError {
    BlobStorageError(.catalogDamaged, "The store's index has numbers that cannot go on.")
  }
}

extension Table {
  /// Whether a catalog that adopts an index copies all rows of the table.
  package var isCopied: Bool { self == .meta || self == .packs || self == .packNumbers }
}

extension Catalog {
  /// The index that the catalog in use relies on; nil if it has all rows itself.
  package func indexRoot() throws(BlobStorageError) -> IndexRoot? { try environment().index?.root }

  /// Bytes of the rows that the catalog has itself.
  package func ownByteCount() throws(BlobStorageError) -> Int64 { try environment().byteCount() }
}
