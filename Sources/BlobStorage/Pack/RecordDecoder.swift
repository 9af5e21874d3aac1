/// Decodes the records of a pack, one after the other in the pack's order.
///
/// It keeps the chunks and manifests of the current commit, because refs name them by place. Unreadable ones are
/// missing there.
package struct RecordDecoder {
  private let pack: PackName
  private let algorithm: BlobDigest.Algorithm
  private let codecs: CodecPool
  private var targets = CommitTargets()

  package init(pack: PackName, algorithm: BlobDigest.Algorithm, codecs: CodecPool) {
    self.pack = pack
    self.algorithm = algorithm
    self.codecs = codecs
  }

  /// Decodes a record whose checksums have been checked.
  ///
  /// - Parameter payload: the payload of a commit record; ignored for others.
  package mutating func records(
    _ header: RecordHeader, meta: UnsafeRawBufferPointer, payload: UnsafeRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> OneOrMore<PackRecord> {
    let type = RecordType(rawValue: header.typeNumber)
    if type == nil, header.canBeSkipped {
      return OneOrMore(PackRecord(.skipped, offset: offset, header: header))
    }
    guard let type else {
      throw BlobStorageError(
        .unsupportedFormat, "A record has type \(header.typeNumber), unknown to this build: use a later one.")
    }
    guard header.flags & ~(type == .commit ? RecordHeader.continues : 0) == 0 else {
      throw BlobStorageError(
        .unsupportedFormat, "A record has flags \(header.flags), unknown to this build: use a later one.")
    }
    let content: PackRecord.Content
    switch type {
    case .commit: return try commit(header, meta, payload, at: offset)
    case .frame:
      let frame = try FrameRecord(meta: meta, payloadByteCount: header.payloadByteCount, algorithm: algorithm)
      let members = frame.records(at: offset, payloadByteCount: header.payloadByteCount)
      for case let target? in members.lazy.map(\.target) { targets.append(target) }
      return members
    case .chunk:
      content = .chunk(
        try ChunkRecord(meta: meta, payloadByteCount: header.payloadByteCount, algorithm: algorithm))
    case .manifest:
      let manifest = try ManifestRecord(meta: meta, algorithm: algorithm)
      guard header.payloadByteCount == manifest.payloadByteCount else {
        throw BlobStorageError(
          .corrupted, "A manifest's number of entries is wrong.", digest: manifest.digest)
      }
      content = .manifest(manifest)
    }
    let record = PackRecord(content, offset: offset, header: header)
    if let target = record.target { targets.append(target) }
    return OneOrMore(record)
  }

  private mutating func commit(
    _ header: RecordHeader, _ meta: UnsafeRawBufferPointer, _ payload: UnsafeRawBufferPointer,
    at offset: Int64
  ) throws(BlobStorageError) -> OneOrMore<PackRecord> {
    guard meta.isEmpty != payload.isEmpty else {
      throw BlobStorageError(
        .corrupted, "The entries of a commit stand either in the meta or in the payload.")
    }
    var reader = ByteReader(payload.isEmpty ? meta : payload)
    let (isCompressed, synced) = try Self.begin(&reader, at: offset)
    let entries: [CommitRecord.Entry]
    if !isCompressed {
      guard reader.remainingByteCount <= BlobLimits.commitRecordByteCountMax else {
        throw BlobStorageError(.corrupted, "A commit record has too many bytes of entries.")
      }
      entries = try self.entries(try reader.bytes(reader.remainingByteCount), header, at: offset)
    } else {
      let byteCount = try reader.varint(atMost: BlobLimits.commitRecordByteCountMax)
      // The footer repeats them as they are.
      guard reader.remainingByteCount <= BlobLimits.commitRecordStoredByteCountMax else {
        throw BlobStorageError(.corrupted, "A commit record has too many bytes of compressed entries.")
      }
      let stored = try reader.bytes(reader.remainingByteCount)
      let plain = try [UInt8](filling: byteCount) { (target) throws(BlobStorageError) in
        try codecs.withDecoder { (decoder) throws(BlobStorageError) in
          try decoder.decode(stored.bytes, by: .zstd, into: target)
        }
        return byteCount
      }
      entries = try bridge(plain) { (raw) throws(BlobStorageError) in
        try self.entries(raw, header, at: offset)
      }
    }
    let range = offset..<offset + Int64(header.recordByteCount)
    let continues = header.flags & RecordHeader.continues != 0
    if !continues { targets.removeAll() }
    func record(_ index: Int) -> PackRecord {
      var record = PackRecord(.init(entries[index]), in: range, (index, entries.count))
      record.continues = continues || index < entries.count - 1
      record.syncedByteCount = synced
      return record
    }
    return OneOrMore(record(0), entries.count == 1 ? [] : (1..<entries.count).map(record))
  }

  /// Reads what precedes the entries of a commit record.
  private static func begin(
    _ reader: inout ByteReader, at offset: Int64
  ) throws(BlobStorageError) -> (isCompressed: Bool, syncedByteCount: Int64) {
    typealias Flags = CommitRecord.Flags
    let flags: UInt8 = try reader.integer()
    guard flags & ~Flags.known == 0 else {
      throw BlobStorageError(
        .unsupportedFormat, "A commit has flags \(flags), unknown to this build: use a later one.")
    }
    let synced = flags & Flags.saysSynced == 0 ? 0 : try reader.varint(atMost: Int(offset))
    return (flags & Flags.isCompressed != 0, Int64(synced))
  }

  /// How much of the pack was known to be on the medium when the commit record at `offset` was appended.
  static func syncedByteCount(
    _ bytes: UnsafeRawBufferPointer, at offset: Int64
  ) throws(BlobStorageError) -> Int64 {
    var reader = ByteReader(bytes)
    return try begin(&reader, at: offset).syncedByteCount
  }

  private func entries(
    _ bytes: UnsafeRawBufferPointer, _ header: RecordHeader, at offset: Int64
  ) throws(BlobStorageError) -> [CommitRecord.Entry] {
    var decoder = CommitDecoder(bytes, pack: pack, offset: offset, algorithm: algorithm)
    // Each entry has a place of its own within the bytes of the record.
    return try decoder.entries(countMax: header.recordByteCount) { place, isEnd in
      isEnd ? targets.ending(at: place) : targets.beginning(at: place)
    }
  }
}
