/// The end of a sealed pack. It repeats all records without the payloads of chunks and manifests, so that a rebuild of
/// the catalog need not read those. Format.md, "The footer".
package enum PackFooter {
  /// The last 64 bytes of a sealed pack.
  package struct Trailer: Hashable, Sendable {
    package static let byteCount = 64
    package static let magic = Array("BLOBFOOT".utf8)

    package var name: PackName
    /// The number of records; a commit record counts as its entries, a frame as its members.
    package var recordCount: Int
    /// The end of the records, where the footer begins.
    package var footerOffset: Int64
    package var storedByteCount: Int

    package init(name: PackName, recordCount: Int, footerOffset: Int64, storedByteCount: Int) {
      self.name = name
      self.recordCount = recordCount
      self.footerOffset = footerOffset
      self.storedByteCount = storedByteCount
    }

    package func encoded() -> [UInt8] {
      var writer = ByteWriter(capacity: Self.byteCount)
      writer.raw(Self.magic)
      writer.zeros(4)
      writer.integer(UInt32(recordCount))
      writer.integer(footerOffset)
      writer.integer(UInt32(storedByteCount))
      writer.zeros(8)
      writer.integer(name.writer)
      writer.integer(name.sequence)
      writer.zeros(12)
      writer.checksum()
      return writer.bytes
    }

    /// Decodes the last 64 bytes of a pack of `packByteCount`. Nil if they are no trailer: the pack was not sealed, or
    /// its end is damaged.
    package init?(_ bytes: UnsafeRawBufferPointer, name: PackName, packByteCount: Int64) {
      guard bytes.count == Self.byteCount, bytes.starts(with: Self.magic), bytes.endsWithChecksum else {
        return nil
      }
      func field<T: FixedWidthInteger>(_ offset: Int, _ type: T.Type) -> T {
        T(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: T.self))
      }
      recordCount = Int(field(12, UInt32.self))
      footerOffset = field(16, Int64.self)
      storedByteCount = Int(field(24, UInt32.self))
      self.name = PackName(writer: field(36, UInt64.self), sequence: field(44, UInt32.self))
      guard self.name == name, recordCount <= BlobLimits.packRecordCountMax,
        storedByteCount <= BlobLimits.footerByteCountMax,
        Int64(PackHeader.byteCount)...BlobLimits.packByteCountMax ~= footerOffset,
        footerOffset + Int64(storedByteCount) + Int64(Self.byteCount) == packByteCount,
        packByteCount <= BlobLimits.packByteCountMax
      else { return nil }
    }
  }

  /// The header of a block of the footer. Each block lists some records and is encoded on its own. So a footer is read
  /// in bounded memory, and damage behind a block's header affects no other block.
  package struct BlockHeader: Hashable, Sendable {
    package static let byteCount = 32
    /// The bytes of fields, or of digests, at which a writer ends a block.
    package static let plainByteCountTarget = 1 << 20

    package var codecNumber: UInt8
    /// The bytes of the fields, before and after encoding.
    package var plainByteCount: Int
    package var storedByteCount: Int
    /// The bytes of the digests, which follow the fields.
    package var digestsByteCount: Int
    /// The offset of the first record that the block lists.
    package var recordOffset: Int64

    package init(
      codecNumber: UInt8, plainByteCount: Int, storedByteCount: Int, digestsByteCount: Int,
      recordOffset: Int64
    ) {
      self.codecNumber = codecNumber
      self.plainByteCount = plainByteCount
      self.storedByteCount = storedByteCount
      self.digestsByteCount = digestsByteCount
      self.recordOffset = recordOffset
    }

    /// The bytes after the header.
    package var contentByteCount: Int { storedByteCount + digestsByteCount }

    /// Encodes the header of a block with that content at `offset` of the pack `name`.
    package func encoded(content: RawSpan, pack name: PackName, offset: Int64) -> [UInt8] {
      var writer = ByteWriter(capacity: Self.byteCount)
      writer.integer(codecNumber)
      writer.zeros(3)
      writer.integer(UInt32(plainByteCount))
      writer.integer(UInt32(storedByteCount))
      writer.integer(UInt32(digestsByteCount))
      writer.integer(recordOffset)
      writer.zeros(4)
      let header = CRC32C.checksum(writer.bytes.span.bytes, continuing: name.checksumSeed(offset: offset))
      writer.integer(CRC32C.checksum(content, continuing: header))
      return writer.bytes
    }

    /// - Parameter bytes: the whole header.
    package init(_ bytes: UnsafeRawBufferPointer) throws(BlobStorageError) {
      var reader = ByteReader(bytes)
      codecNumber = try reader.integer()
      _ = try reader.bytes(3)
      plainByteCount = Int(try reader.integer(UInt32.self))
      storedByteCount = Int(try reader.integer(UInt32.self))
      digestsByteCount = Int(try reader.integer(UInt32.self))
      recordOffset = try reader.integer()
      guard 1...BlobLimits.chunkByteCountMax ~= plainByteCount, storedByteCount <= plainByteCount,
        digestsByteCount <= BlobLimits.chunkByteCountMax,
        Int64(PackHeader.byteCount)...BlobLimits.packByteCountMax ~= recordOffset
      else { throw BlobStorageError(.corrupted, "A block of a footer has an invalid length.") }
    }

    /// Verifies header and content of a block at `offset` of the pack `name` against the checksum.
    package func verify(
      _ bytes: UnsafeRawBufferPointer, content: RawSpan, pack name: PackName, offset: Int64
    ) throws(BlobStorageError) {
      let end = Self.byteCount - 4
      let header = CRC32C.checksum(
        bytes.bytes.extracting(0..<end), continuing: name.checksumSeed(offset: offset))
      guard
        bytes.loadUnaligned(fromByteOffset: end, as: UInt32.self).littleEndian
          == CRC32C.checksum(content, continuing: header)
      else {
        throw BlobStorageError(.corrupted, "A block of a footer does not match its checksum.")
      }
      guard bytes[1..<4].allSatisfy({ $0 == 0 }), bytes[24..<end].allSatisfy({ $0 == 0 }) else {
        throw BlobStorageError(.unsupportedFormat, "Reserved bytes are not zero: a later build wrote this.")
      }
    }
  }

  /// A record as a block lists it. Only a commit record has its payload.
  package struct Listed {
    package var header: RecordHeader
    package var meta: [UInt8]
    package var payload: UnsafeRawBufferPointer
    package var offset: Int64
  }

  /// Whether the meta begins with a digest, which the footer stores apart.
  private static func hasDigest(_ header: RecordHeader) -> Bool {
    header.typeNumber == RecordType.chunk.rawValue || header.typeNumber == RecordType.manifest.rawValue
  }

  /// Appends the part of a record that follows its header in a block.
  ///
  /// - Parameter bytes: the meta, then the payload if it is a commit record.
  package static func list(
    _ bytes: UnsafeRawBufferPointer, of header: RecordHeader, into fields: inout ByteWriter,
    digests: inout ByteWriter
  ) {
    var rest = bytes
    if hasDigest(header) {
      digests.raw(UnsafeRawBufferPointer(rebasing: bytes[..<BlobDigest.byteCount]))
      rest = UnsafeRawBufferPointer(rebasing: bytes[BlobDigest.byteCount...])
    }
    fields.raw(rest)
  }

  /// Calls `body` with every record of a block, in pack order.
  ///
  /// - Returns: the end of the last record.
  package static func forEachRecord(
    fields: UnsafeRawBufferPointer, digests: UnsafeRawBufferPointer, from start: Int64,
    _ body: (Listed) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) -> Int64 {
    var (fields, digests) = (ByteReader(fields), ByteReader(digests))
    var offset = start
    while fields.remainingByteCount > 0 {
      let header = try RecordHeader(listedIn: &fields)
      var meta: [UInt8] = []
      if hasDigest(header) {
        guard header.metaByteCount >= BlobDigest.byteCount else {
          throw BlobStorageError(.corrupted, "A footer lists a record without its digest.")
        }
        meta += try digests.bytes(BlobDigest.byteCount)
      }
      meta += try fields.bytes(header.metaByteCount - meta.count)
      let isCommit = header.typeNumber == RecordType.commit.rawValue
      let payload = try fields.bytes(isCommit ? header.payloadByteCount : 0)
      try body(Listed(header: header, meta: meta, payload: payload, offset: offset))
      offset += Int64(header.recordByteCount)
    }
    try digests.finish()
    return offset
  }
}
