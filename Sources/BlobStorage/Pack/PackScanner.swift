import SystemPackage

/// Finds the records of a pack: from the footer if it is sealed, otherwise record by record.
///
/// A record's checksum names the pack by its file name alone, so records are found even if the pack's header is
/// damaged. If the footer of a sealed pack is damaged, records come from the pack's body. Records that are damaged
/// there come from the readable blocks of the footer.
///
/// A part that the medium cannot read is damaged like any other, but never a torn tail: it is not cut off.
package struct PackScanner {
  /// The result of a scan, without the records.
  package struct Outcome: Sendable {
    /// The pack's header, or a substitute if it is damaged.
    package var header: PackHeader
    /// Whether the pack has a trailer, and its footer is valid or was not read.
    package var isSealed: Bool
    /// Where the last record that counts ends.
    package var endOffset: Int64
    package var recordCount: Int
    /// Damaged places: the header, and ranges between whole records that hold none.
    package var gaps: [Range<Int64>]
    /// The gaps that no copy in the footer fills. A scan that verifies payloads looks for no copies.
    package var lost: [Range<Int64>] = []
    /// Why the medium could not read a part of the pack, if there is one. Another scan may find the part whole.
    package var unreadable: BlobStorageError?
    /// Whether the pack has no trailer. A published pack has been cut then, or replaced.
    package var lacksTrailer = false
  }

  private let file: any File
  private let name: PackName
  private let codecs: CodecPool
  private let byteCount: Int64
  private let store: StoreHeader?
  private let commitMemoryByteCountMax: Int

  /// - Parameters:
  ///   - store: the pack's store; without it, a pack with a damaged header cannot be read.
  ///   - end: where to stop, if the rest of the file does not count.
  ///   - commitMemoryByteCountMax: how much memory a commit may take that is not known to be whole.
  package init(
    file: any File, name: PackName, codecs: CodecPool, store: StoreHeader? = nil, upTo end: Int64? = nil,
    commitMemoryByteCountMax: Int = BlobLimits.commitMemoryByteCountMax
  ) throws(BlobStorageError) {
    self.init(
      file, name, codecs, store, byteCount: min(try file.status().byteCount, end ?? .max),
      commitMemoryByteCountMax)
  }

  /// Reads a tail up to a published length. Serves only ``headerOrSubstitute()`` and ``scanTail(_:from:_:)``, because
  /// the file may be shorter.
  init(file: any File, name: PackName, codecs: CodecPool, store: StoreHeader, publishedUpTo end: Int64) {
    self.init(file, name, codecs, store, byteCount: end, BlobLimits.commitMemoryByteCountMax)
  }

  private init(
    _ file: any File, _ name: PackName, _ codecs: CodecPool, _ store: StoreHeader?, byteCount: Int64,
    _ commitMemoryByteCountMax: Int
  ) {
    self.file = file
    self.name = name
    self.codecs = codecs
    self.store = store
    self.byteCount = byteCount
    self.commitMemoryByteCountMax = commitMemoryByteCountMax
  }

  /// Reads the pack's header and checks that it is this pack's.
  package func header() throws(BlobStorageError) -> PackHeader {
    let header: PackHeader
    do throws(BlobStorageError) {
      guard byteCount <= BlobLimits.packByteCountMax else {
        throw BlobStorageError(.corrupted, "The pack has \(byteCount) bytes, more than the maximum.")
      }
      let bytes = try read(at: 0, PackHeader.byteCount)
      header = try bridge(bytes) { (raw) throws(BlobStorageError) in try PackHeader(raw) }
    } catch {
      var error = error
      (error.pack, error.offset, error.path) = (name.description, 0, file.path.string)
      throw error
    }
    guard header.name == name else {
      throw BlobStorageError(
        .corrupted, "The file of pack \(name) holds pack \(header.name): it was renamed or copied.",
        pack: name.description, offset: 0, path: file.path.string)
    }
    return header
  }

  /// The pack's header; if it is damaged, a substitute.
  ///
  /// Nothing but the header says when a pack was begun. Without it the pack counts as the oldest, so that of two
  /// copies the one in an undamaged pack is used.
  package func headerOrSubstitute() throws(BlobStorageError) -> (
    header: PackHeader, damage: BlobStorageError?
  ) {
    do throws(BlobStorageError) { return (try header(), nil) } catch {
      guard error.code == .corrupted, let store, byteCount >= Int64(PackHeader.byteCount),
        byteCount <= BlobLimits.packByteCountMax, try !holdsAnotherPack()
      else { throw error }
      let header = PackHeader(
        name: name, storeID: store.storeID, digestAlgorithm: store.digestAlgorithm, created: 0)
      return (header, error)
    }
  }

  /// Whether the file has an undamaged header of another name.
  private func holdsAnotherPack() throws(BlobStorageError) -> Bool {
    let bytes: [UInt8]
    do throws(BlobStorageError) { bytes = try read(at: 0, PackHeader.byteCount) } catch {
      guard error.isUnreadable else { throw error }
      return false
    }
    return try unlessCorrupted(
      try bridge(bytes) { (raw) throws(BlobStorageError) in try PackHeader(raw).name != name }) ?? false
  }

  /// The trailer at the end of the file; nil if there is none.
  package func trailer() throws(BlobStorageError) -> PackFooter.Trailer? {
    let trailerByteCount = Int64(PackFooter.Trailer.byteCount)
    guard byteCount >= Int64(PackHeader.byteCount) + trailerByteCount else { return nil }
    let bytes: [UInt8]
    do throws(BlobStorageError) {
      bytes = try file.bytesThere(at: byteCount - trailerByteCount, Int(trailerByteCount))
    } catch {
      guard error.isUnreadable else { throw error }
      return nil
    }
    // A writer may have cut off what it had filled ahead, or could not write, since its length was looked at.
    guard bytes.count == Int(trailerByteCount) else { return nil }
    return bytes.withUnsafeBytes { PackFooter.Trailer($0, name: name, packByteCount: byteCount) }
  }

  /// Calls `body` with every record in the pack's order.
  ///
  /// - Parameter verifiesPayloads: whether to read every record and check its payload, even if the footer would do.
  /// - Throws: `corrupted` only for another pack's header, for a file too short or too long for a pack, and for a
  ///   damaged header of an unknown store. Other damage becomes a gap. `unsupportedFormat` if a later build wrote the
  ///   pack or a record that must not be skipped.
  package func scan(
    verifiesPayloads: Bool = false, _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Outcome {
    let (header, damage) = try headerOrSubstitute()
    var outcome = try scan(header, verifiesPayloads: verifiesPayloads, body)
    if let damage {
      outcome.gaps.insert(0..<Int64(PackHeader.byteCount), at: 0)
      if damage.isUnreadable { outcome.unreadable = damage }
    }
    return outcome
  }

  private func scan(
    _ header: PackHeader, verifiesPayloads: Bool, _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Outcome {
    guard let trailer = try trailer() else {
      var outcome = try scanRecords(header, upTo: byteCount, isSealed: false, body)
      outcome.lacksTrailer = true
      return outcome
    }
    if verifiesPayloads { return try scanRecords(header, upTo: trailer.footerOffset, isSealed: true, body) }
    do throws(BlobStorageError) {
      try scanFooter(trailer, header) { _ in }
    } catch {
      guard error.code == .corrupted else { throw error }
      return try scanBothCopies(header, trailer, body)
    }
    try scanFooter(trailer, header, body)
    return Outcome(
      header: header, isSealed: true, endOffset: trailer.footerOffset, recordCount: trailer.recordCount,
      gaps: [])
  }

  /// Scans the body of a sealed pack whose footer is damaged, and fills gaps from the readable blocks of the footer.
  private func scanBothCopies(
    _ header: PackHeader, _ trailer: PackFooter.Trailer, _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Outcome {
    var outcome = try scanRecords(header, upTo: trailer.footerOffset, isSealed: true) { _ in }
    let copies = outcome.gaps.isEmpty ? [] : try recordsOfDamagedFooter(trailer, in: outcome.gaps)
    let filled = try scanRecords(header, upTo: trailer.footerOffset, isSealed: true, copies: copies, body)
    outcome.lost = filled.gaps
    outcome.recordCount = filled.recordCount
    outcome.isSealed = false
    return outcome
  }

  // MARK: The footer

  private func scanFooter(
    _ trailer: PackFooter.Trailer, _ pack: PackHeader,
    _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var decoder = decoder(pack)
    var offset = Int64(PackHeader.byteCount)
    var count = 0
    try forEachBlock(trailer) { (result) throws(BlobStorageError) in
      let block = try result.get()
      guard block.recordOffset == offset else { throw footerIsDamaged(trailer) }
      offset = try block.forEachRecord { (listed) throws(BlobStorageError) in
        let records = try bridge(listed.meta) { (meta) throws(BlobStorageError) in
          try decoder.records(listed.header, meta: meta, payload: listed.payload, at: listed.offset)
        }
        for record in records { try body(record) }
        count += records.count
      }
    }
    guard count == trailer.recordCount, offset == trailer.footerOffset else {
      throw footerIsDamaged(trailer)
    }
  }

  /// A block of a footer, decoded.
  private struct Block {
    let recordOffset: Int64
    let fields: [UInt8]
    let digests: [UInt8]

    func forEachRecord(
      _ body: (PackFooter.Listed) throws(BlobStorageError) -> Void
    ) throws(BlobStorageError) -> Int64 {
      try bridge(fields) { (fields) throws(BlobStorageError) in
        try bridge(digests) { (digests) throws(BlobStorageError) in
          try PackFooter.forEachRecord(fields: fields, digests: digests, from: recordOffset, body)
        }
      }
    }
  }

  /// Calls `body` with each block of the footer, or with the reason why it cannot be read. Checks the checksum first,
  /// so that damage does not pass for a later build's format.
  private func forEachBlock(
    _ trailer: PackFooter.Trailer, _ body: (Result<Block, BlobStorageError>) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var offset = trailer.footerOffset
    let end = trailer.footerOffset + Int64(trailer.storedByteCount)
    while offset < end {
      let start = offset
      let bytes: [UInt8]
      let header: PackFooter.BlockHeader
      do throws(BlobStorageError) {
        bytes = try read(at: offset, Int(min(Int64(PackFooter.BlockHeader.byteCount), end - offset)))
        header = try bridge(bytes) { (raw) throws(BlobStorageError) in try PackFooter.BlockHeader(raw) }
      } catch {
        // The position of the next block is not known.
        return try body(.failure(error))
      }
      offset += Int64(bytes.count)
      guard Int64(header.contentByteCount) <= end - offset else {
        return try body(.failure(footerIsDamaged(trailer)))
      }
      let block: Result<Block, BlobStorageError>
      do throws(BlobStorageError) {
        let content = try read(at: offset, header.contentByteCount)
        try bridge(bytes) { (raw) throws(BlobStorageError) in
          try header.verify(raw, content: content.span.bytes, pack: name, offset: start)
        }
        block = .success(
          Block(
            recordOffset: header.recordOffset, fields: try decode(content, header),
            digests: Array(content[header.storedByteCount...])))
      } catch { block = .failure(error) }
      offset += Int64(header.contentByteCount)
      try body(block)
    }
  }

  /// Returns the records in `gaps` that the undamaged blocks of a damaged footer list, in the pack's order.
  private func recordsOfDamagedFooter(
    _ trailer: PackFooter.Trailer, in gaps: [Range<Int64>]
  ) throws(BlobStorageError) -> [Raw] {
    var found: [Raw] = []
    try forEachBlock(trailer) { (result) throws(BlobStorageError) in
      do throws(BlobStorageError) {
        _ = try result.get().forEachRecord { listed in
          let end = listed.offset + Int64(listed.header.recordByteCount)
          guard gaps.contains(where: { $0.lowerBound <= listed.offset && end <= $0.upperBound }) else {
            return
          }
          found.append(
            Raw(
              header: listed.header, meta: listed.meta, payload: Array(listed.payload), offset: listed.offset)
          )
        }
      } catch { guard error.code == .corrupted else { throw error } }
    }
    return found.sorted { $0.offset < $1.offset }
  }

  private func footerIsDamaged(_ trailer: PackFooter.Trailer) -> BlobStorageError {
    BlobStorageError(
      .corrupted, "The footer of pack \(name) does not list the whole pack.", pack: "\(name)",
      offset: trailer.footerOffset)
  }

  /// Decodes the fields of a block.
  private func decode(
    _ content: [UInt8], _ block: PackFooter.BlockHeader
  ) throws(BlobStorageError) -> [UInt8] {
    guard let kind = CodecKind(rawValue: block.codecNumber) else {
      throw BlobStorageError(
        .unsupportedFormat, "The footer of pack \(name) uses an unknown codec.", pack: "\(name)")
    }
    return try [UInt8](filling: block.plainByteCount) { (target) throws(BlobStorageError) in
      try codecs.withDecoder { (decoder) throws(BlobStorageError) in
        try decoder.decode(
          content.span.bytes.extracting(0..<block.storedByteCount), by: kind, into: target)
      }
      return target.count
    }
  }

  // MARK: Record by record

  /// Calls `body` with the records from `start` on, where a commit begins. Returns where the last of them ends.
  ///
  /// If the bytes end in the middle of a record, the last commit is incomplete and none of it counts: refs name chunks
  /// of their own commit by places, which are known only from its beginning.
  ///
  /// Does not check the bytes of chunks: reading them does.
  package func scanTail(
    _ header: PackHeader, from start: Int64, _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Int64 {
    var window = PackWindow(file: file, end: byteCount)
    var decoder = decoder(header)
    var (offset, end) = (start, start)
    var held: [PackRecord] = []
    var heldByteCount = 0
    func handOver() throws(BlobStorageError) {
      for record in held { try body(record) }
      held.removeAll(keepingCapacity: true)
      heldByteCount = 0
      end = offset
    }
    while offset < byteCount {
      do throws(BlobStorageError) {
        let raw = try wholeRecord(at: offset, &window, readsPayload: false)
        guard raw.end <= byteCount else { return end }
        // The payload is not read. The file may have been cut since it was published.
        if raw.end == byteCount { _ = try window.bytes(at: byteCount - 1, 1) }
        let records = try raw.records(by: &decoder)
        heldByteCount += Self.memoryByteCount(records)
        guard heldByteCount <= commitMemoryByteCountMax else { return end }
        held += records
        offset = raw.end
      } catch {
        guard error.code == .corrupted else { throw error }
        return end
      }
      if let last = held.last, last.endsCommit { try handOver() }
    }
    try handOver()
    return end
  }

  /// - Parameter copies: records of the footer, in the pack's order. Each replaces one that is damaged.
  private func scanRecords(
    _ header: PackHeader, upTo end: Int64, isSealed: Bool, copies: [Raw] = [],
    _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Outcome {
    var offset = Int64(PackHeader.byteCount)
    var gaps: [Range<Int64>] = []
    var gapStart: Int64?
    var recordCount = 0
    // Records of an unfinished commit, from its first one on: they count once its last one is found.
    var held: [PackRecord] = []
    var heldByteCount = 0
    func handOver() throws(BlobStorageError) {
      for record in held { try body(record) }
      recordCount += held.count
      (held, heldByteCount) = ([], 0)
    }
    var window = PackWindow(file: file, end: end)
    var decoder = decoder(header)
    var copies = copies[...]
    // How much of the pack was on the medium, once there is a gap. A record says less than its own offset. So what the
    // records behind the first gap say decides for all gaps.
    var synced: Int64?
    func next() throws(BlobStorageError) -> OneOrMore<PackRecord>? {
      if let records = try unlessCorrupted(try wholeRecord(at: offset, &window).records(by: &decoder)) {
        return records
      }
      guard let copy = copies.first, copy.offset == offset else { return nil }
      return try unlessCorrupted(try copy.records(by: &decoder))
    }
    /// Decodes a chunk whose payload is damaged and whose meta is not: refs may name it.
    func markDamaged() throws(BlobStorageError) {
      _ = try unlessCorrupted(
        try wholeRecord(at: offset, &window, readsPayload: false).records(by: &decoder))
    }
    while offset < end {
      while let copy = copies.first, copy.offset < offset { copies.removeFirst() }
      let found = try next()
      // In a sealed pack none is held, and behind damage what is held counts in any case.
      let byteCount = isSealed ? 0 : found.map { Self.memoryByteCount($0) } ?? 0
      if let records = found, recordCount + held.count + records.count <= BlobLimits.packRecordCountMax,
        (gapStart == nil ? heldByteCount : 0) + byteCount <= commitMemoryByteCountMax
      {
        if let start = gapStart {
          gaps.append(start..<offset)
          // A crash leaves nothing behind a torn tail. So this is damage, and the rest of the commit counts.
          try handOver()
        }
        gapStart = nil
        let isInCommit = !held.isEmpty
        held += records
        heldByteCount += byteCount
        let last = records[records.endIndex - 1]
        // In a sealed pack every commit is whole.
        if isSealed || !last.continues && (last.endsCommit || !isInCommit) { try handOver() }
        offset = last.recordRange.upperBound
      } else {
        if gapStart == nil { gapStart = offset }
        try markDamaged()
        // Behind damage, or in a torn tail: the next place that looks like a record of this pack at this offset.
        if !isSealed, gapStart == offset {
          if synced == nil { synced = try self.synced(behind: offset, &window) }
          if let synced, synced <= offset, window.unreadableEnd <= offset { break }
        }
        let copy = copies.first { $0.offset > offset }?.offset
        guard
          let next = [try window.next(RecordHeader.mark, from: offset + 1), copy].compactMap({ $0 }).min()
        else { break }
        offset = next
      }
    }
    // Bytes behind the last whole record are damage in a sealed pack, and a torn tail in any other.
    var endOffset = end
    if let start = gapStart {
      if isSealed || window.unreadableEnd > start { gaps.append(start..<end) } else { endOffset = start }
    }
    if let first = held.first { endOffset = first.recordRange.lowerBound }
    return Outcome(
      header: header, isSealed: isSealed, endOffset: endOffset, recordCount: recordCount, gaps: gaps,
      lost: gaps, unreadable: window.unreadable)
  }

  private static func memoryByteCount(_ records: OneOrMore<PackRecord>) -> Int {
    records.reduce(0) { $0 + $1.memoryByteCount }
  }

  /// How much of the pack was on the medium, according to whole records behind `offset`.
  ///
  /// A power cut can keep what was written later and lose what was written before it. A hole is damage only if a later
  /// record says that its place had been synced. Otherwise everything behind the hole is a torn tail.
  private func synced(behind offset: Int64, _ window: inout PackWindow) throws(BlobStorageError) -> Int64 {
    var offset = offset
    var synced: Int64 = 0
    while let next = try window.next(RecordHeader.mark, from: offset + 1) {
      offset = next
      while offset < window.end {
        do throws(BlobStorageError) {
          let raw = try wholeRecord(at: offset, &window)
          synced = max(synced, try raw.syncedByteCount())
          offset = raw.end
        } catch {
          guard error.code == .corrupted else { throw error }
          break
        }
      }
    }
    return synced
  }

  private func decoder(_ pack: PackHeader) -> RecordDecoder {
    RecordDecoder(pack: name, algorithm: pack.digestAlgorithm, codecs: codecs)
  }

  /// A record whose checksums match.
  private struct Raw {
    let header: RecordHeader
    let meta: [UInt8]
    /// The payload of a commit record; empty for others.
    let payload: [UInt8]
    let offset: Int64

    var end: Int64 { offset + Int64(header.recordByteCount) }

    func records(by decoder: inout RecordDecoder) throws(BlobStorageError) -> OneOrMore<PackRecord> {
      try bridge(meta) { (meta) throws(BlobStorageError) in
        try bridge(payload) { (payload) throws(BlobStorageError) in
          try decoder.records(header, meta: meta, payload: payload, at: offset)
        }
      }
    }

    /// Bytes of the pack that were known to be on the medium when the record was appended; 0 if it does not say.
    func syncedByteCount() throws(BlobStorageError) -> Int64 {
      guard header.typeNumber == RecordType.commit.rawValue else { return 0 }
      return try bridge(payload.isEmpty ? meta : payload) { (raw) throws(BlobStorageError) in
        try RecordDecoder.syncedByteCount(raw, at: offset)
      }
    }
  }

  /// Reads the record at `offset`. Checks its checksum, and that of the payload if it reads the payload.
  private func wholeRecord(
    at offset: Int64, _ window: inout PackWindow, readsPayload: Bool = true
  ) throws(BlobStorageError) -> Raw {
    let first = try window.bytes(
      at: offset, Int(min(Int64(RecordHeader.byteCountMax), max(0, window.end - offset))))
    let header = try bridge(first) { (raw) throws(BlobStorageError) in try RecordHeader(raw) }
    let headerAndMeta = try window.bytes(at: offset, header.byteCount + header.metaByteCount)
    // The header's own checksum goes first: a damaged length is not followed.
    let (meta, checksum) = try bridge(headerAndMeta) { (raw) throws(BlobStorageError) in
      (Array(try header.verifiedMeta(raw, pack: name, offset: offset)), header.writtenChecksum(raw))
    }
    let isCommit = header.typeNumber == RecordType.commit.rawValue
    var payload: [UInt8] = []
    if header.payloadByteCount > 0, readsPayload || isCommit {
      payload = try window.bytes(at: offset + Int64(headerAndMeta.count), header.payloadByteCount + 4)
      try bridge(payload) { (raw) throws(BlobStorageError) in
        _ = try RecordHeader.verifiedPayload(raw, continuing: checksum)
      }
      payload.removeLast(4)
    }
    return Raw(header: header, meta: meta, payload: isCommit ? payload : [], offset: offset)
  }

  private func read(at offset: Int64, _ count: Int) throws(BlobStorageError) -> [UInt8] {
    try file.bytes(at: offset, count, pack: name)
  }
}

extension File {
  /// Reads exactly `count` bytes. A file that ends before is damaged.
  package func bytes(at offset: Int64, _ count: Int, pack: PackName?) throws(BlobStorageError) -> [UInt8] {
    let bytes = try bytesThere(at: offset, count)
    guard bytes.count == count else {
      throw BlobStorageError(
        .corrupted, "A pack ends at \(offset + Int64(bytes.count)), before the expected record.",
        pack: pack?.description, offset: offset, path: path.string)
    }
    return bytes
  }
}
