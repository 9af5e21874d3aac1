import Logging

/// Packs that were published: by other machines, or by this one in another life.
extension CatalogBuilder {
  /// Has all here that it takes to make the catalog anew, so that nobody waits for a network under its lock.
  func prepareFilling() throws(BlobStorageError) {
    guard let publishing else { return }
    let names = try publishing.publishedPacks().packs.keys.sorted()
    try publishing.forEachPublished(names) { _, _ in }
  }

  /// Takes all published packs that are known of here into an empty catalog, but those that lie here too. Nothing is
  /// asked for that is here; what is not known of is caught up with later.
  func fill(
    _ environment: Environment, from backend: any PublishingBackend, except local: Set<PackName>
  ) throws(BlobStorageError) {
    for name in try backend.knownPackNames().sorted() where !local.contains(name) {
      // Removed since it was heard of: what is needed of it lies in another.
      guard let file = try backend.openPack(name) else { continue }
      defer { file.close() }
      do throws(BlobStorageError) {
        guard try apply(name, file, into: environment) != nil else { continue }
      } catch {
        guard error.code == .packGone else { throw error }
        continue
      }
      let byteCount = try file.status().byteCount
      try environment.write { (transaction) throws(BlobStorageError) in
        try Self.notePublished(name, byteCount: byteCount, in: transaction)
      }
    }
    try environment.write { (transaction) throws(BlobStorageError) in
      try Self.noteCollections(of: backend, in: transaction)
    }
  }

  /// Takes a published pack into a catalog that is in use, or what is not in it yet. Others may do the same at the same
  /// time: it is done once.
  ///
  /// The pack's row says from the first batch on that the pack is published, and with the last that it is sealed: one
  /// that says only the former was taken in part, and is gone on with.
  func take(
    _ name: PackName, _ file: any File, into catalog: Catalog,
    betweenBatches: () throws(BlobStorageError) -> Void = {}
  ) throws(BlobStorageError) {
    let scanner = try PackScanner(file: file, name: name, codecs: codecs)
    let byteCount = try file.status().byteCount
    let header: PackHeader
    do { header = try scanner.header() } catch {
      guard error.code == .corrupted else { throw error }
      logger.error("Pack \(name) cannot be read.", metadata: ["reason": "\(error.message)"])
      try catalog.write { (transaction) throws(BlobStorageError) in
        guard try transaction.packNumber(name) == nil else { return }
        var row = PackRow(name: name, created: 0)
        row.isSealed = true
        row.isDamaged = true
        row.durableByteCount = byteCount
        _ = try transaction.addPack(row)
      }
      return
    }
    guard header.storeID == store.storeID, header.digestAlgorithm == store.digestAlgorithm else {
      logger.error("Pack \(name) belongs to another store and is left alone.")
      return
    }
    for _ in 0..<Self.attemptCountMax {
      var intake = Intake(builder: self, header: header, catalog: catalog, byteCount: byteCount)
      let outcome = try scanner.scan { (record) throws(BlobStorageError) in
        guard !intake.isOutdated else { return }
        if intake.batch.count >= recordCountOfBatch {
          try intake.apply()
          try betweenBatches()
        }
        intake.batch.append(record)
      }
      if !intake.isOutdated { try intake.apply(last: outcome) }
      if !intake.isOutdated { return }
    }
    throw BlobStorageError(.busy, "The catalog was made anew again and again: try again.", pack: "\(name)")
  }

  private static let attemptCountMax = 8

  /// A published pack on its way into a catalog that is in use.
  private struct Intake {
    let builder: CatalogBuilder
    let header: PackHeader
    let catalog: Catalog
    let byteCount: Int64
    var batch: [PackRecord] = []
    /// Up to where its records are in the catalog since the last batch.
    private var appliedByteCount: Int64 = 0
    /// The catalog is another one by now and lacks what was applied before.
    private(set) var isOutdated = false

    init(builder: CatalogBuilder, header: PackHeader, catalog: Catalog, byteCount: Int64) {
      self.builder = builder
      self.header = header
      self.catalog = catalog
      self.byteCount = byteCount
    }

    /// Applies the batch, and with the last one notes that the pack is whole.
    mutating func apply(last outcome: PackScanner.Outcome? = nil) throws(BlobStorageError) {
      let before = appliedByteCount
      let applied = try catalog.write { (transaction) throws(BlobStorageError) -> Int64? in
        var row = PackRow(name: header.name, created: header.created)
        let number: UInt32
        if let known = try transaction.packNumber(header.name), let knownRow = try transaction.packRow(known)
        {
          (number, row) = (known, knownRow)
        } else {
          guard before == 0 else { return nil }
          // At once: a put could else count on it before the collections are noted.
          if builder.publishing?.isCountedOn(header.name) == false { row.state = .condemned }
          number = try transaction.addPack(row)
          // What was read as missing may be there, or will be soon.
          try transaction.bumpEpoch()
        }
        guard row.appliedByteCount >= before else { return nil }
        guard row.state != .retired else { return row.appliedByteCount }
        for record in batch where record.offset >= row.appliedByteCount {
          // Behind a gap the records go on further on.
          row.appliedByteCount = record.offset
          try transaction.apply(record, from: number, &row, algorithm: builder.store.digestAlgorithm)
        }
        row.durableByteCount = byteCount
        if let outcome {
          row.isSealed = true
          row.isDamaged = !outcome.gaps.isEmpty
        }
        try transaction.setPackRow(number, row)
        return row.appliedByteCount
      }
      batch = []
      if let applied { appliedByteCount = applied } else { isOutdated = true }
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
