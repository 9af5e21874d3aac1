/// A record found in a pack: its place and its content.
///
/// Each entry of a commit record is one, and each member of a frame. Together they cover the record's bytes, so that
/// places, lengths and order have one meaning for all.
package struct PackRecord: Sendable {
  /// The content of a record. Unknown records that may be skipped are `.skipped`.
  package enum Content: Sendable {
    case chunk(ChunkRecord)
    case manifest(ManifestRecord)
    case ref(RefRecord)
    case drop(DropRecord)
    case skipped

    /// The entry of a commit; nil for other records.
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

    /// The header; nil for an entry of a commit and for a skipped record.
    func header(payloadByteCount: Int) -> RecordHeader? {
      switch self {
      case .chunk(let chunk):
        RecordHeader(type: .chunk, metaByteCount: chunk.metaByteCount, payloadByteCount: payloadByteCount)
      case .manifest(let manifest):
        RecordHeader(
          type: .manifest, metaByteCount: manifest.metaByteCount, payloadByteCount: payloadByteCount)
      case .ref, .drop, .skipped: nil
      }
    }

    func encodeMeta(into filler: inout ByteFiller) {
      switch self {
      case .chunk(let chunk): chunk.encodeMeta(into: &filler)
      case .manifest(let manifest): manifest.encodeMeta(into: &filler)
      case .ref, .drop, .skipped: break
      }
    }
  }

  /// A chunk's part of a frame's plain bytes.
  package struct Member: Hashable, Sendable {
    /// The plain bytes of the members before it.
    package var start: Int
    /// The plain bytes of all members.
    package var frameByteCount: Int
  }

  package var content: Content
  /// The part of the frame, for a member; else nil.
  package var member: Member?
  /// The offset in its pack.
  package var offset: Int64
  /// The length in its pack.
  package var byteCount: Int
  /// The length of the record's payload. For a member, that of the frame.
  package var payloadByteCount: Int
  /// Whether its commit continues with the next ref or drop of the pack.
  package var continues = false
  /// Bytes of the pack that were known to be on the medium when it was appended; 0 if unknown. Missing bytes before
  /// that offset are damage. In a pack without a footer, later bytes may be lost without damage.
  package var syncedByteCount: Int64 = 0
  /// The range of the whole record, which includes an entry or a member.
  package var recordRange: Range<Int64>

  /// The chunk, if it is one.
  package var chunk: ChunkRecord? {
    if case .chunk(let chunk) = content { chunk } else { nil }
  }

  /// The type of its record; nil for a skipped one.
  package var type: RecordType? {
    switch content {
    case .chunk: member == nil ? .chunk : .frame
    case .manifest: .manifest
    case .ref, .drop: .commit
    case .skipped: nil
    }
  }

  /// The stored bytes of a chunk: its payload, or a member's part of the frame's record.
  package var storedByteCount: Int { member == nil ? payloadByteCount : byteCount }

  /// The offset of a member's frame; nil for other records.
  package var frameOffset: Int64? { member == nil ? nil : recordRange.lowerBound }

  /// Whether it is the first part of its record.
  package var beginsRecord: Bool { offset == recordRange.lowerBound }

  /// Whether it can be the last record of a commit.
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

  /// Creates a chunk or manifest.
  package init(_ content: Content, offset: Int64, payloadByteCount: Int) {
    guard let header = content.header(payloadByteCount: payloadByteCount) else {
      preconditionFailure("a ref or drop is part of a commit record")
    }
    self.init(content, offset: offset, header: header)
  }

  /// Creates a record with a single part.
  init(_ content: Content, offset: Int64, header: RecordHeader) {
    self.init(content, in: offset..<offset + Int64(header.recordByteCount))
    payloadByteCount = header.payloadByteCount
  }

  /// Creates part `index` of `count` equal parts of a record.
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

  /// Creates a member of a frame.
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

  /// The offset of the payload of a chunk, manifest or frame.
  package var payloadOffset: Int64 {
    recordRange.upperBound - Int64(payloadByteCount) - (payloadByteCount > 0 ? 4 : 0)
  }

  /// The place that refs of a commit may name; nil for other records.
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

  /// Verifies and returns the payload of a manifest, or of a chunk that is no member. `bytes` is the whole record in
  /// the pack `name`.
  ///
  /// The payload's checksum continues that of header and meta. Those may be damaged in `bytes`, so they are encoded
  /// again from this record.
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

  /// Returns the payload of a chunk, manifest or frame without verifying it. `bytes` is the whole record.
  package func payload(of bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
    let start = Int(payloadOffset - recordRange.lowerBound)
    return UnsafeRawBufferPointer(rebasing: bytes[start..<start + payloadByteCount])
  }
}

extension RecordHeader {
  /// Encodes a whole record into memory of its length.
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
