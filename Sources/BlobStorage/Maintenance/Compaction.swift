/// Copies records from a pack that is to go into a new one.
struct Compaction {
  /// What encoding chunks anew brought.
  struct Gain: Sendable {
    /// Chunks that are encoded with a dictionary.
    var chunkCount = 0
    /// Bytes that the dictionary saved.
    var savedByteCount: Int64 = 0
    /// Bytes that encoding harder saved.
    var recompressedByteCount: Int64 = 0
  }

  private(set) var gain = Gain()
  private let pack: PackName
  private let file: any File
  private let engine: Engine
  private let session: WriterSession?
  private let dictionary: DictionaryPlan?
  private let reencoder: Reencoder?
  private let isChecked: Bool
  /// Chunks that wait to be encoded together.
  private var waiting: [Reencoder.Chunk] = []
  private var waitingByteCount = 0
  private static let waitingByteCountMax = 8 << 20
  private var committedByteCount: Int64
  /// Refs and drops that wait for others, so that they share a record.
  private var written: [CommitRecord.Entry] = []
  private var writtenByteCount = 0

  /// - Parameters:
  ///   - session: takes the copies; its owner commits and seals. Nil only tells the gain.
  ///   - dictionary: for the chunks that may have one; it is in the store, or before them in the session.
  ///   - reencoder: encodes the other chunks harder.
  ///   - isChecked: whether chunks have been compared with their digests. Then a checksum may be what is damaged.
  init(
    of pack: PackName, engine: Engine, to session: WriterSession?, _ dictionary: DictionaryPlan? = nil,
    _ reencoder: Reencoder? = nil, isChecked: Bool = false
  ) throws(BlobStorageError) {
    guard let file = try engine.packs.file(pack) else { throw .missing(pack) }
    self.pack = pack
    self.file = file
    self.engine = engine
    self.session = session
    self.dictionary = dictionary
    self.reencoder = reencoder
    self.isChecked = isChecked
    committedByteCount = session?.addedByteCount ?? 0
  }

  /// Appends a record, its payload checked first. ``finish()`` appends the last refs and drops.
  ///
  /// - Throws: `corrupted` for a payload that does not match its checksum.
  mutating func copy(_ record: PackContent.Kept) throws(BlobStorageError) {
    switch record {
    case .copy(let record):
      guard let session else { return }
      if reencoder != nil, case .chunk(let chunk) = record.content { return try delay(chunk, record) }
      try withPayload(record) { (payload) throws(BlobStorageError) in
        _ = try session.append(record.content, payload: payload.bytes)
      }
    case .small(let record): try copySmall(record)
    case .written(let entry):
      written.append(entry)
      writtenByteCount += entry.memoryByteCount
      if writtenByteCount >= CommitRecord.byteCountTarget { try finish() }
    }
    if let session, session.addedByteCount - committedByteCount > session.commitByteCountMax {
      // Refs name the chunks of their own commit by places.
      try finish()
      _ = try session.commit(on: []) { _ in }
      committedByteCount = session.addedByteCount
    }
  }

  private mutating func delay(_ chunk: ChunkRecord, _ record: PackRecord) throws(BlobStorageError) {
    try withPayload(record) { (payload) in
      waiting.append(Reencoder.Chunk(record: chunk, stored: Array(payload)))
    }
    waitingByteCount += record.byteCount
    if waitingByteCount >= Self.waitingByteCountMax { try recompress() }
  }

  /// Appends the chunks that wait, in fewer bytes if possible.
  private mutating func recompress() throws(BlobStorageError) {
    guard let session, let reencoder, !waiting.isEmpty else { return }
    try CancellationFlag.check()
    let chunks = waiting
    (waiting, waitingByteCount) = ([], 0)
    var saved = 0
    try reencoder.encode(chunks, on: engine.work) { (old, new) throws(BlobStorageError) in
      _ = try session.append(.chunk(new.record), payload: new.stored.span.bytes)
      saved += old.record.recordByteCount(payloadByteCount: old.stored.count)
      saved -= new.record.recordByteCount(payloadByteCount: new.stored.count)
    }
    gain.recompressedByteCount += Int64(saved)
  }

  /// Appends the chunks that wait, and then the refs and drops.
  mutating func finish() throws(BlobStorageError) {
    try recompress()
    if !written.isEmpty { try session?.append(commit: written) }
    (written, writtenByteCount) = ([], 0)
  }

  private mutating func copySmall(_ record: PackRecord) throws(BlobStorageError) {
    var gain = gain
    try withPayload(record) { (payload) throws(BlobStorageError) in
      guard case .chunk(let chunk) = record.content,
        let encoded = try dictionary?.encoded(chunk, payload.bytes, engine)
      else {
        _ = try session?.append(record.content, payload: payload.bytes)
        return
      }
      gain.chunkCount += 1
      gain.savedByteCount +=
        Int64(record.byteCount - encoded.record.recordByteCount(payloadByteCount: encoded.stored.count))
      _ = try session?.append(.chunk(encoded.record), payload: encoded.stored.span.bytes)
    }
    self.gain = gain
  }

  private func withPayload(
    _ record: PackRecord, _ body: (UnsafeRawBufferPointer) throws(BlobStorageError) -> Void
  ) throws(BlobStorageError) {
    let bytes = try file.bytes(at: record.offset, record.byteCount, pack: pack)
    try bridge(bytes) { (raw) throws(BlobStorageError) in
      if isChecked, case .chunk = record.content { return try body(record.payload(of: raw)) }
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

/// The last steps of a pack whose file has been renamed out of the store.
enum Retirement {
  /// Takes its records out of the catalog and removes the file.
  ///
  /// On a full disk the records go a few at a time, in the room of the reserve. Where there is none at all, the file goes
  /// first: it is not part of the store any more.
  static func finish(_ name: PackName, engine: Engine) throws(BlobStorageError) {
    func remove() throws(BlobStorageError) {
      try engine.backend.removeRetiredPack(name)
      // What this process has open would keep its space taken.
      engine.packs.forget([name])
    }
    guard try engine.catalog.packRow(name) != nil, let file = try engine.backend.openPack(name) else {
      return try remove()
    }
    defer { file.close() }
    var retraction = PackRetraction(
      name, catalog: engine.catalog, codecs: engine.codecs, store: engine.header)
    do throws(BlobStorageError) {
      try engine.folder.withReserve { () throws(BlobStorageError) in try retraction.run(file) }
    } catch {
      guard error.code == .noSpace else { throw error }
      return try retraction.run(file) { () throws(BlobStorageError) in
        file.close()
        try remove()
      }
    }
    try remove()
  }
}

extension ReadTransaction {
  /// Where the ref record of a version that can be seen lies.
  func place(of ref: RefRecord) throws(BlobStorageError) -> Place? {
    guard let name = try nameRow(ref.key) else { return nil }
    return try versionRow(of: name, ref.version)?.place
  }
}
