/// Appends records to one pack. One thread at a time uses it; its file may be synced beside an append.
///
/// Write order: records, buffered and in order. Sealing syncs them, writes the footer, and syncs again. A crash leaves
/// whole records and at most one torn tail. After the first failed write or sync it writes nothing.
package final class PackWriter {
  package let header: PackHeader
  package let file: any File
  /// Bytes of header and records, those still in the buffer included.
  package private(set) var byteCount = Int64(PackHeader.byteCount)
  package private(set) var recordCount = 0
  /// Bytes that the system has.
  package private(set) var writtenByteCount = Int64(PackHeader.byteCount)
  /// Bytes for which space is reserved. Sealing gives back what is not used.
  package private(set) var reservedByteCount: Int64 = 0
  /// The failed write or sync after which nothing is written.
  package private(set) var failure: BlobStorageError?
  /// How many zeros to write behind the records whenever they reach the end of the zeros before; 0 for none.
  ///
  /// Syncing overwritten bytes takes ext4 less than half the time of syncing a file that has grown, because the file's
  /// length does not change. Without syncs, overwriting 10 KB takes half the time of appending them, zeros included:
  /// the system allocates the pages of all zeros at once. To readers the zeros are a torn tail.
  package var fillByteCount = 0
  /// Whether the last flushes were so many and so short that zeros make the next ones faster.
  package var isOftenFlushed: Bool { shortFlushCount >= Self.shortFlushCountMin }
  private var shortFlushCount = 0
  private static let shortFlushByteCount = 32 << 10
  private static let shortFlushCountMin = 8

  private var buffer = GrowingBuffer()
  /// The finished blocks of the footer, and the content of the next one.
  private var blocks: [(header: PackFooter.BlockHeader, content: [UInt8])] = []
  private var fields = ByteWriter(capacity: 4_096)
  private var digests = ByteWriter(capacity: 4_096)
  /// Where the records of the next block begin, and where the listed records end.
  private var blockOffset = Int64(PackHeader.byteCount)
  private var listedEnd = Int64(PackHeader.byteCount)
  /// The chunks and manifests of the current commit.
  private var targets = CommitTargets()
  /// The content of its current commit record.
  private var entries = GrowingBuffer()
  private var encoder = CommitEncoder(pack: PackName(writer: 0, sequence: 0), offset: 0, synced: 0)
  private let codecs: CodecPool
  private let hasRoomAhead: () -> Bool
  /// Where the zeros end.
  private var filledByteCount: Int64 = 0
  /// Bytes whose writeback has begun.
  private var begunByteCount: Int64 = 0
  private static let bufferByteCountTarget = 1 << 20
  /// Bytes after which the system is asked to begin writeback, so that a sync finds most of a pack on the medium.
  private static let begunByteCountStep: Int64 = 8 << 20

  package var name: PackName { header.name }

  /// Creates the pack that `header` describes.
  package init(header: PackHeader, backend: any Backend, codecs: CodecPool) throws(BlobStorageError) {
    self.header = header
    self.codecs = codecs
    hasRoomAhead = { backend.hasRoomAhead }
    file = try backend.createPack(header.name, header: header.encoded())
  }

  /// Continues a pack whose records, all of them whole, end at `byteCount`. The caller lists these records in the
  /// footer with `list`.
  package init(adopting file: any File, header: PackHeader, byteCount: Int64, codecs: CodecPool) {
    self.header = header
    self.file = file
    self.codecs = codecs
    hasRoomAhead = { false }
    self.byteCount = byteCount
    writtenByteCount = byteCount
  }

  /// Appends a record; the system has it after `flush`. Returns it as a reader would find it.
  ///
  /// A ref or drop becomes a commit record. `append(commit:)` takes several.
  package func append(
    _ content: PackRecord.Content, payload: RawSpan = RawSpan(), continues: Bool = false,
    syncedByteCount: Int64 = 0
  ) throws(BlobStorageError) -> PackRecord {
    try check()
    if let entry = content.entry {
      add(entry, entry.blob.flatMap { targets.last($0) }, syncedByteCount)
      return try endRecord(CollectionOfOne(entry), continues: continues, syncedByteCount).head
    }
    guard let header = content.header(payloadByteCount: payload.byteCount) else {
      preconditionFailure("only a chunk or a manifest is left")
    }
    put(header, payload) { content.encodeMeta(into: &$0) }
    let record = PackRecord(content, offset: byteCount, header: header)
    if let target = record.target { targets.append(target) }
    try endAppending(record.byteCount, 1)
    return record
  }

  /// Appends a frame. Returns its members as a reader would find them.
  package func append(
    _ frame: FrameRecord, payload: RawSpan
  ) throws(BlobStorageError) -> OneOrMore<PackRecord> {
    try check()
    let header = frame.header(payloadByteCount: payload.byteCount)
    let members = frame.records(at: byteCount, payloadByteCount: payload.byteCount)
    put(header, payload) { frame.encodeMeta(into: &$0) }
    for case let target? in members.lazy.map(\.target) { targets.append(target) }
    try endAppending(header.recordByteCount, members.count)
    return members
  }

  /// Adds a record that is no commit record to the buffer and to the footer.
  private func put(_ header: RecordHeader, _ payload: RawSpan, meta: (inout ByteFiller) -> Void) {
    let memory = buffer.add(byteCount: header.recordByteCount)
    header.encode(payload, in: name, offset: byteCount, into: memory, meta: meta)
    list(header, UnsafeRawBufferPointer(rebasing: memory[header.byteCount...].prefix(header.metaByteCount)))
  }

  /// Appends the refs and drops of a commit, and ends it. They become one record, or several if they are long. A
  /// recovery applies none of these until the last one is in the pack.
  ///
  /// - Parameters:
  ///   - syncedByteCount: bytes of the pack that are known to be on the medium.
  ///   - body: called with each entry as a reader would find it.
  package func append(
    commit: some Collection<CommitRecord.Entry>, syncedByteCount: Int64 = 0,
    _ body: (PackRecord) -> Void
  ) throws(BlobStorageError) {
    try check()
    defer { endCommit() }
    let known = commit.count > 4 ? targets.byDigest() : nil
    var (begin, index) = (commit.startIndex, commit.startIndex)
    var memoryByteCount = 0
    while index < commit.endIndex {
      let entry = commit[index]
      let target = entry.blob.flatMap { if let known { known[$0] } else { targets.last($0) } }
      add(entry, target, syncedByteCount)
      memoryByteCount += entry.memoryByteCount
      commit.formIndex(after: &index)
      let isLast = index == commit.endIndex
      guard
        isLast || entries.count >= CommitRecord.byteCountTarget
          || memoryByteCount >= CommitRecord.memoryByteCountTarget
      else { continue }
      for record in try endRecord(
        commit[begin..<index], continues: !isLast, syncedByteCount)
      { body(record) }
      (begin, memoryByteCount) = (index, 0)
    }
  }

  /// Ends a commit: refs of later commits do not name its chunks by place.
  package func endCommit() { targets.removeAll() }

  /// Adds an entry to the current commit record.
  private func add(_ entry: CommitRecord.Entry, _ target: CommitRecord.Target?, _ syncedByteCount: Int64) {
    if entries.count == 0 { encoder = CommitEncoder(pack: name, offset: byteCount, synced: syncedByteCount) }
    var filler = ByteFiller(entries.add(byteCount: CommitEncoder.beginningByteCountMax + entry.byteCountMax))
    encoder.put(entry, target, into: &filler)
    entries.removeLast(filler.remainingByteCount)
  }

  /// Appends the current commit record, and returns its entries as a reader would find them.
  private func endRecord(
    _ added: some Collection<CommitRecord.Entry>, continues: Bool, _ syncedByteCount: Int64
  ) throws(BlobStorageError) -> OneOrMore<PackRecord> {
    defer { entries.removeAll(keepingAtMost: 2 * CommitRecord.byteCountTarget) }
    var header: RecordHeader?
    if added.count > 1 {
      let plain = UnsafeRawBufferPointer(rebasing: entries.bytes[encoder.beginningByteCount...])
      try codecs.withEncoder { (codec) throws(BlobStorageError) in
        try codec.withEncoded(plain.bytes, by: .zstd) { (kind, stored) throws(BlobStorageError) in
          // Each entry has a place of its own within the bytes of the record.
          guard kind == .zstd, stored.count >= added.count else { return }
          let content = encoder.compressedBeginning(plainByteCount: plain.count) + stored
          header = content.withUnsafeBytes { put($0, continues: continues) }
        }
      }
    }
    let written = header ?? put(entries.bytes, continues: continues)
    let range = byteCount..<byteCount + Int64(written.recordByteCount)
    if !continues { endCommit() }
    try endAppending(written.recordByteCount, added.count)
    var records: OneOrMore<PackRecord>?
    for (index, entry) in added.enumerated() {
      var record = PackRecord(.init(entry), in: range, (index, added.count))
      record.continues = continues || index < added.count - 1
      record.syncedByteCount = syncedByteCount
      if records == nil { records = OneOrMore(record) } else { records?.rest.append(record) }
    }
    guard let records else { preconditionFailure("a commit record has an entry") }
    return records
  }

  /// Adds a commit record to the buffer and to the footer.
  private func put(_ content: UnsafeRawBufferPointer, continues: Bool) -> RecordHeader {
    let isShort = content.count <= BlobLimits.recordMetaByteCountMax
    let header = RecordHeader(
      type: .commit, flags: continues ? RecordHeader.continues : 0,
      metaByteCount: isShort ? content.count : 0, payloadByteCount: isShort ? 0 : content.count)
    header.encode(
      isShort ? RawSpan() : content.bytes, in: name, offset: byteCount,
      into: buffer.add(byteCount: header.recordByteCount)
    ) { if isShort { $0.raw(content) } }
    list(header, content)
    return header
  }

  private func endAppending(_ added: Int, _ count: Int) throws(BlobStorageError) {
    byteCount += Int64(added)
    listedEnd = byteCount
    recordCount += count
    try endLongBlock()
    if buffer.count >= Self.bufferByteCountTarget { try flush() }
  }

  /// Reserves space for the pack up to that length, as far as the file system can.
  package func reserve(byteCount: Int64) throws(BlobStorageError) {
    guard byteCount > reservedByteCount else { return }
    if filledByteCount > 0 {
      // So that sealing need not truncate the pack, which would give back the space reserved for its footer.
      try file.truncate(to: writtenByteCount)
      filledByteCount = 0
    }
    do throws(BlobStorageError) { try file.reserve(byteCount: byteCount) } catch {
      // A file system without room for all may have reserved a part, which the disk lacks from then on.
      reservedByteCount = 0
      do throws(BlobStorageError) { try file.truncate(to: writtenByteCount) } catch {}
      throw error
    }
    reservedByteCount = byteCount
  }

  /// Lists a record of the pack in the footer.
  ///
  /// - Parameters:
  ///   - bytes: its meta, followed by the payload of a commit record.
  ///   - count: the number of entries of a commit record or members of a frame; 1 for others.
  package func list(_ header: RecordHeader, _ bytes: RawSpan, count: Int = 1) throws(BlobStorageError) {
    bytes.withUnsafeBytes { list(header, $0) }
    recordCount += count
    listedEnd += Int64(header.recordByteCount)
    try endLongBlock()
  }

  private func list(_ header: RecordHeader, _ bytes: UnsafeRawBufferPointer) {
    header.list(into: &fields)
    PackFooter.list(bytes, of: header, into: &fields, digests: &digests)
  }

  /// Flushes all records to the system: they survive the death of the process.
  package func flush() throws(BlobStorageError) {
    try check()
    guard buffer.count > 0 else { return }
    try ending { () throws(BlobStorageError) in try file.write(buffer.bytes, at: writtenByteCount) }
    let count = buffer.count
    writtenByteCount += Int64(count)
    shortFlushCount = count <= Self.shortFlushByteCount ? shortFlushCount + 1 : 0
    if writtenByteCount - begunByteCount >= Self.begunByteCountStep {
      file.beginWriteback(from: begunByteCount, byteCount: writtenByteCount - begunByteCount)
      begunByteCount = writtenByteCount
    }
    buffer.removeAll(keepingAtMost: 4 * Self.bufferByteCountTarget)
    // A longer flush would not land on the zeros.
    if count <= fillByteCount { fill() }
  }

  /// Few enough to stay in the processor's cache.
  private static let zeros = [UInt8](repeating: 0, count: 256 << 10)

  private func fill() {
    // A pack with reserved space has its blocks already, and keeps them for its footer.
    guard fillByteCount > 0, reservedByteCount == 0, writtenByteCount >= filledByteCount, hasRoomAhead()
    else {
      return
    }
    do throws(BlobStorageError) {
      for start in stride(from: 0, to: fillByteCount, by: Self.zeros.count) {
        let count = min(Self.zeros.count, fillByteCount - start)
        let zeros = Self.zeros.span.bytes.extracting(first: count)
        try zeros.withUnsafeBytes { (zeros) throws(BlobStorageError) in
          try file.write(zeros, at: writtenByteCount + Int64(start))
        }
      }
      filledByteCount = writtenByteCount + Int64(fillByteCount)
    } catch {
      // The zeros are optional. Those that were written take room from other files, until sealing removes them at the
      // latest.
      filledByteCount = .max
      do throws(BlobStorageError) { try file.truncate(to: writtenByteCount) } catch {}
    }
  }

  /// Records a failed sync: the system may have forgotten what it did not write.
  package func poison(_ cause: BlobStorageError) {
    failure = Self.syncFailure(of: name, cause)
  }

  /// The error of a session that could not sync one of its packs.
  package static func syncFailure(of pack: PackName, _ cause: BlobStorageError) -> BlobStorageError {
    BlobStorageError(
      .poisoned,
      "Syncing pack \(pack) failed (\(cause.message)): recent changes may be lost in a power cut; "
        + "open the store again to continue.", pack: pack.description, path: cause.path, errno: cause.errno)
  }

  /// Whether the pack's file has another name: a copy of the store that hard links share would change with it.
  package func isShared() throws(BlobStorageError) -> Bool { try file.status().linkCount > 1 }

  /// Whether nothing waits in the buffer.
  package var isFlushed: Bool { buffer.count == 0 }

  /// Syncs, writes the footer and syncs again: the pack never changes again. Returns its length.
  ///
  /// - Parameter synchronizes: false for a pack that is published before it counts. Then nothing is synced.
  /// - Throws: `sharedFile` for a pack that must not change any more. A recovery ends it in a file of its own.
  @discardableResult
  package func seal(synchronizes: Bool = true) throws(BlobStorageError) -> Int64 {
    try flush()
    if synchronizes, try isShared() {
      throw BlobStorageError(
        .sharedFile, "Its file has another name, in a copy of the store.", pack: name.description)
    }
    try endBlock()
    // A footer says that everything before it is there, so it must not reach the medium first.
    if synchronizes { try synchronize() }
    let footer = footer()
    try ending { () throws(BlobStorageError) in
      if filledByteCount > 0 { try file.truncate(to: byteCount) }
      try file.put(footer, at: byteCount)
    }
    try check()
    if synchronizes { try synchronize() }
    let length = byteCount + Int64(footer.count)
    if reservedByteCount > length {
      // Best effort: space that stays reserved goes with the pack.
      do { try file.truncate(to: length) } catch {}
    }
    return length
  }

  /// All blocks, and the trailer.
  private func footer() -> [UInt8] {
    var bytes = ByteWriter(capacity: 4_096)
    for (header, content) in blocks {
      bytes.raw(
        header.encoded(
          content: content.span.bytes, pack: name, offset: byteCount + Int64(bytes.bytes.count)))
      bytes.raw(content)
    }
    let trailer = PackFooter.Trailer(
      name: name, recordCount: recordCount, footerOffset: byteCount, storedByteCount: bytes.bytes.count)
    bytes.raw(trailer.encoded())
    return bytes.bytes
  }

  private func endLongBlock() throws(BlobStorageError) {
    if max(fields.bytes.count, digests.bytes.count) >= PackFooter.BlockHeader.plainByteCountTarget {
      try endBlock()
    }
  }

  private static let encodedBlockByteCountMin = 512

  private func endBlock() throws(BlobStorageError) {
    guard !fields.bytes.isEmpty else { return }
    let plain = fields.bytes
    // For a few records, decoding costs more than it saves.
    let codec: CodecChoice = plain.count < Self.encodedBlockByteCountMin ? .none : .zstd
    try codecs.withEncoder { (encoder) throws(BlobStorageError) in
      try encoder.withEncoded(plain.span.bytes, by: codec) { (kind, stored) throws(BlobStorageError) in
        let header = PackFooter.BlockHeader(
          codecNumber: kind.rawValue, plainByteCount: plain.count, storedByteCount: stored.count,
          digestsByteCount: digests.bytes.count, recordOffset: blockOffset)
        blocks.append((header, stored + digests.bytes))
      }
    }
    blockOffset = listedEnd
    fields = ByteWriter(capacity: 4_096)
    digests = ByteWriter(capacity: 4_096)
  }

  private func check() throws(BlobStorageError) {
    if let failure { throw failure }
  }

  /// Runs `body`, whose failure is the end of writing.
  private func ending(_ body: () throws(BlobStorageError) -> Void) throws(BlobStorageError) {
    do { try body() } catch {
      failure = error
      throw error
    }
  }

  private func synchronize() throws(BlobStorageError) {
    do { try file.synchronize() } catch {
      poison(error)
      throw failure ?? error
    }
  }
}
