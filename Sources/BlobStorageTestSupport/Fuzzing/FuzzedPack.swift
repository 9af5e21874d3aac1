import BlobStorage

/// The pack around fuzzed bytes.
enum FuzzedPack {
  static let name = PackName(writer: 0x0102_0304_0506_0708, sequence: 1)
  static let storeID = Array(UInt8(0)..<16)
  static let header = PackHeader(name: name, storeID: storeID, digestAlgorithm: .blake3, created: 1 << 40)

  /// A record with any meta and payload, and valid checksums for its place.
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

  /// Scans the pack with and without its payloads.
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
