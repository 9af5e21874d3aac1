/// Copies records of a pack that is to leave the store into a new one.
struct Compaction: ~Copyable {
  /// Bytes that recompression saved.
  private(set) var savedByteCount: Int64 = 0
  private let pack: PackName
  private let file: any File
  private let engine: Engine
  private let session: WriterSession
  private let reencoder: Reencoder?
  private let isChecked: Bool
  /// Whether to join small chunks that have records of their own.
  private let joins: Bool
  /// Collects chunks to be encoded together.
  private var groups: Reencoder.Reader
  /// Chunks of the pack that are ordered together.
  private var window: [PackRecord] = []
  private var waiting: [Reencoder.Group] = []
  private var waitingByteCount = 0
  private static let waitingByteCountMax = 16 << 20
  private var committedByteCount: Int64
  /// Refs and drops that wait for others, to share a record.
  private var written: [CommitRecord.Entry] = []
  private var writtenByteCount = 0
  /// Live members of the latest frame.
  private var members: [PackRecord] = []
  private var reader: RecordReader
  private var builder: FrameBuilder
  /// Joins the live members of long frames that are partly dead.
  private var longBuilder: FrameBuilder

  /// - Parameters:
  ///   - session: takes the copies; its owner commits and seals.
  ///   - reencoder: recompresses chunks; nil to copy them as they are.
  ///   - isChecked: whether chunks have been compared with their digests. Then only a checksum may be damaged.
  init(
    of pack: PackName, engine: Engine, to session: WriterSession,
    _ reencoder: Reencoder? = nil, isChecked: Bool = false
  ) throws(BlobStorageError) {
    let joins = isChecked ? false : try engine.joinsWhatItCopies()
    guard let file = try engine.packs.file(pack) else { throw .missing(pack) }
    self.pack = pack
    self.file = file
    self.engine = engine
    self.session = session
    self.reencoder = reencoder
    self.isChecked = isChecked
    self.joins = joins
    groups = Reencoder.Reader(file, pack, engine.chunks, joins: joins)
    reader = RecordReader(file, pack, engine.chunks)
    builder = FrameBuilder(engine.codec, engine.codecs)
    longBuilder = FrameBuilder(
      engine.codec, engine.codecs, plainByteCountMax: FrameBuilder.longPlainByteCountMax)
    committedByteCount = session.addedByteCount
  }

  /// Checks a record's payload and appends the record. ``finish()`` appends the last members of frames, refs and drops.
  ///
  /// - Throws: `corrupted` for a payload that does not match its checksum.
  mutating func copy(_ record: PackContent.Kept) throws(BlobStorageError) {
    switch record {
    case .copy(let record):
      if reencoder != nil, record.chunk != nil {
        window.append(record)
        if window.count >= Reencoder.windowCount { try finish() }
      } else {
        try copyAsItIs(record)
      }
    case .written(let entry):
      written.append(entry)
      writtenByteCount += entry.memoryByteCount
      // Refs name chunks of their own commit by place, so those of a window wait for the window.
      if writtenByteCount >= (reencoder == nil ? 1 : 16) * CommitRecord.byteCountTarget { try finish() }
    }
    if session.addedByteCount - committedByteCount > session.commitByteCountMax {
      // Refs name chunks of their own commit by place, so the waiting refs go into the same commit.
      try finish()
      try commit()
    }
  }

  private mutating func commit() throws(BlobStorageError) {
    _ = try session.commit(on: []) { _ in }
    committedByteCount = session.addedByteCount
  }

  private mutating func copyAsItIs(_ record: PackRecord) throws(BlobStorageError) {
    if record.member != nil {
      if members.first?.recordRange != record.recordRange { try endFrame() }
      members.append(record)
      return
    }
    try endFrame()
    let isSmall = joins && reencoder == nil && Self.isSmall(record)
    var alone: [UInt8]?
    do throws(BlobStorageError) {
      try reader.withPayload(of: record, isChecked: !isChecked || record.chunk == nil) {
        (payload) throws(BlobStorageError) in
        if isSmall {
          alone = Array(payload)
        } else {
          _ = try session.append(record.content, payload: payload.bytes)
        }
      }
    } catch { throw mismatch(error, at: record.offset) }
    if let alone { try join(record, alone) }
  }

  /// Recompresses the chunks of the window and appends them.
  private mutating func reencodeWindow() throws(BlobStorageError) {
    let clusters = Reencoder.clusters(of: window, joins: joins)
    window = []
    for cluster in clusters {
      if let full = try groups.add(cluster) {
        waiting.append(full)
        waitingByteCount += full.plainByteCount
      }
      if waitingByteCount >= Self.waitingByteCountMax { try reencode() }
    }
    if let last = groups.end() { waiting.append(last) }
    try reencode()
  }

  /// Recompresses the waiting groups and appends them.
  private mutating func reencode() throws(BlobStorageError) {
    guard let reencoder, !waiting.isEmpty else { return }
    try CancellationFlag.check()
    var done: [(group: Reencoder.Group, parts: [JoinedChunks.Part]?)] = []
    try reencoder.encode(waiting, on: engine.work) { done.append(($0, $1)) }
    (waiting, waitingByteCount) = ([], 0)
    for (group, parts) in done {
      guard let parts else {
        // In the order of the pack, so that frames stay whole: a chunk may follow its base into the middle of one.
        for record in group.records.sorted(by: { $0.offset < $1.offset }) { try copyAsItIs(record) }
        continue
      }
      savedByteCount += Int64(group.byteCount)
      for part in parts { savedByteCount -= Int64(try session.append(part)) }
    }
    // Seldom, because refs of a later commit must name these chunks by digest.
    if session.addedByteCount - committedByteCount > 4 * session.commitByteCountMax { try commit() }
  }

  /// Appends all chunks, refs and drops that wait.
  mutating func finish() throws(BlobStorageError) {
    try reencodeWindow()
    try endFrame()
    for rest in [try builder.end(), try longBuilder.end()] { if let rest { try append(rest) } }
    if !written.isEmpty { try session.append(commit: written) }
    (written, writtenByteCount) = ([], 0)
  }

  /// Appends the live members of a frame: the frame as it is if all members are live, otherwise joined with members of
  /// others.
  private mutating func endFrame() throws(BlobStorageError) {
    let members = members
    guard let first = members.first else { return }
    self.members = []
    if !isChecked, try copyFrame(first, liveCount: members.count) { return }
    let isLong = first.member.map { $0.frameByteCount > FrameBuilder.plainByteCountMax } ?? false
    for record in members {
      guard case .chunk(let chunk) = record.content else { continue }
      let plain: [UInt8]
      do throws(BlobStorageError) { plain = try reader.plain(of: record) } catch {
        throw reader.unreadable(record, error)
      }
      let full =
        if isLong {
          try longBuilder.add(chunk.digest, plain.span.bytes, features: chunk.features)
        } else {
          try builder.add(chunk.digest, plain.span.bytes, features: chunk.features)
        }
      if let full { try append(full) }
    }
  }

  /// Copies the frame of a member as it is. Returns false if not all of its members are live.
  private func copyFrame(_ first: PackRecord, liveCount: Int) throws(BlobStorageError) -> Bool {
    let (pack, session) = (pack, session)
    let range = first.recordRange
    let bytes = try file.bytes(at: range.lowerBound, range.count, pack: pack)
    return try bridge(bytes) { (raw) throws(BlobStorageError) in
      do throws(BlobStorageError) {
        let (header, meta, payload) = try RecordHeader.verified(raw, pack: pack, offset: range.lowerBound)
        let frame = try FrameRecord(
          meta: meta, payloadByteCount: header.payloadByteCount, algorithm: engine.header.digestAlgorithm)
        guard
          frame.members.count == liveCount || engine.weaknesses.contains(.copiesDeadMembers)
        else { return false }
        _ = try session.append(frame, payload: payload.bytes)
        return true
      } catch { throw mismatch(error, at: range.lowerBound) }
    }
  }

  private func append(_ group: JoinedChunks) throws(BlobStorageError) {
    for part in try group.parts(
      by: engine.codec, engine.codecs, except: { session.hasPendingChunk($0) })
    {
      _ = try session.append(part)
    }
  }

  /// The longest chunk with a record of its own that is joined. A longer one is copied as it is.
  private static let joinedByteCountMax = 64 << 10

  private static func isSmall(_ record: PackRecord) -> Bool {
    record.chunk.map { $0.plainByteCount <= joinedByteCountMax && FrameBuilder.canJoin($0) } ?? false
  }

  /// Adds a small chunk to those to be joined.
  private mutating func join(_ record: PackRecord, _ stored: [UInt8]) throws(BlobStorageError) {
    guard case .chunk(let chunk) = record.content,
      let plain = try unlessCorrupted(try engine.chunks.decoded(stored.span.bytes, chunk, base: nil))
    else {
      // Copied as it is, for verify to find.
      _ = try session.append(record.content, payload: stored.span.bytes)
      return
    }
    let full = try builder.add(
      chunk.digest, plain.span.bytes, features: chunk.features,
      alone: EncodedChunk(record: chunk, stored: stored))
    if let full { try append(full) }
  }

  private func mismatch(_ error: BlobStorageError, at offset: Int64) -> BlobStorageError {
    guard error.code == .corrupted else { return error }
    return BlobStorageError(
      error.code, "A record of pack \(pack) at \(offset) does not match its checksum: run verify.",
      pack: pack.description, offset: offset)
  }
}
