/// What a record is. The numbers are on disk: never change one, never use a retired one again.
package enum RecordType: UInt8, Sendable {
  // 0 is no record, so that zeros are never valid.
  case chunk = 1
  case manifest = 2
  case ref = 3
  case drop = 4
  // 5…127 are reserved for records that an older build must not skip, 128…255 for those that it may. None is
  // retired yet.
}

/// What the meta of a record says.
package protocol RecordMeta {
  /// Bytes of the meta.
  var metaByteCount: Int { get }

  /// Puts the meta's bytes.
  func encodeMeta(into filler: inout ByteFiller)
}

extension RecordMeta {
  /// The meta's bytes.
  package func encodedMeta() -> [UInt8] {
    [UInt8](byteCount: metaByteCount) { encodeMeta(into: &$0) }
  }
}

/// The 16 bytes before every record. Format.md, "Records".
///
/// A record is header, meta, payload and, when there is a payload, a checksum. The header's checksum covers the
/// pack's name, the record's offset, the header and the meta, and the payload's goes on from there: a record is
/// valid in one place only, and a payload behind one header only.
package struct RecordHeader: Hashable, Sendable {
  package static let byteCount = 16
  package static let mark = Array("BREC".utf8)
  /// The bit of `flags` that says: the commit goes on with the next ref or drop of the pack.
  package static let continues: UInt8 = 1

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

  /// Bytes of the whole record.
  package var recordByteCount: Int {
    Self.recordByteCount(metaByteCount: metaByteCount, payloadByteCount: payloadByteCount)
  }

  /// Bytes of a whole record with such a meta and payload.
  package static func recordByteCount(metaByteCount: Int, payloadByteCount: Int = 0) -> Int {
    byteCount + metaByteCount + payloadByteCount + (payloadByteCount > 0 ? 4 : 0)
  }

  /// The most bytes that such a record, if it is no drop, adds to its pack: its own, and those that the footer repeats.
  package static func packByteCountMax(metaByteCount: Int, payloadByteCount: Int = 0) -> Int {
    recordByteCount(metaByteCount: metaByteCount, payloadByteCount: payloadByteCount) + byteCount
      + metaByteCount
  }

  /// Header and meta as they stand at `offset` of the pack `name`.
  package func encoded(meta: [UInt8], pack name: PackName, offset: Int64) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: Self.byteCount + metaByteCount) { bytes, count in
      count = Self.byteCount + metaByteCount
      encode(
        pack: name, offset: offset,
        into: UnsafeMutableRawBufferPointer(start: bytes.baseAddress, count: count)
      ) { $0.raw(meta) }
    }
  }

  /// Puts header and meta as they stand at `offset` of the pack `name` into memory of their length.
  func encode(
    pack name: PackName, offset: Int64, into memory: UnsafeMutableRawBufferPointer,
    meta: (inout ByteFiller) -> Void
  ) {
    var filler = ByteFiller(memory)
    filler.raw(Self.mark)
    filler.integer(typeNumber)
    filler.integer(flags)
    filler.integer(UInt16(metaByteCount))
    filler.integer(UInt32(payloadByteCount))
    filler.zeros(4)
    meta(&filler)
    precondition(filler.remainingByteCount == 0, "the meta has the length that the header says")
    let checksum = Self.checksum(memory.bytes, pack: name, offset: offset)
    memory.storeBytes(of: checksum.littleEndian, toByteOffset: 12, as: UInt32.self)
  }

  /// The checksum of header and meta, which leaves out its own place.
  private static func checksum(
    _ headerAndMeta: RawSpan, pack name: PackName, offset: Int64
  ) -> UInt32 {
    let header = CRC32C.checksum(
      headerAndMeta.extracting(0..<12), continuing: name.checksumSeed(offset: offset))
    return CRC32C.checksum(headerAndMeta.extracting(byteCount...), continuing: header)
  }

  /// The header at the start of `bytes`, its lengths within their maxima; its checksum is checked with the meta.
  package init(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
    var reader = ByteReader(bytes)
    guard try reader.bytes(4).elementsEqual(Self.mark) else {
      throw BlobStorageError(.corrupted, "There is no record here.")
    }
    typeNumber = try reader.integer()
    flags = try reader.integer()
    metaByteCount = Int(try reader.integer(UInt16.self))
    payloadByteCount = Int(try reader.integer(UInt32.self))
    guard metaByteCount <= Limits.recordMetaByteCountMax, payloadByteCount <= Limits.recordPayloadByteCountMax
    else { throw BlobStorageError(.corrupted, "A record claims to be longer than any can be.") }
  }

  /// What stands behind the payload of a record that begins with `headerAndMeta`.
  package static func payloadChecksum(
    _ payload: RawSpan, after headerAndMeta: RawSpan
  ) -> UInt32 {
    CRC32C.checksum(
      payload, continuing: headerAndMeta.unsafeLoadUnaligned(fromByteOffset: 12, as: UInt32.self).littleEndian
    )
  }

  /// Checks `record`, a whole record as it lies in the pack, against both of its checksums, and gives its parts.
  package static func verified(
    _ record: UnsafeRawBufferPointer, pack name: PackName, offset: Int64
  ) throws(BlobStorageError) -> (
    header: RecordHeader, meta: UnsafeRawBufferPointer, payload: UnsafeRawBufferPointer
  ) {
    let header = try RecordHeader(record)
    guard header.recordByteCount == record.count else {
      throw BlobStorageError(.corrupted, "A record has not the length that was expected.")
    }
    let headerAndMeta = UnsafeRawBufferPointer(rebasing: record[..<(byteCount + header.metaByteCount)])
    let meta = try verifiedMeta(headerAndMeta, pack: name, offset: offset)
    let payload = UnsafeRawBufferPointer(
      rebasing: record[headerAndMeta.count..<headerAndMeta.count + header.payloadByteCount])
    if !payload.isEmpty {
      let checksum = record.loadUnaligned(fromByteOffset: record.count - 4, as: UInt32.self).littleEndian
      guard payloadChecksum(payload.bytes, after: headerAndMeta.bytes) == checksum else {
        throw BlobStorageError(.corrupted, "The stored bytes of a record do not match their checksum.")
      }
    }
    return (header, meta, payload)
  }

  /// Checks `bytes`, a header with its meta, against the checksum, and gives the meta.
  package static func verifiedMeta(
    _ bytes: UnsafeRawBufferPointer, pack name: PackName, offset: Int64
  ) throws(BlobStorageError) -> UnsafeRawBufferPointer {
    guard
      bytes.loadUnaligned(fromByteOffset: 12, as: UInt32.self).littleEndian
        == checksum(bytes.bytes, pack: name, offset: offset)
    else { throw BlobStorageError(.corrupted, "A record's header does not match its checksum.") }
    return UnsafeRawBufferPointer(rebasing: bytes[byteCount...])
  }
}
