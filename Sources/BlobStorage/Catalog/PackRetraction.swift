/// Takes a pack out of the catalog that is not in the store any more.
package enum PackRetraction {
  private static let recordCountOfBatch = 5_000

  /// Takes its records out, from the last to the first, and forgets it. Its row is `retired`; `file` has its footer.
  ///
  /// The pack's row says up to where its records are still in the catalog, so that a crash in between is gone on from.
  package static func run(
    _ name: PackName, _ file: any File, catalog: Catalog, codecs: CodecPool, store: StoreHeader
  ) throws(BlobStorageError) {
    let row = try catalog.read { (transaction) throws(BlobStorageError) -> PackRow? in
      guard let number = try transaction.packNumber(name) else { return nil }
      return try transaction.packRow(number)
    }
    guard let row else { return }
    var records: [PackRecord] = []
    // Of one that was taken in part, chunks without a base may be there that lie further on (`PublishedIntake`).
    var ahead: [PackRecord] = []
    _ = try PackScanner(file: file, name: name, codecs: codecs, store: store).scan { record in
      if record.offset < row.appliedByteCount {
        records.append(record)
      } else if !row.isSealed, case .chunk(let chunk) = record.content, chunk.base == nil {
        ahead.append(record)
      }
    }
    while !ahead.isEmpty {
      let batch = ahead.suffix(recordCountOfBatch)
      try catalog.write { (transaction) throws(BlobStorageError) in
        guard let number = try transaction.packNumber(name) else { return }
        for record in batch { try transaction.retract(record, from: number, algorithm: store.digestAlgorithm) }
      }
      ahead.removeLast(batch.count)
    }
    while !records.isEmpty {
      let batch = Array(records.suffix(recordCountOfBatch))
      try catalog.write { (transaction) throws(BlobStorageError) in
        // A catalog that was rebuilt meanwhile does not have the pack, and may have given its number to another.
        guard let number = try transaction.packNumber(name), var row = try transaction.packRow(number) else {
          return
        }
        // Another process may be at it too.
        for record in batch.reversed() where record.offset < row.appliedByteCount {
          try transaction.retract(record, from: number, algorithm: store.digestAlgorithm)
          row.appliedByteCount = record.offset
        }
        try transaction.setPackRow(number, row)
      }
      records.removeLast(batch.count)
    }
    try catalog.write { (transaction) throws(BlobStorageError) in
      guard let number = try transaction.packNumber(name) else { return }
      try transaction.removePack(number, name)
    }
  }
}
