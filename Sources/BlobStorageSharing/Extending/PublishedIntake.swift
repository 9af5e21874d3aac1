import BlobStorage
import Logging

/// Applies published packs to a catalog in use. Idempotent: several processes may apply the same packs at once.
///
/// It applies the records of many packs as one group. First come chunks with neither base nor frame, in digest order,
/// so that neighbours in the tree are written together. Order and repetition do not change their result. The other
/// records follow in pack order, and advance the applied length in each pack's row.
///
/// The first record marks a pack's row as published, and the last as sealed. A row that is only published was applied
/// in part, and a later run continues it.
struct PublishedIntake {
  /// Packs whose records are all in the catalog.
  private(set) var applied: Set<PackName> = []
  /// Packs of other stores, which are not applied.
  private(set) var strays: Set<PackName> = []
  /// Packs whose header, footer or records were damaged.
  private(set) var damaged: Set<PackName> = []
  /// The number of packs added to the catalog, without unreadable ones.
  private(set) var addedCount: UInt64 = 0

  private let builder: CatalogBuilder
  private let catalog: Catalog
  /// The most records in a group: some tens of megabytes.
  private let recordCountMax: Int
  /// The number of chunks in one transaction. Larger transactions are not faster and take more memory: replaced pages
  /// exist twice until the next transaction but one.
  private let chunkCountOfBatch: Int
  private var packs: [Pack] = []
  private var chunks: [Chunk] = []
  private var recordCount = 0
  /// The generation of the catalog that received the packs so far.
  private var generation: String?
  /// Whether the catalog was replaced or lost packs meanwhile. The next run then applies the rest.
  private var isOutdated = false

  /// A pack of the group, with the records to apply in pack order.
  private struct Pack {
    let header: PackHeader
    let byteCount: Int64
    /// Whether the group before applied some of its records.
    var isBegun = false
    var records: [(ordinal: Int, record: PackRecord)] = []
    /// The end of the last record read, and the number of records so far.
    var endOffset: Int64 = 0
    var recordCount = 0
    /// Set once the whole pack was read.
    var outcome: PackScanner.Outcome?
  }

  /// A chunk with its own record and without a base. It takes half the memory of its record, and a group has many.
  private struct Chunk {
    let features: SIMD3<UInt32>?
    let codecNumber: UInt8
    /// The pack's index in the group.
    let pack: UInt32
    let ordinal: UInt32
    let storedByteCount: UInt32
    let plainByteCount: UInt32
    let offset: Int64
    let digest: BlobDigest

    init(_ chunk: ChunkRecord, of record: PackRecord, pack: Int, ordinal: Int) {
      precondition(chunk.base == nil, "chunks with a base are applied in pack order")
      features = chunk.features
      codecNumber = chunk.codecNumber
      self.pack = UInt32(pack)
      self.ordinal = UInt32(ordinal)
      storedByteCount = UInt32(record.payloadByteCount)
      plainByteCount = UInt32(chunk.plainByteCount)
      offset = record.offset
      digest = chunk.digest
    }

    var record: ChunkRecord {
      ChunkRecord(
        digest: digest, plainByteCount: Int(plainByteCount), codecNumber: codecNumber, features: features)
    }
  }

  init(_ builder: CatalogBuilder, into catalog: Catalog) {
    self.builder = builder
    self.catalog = catalog
    recordCountMax = builder.recordCountOfBatch * 8
    chunkCountOfBatch = max(1, builder.recordCountOfBatch / 4)
  }

  /// Reads a pack into the group, and applies the group when it is full.
  ///
  /// - Throws: `packGone`, and the group drops the pack; `cancelled` after a group was applied.
  mutating func add(_ name: PackName, _ file: any File) throws(BlobStorageError) {
    guard !isOutdated else { return }
    let scanner = try PackScanner(file: file, name: name, codecs: builder.codecs, store: builder.store)
    let byteCount = try file.status().byteCount
    if try isStray(file) {
      builder.logger.error("Pack \(name) belongs to another store and is left alone.")
      strays.insert(name)
      return
    }
    let header: PackHeader
    do throws(BlobStorageError) {
      header = try scanner.headerOrSubstitute().header
      guard header.digestAlgorithm == builder.store.digestAlgorithm else {
        throw BlobStorageError(.corrupted, "The pack uses another digest than its store.")
      }
    } catch {
      try addUnreadable(name, error, byteCount)
      return
    }
    packs.append(Pack(header: header, byteCount: byteCount))
    do throws(BlobStorageError) {
      let outcome = try scanner.scan { (record) throws(BlobStorageError) in
        guard !isOutdated else { return }
        // Never split a commit, because it must become visible as a whole.
        if recordCount >= recordCountMax, packs.last?.records.last?.record.continues != true {
          try applyGroup()
        }
        append(record)
      }
      if !isOutdated { packs[packs.count - 1].outcome = outcome }
      if !outcome.isSealed || !outcome.gaps.isEmpty { damaged.insert(name) }
    } catch {
      if !packs.isEmpty {
        packs.removeLast()
        let count = packs.count
        chunks.removeAll { $0.pack == count }
      }
      throw error
    }
  }

  /// Applies the last group.
  mutating func finish() throws(BlobStorageError) {
    guard !isOutdated, !packs.isEmpty else { return }
    try applyGroup()
  }

  private mutating func append(_ record: PackRecord) {
    let index = packs.count - 1
    let ordinal = packs[index].recordCount
    if case .chunk(let chunk) = record.content, chunk.base == nil, record.member == nil {
      chunks.append(Chunk(chunk, of: record, pack: index, ordinal: ordinal))
    } else {
      packs[index].records.append((ordinal, record))
    }
    packs[index].recordCount += 1
    packs[index].endOffset = record.offset + Int64(record.byteCount)
    recordCount += 1
  }

  // MARK: A group

  private mutating func applyGroup() throws(BlobStorageError) {
    var isWhole = try addRows()
    if isWhole { isWhole = try applyChunks() }
    if isWhole { isWhole = try applyRecords() }
    isOutdated = !isWhole
    applied.formUnion(packs.lazy.filter { $0.outcome != nil }.map(\.header.name))
    if isOutdated { applied.subtract(packs.lazy.map(\.header.name)) }
    // The current pack continues in the next group.
    packs = packs.last.flatMap { $0.outcome == nil ? [$0] : nil } ?? []
    if !packs.isEmpty {
      packs[0].isBegun = true
      packs[0].records = []
    }
    chunks.removeAll(keepingCapacity: true)
    recordCount = 0
    try CancellationFlag.check()
  }

  /// Adds a row for each pack. Returns false if the catalog lacks earlier records of a pack.
  private mutating func addRows() throws(BlobStorageError) -> Bool {
    let before = generation
    let (isWhole, now, added) = try catalog.write {
      (transaction) throws(BlobStorageError) -> (Bool, String?, UInt64) in
      let now = catalog.generation
      var added: UInt64 = 0
      for pack in packs where try transaction.packNumber(pack.header.name) == nil {
        guard !pack.isBegun else { return (false, now, added) }
        var row = PackRow(name: pack.header.name, created: pack.header.created)
        row.durableByteCount = pack.byteCount
        // Condemn it at once, before a put can rely on it.
        if !builder.backend.isCountedOn(pack.header.name) { row.state = .condemned }
        _ = try transaction.addPack(row)
        added += 1
      }
      // Missing chunks exist now, or soon will.
      try transaction.bumpEpoch()
      return (now == before || !packs.contains(where: \.isBegun), now, added)
    }
    generation = now
    addedCount += added
    return isWhole
  }

  /// The rows of the group's packs; nil if the catalog was replaced or lacks one.
  private func rows(_ transaction: ReadTransaction) throws(BlobStorageError) -> [(
    number: UInt32, row: PackRow
  )]? {
    guard catalog.generation == generation else { return nil }
    var rows: [(number: UInt32, row: PackRow)] = []
    for pack in packs {
      guard let known = try transaction.pack(pack.header.name) else { return nil }
      rows.append(known)
    }
    return rows
  }

  private mutating func applyChunks() throws(BlobStorageError) -> Bool {
    chunks.sort { ($0.digest, $0.pack, $0.offset) < ($1.digest, $1.pack, $1.offset) }
    var rest = chunks[...]
    while !rest.isEmpty {
      let part = rest.prefix(chunkCountOfBatch)
      let isWhole = try catalog.write { (transaction) throws(BlobStorageError) -> Bool in
        guard let rows = try rows(transaction) else { return false }
        for chunk in part {
          let (number, row) = rows[Int(chunk.pack)]
          guard row.state != .retired, chunk.offset >= row.appliedByteCount else { continue }
          try transaction.apply(
            chunk.record, at: Place(pack: number, offset: chunk.offset, ordinal: Int(chunk.ordinal)),
            storedByteCount: Int(chunk.storedByteCount), in: row)
        }
        return true
      }
      guard isWhole else { return false }
      rest = rest.dropFirst(part.count)
    }
    return true
  }

  /// Applies the records that depend on order, and advances each pack's applied length.
  private func applyRecords() throws(BlobStorageError) -> Bool {
    var next = (pack: 0, record: 0)
    while next.pack < packs.count {
      let begin = next
      let end = try catalog.write { (transaction) throws(BlobStorageError) -> (pack: Int, record: Int)? in
        guard let rows = try rows(transaction) else { return nil }
        return try applyRecords(from: begin, rows, transaction)
      }
      guard let end else { return false }
      next = end
    }
    return true
  }

  /// Applies the records of one transaction, and returns where the next one begins.
  private func applyRecords(
    from begin: (pack: Int, record: Int), _ rows: [(number: UInt32, row: PackRow)],
    _ transaction: WriteTransaction
  ) throws(BlobStorageError) -> (pack: Int, record: Int) {
    var next = begin
    var count = 0
    while next.pack < packs.count, count < builder.recordCountOfBatch {
      let pack = packs[next.pack]
      var (number, row) = rows[next.pack]
      var isContinued = false
      while next.record < pack.records.count, count < builder.recordCountOfBatch || isContinued {
        let (ordinal, record) = pack.records[next.record]
        if row.state != .retired, record.offset >= row.appliedByteCount {
          (row.appliedByteCount, row.recordCount) = (record.offset, ordinal)
          try transaction.apply(record, from: number, &row, isTakenIn: true)
        }
        isContinued = record.continues
        next.record += 1
        count += 1
      }
      if next.record == pack.records.count {
        finish(endOf: pack, &row)
        next = (next.pack + 1, 0)
        count += 1
      }
      if row.state != .retired { try transaction.setPackRow(number, row) }
    }
    return next
  }

  private func finish(endOf pack: Pack, _ row: inout PackRow) {
    if pack.endOffset > row.appliedByteCount {
      (row.appliedByteCount, row.recordCount) = (pack.endOffset, pack.recordCount)
    }
    row.durableByteCount = pack.byteCount
    guard let outcome = pack.outcome else { return }
    row.isSealed = true
    row.isDamaged = !outcome.gaps.isEmpty || outcome.lacksTrailer
  }

  /// Whether a file has an intact header of another store, whatever its name and format version.
  private func isStray(_ file: any File) throws(BlobStorageError) -> Bool {
    let bytes = try file.bytesThere(at: 0, PackHeader.byteCount)
    return bytes.count == PackHeader.byteCount && bytes.starts(with: PackHeader.magic)
      && bytes.withUnsafeBytes(\.endsWithChecksum)
      && !bytes.dropFirst(16).prefix(16).elementsEqual(builder.store.storeID)
  }

  /// Adds a damaged row for a pack with an unreadable header, or of a later build. The row blocks collections, because
  /// the pack may have refs.
  private mutating func addUnreadable(
    _ name: PackName, _ error: BlobStorageError, _ byteCount: Int64
  ) throws(BlobStorageError) {
    guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error }
    builder.logger.error("Pack \(name) cannot be read.", metadata: ["reason": "\(error.message)"])
    try catalog.write { (transaction) throws(BlobStorageError) in
      guard try transaction.packNumber(name) == nil else { return }
      var row = PackRow(name: name, created: 0)
      row.isSealed = true
      row.isDamaged = true
      row.durableByteCount = byteCount
      _ = try transaction.addPack(row)
    }
    damaged.insert(name)
    applied.insert(name)
  }
}
