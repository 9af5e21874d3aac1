/// The meta of a frame: lists the chunks whose plain bytes are concatenated in one payload. Format.md, "Frame".
///
/// Each member is a chunk with its own digest and place, and counts a part of the record's bytes.
package struct FrameRecord: Hashable, Sendable, RecordMeta {
  package struct Member: Hashable, Sendable {
    package var digest: BlobDigest
    package var plainByteCount: Int
    package var features: SIMD3<UInt32>?

    package init(digest: BlobDigest, plainByteCount: Int, features: SIMD3<UInt32>? = nil) {
      self.digest = digest
      self.plainByteCount = plainByteCount
      self.features = features
    }

    /// The bytes of the member in the meta.
    package var metaByteCount: Int {
      BlobDigest.byteCount + Varint.byteCount(lengthField) + (features == nil ? 0 : 12)
    }

    fileprivate var lengthField: UInt64 { UInt64(plainByteCount) << 1 | (features == nil ? 0 : 1) }
  }

  package static let memberCountMin = 2
  /// The most members that fit into a meta.
  package static let memberCountMax = (BlobLimits.recordMetaByteCountMax - 3) / (BlobDigest.byteCount + 1)
  /// The most bytes of a meta without its members.
  package static let fixedByteCountMax = 3

  package var codecNumber: UInt8
  package var members: [Member]

  package init(codecNumber: UInt8, members: [Member]) {
    self.codecNumber = codecNumber
    self.members = members
  }

  package var plainByteCount: Int { members.reduce(0) { $0 + $1.plainByteCount } }

  package var metaByteCount: Int {
    1 + Varint.byteCount(UInt64(members.count)) + members.reduce(0) { $0 + $1.metaByteCount }
  }

  package func header(payloadByteCount: Int) -> RecordHeader {
    RecordHeader(type: .frame, metaByteCount: metaByteCount, payloadByteCount: payloadByteCount)
  }

  package func encodeMeta(into filler: inout ByteFiller) {
    filler.integer(codecNumber)
    filler.varint(members.count)
    for member in members { member.digest.withUnsafeBytes { filler.raw($0) } }
    for member in members { filler.varint(member.lengthField) }
    for case let features? in members.lazy.map(\.features) {
      for index in 0..<3 { filler.integer(features[index]) }
    }
  }

  /// - Parameter payloadByteCount: the payload of its record.
  package init(
    meta: UnsafeRawBufferPointer, payloadByteCount: Int, algorithm: BlobDigest.Algorithm
  ) throws(BlobStorageError) {
    var reader = ByteReader(meta)
    codecNumber = try reader.integer()
    let count = try reader.varint(atMost: Self.memberCountMax)
    members = []
    members.reserveCapacity(count)
    for _ in 0..<count {
      let digest = BlobDigest(algorithm: algorithm, bytes: try reader.bytes(BlobDigest.byteCount))
      members.append(Member(digest: digest, plainByteCount: 0))
    }
    var plainByteCount = 0
    var featured: [Int] = []
    for index in members.indices {
      let field = try reader.varint(atMost: BlobLimits.frameByteCountMax << 1 | 1)
      members[index].plainByteCount = field >> 1
      plainByteCount += field >> 1
      if field & 1 != 0 { featured.append(index) }
    }
    for index in featured { members[index].features = try reader.features() }
    try reader.finish()
    guard count >= Self.memberCountMin, !members.contains(where: { $0.plainByteCount == 0 }),
      plainByteCount <= BlobLimits.frameByteCountMax
    else { throw BlobStorageError(.corrupted, "A frame's members are invalid.") }
    // A writer makes a frame only if it saves bytes.
    guard codecNumber != 0, 1..<plainByteCount ~= payloadByteCount else {
      throw BlobStorageError(
        .corrupted, "A frame of \(plainByteCount) bytes cannot be stored in \(payloadByteCount).")
    }
  }

  /// The end of a member in the plain bytes; nil if the frame lacks it.
  func end(of digest: BlobDigest) -> Int? {
    guard let index = members.firstIndex(where: { $0.digest == digest }) else { return nil }
    return members[...index].reduce(0) { $0 + $1.plainByteCount }
  }

  /// The members as records of a pack, for a frame at `offset`.
  ///
  /// Together they cover the frame's record. Each counts 32 bytes, and a share of the rest in proportion to its plain
  /// bytes.
  package func records(at offset: Int64, payloadByteCount: Int) -> OneOrMore<PackRecord> {
    let recordByteCount = header(payloadByteCount: payloadByteCount).recordByteCount
    let range = offset..<offset + Int64(recordByteCount)
    let total = plainByteCount
    let shared = recordByteCount - BlobDigest.byteCount * members.count
    func place(_ index: Int, _ start: Int) -> Int64 {
      offset + Int64(BlobDigest.byteCount * index + shared * start / total)
    }
    var start = 0
    var records: [PackRecord] = []
    records.reserveCapacity(members.count)
    for (index, member) in members.enumerated() {
      let end = start + member.plainByteCount
      let chunk = ChunkRecord(
        digest: member.digest, plainByteCount: member.plainByteCount, codecNumber: codecNumber,
        features: member.features)
      records.append(
        PackRecord(
          chunk, PackRecord.Member(start: start, frameByteCount: total), payloadByteCount: payloadByteCount,
          at: place(index, start)..<place(index + 1, end), in: range))
      start = end
    }
    guard let records = OneOrMore(contentsOf: records) else { preconditionFailure("a frame has members") }
    return records
  }
}
