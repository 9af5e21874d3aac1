/// A record as it was found in a pack: where it lies, and what it says.
///
/// Of a commit record each entry is one, of a frame each member. Together they cover the record's bytes, so that places,
/// lengths and order mean the same for all.
package struct PackRecord: Sendable {
  /// What a record says. Unknown records that may be skipped are `.skipped`.
  package enum Content: Sendable {
    case chunk(ChunkRecord)
    case manifest(ManifestRecord)
    case ref(RefRecord)
    case drop(DropRecord)
    case skipped

    /// The entry of a commit that it is; nil if it is none.
    package var entry: CommitRecord.Entry? {
      switch self {
      case .ref(let ref): .ref(ref)
      case .drop(let drop): .drop(drop)
      case .chunk, .manifest, .skipped: nil
      }
    }

    init(_ entry: CommitRecord.Entry) {
      switch entry {
      case .ref(let ref): self = .ref(ref)
      case .drop(let drop): self = .drop(drop)
      }
    }

    /// Its header; nil for what is no record of its own.
    fileprivate func header(payloadByteCount: Int) -> RecordHeader? {
      switch self {
      case .chunk(let chunk):
        RecordHeader(type: .chunk, metaByteCount: chunk.metaByteCount, payloadByteCount: payloadByteCount)
      case .manifest(let manifest):
        RecordHeader(
          type: .manifest, metaByteCount: manifest.metaByteCount, payloadByteCount: payloadByteCount)
      case .ref, .drop, .skipped: nil
      }
    }

    fileprivate func encodeMeta(into filler: inout ByteFiller) {
      switch self {
      case .chunk(let chunk): chunk.encodeMeta(into: &filler)
      case .manifest(let manifest): manifest.encodeMeta(into: &filler)
      case .ref, .drop, .skipped: break
      }
    }
  }

  /// Which part of a frame's plain bytes a chunk is.
  package struct Member: Hashable, Sendable {
    /// Plain bytes of the members before it.
    package var start: Int
    /// Plain bytes of all members.
    package var frameByteCount: Int
  }

  package var content: Content
  /// Of a chunk that is a member of a frame.
  package var member: Member?
  /// Where it begins in its pack.
  package var offset: Int64
  /// Bytes that it takes.
  package var byteCount: Int
  /// Bytes of the record's payload; of a member that is the frame's.
  package var payloadByteCount: Int
  /// Whether the commit that it is part of goes on with the next ref or drop of the pack.
  package var continues = false
  /// Bytes of the pack that were known to be on the medium when it was appended; 0 if it does not say. What is missing
  /// before there is damage; behind it, in a pack without footer, it was never promised.
  package var syncedByteCount: Int64 = 0
  /// The whole record, of which an entry or a member is a part.
  package var recordRange: Range<Int64>

  /// What it says if it is a chunk.
  package var chunk: ChunkRecord? {
    if case .chunk(let chunk) = content { chunk } else { nil }
  }

  /// The type of its record; nil for one that was skipped.
  package var type: RecordType? {
    switch content {
    case .chunk: member == nil ? .chunk : .frame
    case .manifest: .manifest
    case .ref, .drop: .commit
    case .skipped: nil
    }
  }

  /// Bytes that a chunk takes: those of its payload, or of a member its part of the frame's record.
  package var storedByteCount: Int { member == nil ? payloadByteCount : byteCount }

  /// Where the record of the frame begins that a chunk is a member of.
  package var frameOffset: Int64? { member == nil ? nil : recordRange.lowerBound }

  /// Whether it is the first that its record says.
  package var beginsRecord: Bool { offset == recordRange.lowerBound }

  /// Whether a commit can end with it.
  package var endsCommit: Bool {
    switch content {
    case .ref, .drop: !continues
    case .chunk, .manifest, .skipped: false
    }
  }

  /// Bytes in memory, about, at which a group of records ends: compressed refs and drops take little room on disk.
  static let memoryByteCountOfGroup = 64 << 20

  /// Bytes in memory, about.
  var memoryByteCount: Int { content.entry?.memoryByteCount ?? 128 }

  /// A chunk or manifest.
  package init(_ content: Content, offset: Int64, payloadByteCount: Int) {
    guard let header = content.header(payloadByteCount: payloadByteCount) else {
      preconditionFailure("a ref or drop is part of a commit record")
    }
    self.init(content, offset: offset, header: header)
  }

  /// A record that says one thing.
  init(_ content: Content, offset: Int64, header: RecordHeader) {
    self.init(content, in: offset..<offset + Int64(header.recordByteCount))
    payloadByteCount = header.payloadByteCount
  }

  /// One part of so many of a record.
  package init(_ content: Content, in record: Range<Int64>, _ part: (index: Int, count: Int) = (0, 1)) {
    func start(_ index: Int) -> Int64 {
      record.lowerBound + Int64(record.count) * Int64(index) / Int64(part.count)
    }
    self.content = content
    offset = start(part.index)
    byteCount = Int(start(part.index + 1) - offset)
    payloadByteCount = 0
    recordRange = record
  }

  /// One member of a frame.
  init(
    _ chunk: ChunkRecord, _ member: Member, payloadByteCount: Int, at part: Range<Int64>,
    in record: Range<Int64>
  ) {
    content = .chunk(chunk)
    self.member = member
    self.payloadByteCount = payloadByteCount
    offset = part.lowerBound
    byteCount = part.count
    recordRange = record
  }

  /// Where the payload of a chunk, manifest or frame begins.
  package var payloadOffset: Int64 {
    recordRange.upperBound - Int64(payloadByteCount) - (payloadByteCount > 0 ? 4 : 0)
  }

  /// What a commit may name by its place.
  var target: CommitRecord.Target? {
    switch content {
    case .chunk(let chunk):
      CommitRecord.Target(
        digest: chunk.digest, byteCount: Int64(chunk.plainByteCount), offset: offset,
        end: offset + Int64(byteCount))
    case .manifest(let manifest):
      CommitRecord.Target(
        digest: manifest.digest, byteCount: manifest.byteCount, offset: offset, end: recordRange.upperBound)
    case .ref, .drop, .skipped: nil
    }
  }

  /// Puts header, meta, payload and the payload's checksum of a manifest, or of a chunk that is no member, into memory of
  /// their length, as they stand in the pack `name`. Returns the header.
  func encode(
    _ payload: RawSpan, in name: PackName, into memory: UnsafeMutableRawBufferPointer
  ) -> RecordHeader {
    guard let header = content.header(payloadByteCount: payload.byteCount) else {
      preconditionFailure("a ref or drop is part of a commit record")
    }
    header.encode(payload, in: name, offset: offset, into: memory) { content.encodeMeta(into: &$0) }
    return header
  }

  /// The payload of a manifest, or of a chunk that is no member, that lies as `bytes` in the pack `name`.
  ///
  /// The payload's checksum goes on from that of header and meta. These may be damaged in `bytes`: what counts is what
  /// the record says.
  package func verifiedPayload(
    _ bytes: UnsafeRawBufferPointer, in name: PackName
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    guard bytes.count == byteCount, let header = content.header(payloadByteCount: payloadByteCount) else {
      throw BlobStorageError(.corrupted, "A record has an unexpected length.")
    }
    let start = header.byteCount + header.metaByteCount
    let checksum = withUnsafeTemporaryAllocation(byteCount: start, alignment: 1) {
      header.encode(pack: name, offset: offset, into: $0) { content.encodeMeta(into: &$0) }
    }
    return try RecordHeader.verifiedPayload(
      UnsafeRawBufferPointer(rebasing: bytes[start...]), continuing: checksum)
  }

  /// The payload of a chunk, manifest or frame that lies as `bytes` in its pack, its checksum not checked.
  package func payload(of bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
    let start = Int(payloadOffset - recordRange.lowerBound)
    return UnsafeRawBufferPointer(rebasing: bytes[start..<start + payloadByteCount])
  }
}

extension RecordHeader {
  /// Puts a whole record into memory of its length.
  func encode(
    _ payload: RawSpan, in name: PackName, offset: Int64, into memory: UnsafeMutableRawBufferPointer,
    meta: (inout ByteFiller) -> Void
  ) {
    precondition(payload.byteCount == payloadByteCount && memory.count == recordByteCount)
    let start = UnsafeMutableRawBufferPointer(rebasing: memory[..<(byteCount + metaByteCount)])
    let checksum = encode(pack: name, offset: offset, into: start, meta: meta)
    if payload.isEmpty { return }
    var rest = ByteFiller(UnsafeMutableRawBufferPointer(rebasing: memory[start.count...]))
    payload.withUnsafeBytes { rest.raw($0) }
    rest.integer(Self.payloadChecksum(payload, continuing: checksum))
  }
}
