import Logging

/// Packs that were published: by other machines, or by this one in another life.
extension CatalogBuilder {
  /// Takes all published packs into an empty catalog, but those that lie here too.
  func fill(
    _ environment: Environment, from backend: any PublishingBackend, except local: Set<PackName>
  ) throws(BlobStorageError) {
    let listing = try backend.publishedPacks()
    let names = listing.packs.keys.filter { !local.contains($0) }.sorted()
    try backend.forEachPublished(names) { (name, file) throws(BlobStorageError) in
      // Removed since it was listed: what is needed of it lies in another.
      guard let file, try apply(name, file, into: environment) != nil else { return }
      let byteCount = try file.status().byteCount
      try environment.write { (transaction) throws(BlobStorageError) in
        try Self.notePublished(name, byteCount: byteCount, in: transaction)
      }
    }
    try environment.write { (transaction) throws(BlobStorageError) in
      try Self.noteCollections(of: backend, in: transaction)
    }
  }

  /// Takes a published pack into a catalog that is in use. Others may do the same at the same time: it is done once.
  func take(_ name: PackName, _ file: any File, into catalog: Catalog) throws(BlobStorageError) {
    let scanner = try PackScanner(file: file, name: name, codecs: codecs)
    let header: PackHeader
    do { header = try scanner.header() } catch {
      guard error.code == .corrupted else { throw error }
      logger.error("Pack \(name) cannot be read.", metadata: ["reason": "\(error.message)"])
      try catalog.write { (transaction) throws(BlobStorageError) in
        guard try transaction.packNumber(name) == nil else { return }
        var row = PackRow(name: name, created: 0)
        row.isSealed = true
        row.isDamaged = true
        _ = try transaction.addPack(row)
      }
      return
    }
    guard header.storeID == store.storeID, header.digestAlgorithm == store.digestAlgorithm else {
      logger.error("Pack \(name) belongs to another store and is left alone.")
      return
    }
    var batch: [PackRecord] = []
    let outcome = try scanner.scan { (record) throws(BlobStorageError) in
      batch.append(record)
      guard batch.count >= Self.recordCountOfBatch else { return }
      try apply(batch, header, in: catalog)
      batch = []
    }
    try apply(batch, header, in: catalog)
    let byteCount = try file.status().byteCount
    try catalog.write { (transaction) throws(BlobStorageError) in
      guard let number = try transaction.packNumber(name), var row = try transaction.packRow(number) else {
        return
      }
      row.isSealed = true
      row.isDamaged = !outcome.gaps.isEmpty
      row.durableByteCount = byteCount
      try transaction.setPackRow(number, row)
    }
  }

  private func apply(
    _ records: [PackRecord], _ header: PackHeader, in catalog: Catalog
  ) throws(BlobStorageError) {
    try catalog.write { (transaction) throws(BlobStorageError) in
      // The catalog may be another than for the batch before: made anew, it has the pack whole.
      var row = PackRow(name: header.name, created: header.created)
      let number: UInt32
      if let known = try transaction.packNumber(header.name), let knownRow = try transaction.packRow(known) {
        (number, row) = (known, knownRow)
      } else {
        // At once: a put could else count on it before the collections are noted.
        if publishing?.isCountedOn(header.name) == false { row.state = .condemned }
        number = try transaction.addPack(row)
      }
      guard row.state != .retired else { return }
      for record in records where record.offset >= row.appliedByteCount {
        // Behind a gap the records go on further on.
        row.appliedByteCount = record.offset
        try transaction.apply(record, from: number, &row, algorithm: store.digestAlgorithm)
      }
      try transaction.setPackRow(number, row)
    }
  }

  /// Has writers count as missing what lies in packs that collectors have condemned or removed.
  package static func noteCollections(
    of backend: any PublishingBackend, in transaction: Transaction
  ) throws(BlobStorageError) {
    let rows = try transaction.packRows()
    try condemn(
      rows.lazy.map(\.row).filter { $0.state == .live && !backend.isCountedOn($0.name) }.map(\.name),
      in: transaction)
  }

  /// Has writers count as missing what lies in these packs, which are never pardoned.
  package static func condemn(
    _ names: some Sequence<PackName>, in transaction: Transaction
  ) throws(BlobStorageError) {
    var isNew = false
    for name in names {
      guard let number = try transaction.packNumber(name), var row = try transaction.packRow(number),
        row.state == .live
      else { continue }
      row.state = .condemned
      try transaction.setPackRow(number, row)
      isNew = true
    }
    if isNew { try transaction.bumpEpoch() }
  }

  /// Notes that everybody can read a pack by now.
  package static func notePublished(
    _ name: PackName, byteCount: Int64, in transaction: Transaction
  ) throws(BlobStorageError) {
    guard let number = try transaction.packNumber(name), var row = try transaction.packRow(number) else {
      return
    }
    row.isSealed = true
    row.durableByteCount = byteCount
    try transaction.setPackRow(number, row)
  }
}
