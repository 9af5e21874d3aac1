/// A record as it was found in a pack: where it lies, and what it says.
package struct PackRecord: Sendable {
  /// What a record says. Unknown records that may be skipped are `.skipped`.
  package enum Content: Sendable, RecordMeta {
    case chunk(ChunkRecord)
    case manifest(ManifestRecord)
    case ref(RefRecord)
    case drop(DropRecord)
    case skipped

    /// Nil for a record that was skipped.
    package var type: RecordType? {
      switch self {
      case .chunk: .chunk
      case .manifest: .manifest
      case .ref: .ref
      case .drop: .drop
      case .skipped: nil
      }
    }

    /// 0 for a record that was skipped.
    package var metaByteCount: Int {
      switch self {
      case .chunk(let chunk): chunk.metaByteCount
      case .manifest(let manifest): manifest.metaByteCount
      case .ref(let ref): ref.metaByteCount
      case .drop(let drop): drop.metaByteCount
      case .skipped: 0
      }
    }

    package func encodeMeta(into filler: inout ByteFiller) {
      switch self {
      case .chunk(let chunk): chunk.encodeMeta(into: &filler)
      case .manifest(let manifest): manifest.encodeMeta(into: &filler)
      case .ref(let ref): ref.encodeMeta(into: &filler)
      case .drop(let drop): drop.encodeMeta(into: &filler)
      case .skipped: break
      }
    }

    /// The payload that follows from what the record says: of a ref or a drop.
    package var ownPayload: [UInt8] {
      if case .drop(let drop) = self { drop.encodedPayload() } else { [] }
    }
  }

  package var content: Content
  /// Where the record begins in its pack.
  package var offset: Int64
  package var metaByteCount: Int
  package var payloadByteCount: Int
  /// Whether the commit that the record is part of goes on with the next ref or drop of the pack.
  package var continues: Bool

  /// Bytes of the whole record.
  package var byteCount: Int {
    RecordHeader.recordByteCount(metaByteCount: metaByteCount, payloadByteCount: payloadByteCount)
  }

  /// Bytes of the pack that were known to be on the medium when the record was appended; 0 if it does not say.
  package var syncedByteCount: Int64 {
    switch content {
    case .ref(let ref): Int64(ref.syncedByteCount)
    case .drop(let drop): Int64(drop.syncedByteCount)
    case .chunk, .manifest, .skipped: 0
    }
  }

  /// Whether a commit can end with it.
  package var endsCommit: Bool {
    switch content {
    case .ref, .drop: !continues
    case .chunk, .manifest, .skipped: false
    }
  }

  package init(
    content: Content, offset: Int64, metaByteCount: Int, payloadByteCount: Int, continues: Bool = false
  ) {
    self.content = content
    self.continues = continues
    self.offset = offset
    self.metaByteCount = metaByteCount
    self.payloadByteCount = payloadByteCount
  }

  /// Its header; nil for a record that was skipped.
  private var header: RecordHeader? {
    content.type.map {
      RecordHeader(
        type: $0, flags: continues ? RecordHeader.continues : 0, metaByteCount: metaByteCount,
        payloadByteCount: payloadByteCount)
    }
  }

  /// Header and meta as they stand in the pack `name`; nil for a record that was skipped.
  package func headerAndMeta(in name: PackName) -> [UInt8]? {
    header?.encoded(meta: content.encodedMeta(), pack: name, offset: offset)
  }

  /// Puts header, meta, payload and the payload's checksum into memory of their length, as they stand in the pack
  /// `name`. Returns header and meta.
  func encode(
    _ payload: RawSpan, in name: PackName, into memory: UnsafeMutableRawBufferPointer
  ) -> UnsafeRawBufferPointer {
    guard let header else { preconditionFailure("what was skipped cannot be written") }
    precondition(payload.byteCount == payloadByteCount && memory.count == byteCount)
    let headerAndMeta = UnsafeMutableRawBufferPointer(
      rebasing: memory[..<(RecordHeader.byteCount + metaByteCount)])
    header.encode(pack: name, offset: offset, into: headerAndMeta) { content.encodeMeta(into: &$0) }
    let start = UnsafeRawBufferPointer(headerAndMeta)
    if !payload.isEmpty {
      var rest = ByteFiller(UnsafeMutableRawBufferPointer(rebasing: memory[start.count...]))
      payload.withUnsafeBytes { rest.raw($0) }
      rest.integer(RecordHeader.payloadChecksum(payload, after: start.bytes))
    }
    return start
  }

  /// The payload of the record, which lies as `bytes` in the pack `name`.
  ///
  /// The payload's checksum goes on from that of header and meta. These may be damaged in `bytes`: what counts is what
  /// the record says.
  package func verifiedPayload(
    _ bytes: UnsafeRawBufferPointer, in name: PackName
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    guard bytes.count == byteCount, let headerAndMeta = headerAndMeta(in: name) else {
      throw BlobStorageError(.corrupted, "A record has not the length that was expected.")
    }
    let payload = payload(of: bytes)
    if payload.isEmpty { return payload }
    let checksum = bytes.loadUnaligned(fromByteOffset: byteCount - 4, as: UInt32.self).littleEndian
    let expected = RecordHeader.payloadChecksum(payload.bytes, after: headerAndMeta.span.bytes)
    guard expected == checksum else {
      throw BlobStorageError(.corrupted, "The stored bytes of a record do not match their checksum.")
    }
    return payload
  }

  /// The payload of the record, which lies as `bytes` in its pack, its checksum not checked.
  package func payload(of bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
    let start = RecordHeader.byteCount + metaByteCount
    return UnsafeRawBufferPointer(rebasing: bytes[start..<start + payloadByteCount])
  }

  /// Decodes a record whose header and meta have been checked.
  ///
  /// - Parameter dropPayload: a drop's payload; empty for every other record, whose payload is not looked at.
  package init(
    header: RecordHeader, meta: UnsafeRawBufferPointer, dropPayload: UnsafeRawBufferPointer, offset: Int64,
    algorithm: Digest.Algorithm
  ) throws(BlobStorageError) {
    self.offset = offset
    metaByteCount = header.metaByteCount
    payloadByteCount = header.payloadByteCount
    let type = RecordType(rawValue: header.typeNumber)
    continues = header.flags & Self.flagsKnown(type) & RecordHeader.continues != 0
    guard header.typeNumber >= 128 || header.flags & ~Self.flagsKnown(type) == 0 else {
      throw BlobStorageError(
        .unsupportedFormat, "A record has flags \(header.flags), unknown to this build: use a later one.")
    }
    switch type {
    case .chunk:
      let chunk = try ChunkRecord(meta: meta, algorithm: algorithm)
      // Codec 0 keeps the plain bytes; any other is used only where it makes them fewer.
      guard
        chunk.codecNumber == 0
          ? payloadByteCount == chunk.plainByteCount : 1..<max(chunk.plainByteCount, 1) ~= payloadByteCount
      else {
        throw BlobStorageError(
          .corrupted, "A chunk of \(chunk.plainByteCount) bytes cannot be stored in \(payloadByteCount).",
          digest: chunk.digest)
      }
      content = .chunk(chunk)
    case .manifest:
      let manifest = try ManifestRecord(meta: meta, algorithm: algorithm)
      guard payloadByteCount == manifest.payloadByteCount else {
        throw BlobStorageError(
          .corrupted, "A manifest has not as many entries as it says.", digest: manifest.digest)
      }
      content = .manifest(manifest)
    case .ref:
      guard payloadByteCount == 0 else { throw BlobStorageError(.corrupted, "A ref has a payload.") }
      content = .ref(try RefRecord(meta: meta, algorithm: algorithm))
    case .drop:
      content = .drop(try DropRecord(meta: meta, payload: dropPayload))
    case nil:
      guard header.typeNumber >= 128 else {
        throw BlobStorageError(
          .unsupportedFormat,
          "A record has type \(header.typeNumber), unknown to this build: use a later one.")
      }
      content = .skipped
    }
  }

  private static func flagsKnown(_ type: RecordType?) -> UInt8 {
    type == .ref || type == .drop ? RecordHeader.continues : 0
  }
}
