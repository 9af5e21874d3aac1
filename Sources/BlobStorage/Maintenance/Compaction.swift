/// Copies records from a pack that is to go into a new one.
enum Compaction {
  /// What encoding small chunks with a dictionary brought.
  struct Gain: Sendable {
    var chunkCount = 0
    var savedByteCount: Int64 = 0
  }

  /// Appends `kept` to the session, each payload checked first; the caller commits and seals.
  ///
  /// - Parameters:
  ///   - session: nil only tells the gain.
  ///   - dictionary: for the chunks that may have one; it is in the store, or before them in the session.
  /// - Throws: `corrupted` for a payload that does not match its checksum.
  @discardableResult
  static func copy(
    _ kept: [PackContent.Kept], of pack: PackName, engine: Engine, to session: WriterSession?,
    _ dictionary: DictionaryPlan? = nil
  ) throws(BlobStorageError) -> Gain {
    guard let file = try engine.packs.file(pack) else {
      throw BlobStorageError(.corrupted, "Pack \(pack) is not there.", pack: pack.description)
    }
    var gain = Gain()
    var sinceCommit = session?.addedByteCount ?? 0
    for record in kept {
      switch record {
      case .copy(let record):
        guard let session else { continue }
        try withPayload(record, file, pack) { (payload) throws(BlobStorageError) in
          _ = try session.append(record.content, payload: payload)
        }
      case .small(let record): try copy(record, from: file, pack, engine, to: session, dictionary, &gain)
      case .ref(let ref):
        try session?.append(.ref(ref), payload: UnsafeRawBufferPointer(start: nil, count: 0))
      case .drop(let drop):
        try bridge(drop.encodedPayload()) { (payload) throws(BlobStorageError) in
          _ = try session?.append(.drop(drop), payload: payload)
        }
      }
      if let session, session.addedByteCount - sinceCommit > session.commitByteCountMax {
        _ = try session.commit { _ in }
        sinceCommit = session.addedByteCount
      }
    }
    return gain
  }

  private static func copy(
    _ record: PackRecord, from file: any File, _ pack: PackName, _ engine: Engine, to session: WriterSession?,
    _ dictionary: DictionaryPlan?, _ gain: inout Gain
  ) throws(BlobStorageError) {
    try withPayload(record, file, pack) { (payload) throws(BlobStorageError) in
      guard case .chunk(let chunk) = record.content,
        let encoded = try dictionary?.encoded(chunk, payload, engine)
      else {
        _ = try session?.append(record.content, payload: payload)
        return
      }
      gain.chunkCount += 1
      gain.savedByteCount +=
        Int64(record.byteCount - encoded.record.recordByteCount(payloadByteCount: encoded.stored.count))
      try bridge(encoded.stored) { (raw) throws(BlobStorageError) in
        _ = try session?.append(.chunk(encoded.record), payload: raw)
      }
    }
  }

  private static func withPayload(
    _ record: PackRecord, _ file: any File, _ pack: PackName,
    _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let bytes = try file.bytes(at: record.offset, record.byteCount, pack: pack)
    try bridge(bytes) { (raw) throws(BlobStorageError) in
      let payload: UnsafeRawBufferPointer
      do throws(BlobStorageError) {
        payload = try record.verifiedPayload(raw, in: pack)
      } catch {
        throw BlobStorageError(
          error.code, "A record of pack \(pack) at \(record.offset) does not match its checksum: run verify.",
          pack: pack.description, offset: record.offset)
      }
      try body(payload)
    }
  }
}

extension ChunkRecord {
  /// Bytes of the whole record.
  func recordByteCount(payloadByteCount: Int) -> Int {
    RecordHeader.byteCount + encodedMeta().count + payloadByteCount + (payloadByteCount > 0 ? 4 : 0)
  }
}

/// The last steps of a pack whose file has been renamed out of the store.
enum Retirement {
  /// Takes its records out of the catalog and removes the file.
  static func finish(_ name: PackName, engine: Engine) throws(BlobStorageError) {
    let isKnown = try engine.catalog.read { (transaction) throws(BlobStorageError) in
      try transaction.packNumber(name) != nil
    }
    if isKnown, let file = try engine.backend.openPack(name) {
      defer { file.close() }
      try PackRetraction.run(
        name, file, catalog: engine.catalog, codecs: engine.codecs, store: engine.header)
    }
    try engine.backend.removeRetiredPack(name)
  }
}

extension Transaction {
  /// Where the ref record of a version that can be seen lies.
  func place(of ref: RefRecord) throws(BlobStorageError) -> Place? {
    guard let name = try nameRow(ref.key) else { return nil }
    return try versionRow(key: name.key, ref.version, algorithm: ref.digest.algorithm)?.place
  }
}
