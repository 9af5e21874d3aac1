/// Reads the chunks that a scan of a pack finds. Decodes each frame once if its members come in order.
///
/// Relies on the scanned records, because a header or meta that is damaged in the pack may be intact in the footer.
struct RecordReader {
  private let file: any File
  private let pack: PackName
  private let chunks: ChunkSource
  private var frame: (offset: Int64, plain: Result<[UInt8], BlobStorageError>)?

  init(_ file: any File, _ pack: PackName, _ chunks: ChunkSource) {
    self.file = file
    self.pack = pack
    self.chunks = chunks
  }

  /// The plain bytes of a chunk, compared with its digest.
  ///
  /// - Parameters:
  ///   - base: the plain bytes of the chunk's base.
  ///   - checksPayload: whether the stored bytes must match their checksum, too.
  mutating func plain(
    of record: PackRecord, base: [UInt8]? = nil, checksPayload: Bool = true
  ) throws(BlobStorageError) -> [UInt8] {
    guard case .chunk(let chunk) = record.content else { preconditionFailure("the record is a chunk") }
    if let member = record.member {
      return try Frame.bytes(
        member.start..<member.start + chunk.plainByteCount, of: try plain(chunk, member, of: record),
        chunk.digest)
    }
    return try withPayload(of: record, isChecked: checksPayload) { (payload) throws(BlobStorageError) in
      try chunks.decoded(payload.bytes, chunk, base: base)
    }
  }

  private mutating func plain(
    _ chunk: ChunkRecord, _ member: PackRecord.Member, of record: PackRecord
  ) throws(BlobStorageError) -> [UInt8] {
    if let frame, frame.offset == record.recordRange.lowerBound { return try frame.plain.get() }
    let plain: Result<[UInt8], BlobStorageError>
    do throws(BlobStorageError) {
      let payload = try file.bytes(at: record.payloadOffset, record.payloadByteCount, pack: pack)
      plain = .success(
        try chunks.plainBytes(payload.span.bytes, chunk.codecNumber, member.frameByteCount))
    } catch { plain = .failure(error) }
    frame = (record.recordRange.lowerBound, plain)
    return try plain.get()
  }

  /// Calls `body` with the stored bytes of a manifest, or of a chunk that is not a member. If `isChecked`, verifies
  /// their checksum first.
  func withPayload<T>(
    of record: PackRecord, isChecked: Bool = true,
    _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> T
  ) throws(BlobStorageError) -> T {
    let bytes = try file.bytes(at: record.offset, record.byteCount, pack: pack)
    return try bridge(bytes) { (raw) throws(BlobStorageError) in
      try body(isChecked ? try record.verifiedPayload(raw, in: pack) : record.payload(of: raw))
    }
  }

  /// The error for a caller that needs a chunk that cannot be read.
  func unreadable(_ record: PackRecord, _ error: BlobStorageError) -> BlobStorageError {
    guard case .chunk(let chunk) = record.content else { return error }
    return BlobStorageError(
      error.code,
      "Chunk \(chunk.digest) in pack \(pack) at \(record.offset): \(error.message): run verify.",
      digest: chunk.digest, pack: pack.description, offset: record.offset, path: error.path,
      errno: error.errno)
  }
}
