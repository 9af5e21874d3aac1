import SystemPackage

/// Ends the pack of a writer that is gone.
package enum PackRecovery {
  /// Cuts off the torn tail, writes again what may not be on the medium, writes the footer, and syncs. The caller holds
  /// the pack's lock. Returns the pack's length.
  ///
  /// A crash at any point leaves the same whole records, and the next recovery repeats all of this.
  package static func seal(
    _ file: any File, _ outcome: PackScanner.Outcome, codecs: CodecPool
  ) throws(BlobStorageError) -> Int64 {
    let name = outcome.header.name
    try file.truncate(to: outcome.endOffset)
    let writer = PackWriter(
      adopting: file, header: outcome.header, byteCount: outcome.endOffset, codecs: codecs)
    let scanner = try PackScanner(file: file, name: name, codecs: codecs)
    var syncedByteCount: Int64 = 0
    // The range of the latest record, and the number of its entries or members.
    var last: (range: Range<Int64>, count: Int)?
    func list() throws(BlobStorageError) {
      guard let last else { return }
      let header = try bridge(
        try file.bytes(
          at: last.range.lowerBound, min(last.range.count, RecordHeader.byteCountMax), pack: name)
      ) { (raw) throws(BlobStorageError) in try RecordHeader(raw) }
      let isCommit = header.typeNumber == RecordType.commit.rawValue
      let byteCount =
        header.byteCount + header.metaByteCount + (isCommit ? header.payloadByteCount : 0)
      let bytes = try file.bytes(at: last.range.lowerBound, byteCount, pack: name)
      try writer.list(header, bytes.span.bytes.extracting(header.byteCount...), count: last.count)
    }
    let found = try scanner.scan { (record) throws(BlobStorageError) in
      syncedByteCount = max(syncedByteCount, record.syncedByteCount)
      if record.beginsRecord {
        try list()
        last = (record.recordRange, 0)
      }
      last?.count += 1
    }
    try list()
    // The medium may have failed since the pack was looked at.
    guard found.gaps.isEmpty, found.endOffset == outcome.endOffset else {
      throw BlobStorageError(
        .corrupted, "Pack \(name) cannot be read any more: run verify.", pack: name.description,
        path: file.path.string)
    }
    try rewrite(file, syncedByteCount..<outcome.endOffset)
    return try writer.seal()
  }

  /// Writes bytes again as they are.
  ///
  /// A sync of them may have failed. The system may then take them for written although they never were, and another
  /// sync would succeed without writing them. Putting the bytes again makes the system write them. A crash meanwhile
  /// leaves the same bytes.
  package static func rewrite(_ file: any File, _ range: Range<Int64>) throws(BlobStorageError) {
    var offset = range.lowerBound
    while offset < range.upperBound {
      let bytes = try file.bytes(at: offset, Int(min(range.upperBound - offset, 1 << 20)), pack: nil)
      try file.put(bytes, at: offset)
      offset += Int64(bytes.count)
    }
  }
}
