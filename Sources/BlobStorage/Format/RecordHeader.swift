/// The type of a record. The numbers are on disk: never change or reuse one.
package enum RecordType: UInt8, Sendable {
  // 0 is invalid, so that zeros are never a record.
  case chunk = 1
  case manifest = 2
  /// The refs and drops of a commit.
  case commit = 3
  /// Small chunks encoded together.
  case frame = 4
  // 5…31 are reserved for records that an older build must not skip, 128…159 for those that it may. None is retired.
}

/// Encodes the meta of a record.
package protocol RecordMeta {
  /// The length of the meta.
  var metaByteCount: Int { get }

  /// Encodes the meta.
  func encodeMeta(into filler: inout ByteFiller)
}

/// The header of a record, 9 to 13 bytes. Format.md, "Records".
///
/// A record is header, meta, payload and, if there is a payload, its checksum. The header's checksum covers the pack's
/// name, the record's offset, the header and the meta. The payload's checksum continues it. So a record is valid in one
/// place only, and a payload only behind its own header.
package struct RecordHeader: Hashable, Sendable {
  /// The longest header.
  package static let byteCountMax = 13
  package static let mark: [UInt8] = [0xfb, 0x52]
  /// The flag of a commit record whose commit continues with the pack's next commit record.
  package static let continues: UInt8 = 0x20
  private static let checksumByteCount = 4
  private static let typeBits: UInt8 = 0x9f

  package var typeNumber: UInt8
  package var flags: UInt8
  package var metaByteCount: Int
  package var payloadByteCount: Int

  package init(type: RecordType, flags: UInt8 = 0, metaByteCount: Int, payloadByteCount: Int) {
    typeNumber = type.rawValue
    self.flags = flags
    self.metaByteCount = metaByteCount
    self.payloadByteCount = payloadByteCount
  }

  /// Whether a reader that does not know the type may skip the record.
  package var canBeSkipped: Bool { typeNumber >= 128 }

  /// The length of the header.
  package var byteCount: Int {
    Self.byteCount(metaByteCount: metaByteCount, payloadByteCount: payloadByteCount)
  }

  /// The length of the whole record.
  package var recordByteCount: Int {
    Self.recordByteCount(metaByteCount: metaByteCount, payloadByteCount: payloadByteCount)
  }

  /// The length of the header of such a record.
  package static func byteCount(metaByteCount: Int, payloadByteCount: Int = 0) -> Int {
    mark.count + 1 + Varint.byteCount(UInt64(metaByteCount)) + Varint.byteCount(UInt64(payloadByteCount))
      + checksumByteCount
  }

  /// Where the payload begins in such a record.
  package static func payloadOffset(metaByteCount: Int, payloadByteCount: Int) -> Int64 {
    Int64(byteCount(metaByteCount: metaByteCount, payloadByteCount: payloadByteCount) + metaByteCount)
  }

  /// The length of such a record.
  package static func recordByteCount(metaByteCount: Int, payloadByteCount: Int = 0) -> Int {
    byteCount(metaByteCount: metaByteCount, payloadByteCount: payloadByteCount) + metaByteCount
      + payloadByteCount + (payloadByteCount > 0 ? checksumByteCount : 0)
  }

  /// The most bytes that a chunk or manifest adds to its pack: its record, and what the footer repeats.
  package static func packByteCountMax(metaByteCount: Int, payloadByteCount: Int = 0) -> Int {
    recordByteCount(metaByteCount: metaByteCount, payloadByteCount: payloadByteCount) + byteCountMax
      + metaByteCount
  }

  /// Encodes header and meta for `offset` of the pack `name` into memory of their length. Returns the header's
  /// checksum.
  package func encode(
    pack name: PackName, offset: Int64, into memory: UnsafeMutableRawBufferPointer,
    meta: (inout ByteFiller) -> Void
  ) -> UInt32 {
    var filler = ByteFiller(memory)
    filler.raw(Self.mark)
    filler.integer(typeNumber | flags)
    filler.varint(metaByteCount)
    filler.varint(payloadByteCount)
    filler.zeros(Self.checksumByteCount)
    meta(&filler)
    precondition(filler.remainingByteCount == 0, "the meta has the length that the header says")
    let checksum = checksum(memory.bytes, pack: name, offset: offset)
    memory.storeBytes(
      of: checksum.littleEndian, toByteOffset: byteCount - Self.checksumByteCount, as: UInt32.self)
    return checksum
  }

  /// The checksum of header and meta, without the checksum field.
  private func checksum(_ headerAndMeta: RawSpan, pack name: PackName, offset: Int64) -> UInt32 {
    let header = CRC32C.checksum(
      headerAndMeta.extracting(0..<byteCount - Self.checksumByteCount),
      continuing: name.checksumSeed(offset: offset))
    return CRC32C.checksum(headerAndMeta.extracting(byteCount...), continuing: header)
  }

  /// Decodes the header at the start of `bytes`, and checks that its lengths are within their maxima. Does not verify
  /// the checksum, which also covers the meta.
  package init(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    guard try reader.bytes(2).elementsEqual(Self.mark) else {
      throw BlobStorageError(.corrupted, "No record begins here.")
    }
    try self.init(listedIn: &reader)
    _ = try reader.bytes(Self.checksumByteCount)
  }

  /// Decodes a header without mark and checksum, as in a footer.
  init(listedIn reader: inout ByteReader) throws(BlobStorageError) {
    let kind: UInt8 = try reader.integer()
    typeNumber = kind & Self.typeBits
    flags = kind & ~Self.typeBits
    metaByteCount = try reader.varint(atMost: BlobLimits.recordMetaByteCountMax)
    payloadByteCount = try reader.varint(atMost: BlobLimits.recordPayloadByteCountMax)
    guard typeNumber & 0x7f != 0 else { throw BlobStorageError(.corrupted, "No record begins here.") }
  }

  /// Encodes the header as in a footer.
  func list(into writer: inout ByteWriter) {
    writer.integer(typeNumber | flags)
    writer.varint(metaByteCount)
    writer.varint(payloadByteCount)
  }

  /// The checksum after the payload of a record whose header has `checksum`.
  package static func payloadChecksum(_ payload: RawSpan, continuing checksum: UInt32) -> UInt32 {
    CRC32C.checksum(payload, continuing: checksum)
  }

  /// The checksum stored in the header in `bytes`.
  package func writtenChecksum(_ bytes: UnsafeRawBufferPointer) -> UInt32 {
    bytes.loadUnaligned(fromByteOffset: byteCount - Self.checksumByteCount, as: UInt32.self).littleEndian
  }

  /// Verifies a whole record from the pack against both of its checksums, and returns its parts.
  package static func verified(
    _ record: UnsafeRawBufferPointer, pack name: PackName, offset: Int64
  ) throws(BlobStorageError) -> (
    header: RecordHeader, meta: UnsafeRawBufferPointer, payload: UnsafeRawBufferPointer
  ) {
    let header = try RecordHeader(record)
    guard header.recordByteCount == record.count else {
      throw BlobStorageError(.corrupted, "A record has an unexpected length.")
    }
    let meta = try header.verifiedMeta(record, pack: name, offset: offset)
    let rest = UnsafeRawBufferPointer(rebasing: record[(header.byteCount + header.metaByteCount)...])
    return (header, meta, try verifiedPayload(rest, continuing: header.writtenChecksum(record)))
  }

  /// Verifies and returns the meta. `bytes` begins with header and meta.
  package func verifiedMeta(
    _ bytes: UnsafeRawBufferPointer, pack name: PackName, offset: Int64
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    let headerAndMeta = UnsafeRawBufferPointer(rebasing: bytes[..<(byteCount + metaByteCount)])
    guard writtenChecksum(bytes) == checksum(headerAndMeta.bytes, pack: name, offset: offset) else {
      throw BlobStorageError(.corrupted, "A record's header does not match its checksum.")
    }
    return UnsafeRawBufferPointer(rebasing: headerAndMeta[byteCount...])
  }

  /// Verifies and returns the payload. `bytes` is the end of a record: the payload and its checksum, which continues
  /// that of the header.
  static func verifiedPayload(
    _ bytes: UnsafeRawBufferPointer, continuing header: UInt32
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    if bytes.isEmpty { return bytes }
    let payload = UnsafeRawBufferPointer(rebasing: bytes.dropLast(checksumByteCount))
    let written = bytes.loadUnaligned(fromByteOffset: payload.count, as: UInt32.self).littleEndian
    guard payloadChecksum(payload.bytes, continuing: header) == written else {
      throw BlobStorageError(.corrupted, "The stored bytes of a record do not match their checksum.")
    }
    return payload
  }
}
