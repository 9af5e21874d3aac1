/// Reads one pack back and reports its damage.
struct PackVerifier {
  /// A damaged place, before the keys that need it are known.
  struct Finding: Sendable {
    var digest: BlobDigest?
    var pack: PackName
    var offset: Int64
    var reason: String
    /// The record itself is whole, but its base is not. That matters only if a version needs the record.
    var isOnlyBase = false

    static func missing(_ pack: PackName) -> Finding {
      Finding(digest: nil, pack: pack, offset: 0, reason: "the pack is missing")
    }
  }

  struct Outcome: Sendable {
    var chunkCount = 0
    var byteCount: Int64 = 0
    /// Bytes of the records that were examined.
    var recordsByteCount: Int64 = 0
    var findings: [Finding] = []
    /// How many records have content that can be read from either copy; chunks among them match their digests.
    var wholeCount = 0
    /// Whether the pack has records of a later build, which cannot be copied.
    var hasUnknownRecords = false
    /// Whether header or footer of the published pack are not what this machine keeps of them.
    var isReplaced = false

    static func missing(_ pack: PackName) -> Outcome { Outcome(findings: [.missing(pack)]) }
  }

  /// Records of a pack that are held in memory at a time, at most.
  private static let recordCountOfGroup = 1 << 15

  let blobs: BlobSource
  let sharing: any Sharing
  let row: PackRow
  /// Whether to check only the structure, and no payload.
  var isQuick = false
  private(set) var outcome = Outcome()

  /// Reads the pack: its structure, and unless it `isQuick` every payload, decoded and hashed on all cores.
  ///
  /// - Parameters:
  ///   - progress: receives the bytes of the pack that are done.
  ///   - whole: receives the records that ``Outcome/wholeCount`` counts, in order.
  consuming func run(
    progress: (Int64) -> Void = { _ in }, whole: ([PackRecord]) -> Void = { _ in }
  ) throws(BlobStorageError) -> Outcome {
    // Where packs are published, a local copy says nothing about the published pack.
    if !isQuick, row.durableByteCount > 0, try !sharing.readAnew(row.name) {
      outcome.isReplaced = true
      find(row.appliedByteCount, "its header or footer differs from what was published")
    }
    // gc has removed the pack since the catalog was read, or it is lost.
    guard let file = try blobs.backend.openPack(row.name) else { return try outcomeOfGone() }
    defer { file.close() }
    do throws(BlobStorageError) { try scan(file, progress, whole) } catch {
      if error.code == .packGone { return try outcomeOfGone() }
      guard blobs.backend.isDamage(error) else { throw error }
      outcome.hasUnknownRecords = error.code == .unsupportedFormat
      find(error.offset ?? 0, error.message)
    }
    return outcome
  }

  private mutating func find(_ offset: Int64, _ reason: String) {
    outcome.findings.append(Finding(digest: nil, pack: row.name, offset: offset, reason: reason))
  }

  /// The findings for a pack that disappeared during the read: none if it was collected. On a full disk, the file of a
  /// retired pack goes before its row.
  private func outcomeOfGone() throws(BlobStorageError) -> Outcome {
    _ = try sharing.extend()
    guard let known = try blobs.catalog.packRow(row.name), known.state != .retired else { return Outcome() }
    return .missing(row.name)
  }

  private mutating func scan(
    _ file: any File, _ progress: (Int64) -> Void, _ whole: ([PackRecord]) -> Void
  ) throws(BlobStorageError) {
    let scanner = try blobs.packs.scanner(row.name, file)
    var records: [PackRecord] = []
    var memoryByteCount = 0
    let scanned = try scanner.scan { (record) throws(BlobStorageError) in
      if case .skipped = record.content { outcome.hasUnknownRecords = true }
      // A living writer's last records may not be in the catalog yet.
      guard record.offset < row.appliedByteCount || row.isSealed else { return }
      records.append(record)
      memoryByteCount += record.memoryByteCount
      if records.count == Self.recordCountOfGroup || memoryByteCount >= PackRecord.memoryByteCountOfGroup {
        try read(records, file, progress, whole)
        records.removeAll(keepingCapacity: true)
        memoryByteCount = 0
      }
    }
    try read(records, file, progress, whole)
    for gap in scanned.gaps where gap.lowerBound < row.appliedByteCount || row.isDamaged {
      find(
        gap.lowerBound,
        gap.lowerBound == 0
          ? "the pack's header is damaged" : "the records up to \(gap.upperBound) cannot be read")
    }
    if scanned.endOffset < row.appliedByteCount {
      find(scanned.endOffset, "the pack ends before \(row.appliedByteCount)")
    } else if row.isSealed, !scanned.isSealed, !row.isDamaged {
      find(scanned.endOffset, "the footer cannot be read")
    } else if row.isDamaged, outcome.findings.isEmpty {
      find(scanned.endOffset, "records that were behind it are missing")
    }
  }

  /// Reads the payloads of records on all threads.
  private mutating func read(
    _ records: [PackRecord], _ file: any File, _ progress: (Int64) -> Void, _ whole: ([PackRecord]) -> Void
  ) throws(BlobStorageError) {
    if isQuick {
      outcome.chunkCount += records.count { $0.chunk != nil }
      return
    }
    var remaining = records[...]
    let check = RecordCheck(
      file: file, pack: row.name, blobs: blobs, keepsDamagedPacks: sharing.keepsDamagedPacks,
      hasSuspects: try blobs.catalog.read { (view) throws(BlobStorageError) in try view.hasSuspects() },
      reader: RecordReader(file, row.name, blobs.chunks))
    try blobs.work.orderedMap(
      inFlightMax: blobs.work.width * 2 + 1,
      next: { () throws(BlobStorageError) -> [PackRecord]? in
        guard !remaining.isEmpty else { return nil }
        var group: [PackRecord] = []
        var byteCount = 0
        while let record = remaining.first, byteCount < 1 << 20, group.count < 256 {
          group.append(record)
          byteCount += record.byteCount
          remaining.removeFirst()
        }
        return group
      },
      transform: { (group) throws(BlobStorageError) in
        var check = check
        for record in group { try check.run(record) }
        return (check.outcome, check.whole)
      },
      consume: { (pair) in
        let (part, records) = pair
        outcome.chunkCount += part.chunkCount
        outcome.byteCount += part.byteCount
        outcome.findings += part.findings
        outcome.wholeCount += records.count
        outcome.recordsByteCount += part.recordsByteCount
        progress(outcome.recordsByteCount)
        whole(records)
      })
  }
}

/// Checks records of a pack, one after the other.
private struct RecordCheck {
  private(set) var outcome = PackVerifier.Outcome()
  private(set) var whole: [PackRecord] = []
  let file: any File
  let pack: PackName
  let blobs: BlobSource
  let keepsDamagedPacks: Bool
  /// Whether reads have found damage that may have ended.
  let hasSuspects: Bool
  var reader: RecordReader

  mutating func run(_ record: PackRecord) throws(BlobStorageError) {
    outcome.recordsByteCount += Int64(record.byteCount)
    do throws(BlobStorageError) {
      if record.member != nil { _ = try reader.plain(of: record) }
      try checkWhole(record)
      if let chunk = record.chunk {
        outcome.chunkCount += 1
        outcome.byteCount += Int64(chunk.plainByteCount)
        if hasSuspects { blobs.chunks.clearSuspect(chunk.digest, in: pack, offset: record.offset) }
      }
      whole.append(record)
    } catch {
      guard error.code == .corrupted else { throw error }
      try add(error, of: record)
    }
  }

  private mutating func add(_ error: BlobStorageError, of record: PackRecord) throws(BlobStorageError) {
    let isOnlyBase = error.digest != nil
    var finding = PackVerifier.Finding(
      digest: nil, pack: pack, offset: record.offset, reason: error.message, isOnlyBase: isOnlyBase)
    if !isOnlyBase, try isReadable(record) {
      whole.append(record)
      finding.reason += " (its contents can still be read)"
    } else if let digest = record.target?.digest {
      if isOnlyBase { whole.append(record) }
      // Before `isCurrent`: from now on the catalog may point at another copy.
      if !isOnlyBase, try hasOtherCopy(record, digest) {
        finding.reason += " (another copy can be read)"
      } else {
        finding.digest = digest
      }
      // Garbage may outlive its base, and a pack that is kept has records that another copy has replaced. Neither is
      // damage.
      if isOnlyBase || keepsDamagedPacks, try !isCurrent(record) { return }
    }
    outcome.findings.append(finding)
  }

  /// Whether the content of a damaged record can be read elsewhere.
  ///
  /// If a chunk cannot, the read marks it in the catalog. Then gc removes nothing, and the next put heals it.
  private func hasOtherCopy(_ record: PackRecord, _ digest: BlobDigest) throws(BlobStorageError) -> Bool {
    switch record.content {
    case .chunk: return try blobs.chunks.hasOtherCopy(digest)
    case .manifest: return try unlessCorrupted(try blobs.layout(digest) != nil) ?? false
    case .ref, .drop, .skipped: return false
    }
  }

  /// Whether the catalog's row of the chunk or manifest points at this record.
  private func isCurrent(_ record: PackRecord) throws(BlobStorageError) -> Bool {
    try blobs.catalog.read { (transaction) throws(BlobStorageError) in
      guard let place = try transaction.place(of: record.content), place.offset == record.offset else {
        return false
      }
      return try transaction.packRow(place.pack)?.name == pack
    }
  }

  /// Checks the record on the medium: header, payload checksum, and the digest of a chunk.
  private func checkWhole(_ record: PackRecord) throws(BlobStorageError) {
    // The first entry stands for a whole commit record, and the first member for the checksums of its frame.
    guard record.beginsRecord else { return }
    let bytes = try file.bytes(at: record.offset, record.recordRange.count, pack: pack)
    try bridge(bytes) { (raw) throws(BlobStorageError) in
      let (header, _, payload) = try RecordHeader.verified(raw, pack: pack, offset: record.offset)
      let type = RecordType(rawValue: header.typeNumber)
      guard type == record.type, type == .commit || header.payloadByteCount == record.payloadByteCount else {
        throw BlobStorageError(.corrupted, "the record differs from its entry in the footer")
      }
      guard let chunk = record.chunk, record.member == nil else { return }
      _ = try blobs.chunks.decoded(payload.bytes, chunk, base: try base(of: chunk))
    }
  }

  /// Whether the content of a damaged record can still be read. The footer has refs and drops whole. A payload may
  /// match a checksum that begins with the footer's fields. A chunk is checked by its digest.
  private mutating func isReadable(_ record: PackRecord) throws(BlobStorageError) -> Bool {
    switch record.content {
    case .ref, .drop: return true
    case .skipped: return false
    case .manifest: return try unlessCorrupted(try reader.withPayload(of: record) { _ in }) != nil
    case .chunk(let chunk):
      return try unlessCorrupted(
        try reader.plain(of: record, base: try base(of: chunk), checksPayload: false)) != nil
    }
  }

  private func base(of chunk: ChunkRecord) throws(BlobStorageError) -> [UInt8]? {
    guard let digest = chunk.base else { return nil }
    do throws(BlobStorageError) { return try blobs.chunks.bytes(digest, keeps: true) } catch {
      throw BlobStorageError(.corrupted, "its base is damaged or missing: \(error.message)", digest: digest)
    }
  }
}
