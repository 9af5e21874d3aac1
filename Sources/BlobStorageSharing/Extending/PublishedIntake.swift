import BlobStorage
import Logging

/// Published packs on their way into a catalog that is in use. Others may take in the same at the same time: it is done
/// once.
///
/// It applies the records of many packs together. Chunks without a base go first, in the order of their digests, so
/// that neighbours in the tree are written at once. In pack order each would touch a page of its own. Their result does
/// not depend on order or repetition. Records whose result does follow in pack order, and advance the applied length in
/// each pack's row.
///
/// A pack's row says from the first record on that the pack is published, and with the last that it is sealed. A row
/// that says only the former was applied in part, and is continued.
struct PublishedIntake {
  /// Packs all of whose records are in the catalog.
  private(set) var taken: Set<PackName> = []

  private let builder: CatalogBuilder
  private let catalog: Catalog
  /// Records that are taken together: some tens of megabytes.
  private let recordCountMax: Int
  /// Chunks that a transaction takes. Where they are neighbours, few of them share a page with those of the next; and
  /// the pages that a transaction replaces are in memory and in the file twice until the one after the next.
  private let chunkCountOfBatch: Int
  private let afterGroup: () throws(BlobStorageError) -> Void
  private var packs: [Pack] = []
  private var chunks: [Chunk] = []
  private var recordCount = 0
  /// The catalog that packs were applied to so far.
  private var generation: String?
  /// The catalog is another one by now, or packs were taken out of it: the rest is left to the next try.
  private var isOutdated = false

  /// A pack of the group, with the records that are applied in order.
  private struct Pack {
    let header: PackHeader
    let byteCount: Int64
    /// Some of its records came with the group before.
    var isBegun = false
    var records: [(ordinal: Int, record: PackRecord)] = []
    /// Where the last record ends that was read, and how many there are up to there.
    var endOffset: Int64 = 0
    var recordCount = 0
    /// When all of it was read.
    var outcome: PackScanner.Outcome?
  }

  /// A chunk without a base. Half as large as with its record: there are as many as a group has records.
  private struct Chunk {
    let features: SIMD3<UInt32>?
    let codecNumber: UInt8
    /// In the group.
    let pack: UInt32
    let ordinal: UInt32
    let storedByteCount: UInt32
    let plainByteCount: UInt32
    let offset: Int64
    let digest: Digest

    init(_ chunk: ChunkRecord, of record: PackRecord, pack: Int, ordinal: Int) {
      precondition(chunk.base == nil, "what has a base is taken in order")
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

  /// - Parameter afterGroup: is called when a group of records is in the catalog; it may end all by throwing.
  init(
    _ builder: CatalogBuilder, into catalog: Catalog,
    afterGroup: @escaping () throws(BlobStorageError) -> Void = {}
  ) {
    self.builder = builder
    self.catalog = catalog
    self.afterGroup = afterGroup
    recordCountMax = builder.recordCountOfBatch * 8
    chunkCountOfBatch = max(1, builder.recordCountOfBatch / 4)
  }

  /// Reads a pack, and applies the collected records when they are enough.
  ///
  /// - Throws: also `packGone`; then nothing more of this pack comes.
  mutating func take(_ name: PackName, _ file: any File) throws(BlobStorageError) {
    guard !isOutdated else { return }
    let scanner = try PackScanner(file: file, name: name, codecs: builder.codecs, store: builder.store)
    let byteCount = try file.status().byteCount
    let header: PackHeader
    do { header = try scanner.headerOrSubstitute().header } catch {
      try noteUnreadable(name, error, byteCount)
      return
    }
    guard header.storeID == builder.store.storeID, header.digestAlgorithm == builder.store.digestAlgorithm
    else {
      builder.logger.error("Pack \(name) belongs to another store and is left alone.")
      taken.insert(name)
      return
    }
    packs.append(Pack(header: header, byteCount: byteCount))
    do throws(BlobStorageError) {
      let outcome = try scanner.scan { (record) throws(BlobStorageError) in
        guard !isOutdated else { return }
        // What a commit is made of is seen together.
        if recordCount >= recordCountMax, packs.last?.records.last?.record.continues != true {
          try takeGroup()
        }
        append(record)
      }
      if !isOutdated { packs[packs.count - 1].outcome = outcome }
    } catch {
      if !packs.isEmpty {
        packs.removeLast()
        let count = packs.count
        chunks.removeAll { $0.pack == count }
      }
      throw error
    }
  }

  /// Takes in what is left.
  mutating func finish() throws(BlobStorageError) {
    guard !isOutdated, !packs.isEmpty else { return }
    try takeGroup()
  }

  private mutating func append(_ record: PackRecord) {
    let index = packs.count - 1
    let ordinal = packs[index].recordCount
    if case .chunk(let chunk) = record.content, chunk.base == nil {
      chunks.append(Chunk(chunk, of: record, pack: index, ordinal: ordinal))
    } else {
      packs[index].records.append((ordinal, record))
    }
    packs[index].recordCount += 1
    packs[index].endOffset = record.offset + Int64(record.byteCount)
    recordCount += 1
  }

  // MARK: A group

  private mutating func takeGroup() throws(BlobStorageError) {
    var isWhole = try takePacks()
    if isWhole { isWhole = try takeChunks() }
    if isWhole { isWhole = try takeRecords() }
    isOutdated = !isWhole
    taken.formUnion(packs.lazy.filter { $0.outcome != nil }.map(\.header.name))
    if isOutdated { taken.subtract(packs.lazy.map(\.header.name)) }
    // The one that is being read comes with the next group too.
    packs = packs.last.flatMap { $0.outcome == nil ? [$0] : nil } ?? []
    if !packs.isEmpty {
      packs[0].isBegun = true
      packs[0].records = []
    }
    chunks.removeAll(keepingCapacity: true)
    recordCount = 0
    try afterGroup()
  }

  /// Gives each pack a row; false when the catalog lacks what came before.
  private mutating func takePacks() throws(BlobStorageError) -> Bool {
    let before = generation
    let (isWhole, now) = try catalog.write { (transaction) throws(BlobStorageError) -> (Bool, String?) in
      let now = catalog.generation
      for pack in packs where try transaction.packNumber(pack.header.name) == nil {
        guard !pack.isBegun else { return (false, now) }
        var row = PackRow(name: pack.header.name, created: pack.header.created)
        row.durableByteCount = pack.byteCount
        // At once: a put could else count on it before the collections are noted.
        if !builder.backend.isCountedOn(pack.header.name) { row.state = .condemned }
        _ = try transaction.addPack(row)
      }
      // What was read as missing may be there, or will be soon.
      try transaction.bumpEpoch()
      return (now == before || !packs.contains(where: \.isBegun), now)
    }
    generation = now
    return isWhole
  }

  /// The rows of the group's packs; nil when the catalog is another one, or lacks one of them.
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

  private mutating func takeChunks() throws(BlobStorageError) -> Bool {
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

  /// Takes what has its order, and notes up to where each pack is in the catalog.
  private func takeRecords() throws(BlobStorageError) -> Bool {
    var next = (pack: 0, record: 0)
    while next.pack < packs.count {
      let begin = next
      let end = try catalog.write { (transaction) throws(BlobStorageError) -> (pack: Int, record: Int)? in
        guard let rows = try rows(transaction) else { return nil }
        return try takeRecords(from: begin, rows, transaction)
      }
      guard let end else { return false }
      next = end
    }
    return true
  }

  /// Takes as many as belong into one transaction, and says where the next one begins.
  private func takeRecords(
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
        take(endOf: pack, &row)
        next = (next.pack + 1, 0)
        count += 1
      }
      if row.state != .retired { try transaction.setPackRow(number, row) }
    }
    return next
  }

  private func take(endOf pack: Pack, _ row: inout PackRow) {
    if pack.endOffset > row.appliedByteCount {
      (row.appliedByteCount, row.recordCount) = (pack.endOffset, pack.recordCount)
    }
    row.durableByteCount = pack.byteCount
    guard let outcome = pack.outcome else { return }
    row.isSealed = true
    row.isDamaged = !outcome.gaps.isEmpty
  }

  /// A pack whose very header cannot be read still keeps collectors from removing anything: refs may be in it.
  private mutating func noteUnreadable(
    _ name: PackName, _ error: BlobStorageError, _ byteCount: Int64
  ) throws(BlobStorageError) {
    guard error.code == .corrupted else { throw error }
    builder.logger.error("Pack \(name) cannot be read.", metadata: ["reason": "\(error.message)"])
    try catalog.write { (transaction) throws(BlobStorageError) in
      guard try transaction.packNumber(name) == nil else { return }
      var row = PackRow(name: name, created: 0)
      row.isSealed = true
      row.isDamaged = true
      row.durableByteCount = byteCount
      _ = try transaction.addPack(row)
    }
    taken.insert(name)
  }
}
