/// Reading members of frames. A decoded frame is kept for its other members.
extension ChunkSource {
  /// The plain bytes of a member, verified.
  ///
  /// - Parameters:
  ///   - offset: where the frame's record begins.
  ///   - usesKept: whether a frame that was read before will do.
  func member<Bytes: FilledBytes>(
    _ digest: Digest, ofFrameAt offset: Int64, _ place: Located, _ access: Access, usesKept: Bool
  ) throws(BlobStorageError) -> Bytes {
    let key = FrameCache.Key(pack: place.pack, offset: offset)
    // To decode a frame takes too long for a thread that must not wait.
    if access == .cached {
      guard let frame = frames.kept(key, holding: digest) else {
        throw BlobStorageError(.notCached, "Its frame has to be decoded.")
      }
      return try frame.bytes(of: digest)
    }
    let bytes: Bytes
    do throws(BlobStorageError) {
      if !usesKept { frames.remove(key) }
      // What is wanted in order, or again, is decoded as a whole.
      let frame = try frames.frame(key, holding: digest) { (isFirst) throws(BlobStorageError) in
        let last = isFirst && access != .sequential ? digest : nil
        return try decodedFrame(at: offset, place, access, digest.algorithm, upTo: last)
      }
      bytes = try frame.bytes(of: digest)
    } catch {
      guard error.code == .corrupted else { throw error }
      frames.remove(key)
      // The footer says the same as a damaged header or meta.
      guard let record = try otherCopies.footerRecord(digest, in: place.pack, at: place.row.place.offset)
      else {
        throw error
      }
      var reader = FrameReader(place.file, place.pack, self)
      return try reader.bytes(of: record)
    }
    return bytes
  }

  /// In which frame a chunk lies.
  struct FramePlace: Equatable, Sendable {
    fileprivate var pack: UInt32
    fileprivate var offset: Int64
  }

  /// The frames of chunks, as of one snapshot; nil for a chunk that is stored alone, or is not there.
  func framePlaces(of digests: [Digest]) throws(BlobStorageError) -> [FramePlace?] {
    try catalog.read { (view) throws(BlobStorageError) in
      try digests.map { (digest) throws(BlobStorageError) -> FramePlace? in
        guard let row = try view.chunkRow(digest), let offset = row.frameOffset else { return nil }
        return FramePlace(pack: row.place.pack, offset: offset)
      }
    }
  }

  /// What may have to be fetched anew of a pack in which a chunk was found damaged.
  func damagedRange(_ row: ChunkRow) -> Range<Int64> {
    guard let start = row.frameOffset else { return row.storedRange }
    return start..<start + Int64(Limits.recordMetaByteCountMax + Limits.frameByteCountMax)
  }

  /// - Parameter last: the member with which decoding may end; nil for all of the frame.
  private func decodedFrame(
    at offset: Int64, _ place: Located, _ access: Access, _ algorithm: Digest.Algorithm, upTo last: Digest?
  ) throws(BlobStorageError) -> Frame {
    guard offset >= Int64(PackHeader.byteCount) else {
      throw BlobStorageError(.corrupted, "its frame can lie nowhere")
    }
    func fetched(_ count: Int) throws(BlobStorageError) -> [UInt8] {
      try [UInt8](filling: count) { (target) throws(BlobStorageError) in
        try self.fetch(place.file, offset, into: target, access)
        return target.count
      }
    }
    let header = try bridge(try fetched(RecordHeader.byteCountMax)) {
      (raw) throws(BlobStorageError) in try RecordHeader(raw)
    }
    guard header.typeNumber == RecordType.frame.rawValue,
      header.payloadByteCount <= Limits.frameByteCountMax
    else { throw BlobStorageError(.corrupted, "another record is in the place of its frame") }
    return try bridge(try fetched(header.recordByteCount)) { (raw) throws(BlobStorageError) in
      // Digests guard the payload.
      let meta = try header.verifiedMeta(raw, pack: place.pack, offset: offset)
      let record = try FrameRecord(
        meta: meta, payloadByteCount: header.payloadByteCount, algorithm: algorithm)
      let start = header.byteCount + header.metaByteCount
      let payload = UnsafeRawBufferPointer(rebasing: raw[start..<start + header.payloadByteCount])
      return Frame(
        plain: try plainBytes(
          payload.bytes, record.codecNumber, record.plainByteCount, upTo: last.flatMap(record.end)),
        members: record.members.lazy.map { ($0.digest, $0.plainByteCount) })
    }
  }

  /// The plain bytes of a frame's payload, not yet compared with digests.
  ///
  /// - Parameter end: how many of them are wanted at least; nil for all.
  func plainBytes(
    _ payload: RawSpan, _ codecNumber: UInt8, _ plainByteCount: Int, upTo end: Int? = nil
  ) throws(BlobStorageError) -> [UInt8] {
    guard codecNumber == CodecKind.zstd.rawValue else {
      throw BlobStorageError(.unsupportedFormat, "this build does not know codec \(codecNumber) of a frame")
    }
    // A zstd block has 128 KiB: near the end, all of it is decoded in any case, and a window would only cost copying.
    let count = end.flatMap { $0 <= plainByteCount - (128 << 10) ? $0 : nil } ?? plainByteCount
    return try [UInt8](filling: count) { (target) throws(BlobStorageError) in
      try codecs.withDecoder { (decoder) throws(BlobStorageError) in
        if count < plainByteCount {
          try decoder.decodeBeginning(payload, into: target)
        } else {
          try decoder.decode(payload, by: .zstd, into: target)
        }
      }
      return target.count
    }
  }
}

/// Reads members of frames as a scan of their pack finds them; it decodes each frame once if they come in order.
///
/// What counts is what the entries say, as for other records: the meta may be damaged in the pack and be whole in the
/// footer.
struct FrameReader {
  private let file: any File
  private let pack: PackName
  private let chunks: ChunkSource
  private var last: (offset: Int64, plain: Result<[UInt8], BlobStorageError>)?

  init(_ file: any File, _ pack: PackName, _ chunks: ChunkSource) {
    self.file = file
    self.pack = pack
    self.chunks = chunks
  }

  /// The plain bytes of a member, compared with its digest.
  mutating func bytes<Bytes: FilledBytes>(of record: PackRecord) throws(BlobStorageError) -> Bytes {
    guard case .chunk(let chunk) = record.content, let member = record.member else {
      preconditionFailure("the record is a member of a frame")
    }
    return try Frame.bytes(
      member.start..<member.start + chunk.plainByteCount, of: try plain(chunk, member, of: record),
      chunk.digest)
  }

  private mutating func plain(
    _ chunk: ChunkRecord, _ member: PackRecord.Member, of record: PackRecord
  ) throws(BlobStorageError) -> [UInt8] {
    if let last, last.offset == record.recordRange.lowerBound { return try last.plain.get() }
    let plain: Result<[UInt8], BlobStorageError>
    do throws(BlobStorageError) {
      let payload = try file.bytes(at: record.payloadOffset, record.payloadByteCount, pack: pack)
      plain = .success(
        try chunks.plainBytes(payload.span.bytes, chunk.codecNumber, member.frameByteCount))
    } catch { plain = .failure(error) }
    last = (record.recordRange.lowerBound, plain)
    return try plain.get()
  }
}
