/// Ends the pack of a writer that is gone.
package enum PackRecovery {
  /// Cuts off the torn tail, writes the footer and syncs. The pack's lock is held. Returns its length.
  ///
  /// A crash at any point leaves the same whole records, and the next recovery does the same again.
  package static func seal(
    _ file: any File, _ outcome: PackScanner.Outcome, codecs: CodecPool
  ) throws(BlobStorageError) -> Int64 {
    let name = outcome.header.name
    try file.truncate(to: outcome.endOffset)
    let writer = PackWriter(
      adopting: file, header: outcome.header, byteCount: outcome.endOffset, codecs: codecs)
    let scanner = try PackScanner(file: file, name: name, codecs: codecs)
    _ = try scanner.scan { (record) throws(BlobStorageError) in
      let headerAndMeta = try file.bytes(
        at: record.offset, RecordHeader.byteCount + record.metaByteCount, pack: name)
      var payload: [UInt8] = []
      if case .drop = record.content {
        payload = try file.bytes(
          at: record.offset + Int64(headerAndMeta.count), record.payloadByteCount, pack: name)
      }
      try bridge(payload) { (raw) throws(BlobStorageError) in
        try writer.list(headerAndMeta, dropPayload: raw)
      }
    }
    return try writer.seal()
  }
}
