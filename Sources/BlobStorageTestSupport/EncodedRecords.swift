import BlobStorage

extension RecordMeta {
  /// The meta's bytes.
  package func encodedMeta() -> [UInt8] {
    [UInt8](byteCount: metaByteCount) { encodeMeta(into: &$0) }
  }
}

extension RecordHeader {
  /// Header and meta as they stand at `offset` of the pack `name`.
  package func encoded(meta: [UInt8], pack name: PackName, offset: Int64) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: byteCount + metaByteCount)
    bytes.withUnsafeMutableBytes { _ = encode(pack: name, offset: offset, into: $0) { $0.raw(meta) } }
    return bytes
  }
}
