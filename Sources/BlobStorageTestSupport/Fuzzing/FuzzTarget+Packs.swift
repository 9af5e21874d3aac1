import BlobStorage

/// The pack that fuzzed bytes are taken for.
enum FuzzedPack {
  static let name = PackName(writer: 0x0102_0304_0506_0708, sequence: 1)
  static let storeID = Array(UInt8(0)..<16)
  static let header = PackHeader(name: name, storeID: storeID, digestAlgorithm: .blake3, created: 1 << 40)

  /// Any meta and payload as a record that is whole at its place.
  static func record(type: UInt8, flags: UInt8, meta: [UInt8], payload: [UInt8], at offset: Int64) -> [UInt8]
  {
    var header = RecordHeader(
      type: .chunk, metaByteCount: meta.count, payloadByteCount: payload.count)
    header.typeNumber = type & 0x9f
    header.flags = flags & 0x60
    var bytes = header.encoded(meta: meta, pack: name, offset: offset)
    guard !payload.isEmpty else { return bytes }
    let checksum = RecordHeader.payloadChecksum(
      payload.span.bytes, continuing: bytes.withUnsafeBytes { header.writtenChecksum($0) })
    bytes += payload
    withUnsafeBytes(of: checksum.littleEndian) { bytes += $0 }
    return bytes
  }

  /// Reads the pack in every way.
  static func scan(_ bytes: [UInt8]) {
    let file = MemoryFile(bytes)
    let codecs = CodecPool()
    for verifiesPayloads in [false, true] {
      Fuzzing.attempt { () throws(BlobStorageError) in
        let scanner = try PackScanner(file: file, name: name, codecs: codecs)
        var last: Int64 = 0
        var count = 0
        let outcome = try scanner.scan(verifiesPayloads: verifiesPayloads) { record in
          Fuzzing.require(record.offset > last, "records out of order")
          Fuzzing.require(
            record.offset + Int64(record.byteCount) <= Int64(bytes.count), "a record past the end")
          last = record.offset
          count += 1
        }
        Fuzzing.require(count == outcome.recordCount, "\(count) records, \(outcome.recordCount) told")
        Fuzzing.require(outcome.endOffset <= Int64(bytes.count), "an end past the end")
        for (gap, next) in zip(outcome.gaps, outcome.gaps.dropFirst()) {
          Fuzzing.require(gap.upperBound < next.lowerBound, "gaps out of order")
        }
      }
    }
  }
}

extension FuzzTarget {
  /// A whole pack, as it is.
  static let pack = FuzzTarget("pack", seeds: { packsOfRecords(seedsOfPackRecords()) }) {
    FuzzedPack.scan($0)
  }

  /// Records with right checksums around anything: type, flags, length of the meta, length of the payload, both.
  static let packRecords = FuzzTarget("packRecords", seeds: seedsOfPackRecords) { input in
    for pack in packsOfRecords([input]) { FuzzedPack.scan(pack) }
  }

  /// A footer with right checksums around anything: codec, claimed length and first offset of each block, its fields and
  /// its digests.
  static let footer = FuzzTarget("footer", seeds: seedsOfFooters) { input in
    var reader = InputReader(input)
    let recordCount = reader.byte()
    var bytes = FuzzedPack.header.encoded()
    bytes += FuzzedPack.record(type: 3, flags: 0, meta: [1], payload: [], at: 64)
    let footerOffset = bytes.count
    var blocks: [UInt8] = []
    while !reader.isEmpty {
      let codec = UInt8(truncatingIfNeeded: reader.byte())
      let plainByteCount = reader.short() << (reader.byte() % 10)
      let recordOffset = Int64(reader.byte())
      let fields = reader.bytes(reader.short())
      let digests = reader.bytes(reader.short())
      let header = PackFooter.BlockHeader(
        codecNumber: codec, plainByteCount: plainByteCount, storedByteCount: fields.count,
        digestsByteCount: digests.count, recordOffset: recordOffset)
      let content = fields + digests
      blocks += header.encoded(
        content: content.span.bytes, pack: FuzzedPack.name, offset: Int64(footerOffset + blocks.count))
      blocks += content
    }
    let trailer = PackFooter.Trailer(
      name: FuzzedPack.name, recordCount: recordCount, footerOffset: Int64(footerOffset),
      storedByteCount: blocks.count)
    FuzzedPack.scan(bytes + blocks + trailer.encoded())
  }

  /// A block that lists the one record there is, and blocks of anything.
  private static func seedsOfFooters() -> [[UInt8]] {
    [
      [1, 0, 4, 0, 0, 64, 4, 0, 3, 1, 0, 1, 0, 0], [1, 0, 20, 0, 0, 64, 20, 0] + Array(1...20) + [0, 0],
      [2, 9, 0, 4, 0, 64, 10, 0] + Array(1...10) + [2, 0, 7, 7],
    ]
  }

  private static func packsOfRecords(_ inputs: [[UInt8]]) -> [[UInt8]] {
    inputs.map { input in
      var reader = InputReader(input)
      var bytes = FuzzedPack.header.encoded()
      while !reader.isEmpty {
        let (type, flags) = (UInt8(reader.byte()), UInt8(reader.byte()))
        // Type 255 is bytes between the records.
        if type == 255 {
          bytes += reader.bytes(Int(flags))
          continue
        }
        let (metaByteCount, payloadByteCount) = (reader.short() % 8_200, reader.short())
        let meta = reader.bytes(metaByteCount)
        bytes += FuzzedPack.record(
          type: type, flags: flags, meta: meta, payload: reader.bytes(payloadByteCount),
          at: Int64(bytes.count))
      }
      return bytes
    }
  }

  private static func seedsOfPackRecords() -> [[UInt8]] {
    func item(_ type: UInt8, _ meta: [UInt8], _ payload: [UInt8] = []) -> [UInt8] {
      [
        type, 0, UInt8(meta.count & 0xff), UInt8(meta.count >> 8), UInt8(payload.count & 0xff),
        UInt8(payload.count >> 8),
      ] + meta + payload
    }
    let plain = Array("plain bytes".utf8)
    let digest = Digest.of(plain)
    let stamp = Stamp(time: 1 << 40, writer: 7)
    let chunk = ChunkRecord(digest: digest, plainByteCount: plain.count, codecNumber: 0)
    let all = item(1, chunk.encodedMeta(), plain) + item(3, commitContent(digest, stamp))
    let frame = FrameRecord(
      codecNumber: 1,
      members: [.init(digest: digest, plainByteCount: 9), .init(digest: digest, plainByteCount: 30)])
    return [
      all, item(200, [1, 2], [3]) + [255, 3, 1, 2, 3] + all,
      item(4, frame.encodedMeta(), plain) + item(3, commitContent(digest, stamp)),
    ]
  }

  /// A commit record's content: a ref by its digest, a ref to the chunk before, and a drop.
  static func commitContent(_ digest: Digest, _ stamp: Stamp) -> [UInt8] {
    var writer = ByteWriter()
    writer.raw([0, 0x24, 1, 97])
    writer.varint(stamp.time >> 16)
    writer.varint(0)
    writer.integer(stamp.writer)
    digest.withUnsafeBytes { writer.raw($0) }
    writer.raw([11, 2, 1, 2])
    writer.raw([0x01, 1, 1, 98, 2])
    writer.raw([0x80, 0, 1, 97, 2, 2, 1, 0, 3, 2])
    return writer.bytes
  }
}
