import BlobStorage

extension RecordMeta {
  /// The encoded meta.
  package func encodedMeta() -> [UInt8] {
    [UInt8](byteCount: metaByteCount) { encodeMeta(into: &$0) }
  }
}

extension RecordHeader {
  /// The encoded header and meta for the place `offset` in the pack `name`.
  package func encoded(meta: [UInt8], pack name: PackName, offset: Int64) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: byteCount + metaByteCount)
    bytes.withUnsafeMutableBytes { _ = encode(pack: name, offset: offset, into: $0) { $0.raw(meta) } }
    return bytes
  }
}
