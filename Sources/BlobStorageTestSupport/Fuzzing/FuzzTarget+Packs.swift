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
      type: .chunk, flags: flags, metaByteCount: meta.count, payloadByteCount: payload.count)
    header.typeNumber = type
    var bytes = header.encoded(meta: meta, pack: name, offset: offset)
    guard !payload.isEmpty else { return bytes }
    let checksum = RecordHeader.payloadChecksum(payload.span.bytes, after: bytes.span.bytes)
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

  /// A footer with right checksums around anything: how long each block claims to be, and what it holds.
  static let footer = FuzzTarget(
    "footer", seeds: { [[1, 0, 20, 0, 20, 0] + Array(1...20), [2, 9, 0, 4, 10, 0] + Array(1...10)] }
  ) { input in
    var reader = InputReader(input)
    let recordCount = reader.byte()
    var bytes = FuzzedPack.header.encoded()
    bytes += FuzzedPack.record(type: 3, flags: 0, meta: [1], payload: [], at: 64)
    let footerOffset = bytes.count
    var blocks: [UInt8] = []
    while !reader.isEmpty {
      var header = ByteWriter(capacity: 12)
      header.integer(UInt8(truncatingIfNeeded: reader.byte()))
      header.zeros(3)
      header.integer(UInt32(reader.short()) << UInt32(reader.byte() % 10))
      let content = reader.bytes(reader.short())
      header.integer(UInt32(content.count))
      blocks += header.bytes + content
    }
    let trailer = PackFooter.Trailer(
      name: FuzzedPack.name, recordCount: recordCount, footerOffset: Int64(footerOffset),
      storedByteCount: blocks.count, plainByteCount: blocks.count,
      checksum: CRC32C.checksum(blocks.span.bytes))
    FuzzedPack.scan(bytes + blocks + trailer.encoded())
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
    let ref = RefRecord(
      key: [97], version: stamp, replaced: .none, digest: digest, byteCount: Int64(plain.count), created: 1,
      metadata: [], syncedByteCount: 64)
    let drop = DropRecord(key: [97], stamp: stamp, versions: [stamp])
    let all =
      item(1, chunk.encodedMeta(), plain) + item(3, ref.encodedMeta())
      + item(4, drop.encodedMeta(), drop.encodedPayload())
    return [all, item(200, [1, 2], [3]) + [255, 3, 1, 2, 3] + all]
  }
}
