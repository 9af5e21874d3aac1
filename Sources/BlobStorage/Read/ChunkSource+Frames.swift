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
    if usesKept, let frame = frames.frame(key) { return try frame.bytes(of: digest) }
    // To decode a whole frame takes too long for that.
    if case .cached = access { throw BlobStorageError(.notCached, "Its frame has to be decoded.") }
    let bytes: Bytes
    do throws(BlobStorageError) {
      let frame = try frame(at: offset, place, access, digest.algorithm)
      bytes = try frame.bytes(of: digest)
      frames.insert(key, frame)
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

  /// What may have to be fetched anew of a pack in which a chunk was found damaged.
  func damagedRange(_ row: ChunkRow) -> Range<Int64> {
    guard let start = row.frameOffset else { return row.storedRange }
    return start..<start + Int64(Limits.recordMetaByteCountMax + Limits.frameByteCountMax)
  }

  private func frame(
    at offset: Int64, _ place: Located, _ access: Access, _ algorithm: Digest.Algorithm
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
        plain: try decodedFrame(payload.bytes, record.codecNumber, record.plainByteCount),
        members: record.members.lazy.map { ($0.digest, $0.plainByteCount) })
    }
  }

  /// The plain bytes of a frame's payload, not yet compared with digests.
  func decodedFrame(
    _ payload: RawSpan, _ codecNumber: UInt8, _ plainByteCount: Int
  ) throws(BlobStorageError) -> [UInt8] {
    guard codecNumber == CodecKind.zstd.rawValue else {
      throw BlobStorageError(.unsupportedFormat, "codec \(codecNumber) of a frame is not known to this build")
    }
    return try [UInt8](filling: plainByteCount) { (target) throws(BlobStorageError) in
      try codecs.withDecoder { (decoder) throws(BlobStorageError) in
        try decoder.decode(payload, by: .zstd, into: target)
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
        try chunks.decodedFrame(payload.span.bytes, chunk.codecNumber, member.frameByteCount))
    } catch { plain = .failure(error) }
    last = (record.recordRange.lowerBound, plain)
    return try plain.get()
  }
}
