import Foundation

/// Reads a store back and says what is damaged.
struct Verifier {
  /// A damaged place before the keys are known that need it.
  struct Finding: Sendable {
    var digest: Digest?
    var pack: PackName
    var offset: Int64
    var reason: String
    /// The record itself is whole: what it is encoded against is not. It matters only if a version needs it.
    var isOnlyBase = false
  }

  let engine: Engine
  private let progress: ProgressHandler

  init(_ engine: Engine, _ progress: ProgressHandler?) {
    self.engine = engine
    self.progress = progress ?? { _ in }
  }

  /// - Parameter readsBlobs: also compares each blob of several chunks with its own digest.
  func run(isQuick: Bool, readsBlobs: Bool = false) throws(BlobStorageError) -> VerificationReport {
    let start = Date()
    try engine.checkOpen()
    var report = VerificationReport()
    var findings: [Finding] = []
    try engine.catchUp()
    // What a removed pack had is missing only if no other has it.
    _ = try engine.sharing.completeCatalog()
    let rows = try engine.catalog.packRows()
    // What this machine keeps of published packs says nothing about the packs.
    let missing = try missingPacks(rows.map(\.row))
    let total = rows.reduce(0) { $0 + ($1.row.state == .retired ? 0 : $1.row.appliedByteCount) }
    var done: Int64 = 0
    for (index, (_, row)) in rows.enumerated() where row.state != .retired {
      try CancellationFlag.check()
      func tell(_ byteCount: Int64) {
        progress(
          WorkProgress(
            phase: "verifying", doneByteCount: done + byteCount, totalByteCount: total, doneCount: index,
            totalCount: rows.count))
      }
      tell(0)
      let result =
        try missing.contains(row.name)
        ? Self.missing(row.name) : verify(row, isQuick: isQuick, progress: tell)
      done += row.appliedByteCount
      report.chunkCount += result.chunkCount
      report.byteCount += result.byteCount
      findings += result.findings
    }
    let wrong = readsBlobs && !isQuick ? try wrongBlobs() : []
    findings += wrong
    // Some were never read here.
    for name in missing.subtracting(rows.lazy.map(\.row.name)).sorted() {
      findings += Self.missing(name).findings
    }
    for _ in 0..<3 {
      let generation = engine.catalog.generation
      try addDamage(findings, &report)
      // Of what is missing by now another pack may have a copy, if the known one was removed meanwhile.
      guard report.damaged.contains(where: \.pack.isEmpty),
        try engine.sharing.completeCatalog() || engine.catalog.generation != generation
      else { break }
    }
    try rememberDamage(report)
    report.losses = try engine.losses()
    // A manifest that no version needs is garbage, whatever it names.
    let unneeded = Set(wrong.compactMap(\.digest))
    report.damaged.removeAll { $0.keys.isEmpty && $0.digest.map(unneeded.contains) ?? false }
    report.versionsAhead = try versionsAhead()
    report.seconds = Date().timeIntervalSince(start)
    return report
  }

  /// Has the catalog remember which chunks cannot be read: gc removes nothing then, and the next put heals them.
  private func rememberDamage(_ report: VerificationReport) throws(BlobStorageError) {
    guard engine.ownsPacks else { return }
    for damage in report.damaged where !damage.keys.isEmpty {
      if let digest = damage.digest { _ = try unlessCorrupted(try engine.chunks.bytes(digest)) }
    }
  }

  /// Reads each blob of several chunks, and compares it with its digest.
  private func wrongBlobs() throws(BlobStorageError) -> [Finding] {
    var findings: [Finding] = []
    try engine.forEachManifestPage { (page) throws(BlobStorageError) in
      for (digest, row) in page {
        try CancellationFlag.check()
        do throws(BlobStorageError) {
          guard let layout = try engine.blobs.layout(digest) else { continue }
          try engine.blobs.streamWhole(layout) { _ in }
        } catch {
          // What else is damaged was found in its pack.
          guard error.code == .corrupted, error.digest == digest, error.pack == nil else {
            guard error.code == .corrupted else { throw error }
            continue
          }
          let pack = try engine.catalog.read { (transaction) throws(BlobStorageError) in
            try transaction.packRow(row.place.pack)?.name
          }
          guard let pack else { continue }
          findings.append(
            Finding(digest: digest, pack: pack, offset: row.place.offset, reason: error.message))
        }
      }
    }
    return findings
  }

  private static let aheadCountMax = 1_000

  /// The first versions whose stamps are too far ahead of the present for the clock to follow.
  private func versionsAhead() throws(BlobStorageError) -> [VersionAhead] {
    let now = engine.clock.now()
    return try engine.catalog.read { (transaction) throws(BlobStorageError) in
      var found: [VersionAhead] = []
      try transaction.forEachKey(prefix: [], after: nil) { (key, name) throws(BlobStorageError) in
        try transaction.forEachVersion(of: name) { version in
          guard Stamp.isFarAhead(version.stamp.time, wallClock: now) else { return false }
          found.append(
            VersionAhead(
              key: String(decoding: key, as: UTF8.self), version: BlobVersion.ID(version.stamp)))
          return true
        }
        return found.count < Self.aheadCountMax
      }
      return found
    }
  }

  // MARK: One pack

  /// Records of a pack that are held in memory at a time.
  private static let recordCountOfGroup = 1 << 15

  struct PackResult: Sendable {
    var chunkCount = 0
    var byteCount: Int64 = 0
    /// Of the records that were looked at.
    var recordsByteCount: Int64 = 0
    var findings: [Finding] = []
    /// Records whose content can be read from either copy, with chunks that match their digest.
    var whole: [PackRecord] = []
    /// Places of the pack where records were lost in both copies.
    var lost: [Range<Int64>] = []
    /// The pack has records of a later build, which cannot be copied.
    var hasUnknownRecords = false
  }

  /// Reads one pack: its structure, and unless `isQuick` every payload, decoded and hashed on all cores.
  ///
  /// - Parameter progress: receives the bytes of the pack that are done.
  func verify(
    _ row: PackRow, isQuick: Bool, keepsWhole: Bool = false, progress: (Int64) -> Void = { _ in }
  ) throws(BlobStorageError) -> PackResult {
    var result = PackResult()
    func find(_ digest: Digest?, _ offset: Int64, _ reason: String) {
      result.findings.append(Finding(digest: digest, pack: row.name, offset: offset, reason: reason))
    }
    if !isQuick, try !readsPublished(row) {
      find(nil, row.appliedByteCount, "its header or footer differs from what was published")
    }
    guard let file = try engine.backend.openPack(row.name) else {
      // Taken away by gc since the catalog was read, or lost.
      return try resultOfGone(row)
    }
    defer { file.close() }
    var records: [PackRecord] = []
    func readRecords() throws(BlobStorageError) {
      defer { records.removeAll(keepingCapacity: true) }
      if isQuick {
        for case .chunk in records.lazy.map(\.content) { result.chunkCount += 1 }
        return
      }
      try read(records, file, row.name) { (part) in
        result.chunkCount += part.chunkCount
        result.byteCount += part.byteCount
        result.findings += part.findings
        if keepsWhole { result.whole += part.whole }
        result.recordsByteCount += part.recordsByteCount
        progress(result.recordsByteCount)
      }
    }
    do throws(BlobStorageError) {
      let scanner = try PackScanner(file: file, name: row.name, codecs: engine.codecs, store: engine.header)
      let outcome = try scanner.scan { (record) throws(BlobStorageError) in
        if case .skipped = record.content { result.hasUnknownRecords = true }
        // A living writer's last records may not be in the catalog yet.
        guard record.offset < row.appliedByteCount || row.isSealed else { return }
        records.append(record)
        if records.count == Self.recordCountOfGroup { try readRecords() }
      }
      try readRecords()
      for gap in outcome.gaps where gap.lowerBound < row.appliedByteCount || row.isDamaged {
        let isHeader = gap.lowerBound == 0
        find(
          nil, gap.lowerBound,
          isHeader ? "the pack's header is damaged" : "the records up to \(gap.upperBound) cannot be read")
      }
      result.lost = outcome.lost
      if outcome.endOffset < row.appliedByteCount {
        find(nil, outcome.endOffset, "the pack ends before \(row.appliedByteCount)")
      } else if row.isSealed, !outcome.isSealed, !row.isDamaged {
        find(nil, outcome.endOffset, "the footer cannot be read")
      } else if row.isDamaged, result.findings.isEmpty {
        find(nil, outcome.endOffset, "records that were behind it are missing")
      }
    } catch {
      if error.code == .packGone { return try resultOfGone(row) }
      // Another machine may have a later build.
      result.hasUnknownRecords = !engine.ownsPacks && error.code == .unsupportedFormat
      guard error.code == .corrupted || result.hasUnknownRecords else { throw error }
      find(nil, error.offset ?? 0, error.message)
      return result
    }
    return result
  }

  /// Reads the payloads of a pack on all threads.
  private func read(
    _ records: [PackRecord], _ file: any File, _ pack: PackName, _ take: (PackResult) -> Void
  ) throws(BlobStorageError) {
    let engine = engine
    var remaining = records[...]
    try engine.work.orderedMap(
      inFlightMax: engine.work.width * 2 + 1,
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
        try Self.check(group, file, pack, engine)
      },
      consume: { (part) in take(part) })
  }

  private static func check(
    _ group: [PackRecord], _ file: any File, _ pack: PackName, _ engine: Engine
  ) throws(BlobStorageError) -> PackResult {
    var result = PackResult()
    var frames = FrameReader(file, pack, engine.chunks)
    for record in group {
      result.recordsByteCount += Int64(record.byteCount)
      do throws(BlobStorageError) {
        if record.member != nil { let _: [UInt8] = try frames.bytes(of: record) }
        try check(record, file, pack, engine)
        if case .chunk(let chunk) = record.content {
          result.chunkCount += 1
          result.byteCount += Int64(chunk.plainByteCount)
        }
        result.whole.append(record)
      } catch {
        guard error.code == .corrupted else { throw error }
        if error.digest == nil, try isReadable(record, &frames, file, pack, engine) {
          result.whole.append(record)
          result.findings.append(
            Finding(
              digest: nil, pack: pack, offset: record.offset,
              reason: "\(error.message) (its contents can still be read)"))
          continue
        }
        let digest: Digest? =
          switch record.content {
          case .chunk(let chunk): chunk.digest
          case .manifest(let manifest): manifest.digest
          case .ref(let ref): ref.digest
          case .drop, .skipped: nil
          }
        let isOnlyBase = error.digest != nil
        if isOnlyBase { result.whole.append(record) }
        // Before it is asked whether the record counts: the catalog may point at another copy from now on.
        var reason = error.message
        var needed = digest
        if !isOnlyBase, let digest, try hasOtherCopy(record, digest, engine) {
          reason += " (another copy can be read)"
          needed = nil
        }
        // Garbage may outlive its base. What was healed by another copy stays in a published pack until that goes.
        if isOnlyBase || !engine.ownsPacks, let digest,
          try !isCurrent(record, digest, pack, engine)
        {
          continue
        }
        result.findings.append(
          Finding(
            digest: needed, pack: pack, offset: record.offset, reason: reason, isOnlyBase: isOnlyBase))
      }
    }
    return result
  }

  /// Whether what a damaged record says can be read elsewhere.
  private static func hasOtherCopy(
    _ record: PackRecord, _ digest: Digest, _ engine: Engine
  ) throws(BlobStorageError) -> Bool {
    switch record.content {
    case .chunk: return try engine.chunks.hasOtherCopy(digest)
    case .manifest: return try unlessCorrupted(try engine.blobs.layout(digest) != nil) ?? false
    case .ref, .drop, .skipped: return false
    }
  }

  /// Whether the catalog knows this record as the chunk's, or as the blob's manifest.
  private static func isCurrent(
    _ record: PackRecord, _ digest: Digest, _ pack: PackName, _ engine: Engine
  ) throws(BlobStorageError) -> Bool {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      let place: Place?
      switch record.content {
      case .chunk: place = try transaction.chunkRow(digest)?.place
      case .manifest: place = try transaction.manifestRow(digest)?.place
      case .ref, .drop, .skipped: return true
      }
      guard let place, place.offset == record.offset else { return false }
      return try transaction.packRow(place.pack)?.name == pack
    }
  }

  /// The record as it lies on the medium: header, payload checksum, and for a chunk its digest.
  private static func check(
    _ record: PackRecord, _ file: any File, _ pack: PackName, _ engine: Engine
  ) throws(BlobStorageError) {
    // The first entry of a commit record answers for all, and the first member of a frame for its checksums.
    guard record.beginsRecord else { return }
    let bytes = try file.bytes(at: record.offset, record.recordRange.count, pack: pack)
    try bridge(bytes) { (raw) throws(BlobStorageError) in
      let (header, _, payload) = try RecordHeader.verified(raw, pack: pack, offset: record.offset)
      let type = RecordType(rawValue: header.typeNumber)
      guard type == record.type, type == .commit || header.payloadByteCount == record.payloadByteCount else {
        throw BlobStorageError(.corrupted, "the record differs from its entry in the footer")
      }
      guard case .chunk(let chunk) = record.content, record.member == nil else { return }
      try check(chunk, payload.bytes, engine)
    }
  }

  /// Whether the content of a damaged record can still be read. Refs and drops are whole in the footer. A payload may
  /// match a checksum that begins with the footer's fields. A digest guards a chunk.
  private static func isReadable(
    _ record: PackRecord, _ frames: inout FrameReader, _ file: any File, _ pack: PackName, _ engine: Engine
  ) throws(BlobStorageError) -> Bool {
    if record.member != nil {
      let bytes: [UInt8]? = try unlessCorrupted(try frames.bytes(of: record))
      return bytes != nil
    }
    switch record.content {
    case .ref, .drop: return true
    case .skipped: return false
    case .manifest, .chunk:
      let content: Void? = try unlessCorrupted(
        try bridge(try file.bytes(at: record.offset, record.byteCount, pack: pack)) {
          (raw) throws(BlobStorageError) in
          if case .chunk(let chunk) = record.content {
            try check(chunk, record.payload(of: raw).bytes, engine)
          } else {
            _ = try record.verifiedPayload(raw, in: pack)
          }
        })
      return content != nil
    }
  }

  private static func check(
    _ chunk: ChunkRecord, _ stored: RawSpan, _ engine: Engine
  ) throws(BlobStorageError) {
    var base: [UInt8]?
    if let digest = chunk.base {
      do throws(BlobStorageError) { base = try engine.chunks.bytes(digest, keeps: true) } catch {
        throw BlobStorageError(.corrupted, "its base is damaged or missing: \(error.message)", digest: digest)
      }
    }
    let plain = try engine.chunks.decoded(stored, chunk, base: base)
    guard Digest.of(plain.span.bytes, by: chunk.digest.algorithm) == chunk.digest else {
      throw BlobStorageError(.corrupted, "the bytes do not match their digest")
    }
  }

  // MARK: A pack that is published, or that is gone

  /// The packs that should be listed and are not, because the catalog or later packs of their writers say so. Packs
  /// that a collector has removed are not among them.
  func missingPacks(_ rows: [PackRow]) throws(BlobStorageError) -> Set<PackName> {
    if let missing = try engine.sharing.missingPacks(rows) { return missing }
    return Set(try engine.knownLosses().lostPacks)
  }

  /// Reads a pack from the object store; false if its ends have changed.
  func readsPublished(_ row: PackRow) throws(BlobStorageError) -> Bool {
    guard row.durableByteCount > 0 else { return true }
    return try engine.sharing.readAnew(row.name)
  }

  /// The findings for a pack that disappeared while it was read: none, if another machine has collected it.
  func resultOfGone(_ row: PackRow) throws(BlobStorageError) -> PackResult {
    try engine.catchUp()
    return try engine.catalog.packRow(row.name) != nil ? Self.missing(row.name) : PackResult()
  }

  static func missing(_ name: PackName) -> PackResult {
    var result = PackResult()
    result.findings.append(Finding(digest: nil, pack: name, offset: 0, reason: "the pack is missing"))
    return result
  }

  // MARK: From places to keys

  private func place(ofBlob digest: Digest) throws(BlobStorageError) -> Place? {
    try engine.catalog.read { (transaction) throws(BlobStorageError) in
      if let row = try transaction.chunkRow(digest) { return row.place }
      return try transaction.manifestRow(digest)?.place
    }
  }

  /// Adds what versions miss, and to each damaged place the keys that need it.
  private func addDamage(_ findings: [Finding], _ report: inout VerificationReport) throws(BlobStorageError) {
    report.blobCount = 0
    var damage: [Damage] = []
    var indexByDigest: [Digest: Int] = [:]
    for finding in findings {
      if let digest = finding.digest { indexByDigest[digest] = damage.count }
      damage.append(Damage(finding))
    }
    // By where they lie: a bit for each, and not a digest.
    var blobs = PlaceSet()
    var missingBlobs: Set<Digest> = []
    try DamageSearch(engine).forEachVersion { (key, digest, needs) throws(BlobStorageError) in
      if let place = try place(ofBlob: digest) {
        if blobs.insert(place) { report.blobCount += 1 }
      } else if missingBlobs.insert(digest).inserted {
        report.blobCount += 1
      }
      for need in needs {
        if let index = indexByDigest[need.digest] {
          if damage[index].keys.last != key { damage[index].keys.append(key) }
        } else if !need.isPresent || need.isDamaged {
          indexByDigest[need.digest] = damage.count
          damage.append(
            Damage(
              digest: need.digest, pack: "", offset: 0, keys: [key],
              reason: need.isPresent ? "it cannot be read" : "it is missing from the store"))
        }
      }
    } isInteresting: { digest in
      indexByDigest[digest] != nil
    }
    // Perhaps no version needed the chunk when its base went. A put that needs it since has stored one of the two
    // again.
    var baseless: Set<Digest> = []
    var passedOver: Set<Digest> = []
    for finding in findings where finding.isOnlyBase {
      guard let digest = finding.digest else { continue }
      baseless.insert(digest)
      if try unlessCorrupted(try engine.chunks.bytes(digest)) != nil { passedOver.insert(digest) }
    }
    report.damaged = damage.filter { found in
      guard let digest = found.digest, baseless.contains(digest) else { return true }
      return !found.keys.isEmpty && !passedOver.contains(digest)
    }
  }
}

extension Damage {
  init(_ finding: Verifier.Finding) {
    self.init(
      digest: finding.digest, pack: "\(finding.pack)", offset: finding.offset, keys: [],
      reason: finding.reason)
  }
}
