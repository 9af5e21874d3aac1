/// What is at the end of a sealed pack: a copy of every record's header and meta (and of every drop's payload),
/// so that the catalog is rebuilt without reading the chunks. Format.md, "The footer".
package enum PackFooter {
  /// The last 64 bytes of a sealed pack.
  package struct Trailer: Hashable, Sendable {
    package static let byteCount = 64
    package static let magic = Array("BLOBFOOT".utf8)

    package var name: PackName
    package var recordCount: Int
    /// Where the footer begins, which is where the records end.
    package var footerOffset: Int64
    package var storedByteCount: Int
    package var plainByteCount: Int
    package var checksum: UInt32

    package init(
      name: PackName, recordCount: Int, footerOffset: Int64, storedByteCount: Int, plainByteCount: Int,
      checksum: UInt32
    ) {
      self.name = name
      self.recordCount = recordCount
      self.footerOffset = footerOffset
      self.storedByteCount = storedByteCount
      self.plainByteCount = plainByteCount
      self.checksum = checksum
    }

    package func encoded() -> [UInt8] {
      var writer = ByteWriter(capacity: Self.byteCount)
      writer.raw(Self.magic)
      writer.zeros(4)
      writer.integer(UInt32(recordCount))
      writer.integer(footerOffset)
      writer.integer(UInt32(storedByteCount))
      writer.integer(UInt32(plainByteCount))
      writer.integer(checksum)
      writer.integer(name.writer)
      writer.integer(name.sequence)
      writer.zeros(12)
      writer.checksum()
      return writer.bytes
    }

    /// The trailer in `bytes`, the last 64 of a pack of `packByteCount`; nil when they are not one: the pack was
    /// not sealed, or its end is damaged.
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
      plainByteCount = Int(field(28, UInt32.self))
      checksum = field(32, UInt32.self)
      self.name = PackName(writer: field(36, UInt64.self), sequence: field(44, UInt32.self))
      guard self.name == name, recordCount <= Limits.packRecordCountMax,
        plainByteCount <= Limits.footerByteCountMax, storedByteCount <= Limits.footerByteCountMax,
        Int64(PackHeader.byteCount)...Limits.packByteCountMax ~= footerOffset,
        footerOffset + Int64(storedByteCount) + Int64(Self.byteCount) == packByteCount,
        packByteCount <= Limits.packByteCountMax
      else { return nil }
    }
  }

  /// What stands before each block of the footer: records are listed in blocks, each encoded on its own, so that a
  /// footer is read in bounded memory.
  package struct BlockHeader: Hashable, Sendable {
    package static let byteCount = 12
    /// Plain bytes at which a writer ends a block.
    package static let plainByteCountTarget = 1 << 20

    package var codecNumber: UInt8
    package var plainByteCount: Int
    package var storedByteCount: Int

    package init(codecNumber: UInt8, plainByteCount: Int, storedByteCount: Int) {
      self.codecNumber = codecNumber
      self.plainByteCount = plainByteCount
      self.storedByteCount = storedByteCount
    }

    package func encode(into writer: inout ByteWriter) {
      writer.integer(codecNumber)
      writer.zeros(3)
      writer.integer(UInt32(plainByteCount))
      writer.integer(UInt32(storedByteCount))
    }

    package init(from reader: inout ByteReader) throws(BlobStorageError) {
      codecNumber = try reader.integer()
      try reader.reserved(3)
      plainByteCount = Int(try reader.integer(UInt32.self))
      storedByteCount = Int(try reader.integer(UInt32.self))
      guard 1...Limits.chunkByteCountMax ~= plainByteCount, storedByteCount <= plainByteCount else {
        throw BlobStorageError(.corrupted, "A block of a footer has an impossible length.")
      }
    }
  }

  /// Walks the records that the blocks of a footer list, and checks at the end that they were the whole pack.
  ///
  /// Each record's header checksum is checked again, at its place in the pack: a footer that was made of other
  /// records than the pack's is found out.
  package struct Walk {
    private let trailer: Trailer
    private let algorithm: Digest.Algorithm
    private var offset: Int64
    private var count = 0

    /// - Parameter offset: where the first record lies that is walked.
    package init(
      trailer: Trailer, algorithm: Digest.Algorithm, offset: Int64 = Int64(PackHeader.byteCount)
    ) {
      self.trailer = trailer
      self.algorithm = algorithm
      self.offset = offset
    }

    /// How many bytes of the pack the records of a block take, by what their headers say, checksums not checked.
    package static func recordsByteCount(
      _ block: UnsafeRawBufferPointer
    ) throws(BlobStorageError) -> Int64 {
      var reader = ByteReader(block)
      var sum: Int64 = 0
      while reader.remainingByteCount > 0 {
        let header = try RecordHeader(try reader.bytes(RecordHeader.byteCount))
        _ = try reader.bytes(header.metaByteCount)
        if header.typeNumber == RecordType.drop.rawValue { _ = try reader.bytes(header.payloadByteCount) }
        sum += Int64(header.recordByteCount)
      }
      return sum
    }

    /// Calls `body` with every record of the next block, in the pack's order.
    package mutating func forEachRecord(
      _ block: UnsafeRawBufferPointer, _ body: (PackRecord) throws(BlobStorageError) -> Void
    ) throws(BlobStorageError) {
      var reader = ByteReader(block)
      while reader.remainingByteCount > 0 {
        var ahead = reader
        let header = try RecordHeader(try ahead.bytes(RecordHeader.byteCount))
        let headerAndMeta = try reader.bytes(RecordHeader.byteCount + header.metaByteCount)
        let meta = try RecordHeader.verifiedMeta(headerAndMeta, pack: trailer.name, offset: offset)
        let isDrop = header.typeNumber == RecordType.drop.rawValue
        let payload = try reader.bytes(isDrop ? header.payloadByteCount : 0)
        try body(
          PackRecord(header: header, meta: meta, dropPayload: payload, offset: offset, algorithm: algorithm))
        offset += Int64(header.recordByteCount)
        count += 1
      }
    }

    /// Ends the walk.
    package func finish() throws(BlobStorageError) {
      guard count == trailer.recordCount, offset == trailer.footerOffset else {
        throw BlobStorageError(
          .corrupted, "The footer of pack \(trailer.name) does not list the whole pack.",
          pack: trailer.name.description)
      }
    }
  }
}
