/// Small chunks that arrived together, with a frame of them if that takes fewer bytes.
package struct JoinedChunks: Sendable {
  /// A chunk of the group.
  struct Member: Sendable {
    var digest: BlobDigest
    /// Its position in the plain bytes.
    var range: Range<Int>
    var features: SIMD3<UInt32>?
    /// The chunk encoded alone, if that was done.
    var alone: EncodedChunk?
  }

  /// A record to append, with its payload.
  package enum Part {
    case frame(FrameRecord, [UInt8])
    case chunk(ChunkRecord, [UInt8])
  }

  fileprivate(set) var members: [Member] = []
  fileprivate var plain: [UInt8] = []
  private var frame: (record: FrameRecord, stored: [UInt8])?

  fileprivate init() {}

  /// Encodes the frame, and keeps it if it takes fewer bytes than records of their own.
  fileprivate mutating func encode(by choice: CodecChoice, _ codecs: CodecPool) throws(BlobStorageError) {
    guard choice.kind == .zstd, members.count >= FrameRecord.memberCountMin else {
      for index in members.indices { members[index].alone = try alone(members[index], by: choice, codecs) }
      return
    }
    let stored = try codecs.withEncoder { (encoder) throws(BlobStorageError) in
      try encoder.withEncoded(plain.span.bytes, by: choice) { $0 == .zstd ? Array($1) : nil }
    }
    guard let stored else { return }
    let record = FrameRecord(
      codecNumber: CodecKind.zstd.rawValue,
      members: members.map {
        FrameRecord.Member(digest: $0.digest, plainByteCount: $0.range.count, features: $0.features)
      })
    let aloneByteCount = members.reduce(0) { sum, member in
      sum + (member.alone?.recordByteCount ?? ChunkRecord.recordByteCount(unencoded: member.range.count))
    }
    guard record.header(payloadByteCount: stored.count).recordByteCount < aloneByteCount else { return }
    frame = (record, stored)
  }

  /// Returns the records to append.
  ///
  /// - Parameter isThere: whether a chunk need not be stored.
  package func parts(
    by choice: CodecChoice, _ codecs: CodecPool,
    except isThere: (BlobDigest) throws(BlobStorageError) -> Bool
  ) throws(BlobStorageError) -> [Part] {
    var missing: [Member] = []
    for member in members where try !isThere(member.digest) { missing.append(member) }
    if missing.count == members.count, let frame { return [.frame(frame.record, frame.stored)] }
    if frame != nil, missing.count >= FrameRecord.memberCountMin {
      var rest = JoinedChunks()
      for member in missing { rest.append(member, plain[member.range]) }
      try rest.encode(by: choice, codecs)
      if let frame = rest.frame { return [.frame(frame.record, frame.stored)] }
    }
    var parts: [Part] = []
    for member in missing {
      let encoded = try alone(member, by: choice, codecs)
      parts.append(.chunk(encoded.record, encoded.stored ?? Array(plain[member.range])))
    }
    return parts
  }

  /// Encodes a member alone.
  private func alone(
    _ member: Member, by choice: CodecChoice, _ codecs: CodecPool
  ) throws(BlobStorageError) -> EncodedChunk {
    if let alone = member.alone { return alone }
    let bytes = Array(plain[member.range])
    var encoded = try codecs.encode(member.digest, bytes.span.bytes, by: choice, hint: .unknown)
    encoded.record.features = member.features
    return encoded
  }

  fileprivate mutating func append(_ member: Member, _ bytes: some Sequence<UInt8>) {
    var member = member
    let start = plain.count
    plain.append(contentsOf: bytes)
    member.range = start..<plain.count
    members.append(member)
  }
}

/// Joins small chunks into frames of bounded length.
///
/// Encodes each group as soon as it is full, so a thread can do that before the commit that appends it.
package struct FrameBuilder: ~Copyable {
  /// The most plain bytes of a frame of small blobs. Reading one of them decodes no more.
  package static let plainByteCountMax = 256 << 10
  /// The most plain bytes of a frame of consecutive chunks of one blob, or of a recompressed frame.
  package static let longPlainByteCountMax = BlobLimits.frameByteCountMax

  private let choice: CodecChoice
  private let codecs: CodecPool
  private let plainByteCountMax: Int
  private var group = JoinedChunks()
  private var metaByteCount = FrameRecord.fixedByteCountMax

  package init(
    _ choice: CodecChoice, _ codecs: CodecPool, plainByteCountMax: Int = FrameBuilder.plainByteCountMax
  ) {
    self.choice = choice
    self.codecs = codecs
    self.plainByteCountMax = plainByteCountMax
  }

  /// Whether to join a chunk that would be stored like this. Noise and chunks with a base are not joined.
  package static func canJoin(_ record: ChunkRecord) -> Bool {
    guard record.plainByteCount > 0, record.base == nil else { return false }
    return record.codecNumber == CodecKind.zstd.rawValue
      || record.plainByteCount < ChunkEncoder.plainByteCountMin
  }

  /// Whether a planned chunk is new and should be joined with others.
  package static func canJoin(_ chunk: ChunkPlan.Chunk) -> Bool {
    chunk.isToBeJoined || chunk.encoded.map { canJoin($0.record) } ?? false
  }

  /// Adds a chunk, which must not be empty: readers reject a frame with an empty member. Returns the group before it if
  /// that had no room for the chunk.
  package mutating func add(
    _ digest: BlobDigest, _ plain: RawSpan, features: SIMD3<UInt32>?, alone: EncodedChunk? = nil
  ) throws(BlobStorageError) -> JoinedChunks? {
    precondition(plain.byteCount > 0, "the empty chunk is no member of a frame")
    let member = JoinedChunks.Member(digest: digest, range: 0..<0, features: features, alone: alone)
    let added = FrameRecord.Member(
      digest: digest, plainByteCount: plain.byteCount, features: features
    ).metaByteCount
    var full: JoinedChunks?
    if group.plain.count + plain.byteCount > plainByteCountMax
      || metaByteCount + added > BlobLimits.recordMetaByteCountMax
    {
      full = try end()
    }
    metaByteCount += added
    plain.withUnsafeBytes { group.append(member, $0) }
    return full
  }

  /// Ends the group; nil if it is empty.
  package mutating func end() throws(BlobStorageError) -> JoinedChunks? {
    guard !group.members.isEmpty else { return nil }
    var ended = group
    (group, metaByteCount) = (JoinedChunks(), FrameRecord.fixedByteCountMax)
    try ended.encode(by: choice, codecs)
    return ended
  }
}
