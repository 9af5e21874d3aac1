/// Reads members of frames, and keeps decoded frames for their other members.
extension ChunkSource {
  /// The plain bytes of a member, verified.
  ///
  /// - Parameters:
  ///   - offset: where the frame's record begins.
  ///   - usesKept: whether a frame in the cache may be used.
  func member<Bytes: FilledBytes>(
    _ digest: BlobDigest, ofFrameAt offset: Int64, _ place: Located, _ access: Access, usesKept: Bool
  ) throws(BlobStorageError) -> Bytes {
    let key = FrameCache.Key(pack: place.pack, offset: offset)
    // Decoding a frame takes too long for a thread that must not wait.
    if access == .cached {
      guard let frame = frames.kept(key, holding: digest) else {
        throw BlobStorageError(.notCached, "Its frame has to be decoded.")
      }
      return try frame.bytes(of: digest)
    }
    let bytes: Bytes
    do throws(BlobStorageError) {
      if !usesKept { frames.remove(key) }
      // A sequential or repeated read decodes the whole frame.
      let frame = try frames.frame(key, holding: digest) { (isFirst) throws(BlobStorageError) in
        let last = isFirst && access != .sequential ? digest : nil
        return try decodedFrame(at: offset, place, access, digest.algorithm, upTo: last)
      }
      bytes = try frame.bytes(of: digest)
    } catch {
      guard error.code == .corrupted else { throw error }
      frames.remove(key)
      // The footer has a copy of a damaged header or meta.
      guard let record = try otherCopies.footerRecord(digest, of: key) else { throw error }
      var reader = RecordReader(place.file, place.pack, self)
      return Bytes(copying: try reader.plain(of: record))
    }
    return bytes
  }

  /// The frame that a chunk is a member of.
  struct FramePlace: Equatable, Sendable {
    private let pack: UInt32
    private let offset: Int64

    /// Nil for a chunk that is stored alone.
    init?(_ row: ChunkRow) {
      guard let offset = row.frameOffset else { return nil }
      (pack, self.offset) = (row.place.pack, offset)
    }
  }

  /// The frames of chunks, as of one snapshot; nil for a chunk that is stored alone or missing.
  func framePlaces(of digests: [BlobDigest]) throws(BlobStorageError) -> [FramePlace?] {
    try catalog.read { (view) throws(BlobStorageError) in
      try digests.map { (digest) throws(BlobStorageError) -> FramePlace? in
        try view.chunkRow(digest).flatMap(FramePlace.init)
      }
    }
  }

  /// The range of a pack to fetch again after a chunk in it was found damaged.
  func damagedRange(_ row: ChunkRow) -> Range<Int64> {
    guard let start = row.frameOffset else { return row.storedRange }
    return start..<start + Int64(BlobLimits.recordMetaByteCountMax + BlobLimits.frameByteCountMax)
  }

  /// - Parameter last: the last member that must be decoded; nil for the whole frame.
  private func decodedFrame(
    at offset: Int64, _ place: Located, _ access: Access, _ algorithm: BlobDigest.Algorithm,
    upTo last: BlobDigest?
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
      header.payloadByteCount <= BlobLimits.frameByteCountMax
    else { throw BlobStorageError(.corrupted, "another record is in the place of its frame") }
    return try bridge(try fetched(header.recordByteCount)) { (raw) throws(BlobStorageError) in
      // Digests of the members guard the payload.
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
  /// - Parameter end: the minimum number of bytes to decode; nil for all.
  func plainBytes(
    _ payload: RawSpan, _ codecNumber: UInt8, _ plainByteCount: Int, upTo end: Int? = nil
  ) throws(BlobStorageError) -> [UInt8] {
    guard codecNumber == CodecKind.zstd.rawValue else {
      throw BlobStorageError(.unsupportedFormat, "this build does not know codec \(codecNumber) of a frame")
    }
    // Checked even if only the beginning is decoded: a verification must find what a get would refuse.
    guard ZstdDecoder.windowByteCount(payload) <= BlobLimits.frameByteCountMax else {
      throw .undecodable(.zstd, "its window is longer than \(BlobLimits.frameByteCountMax) bytes")
    }
    // A zstd block has 128 KiB. Near the end, all of it is decoded in any case, and a window would only cost copying.
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
