/// Appends records to one pack. One thread at a time; `synchronize` may run beside an append.
///
/// Write order: records, buffered and in order; then, once sealed, the footer; then the sync. A crash leaves whole
/// records and at most one torn tail. After the first failed write or sync nothing is written any more.
package final class PackWriter {
  package let header: PackHeader
  package let file: any File
  /// Bytes of header and records, those still in the buffer included.
  package private(set) var byteCount = Int64(PackHeader.byteCount)
  package private(set) var recordCount = 0
  /// Bytes that the system has.
  package private(set) var writtenByteCount = Int64(PackHeader.byteCount)
  /// Bytes for which there is space already; what is not used is given back when the pack is sealed.
  package private(set) var reservedByteCount: Int64 = 0
  /// Why nothing can be written any more.
  package private(set) var failure: BlobStorageError?
  /// How many zeros to write behind the records whenever these have come to the end of those before; 0 for none.
  ///
  /// Syncing overwritten bytes takes ext4 less than half of the time of syncing a file that has grown, because the
  /// file's length does not change. To readers the zeros are a torn tail.
  package var fillByteCount = 0

  /// Whether sealing syncs the pack. A pack that is to be published need not be synced: no durable call has returned
  /// yet, and a process that finds it after a power cut checks it.
  package var synchronizes = true

  private var buffer = GrowingBuffer()
  private var blocks = ByteWriter(capacity: 4_096)
  private var block = ByteWriter(capacity: 4_096)
  private var footerPlainByteCount = 0
  private let codecs: CodecPool
  /// Where the zeros end.
  private var filledByteCount: Int64 = 0
  /// Bytes whose writing to the medium has begun.
  private var begunByteCount: Int64 = 0
  private static let bufferByteCountTarget = 1 << 20
  /// Bytes after which the system is asked to begin writing, so that a sync finds most of a pack on the medium.
  private static let begunByteCountStep: Int64 = 8 << 20

  package var name: PackName { header.name }

  /// Creates the pack that `header` says.
  package init(header: PackHeader, backend: any Backend, codecs: CodecPool) throws(BlobStorageError) {
    self.header = header
    self.codecs = codecs
    file = try backend.createPack(header.name, header: header.encoded())
  }

  /// Goes on with a pack whose records, all of them whole, end at `byteCount`; the footer's part for them follows
  /// through `list`.
  package init(adopting file: any File, header: PackHeader, byteCount: Int64, codecs: CodecPool) {
    self.header = header
    self.file = file
    self.codecs = codecs
    self.byteCount = byteCount
    writtenByteCount = byteCount
  }

  /// Appends a record; the system has it after `flush`. Returns it as a reader would find it.
  ///
  /// - Parameter continues: whether a ref or drop is followed by another of the same commit. Until the last of them
  ///   is in the pack, a recovery takes none.
  package func append(
    _ content: PackRecord.Content,
    payload: RawSpan = RawSpan(),
    continues: Bool = false
  ) throws(BlobStorageError) -> PackRecord {
    try check()
    let record = PackRecord(
      content: content, offset: byteCount, metaByteCount: content.metaByteCount,
      payloadByteCount: payload.byteCount, continues: continues)
    let headerAndMeta = record.encode(payload, in: name, into: buffer.add(byteCount: record.byteCount))
    byteCount += Int64(record.byteCount)
    try list(headerAndMeta.bytes, dropPayload: content.type == .drop ? payload : RawSpan())
    if buffer.count >= Self.bufferByteCountTarget { try flush() }
    return record
  }

  /// Reserves space for the pack up to that length, as far as the file system can.
  package func reserve(byteCount: Int64) throws(BlobStorageError) {
    guard byteCount > reservedByteCount else { return }
    try file.reserve(byteCount: byteCount)
    reservedByteCount = byteCount
  }

  /// Takes a record into the footer.
  package func list(
    _ headerAndMeta: RawSpan, dropPayload: RawSpan
  ) throws(BlobStorageError) {
    recordCount += 1
    headerAndMeta.withUnsafeBytes { block.raw($0) }
    dropPayload.withUnsafeBytes { block.raw($0) }
    if block.bytes.count >= PackFooter.BlockHeader.plainByteCountTarget { try endBlock() }
  }

  /// Hands all records to the system: they survive the death of the process.
  package func flush() throws(BlobStorageError) {
    try check()
    guard buffer.count > 0 else { return }
    do {
      try file.write(buffer.bytes, at: writtenByteCount)
    } catch {
      failure = error
      throw error
    }
    writtenByteCount += Int64(buffer.count)
    if writtenByteCount - begunByteCount >= Self.begunByteCountStep {
      file.beginWriteback(from: begunByteCount, byteCount: writtenByteCount - begunByteCount)
      begunByteCount = writtenByteCount
    }
    buffer.removeAll(keepingAtMost: 4 * Self.bufferByteCountTarget)
    fill()
  }

  private func fill() {
    // A pack with reserved space has its blocks already, and keeps them for its footer.
    guard fillByteCount > 0, reservedByteCount == 0, writtenByteCount >= filledByteCount else { return }
    do throws(BlobStorageError) {
      try file.put([UInt8](repeating: 0, count: fillByteCount), at: writtenByteCount)
      filledByteCount = writtenByteCount + Int64(fillByteCount)
    } catch {
      // The zeros are optional; sealing removes those that were written.
      filledByteCount = .max
    }
  }

  /// Notes that a sync failed: the system may have forgotten what it did not write.
  package func poison(_ cause: BlobStorageError) {
    failure = Self.syncFailure(of: name, cause)
  }

  /// The error of a session one of whose packs could not be synced.
  package static func syncFailure(of pack: PackName, _ cause: BlobStorageError) -> BlobStorageError {
    BlobStorageError(
      .poisoned,
      "Syncing pack \(pack) failed (\(cause.message)): what was written since may be lost in a power cut; "
        + "open the store anew to go on.", pack: pack.description, path: cause.path, errno: cause.errno)
  }

  /// Syncs, writes the footer and syncs again: the pack never changes again. Returns its length.
  @discardableResult
  package func seal() throws(BlobStorageError) -> Int64 {
    try flush()
    try endBlock()
    // A footer says that all before it is there: it must not reach the medium first.
    do { if synchronizes { try file.synchronize() } } catch {
      poison(error)
      throw failure ?? error
    }
    do { if filledByteCount > 0 { try file.truncate(to: byteCount) } } catch {
      failure = error
      throw error
    }
    let trailer = PackFooter.Trailer(
      name: name, recordCount: recordCount, footerOffset: byteCount, storedByteCount: blocks.bytes.count,
      plainByteCount: footerPlainByteCount, checksum: CRC32C.checksum(blocks.bytes.span.bytes))
    blocks.raw(trailer.encoded())
    do {
      try file.put(blocks.bytes, at: byteCount)
    } catch {
      failure = error
    }
    if let failure { throw failure }
    do { if synchronizes { try file.synchronize() } } catch {
      poison(error)
      throw failure ?? error
    }
    let length = byteCount + Int64(blocks.bytes.count)
    if reservedByteCount > length {
      // Best effort: what stays reserved goes with the pack.
      do { try file.truncate(to: length) } catch {}
    }
    return length
  }

  private static let encodedBlockByteCountMin = 512

  private func endBlock() throws(BlobStorageError) {
    guard !block.bytes.isEmpty else { return }
    let plain = block.bytes
    // A few records are not worth decoding them.
    let codec: CodecChoice = plain.count < Self.encodedBlockByteCountMin ? .none : .zstd
    try codecs.withEncoder { (encoder) throws(BlobStorageError) in
      try encoder.withEncoded(plain.span.bytes, by: codec) { (kind, stored) throws(BlobStorageError) in
        let header = PackFooter.BlockHeader(
          codecNumber: kind.rawValue, plainByteCount: plain.count, storedByteCount: stored.count)
        header.encode(into: &blocks)
        blocks.raw(stored)
      }
    }
    footerPlainByteCount += plain.count
    block = ByteWriter(capacity: 4_096)
  }

  private func check() throws(BlobStorageError) {
    if let failure { throw failure }
  }
}
