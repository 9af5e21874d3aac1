import SystemPackage

/// Finds the records of a pack: from the footer of a sealed one, record by record in any other.
///
/// A record's checksum names the pack by its file name alone, so records are found even if the pack's header is
/// damaged. If the footer of a sealed pack is damaged, records come from the pack's body. Records that are damaged
/// there come from the readable blocks of the footer.
package struct PackScanner {
  /// What a scan found beside the records.
  package struct Outcome: Sendable {
    /// The pack's header, or what stands in for one that is damaged.
    package var header: PackHeader
    /// The footer is there and was used.
    package var isSealed: Bool
    /// Where the last whole record ends.
    package var endOffset: Int64
    package var recordCount: Int
    /// Damaged places: the header, and places between whole records that hold none.
    package var gaps: [Range<Int64>]
    /// Those of them that have no second copy in the footer.
    package var lost: [Range<Int64>] = []
  }

  private let file: any File
  private let name: PackName
  private let codecs: CodecPool
  private let byteCount: Int64
  private let trustsLengths: Bool
  private let store: StoreHeader?

  /// - Parameters:
  ///   - store: the pack's store; without it, a pack with a damaged header cannot be read.
  ///   - end: where to stop, if the rest of the file does not count.
  package init(
    file: any File, name: PackName, codecs: CodecPool, store: StoreHeader? = nil, weaknesses: Weaknesses = [],
    upTo end: Int64? = nil
  ) throws(BlobStorageError) {
    self.store = store
    trustsLengths = weaknesses.contains(.trustsLengths)
    self.file = file
    self.name = name
    self.codecs = codecs
    byteCount = min(try file.status().byteCount, end ?? .max)
  }

  /// The pack's header, checked to be this pack's.
  package func header() throws(BlobStorageError) -> PackHeader {
    let header = try located(0) { () throws(BlobStorageError) in
      guard byteCount <= Limits.packByteCountMax else {
        throw BlobStorageError(.corrupted, "The pack has \(byteCount) bytes, more than any can have.")
      }
      let bytes = try read(at: 0, PackHeader.byteCount)
      return try bridge(bytes) { (raw) throws(BlobStorageError) in try PackHeader(raw) }
    }
    guard header.name == name else {
      throw BlobStorageError(
        .corrupted, "The file of pack \(name) holds pack \(header.name): it was renamed or copied.",
        pack: name.description, offset: 0, path: file.path.string)
    }
    return header
  }

  /// The pack's header; of one whose header is damaged, what is known without it.
  ///
  /// Nothing but the header says when a pack was begun. Without it the pack counts as the oldest, so that of two
  /// copies the one in an undamaged pack is used.
  package func headerOrSubstitute() throws(BlobStorageError) -> (header: PackHeader, isDamaged: Bool) {
    do throws(BlobStorageError) { return (try header(), false) } catch {
      guard error.code == .corrupted, let store, byteCount >= Int64(PackHeader.byteCount),
        byteCount <= Limits.packByteCountMax, try !holdsAnotherPack()
      else { throw error }
      let header = PackHeader(
        name: name, storeID: store.storeID, digestAlgorithm: store.digestAlgorithm, created: 0)
      return (header, true)
    }
  }

  /// Whether the file has an undamaged header of another name.
  private func holdsAnotherPack() throws(BlobStorageError) -> Bool {
    let bytes = try read(at: 0, PackHeader.byteCount)
    do throws(BlobStorageError) {
      return try bridge(bytes) { (raw) throws(BlobStorageError) in try PackHeader(raw).name != name }
    } catch {
      guard error.code == .corrupted else { throw error }
      return false
    }
  }

  /// Whether a footer is at the end.
  package func trailer() throws(BlobStorageError) -> PackFooter.Trailer? {
    let trailerByteCount = Int64(PackFooter.Trailer.byteCount)
    guard byteCount >= Int64(PackHeader.byteCount) + trailerByteCount else { return nil }
    let bytes = try file.bytesThere(at: byteCount - trailerByteCount, Int(trailerByteCount))
    // A writer may have cut off what it had filled ahead, or could not write, since its length was looked at.
    guard bytes.count == Int(trailerByteCount) else { return nil }
    return bytes.withUnsafeBytes { PackFooter.Trailer($0, name: name, packByteCount: byteCount) }
  }

  /// Calls `body` with every record in the pack's order.
  ///
  /// - Parameter verifiesPayloads: also where the footer would do, reads every record and checks its payload.
  /// - Throws: `corrupted` only for a header that is not this pack's. Other damage becomes a gap. A record that an
  ///   older build must not skip is `unsupportedFormat`.
  package func scan(
    verifiesPayloads: Bool = false, _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Outcome {
    let (header, isHeaderDamaged) = try headerOrSubstitute()
    var outcome = try scan(header, verifiesPayloads: verifiesPayloads, body)
    if isHeaderDamaged { outcome.gaps.insert(0..<Int64(PackHeader.byteCount), at: 0) }
    return outcome
  }

  private func scan(
    _ header: PackHeader, verifiesPayloads: Bool, _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Outcome {
    guard let trailer = try trailer() else {
      return try scanRecords(header, upTo: byteCount, isSealed: false, body)
    }
    if verifiesPayloads { return try scanRecords(header, upTo: trailer.footerOffset, isSealed: true, body) }
    do throws(BlobStorageError) {
      try verifyFooter(trailer)
      try scanFooter(trailer, algorithm: header.digestAlgorithm) { _ in }
    } catch {
      guard error.code == .corrupted else { throw error }
      return try scanBothCopies(header, trailer, body)
    }
    try scanFooter(trailer, algorithm: header.digestAlgorithm, body)
    return Outcome(
      header: header, isSealed: true, endOffset: trailer.footerOffset, recordCount: trailer.recordCount,
      gaps: [])
  }

  /// Scans the body of a sealed pack whose footer is damaged, and fills its gaps from what is left of the footer.
  private func scanBothCopies(
    _ header: PackHeader, _ trailer: PackFooter.Trailer, _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Outcome {
    var outcome = try scanRecords(header, upTo: trailer.footerOffset, isSealed: true) { _ in }
    var listed: [PackRecord] = []
    if !outcome.gaps.isEmpty {
      listed = try recordsOfDamagedFooter(trailer, header.digestAlgorithm, in: outcome.gaps)
    }
    outcome.lost = Self.parts(of: outcome.gaps, without: listed)
    outcome.recordCount += listed.count
    outcome.isSealed = false
    var waiting = listed[...]
    _ = try scanRecords(header, upTo: trailer.footerOffset, isSealed: true) {
      (record) throws(BlobStorageError) in
      while let first = waiting.first, first.offset < record.offset { try body(waiting.removeFirst()) }
      try body(record)
    }
    for record in waiting { try body(record) }
    return outcome
  }

  /// What of `gaps` no record covers; both are in the order of their offsets.
  private static func parts(of gaps: [Range<Int64>], without records: [PackRecord]) -> [Range<Int64>] {
    var parts: [Range<Int64>] = []
    for gap in gaps {
      var start = gap.lowerBound
      for record in records where gap.contains(record.offset) {
        if record.offset > start { parts.append(start..<record.offset) }
        start = record.offset + Int64(record.byteCount)
      }
      if start < gap.upperBound { parts.append(start..<gap.upperBound) }
    }
    return parts
  }

  /// Whether the pack is sealed and all of it matches its checksums, payloads included.
  ///
  /// - Complexity: reads the whole pack.
  package func isWhole() throws(BlobStorageError) -> Bool {
    let listed = try scan { _ in }
    let found = try scan(verifiesPayloads: true) { _ in }
    guard listed.isSealed, found.isSealed, listed.gaps.isEmpty, found.gaps.isEmpty else { return false }
    return listed.recordCount == found.recordCount
  }

  // MARK: The footer

  private func scanFooter(
    _ trailer: PackFooter.Trailer, algorithm: Digest.Algorithm,
    _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var walk = PackFooter.Walk(trailer: trailer, algorithm: algorithm)
    var plainByteCount = 0
    try forEachBlock(trailer) { (block, stored) throws(BlobStorageError) in
      let plain = try decode(stored, block)
      plainByteCount += plain.count
      try bridge(plain) { (raw) throws(BlobStorageError) in try walk.forEachRecord(raw, body) }
    }
    try walk.finish()
    guard plainByteCount == trailer.plainByteCount else { throw footerIsDamaged(trailer) }
  }

  /// Calls `body` with each block of the footer as it is stored.
  private func forEachBlock(
    _ trailer: PackFooter.Trailer,
    _ body: (PackFooter.BlockHeader, [UInt8]) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    var offset = trailer.footerOffset
    let end = trailer.footerOffset + Int64(trailer.storedByteCount)
    while offset < end {
      let headerBytes = try read(at: offset, Int(min(Int64(PackFooter.BlockHeader.byteCount), end - offset)))
      let block = try bridge(headerBytes) { (raw) throws(BlobStorageError) in
        var reader = ByteReader(raw)
        return try PackFooter.BlockHeader(from: &reader)
      }
      offset += Int64(headerBytes.count)
      guard Int64(block.storedByteCount) <= end - offset else {
        throw BlobStorageError(.corrupted, "A block of a footer is longer than the footer.", pack: "\(name)")
      }
      let stored = try read(at: offset, block.storedByteCount)
      offset += Int64(stored.count)
      try body(block, stored)
    }
  }

  /// The records in `gaps` that the undamaged blocks of a damaged footer list.
  ///
  /// A block does not say where its first record lies. From the front that is known up to the first damaged block; from
  /// the back, where the records end, down to the last one. Each record's checksum is checked at its place.
  private func recordsOfDamagedFooter(
    _ trailer: PackFooter.Trailer, _ algorithm: Digest.Algorithm, in gaps: [Range<Int64>]
  ) throws(BlobStorageError) -> [PackRecord] {
    var found: [Int64: PackRecord] = [:]
    func collect(_ plain: [UInt8], at start: Int64) {
      var walk = PackFooter.Walk(trailer: trailer, algorithm: algorithm, offset: start)
      // What is damaged in a block ends it; the records before count.
      do throws(BlobStorageError) {
        try bridge(plain) { (raw) throws(BlobStorageError) in
          try walk.forEachRecord(raw) { record in
            let end = record.offset + Int64(record.byteCount)
            if gaps.contains(where: { $0.lowerBound <= record.offset && end <= $0.upperBound }) {
              found[record.offset] = record
            }
          }
        }
      } catch {}
    }
    // Plain blocks with the bytes that their records span; nil for a damaged one.
    var blocks: [(plain: [UInt8], span: Int64)?] = []
    do throws(BlobStorageError) {
      try forEachBlock(trailer) { (block, stored) throws(BlobStorageError) in
        do throws(BlobStorageError) {
          let plain = try decode(stored, block)
          let span = try bridge(plain) { (raw) throws(BlobStorageError) in
            try PackFooter.Walk.recordsByteCount(raw)
          }
          blocks.append((plain, span))
        } catch { blocks.append(nil) }
      }
    } catch {
      // The checksum of the blocks does not match: this is no footer of a later build.
      guard error.code == .corrupted || error.code == .unsupportedFormat else { throw error }
      blocks.append(nil)
    }
    var start = Int64(PackHeader.byteCount)
    for case let block? in blocks.prefix(while: { $0 != nil }) {
      collect(block.plain, at: start)
      start += block.span
    }
    var end = trailer.footerOffset
    for case let block? in blocks.reversed().prefix(while: { $0 != nil }) {
      end -= block.span
      if end >= Int64(PackHeader.byteCount) { collect(block.plain, at: end) }
    }
    return found.values.sorted { $0.offset < $1.offset }
  }

  /// Damage must not pass for what a later build wrote, so the checksum goes before all else.
  private func verifyFooter(_ trailer: PackFooter.Trailer) throws(BlobStorageError) {
    var offset = trailer.footerOffset
    let end = trailer.footerOffset + Int64(trailer.storedByteCount)
    var checksum: UInt32 = 0
    while offset < end {
      let bytes = try read(at: offset, Int(min(end - offset, 1 << 20)))
      checksum = CRC32C.checksum(bytes.span.bytes, continuing: checksum)
      offset += Int64(bytes.count)
    }
    guard checksum == trailer.checksum else { throw footerIsDamaged(trailer) }
  }

  private func footerIsDamaged(_ trailer: PackFooter.Trailer) -> BlobStorageError {
    BlobStorageError(
      .corrupted, "The footer of pack \(name) does not match its checksum.", pack: "\(name)",
      offset: trailer.footerOffset)
  }

  private func decode(
    _ stored: [UInt8], _ block: PackFooter.BlockHeader
  ) throws(BlobStorageError) -> [UInt8] {
    guard let kind = CodecKind(rawValue: block.codecNumber) else {
      throw BlobStorageError(
        .unsupportedFormat, "The footer of pack \(name) uses an unknown codec.", pack: "\(name)")
    }
    return try [UInt8](filling: block.plainByteCount) { (target) throws(BlobStorageError) in
      try codecs.withDecoder { (decoder) throws(BlobStorageError) in
        try decoder.decode(stored.span.bytes, by: kind, into: target)
      }
      return target.count
    }
  }

  // MARK: Record by record

  /// Calls `body` with the records from `start` on, where a record begins, and returns where the last whole one ends.
  ///
  /// The bytes of chunks are not looked at: reading them finds out.
  func scanTail(
    _ header: PackHeader, from start: Int64, _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Int64 {
    var window = Window(file: file, end: byteCount, trustsLengths: trustsLengths)
    var offset = start
    while offset < byteCount {
      do throws(BlobStorageError) {
        let record = try wholeRecord(at: offset, &window, header, readsPayload: false)
        guard offset + Int64(record.byteCount) <= byteCount else { return offset }
        try body(record)
        offset += Int64(record.byteCount)
      } catch {
        guard error.code == .corrupted else { throw error }
        return offset
      }
    }
    return offset
  }

  private func scanRecords(
    _ header: PackHeader, upTo end: Int64, isSealed: Bool,
    _ body: (PackRecord) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Outcome {
    var offset = Int64(PackHeader.byteCount)
    var gaps: [Range<Int64>] = []
    var gapStart: Int64?
    var recordCount = 0
    // Records from the first of a commit on that goes on: they count once its last is there.
    var held: [PackRecord] = []
    func handOver() throws(BlobStorageError) {
      for record in held { try body(record) }
      recordCount += held.count
      held = []
    }
    var window = Window(file: file, end: end, trustsLengths: trustsLengths)
    while offset < end {
      let record: PackRecord?
      do { record = try wholeRecord(at: offset, &window, header) } catch {
        guard error.code == .corrupted else { throw error }
        record = nil
      }
      if let record {
        if let start = gapStart {
          gaps.append(start..<offset)
          // A crash leaves nothing behind the tail it tears: this is damage, and what is left of the commit counts.
          try handOver()
        }
        gapStart = nil
        let isInCommit = !held.isEmpty
        held.append(record)
        // In a sealed pack every commit is whole.
        if isSealed || !record.continues && (record.endsCommit || !isInCommit) { try handOver() }
        offset += Int64(record.byteCount)
      } else {
        if gapStart == nil { gapStart = offset }
        // Behind damage, or in a torn tail: the next place that looks like a record of this pack at this offset.
        if !isSealed, gapStart == offset, try synced(behind: offset, &window, header) <= offset { break }
        guard let next = try window.next(RecordHeader.mark, from: offset + 1) else { break }
        offset = next
      }
    }
    // What follows the last whole record of a sealed pack is damage; of any other it is a tail that was torn.
    var endOffset = end
    if let start = gapStart {
      if isSealed { gaps.append(start..<end) } else { endOffset = start }
    }
    if let first = held.first { endOffset = first.offset }
    return Outcome(
      header: header, isSealed: isSealed, endOffset: endOffset, recordCount: recordCount, gaps: gaps,
      lost: gaps)
  }

  /// How much of the pack was on the medium, by what whole records from `offset` on say.
  ///
  /// A power cut can keep what was written later and lose what was written before it. Only where a later record says
  /// that a place had been synced is a hole there damage; anywhere else all that follows it is a tail that was torn.
  private func synced(
    behind offset: Int64, _ window: inout Window, _ pack: PackHeader
  ) throws(BlobStorageError) -> Int64 {
    var offset = offset
    var synced: Int64 = 0
    while let next = try window.next(RecordHeader.mark, from: offset + 1) {
      offset = next
      while offset < window.end {
        do throws(BlobStorageError) {
          let record = try wholeRecord(at: offset, &window, pack)
          synced = max(synced, record.syncedByteCount)
          offset += Int64(record.byteCount)
        } catch {
          guard error.code == .corrupted else { throw error }
          break
        }
      }
    }
    return synced
  }

  /// The record at `offset`, its payload's checksum checked.
  private func wholeRecord(
    at offset: Int64, _ window: inout Window, _ pack: PackHeader, readsPayload: Bool = true
  ) throws(BlobStorageError) -> PackRecord {
    let fixed = try window.bytes(at: offset, RecordHeader.byteCount)
    let header = try bridge(fixed) { (raw) throws(BlobStorageError) in try RecordHeader(raw) }
    let headerAndMeta = try window.bytes(at: offset, RecordHeader.byteCount + header.metaByteCount)
    let payloadOffset = offset + Int64(headerAndMeta.count)
    // The header's own checksum goes first: a length from elsewhere is not followed.
    try bridge(headerAndMeta) { (raw) throws(BlobStorageError) in
      _ = try RecordHeader.verifiedMeta(raw, pack: name, offset: offset)
    }
    var payload: [UInt8] = []
    if header.payloadByteCount > 0, readsPayload || header.typeNumber == RecordType.drop.rawValue {
      payload = try window.bytes(at: payloadOffset, header.payloadByteCount + 4)
      let checksum = payload.withUnsafeBytes { raw in
        raw.loadUnaligned(fromByteOffset: header.payloadByteCount, as: UInt32.self).littleEndian
      }
      let expected = RecordHeader.payloadChecksum(
        payload.span.bytes.extracting(0..<header.payloadByteCount), after: headerAndMeta.span.bytes)
      guard expected == checksum else {
        throw BlobStorageError(
          .corrupted, "A record of pack \(name) does not match its checksum.", pack: "\(name)", offset: offset
        )
      }
      payload.removeLast(4)
    }
    return try bridge(headerAndMeta) { (raw) throws(BlobStorageError) in
      let meta = UnsafeRawBufferPointer(rebasing: raw[RecordHeader.byteCount...])
      let isDrop = header.typeNumber == RecordType.drop.rawValue
      return try bridge(isDrop ? payload : []) { (raw) throws(BlobStorageError) in
        try PackRecord(
          header: header, meta: meta, dropPayload: raw, offset: offset, algorithm: pack.digestAlgorithm)
      }
    }
  }

  private func read(at offset: Int64, _ count: Int) throws(BlobStorageError) -> [UInt8] {
    try file.bytes(at: offset, count, pack: name)
  }

  private func located<T>(
    _ offset: Int64, _ body: () throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    do { return try body() } catch {
      var error = error
      error.pack = name.description
      error.offset = offset
      error.path = file.path.string
      throw error
    }
  }
}

/// A part of a file that moves forward, so that small reads cost no system call each.
///
/// The file of a pack that is still written to may become shorter meanwhile: then it ends there.
private struct Window {
  let file: any File
  private(set) var end: Int64
  let trustsLengths: Bool
  var start: Int64 = 0
  var content: [UInt8] = []
  static let byteCount = 1 << 20

  init(file: any File, end: Int64, trustsLengths: Bool) {
    self.trustsLengths = trustsLengths
    self.file = file
    self.end = end
  }

  mutating func bytes(at offset: Int64, _ count: Int) throws(BlobStorageError) -> [UInt8] {
    guard offset + Int64(count) <= end || trustsLengths else {
      throw BlobStorageError(.corrupted, "A record runs past the end of its pack.", offset: offset)
    }
    if offset < start || offset + Int64(count) > start + Int64(content.count) {
      try move(to: offset, atLeast: count)
    }
    let first = Int(offset - start)
    guard first + count <= content.count || trustsLengths else {
      throw BlobStorageError(.corrupted, "A record runs past the end of its pack.", offset: offset)
    }
    return Array(content[first..<first + count])
  }

  /// The first place from `offset` on where `mark` stands.
  mutating func next(_ mark: [UInt8], from offset: Int64) throws(BlobStorageError) -> Int64? {
    var offset = offset
    while offset + Int64(mark.count) <= end {
      if offset < start || offset + Int64(mark.count) > start + Int64(content.count) {
        try move(to: offset, atLeast: mark.count)
        guard content.count >= mark.count else { return nil }
      }
      let first = Int(offset - start)
      for index in first...(content.count - mark.count) where content[index] == mark[0] {
        if content[index..<index + mark.count].elementsEqual(mark) { return start + Int64(index) }
      }
      offset = start + Int64(content.count - mark.count + 1)
    }
    return nil
  }

  private mutating func move(to offset: Int64, atLeast count: Int) throws(BlobStorageError) {
    let wanted = Int(min(end - offset, Int64(max(Self.byteCount, count))))
    content = try file.bytesThere(at: offset, wanted)
    start = offset
    if content.count < wanted { end = offset + Int64(content.count) }
  }
}

extension File {
  /// Exactly `count` bytes; a file that ends before is damaged.
  func bytes(at offset: Int64, _ count: Int, pack: PackName?) throws(BlobStorageError) -> [UInt8] {
    let bytes = try bytesThere(at: offset, count)
    guard bytes.count == count else {
      throw BlobStorageError(
        .corrupted, "A pack ends at \(offset + Int64(bytes.count)), before what was expected there.",
        pack: pack?.description, offset: offset, path: path.string)
    }
    return bytes
  }
}
