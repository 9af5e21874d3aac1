/// Removes a pack from the catalog after it has left the store.
package struct PackRetraction {
  /// Records that one transaction removes. On a full disk, which has no room for so large a change, it removes fewer.
  private static let recordCountOfBatch = 5_000
  /// Records that are held in memory at a time, about.
  private static let recordCountOfWindow = 1 << 15

  private let name: PackName
  private let catalog: Catalog
  private let packs: PackFiles
  private var batchCount = recordCountOfBatch

  package init(_ name: PackName, catalog: Catalog, packs: PackFiles) {
    self.name = name
    self.catalog = catalog
    self.packs = packs
  }

  /// Removes the pack's records, from the last to the first, and then its row. The row is `retired`; `file` has a
  /// footer.
  ///
  /// The row says up to where its records are still in the catalog, so that another run continues after a crash.
  ///
  /// - Throws: `noSpace` when there is no room to take out a single record; `corrupted` when the medium cannot read
  ///   which records there are.
  package mutating func run(_ file: any File) throws(BlobStorageError) {
    guard let row = try catalog.packRow(name) else { return }
    let scanner = try packs.scanner(name, file)
    // A partly applied pack may have chunks without a base beyond its applied length (`PublishedIntake`).
    if !row.isSealed {
      try Self.forEachWindow(of: scanner) { record in
        guard record.offset >= row.appliedByteCount, case .chunk(let chunk) = record.content else {
          return false
        }
        return chunk.base == nil
      } body: { (window) throws(BlobStorageError) in
        try inBatches(window) {
          (batch, transaction, number, _) throws(BlobStorageError) in
          for record in batch { try transaction.retract(record, from: number) }
        }
      }
    }
    try Self.forEachWindow(of: scanner) {
      $0.offset < row.appliedByteCount
    } body: { (window) throws(BlobStorageError) in
      try retract(window)
    }
    try forget()
  }

  /// Removes the pack when the disk has no room for any change until the file is gone. Holds all its records in memory.
  ///
  /// A process that dies meanwhile leaves a `retired` row without a file. The row counts only as garbage, and
  /// disappears when the next collection rebuilds the catalog.
  ///
  /// - Parameter remove: closes and removes the file; called once the records are known.
  package mutating func run(
    _ file: any File, removingFirst remove: () throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    guard let row = try catalog.packRow(name) else { return try remove() }
    var records: [PackRecord] = []
    let outcome = try packs.scanner(name, file).scan { record in
      if record.offset < row.appliedByteCount { records.append(record) }
    }
    if let error = outcome.unreadable { throw error }
    try remove()
    try retract(records)
    try forget()
  }

  private mutating func retract(_ records: [PackRecord]) throws(BlobStorageError) {
    try inBatches(records) {
      (batch, transaction, number, row) throws(BlobStorageError) in
      // Another process may retract the same pack.
      for record in batch.reversed() where record.offset < row.appliedByteCount {
        try transaction.retract(record, from: number)
        row.appliedByteCount = record.offset
      }
      try transaction.setPackRow(number, row)
    }
  }

  private func forget() throws(BlobStorageError) {
    try catalog.write { (transaction) throws(BlobStorageError) in
      guard let number = try transaction.packNumber(name) else { return }
      try transaction.removePack(number, name)
    }
  }

  /// Calls `body` with batches of the records, the last ones first, each in its own transaction. Batches shrink when
  /// the disk is full, because the catalog needs new pages for its changes.
  private mutating func inBatches(
    _ records: [PackRecord],
    _ body: (ArraySlice<PackRecord>, WriteTransaction, UInt32, inout PackRow) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var rest = records[...]
    while !rest.isEmpty {
      let batch = rest.suffix(batchCount)
      do throws(BlobStorageError) {
        try catalog.write { (transaction) throws(BlobStorageError) in
          // A catalog that was rebuilt meanwhile lacks the pack, and may have given its number to another pack.
          guard var pack = try transaction.pack(name) else { return }
          try body(batch, transaction, pack.number, &pack.row)
        }
      } catch {
        guard error.code == .noSpace, batch.count > 1 else { throw error }
        batchCount = max(1, batch.count / 8)
        continue
      }
      rest.removeLast(batch.count)
      batchCount = min(batchCount * 2, Self.recordCountOfBatch)
    }
  }

  /// Calls `body` with batches of the records that `isIncluded` selects: the last batch first, each in the order of the
  /// pack.
  private static func forEachWindow(
    of scanner: PackScanner, where isIncluded: (PackRecord) -> Bool,
    body: ([PackRecord]) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var end = Int.max
    repeat {
      // The last records before `end`. Another scan finds those before them.
      var window: [PackRecord] = []
      var byteCount = 0
      var count = 0
      let outcome = try scanner.scan { record in
        guard isIncluded(record) else { return }
        count += 1
        guard count <= end else { return }
        window.append(record)
        byteCount += record.memoryByteCount
        guard
          window.count == 2 * recordCountOfWindow || byteCount >= 2 * PackRecord.memoryByteCountOfGroup
        else { return }
        window.removeFirst(window.count / 2)
        byteCount = window.reduce(0) { $0 + $1.memoryByteCount }
      }
      if let error = outcome.unreadable { throw error }
      end = min(end, count) - window.count
      if !window.isEmpty { try body(window) }
    } while end > 0
  }
}
